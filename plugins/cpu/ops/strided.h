/* SPDX-License-Identifier: MIT
 *
 * strided.h: rows of views wherever they lie, and how workers divide rows and columns.
 */
#ifndef TANDEM_CPU_STRIDED_H
#define TANDEM_CPU_STRIDED_H

#include <string.h>

#include "plugins/cpu/cpu.h"

/* First element of row `row` of a value of shape `ne`, read from `v`, whose axes are as long or 1
 * (repeated). */
static inline uint8_t *cpu_view_row_as(const cpu_view *v, const int64_t ne[TDM_MAX_DIMS],
                                       int64_t row) {
    uint8_t *data = v->data;
    for (int i = 1; i < TDM_MAX_DIMS; i++) {
        if (v->ne[i] != 1) data += row % ne[i] * v->nb[i];
        row /= ne[i];
    }
    return data;
}

/* First element of a view's row. */
static inline uint8_t *cpu_view_row(const cpu_view *v, int64_t row) {
    return cpu_view_row_as(v, v->ne, row);
}

/* The elements (blocks) of a row lie one after the other. */
static inline bool cpu_view_has_dense_rows(const cpu_view *v) {
    return v->nb[0] == tdm_type_get_info(v->type).block_size;
}

/* All elements lie one after the other, so that the rows form one long row. */
static inline bool cpu_view_is_dense(const cpu_view *v) {
    int64_t size = (int64_t)tdm_type_row_size(v->type, v->ne[0]);
    if (!cpu_view_has_dense_rows(v)) return false;
    for (int i = 1; i < TDM_MAX_DIMS; i++) {
        if (v->ne[i] > 1 && v->nb[i] != size) return false;
        size *= v->ne[i];
    }
    return true;
}

static inline float cpu_f32_at(const uint8_t *row, int64_t i, int64_t nb) {
    float x;
    memcpy(&x, row + i * nb, sizeof x);
    return x;
}

static inline int32_t cpu_i32_at(const uint8_t *row, int64_t i, int64_t nb) {
    int32_t x;
    memcpy(&x, row + i * nb, sizeof x);
    return x;
}

/* A worker's rows and columns: whole rows where there are enough of them, else columns of all. */
typedef struct cpu_tile {
    int64_t row_first, row_last;
    int64_t col_first, col_last;
} cpu_tile;

/* The units in which cpu_tile_share assigns a contiguous value of n_row rows and n_col columns to
 * workers, for cpu_op_impl.share_unit; 0 where a worker has columns of several rows, which are not
 * one piece. */
static inline int64_t cpu_tile_unit(const cpu_node *n, int64_t n_row, int64_t n_col) {
    if (n_row >= n->device->n_thread) return n_col;
    if (n_row > 1) return 0;
    return n->unit != 0 ? n->unit : CPU_SHARE_UNIT;
}

static inline cpu_tile cpu_tile_share(const cpu_node *n, const cpu_worker *w, int64_t n_row,
                                      int64_t n_col) {
    cpu_tile t = {0, n_row, 0, n_col};
    if (n_row >= w->nth)
        cpu_worker_share(w, n_row, 1, &t.row_first, &t.row_last);
    else
        cpu_worker_share(w, n_col, n->unit != 0 ? n->unit : CPU_SHARE_UNIT, &t.col_first,
                         &t.col_last);
    return t;
}

#endif
