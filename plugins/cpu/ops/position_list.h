/* SPDX-License-Identifier: MIT
 *
 * position_list.h: the list of positions that a sparse ATTENTION has for a token (op.h): rising,
 * then -1. Lists with other contents give other results, and no access outside the list.
 */
#ifndef TANDEM_CPU_POSITION_LIST_H
#define TANDEM_CPU_POSITION_LIST_H

#include "plugins/cpu/cpu.h"

typedef struct cpu_position_list {
    const uint8_t *at; /* NULL = there is no list */
    int64_t stride;    /* bytes */
    int32_t n;         /* positions in front of the first -1 */
} cpu_position_list;

static inline int64_t cpu_position_at(const cpu_position_list *list, int32_t i) {
    return *(const int32_t *)(const void *)(list->at + i * list->stride);
}

/* Number of the first position in the list that is >= pos or negative; n where there is none. */
static inline int32_t cpu_position_list_find(const cpu_position_list *list, int64_t pos) {
    int32_t lo = 0, hi = list->n;
    while (lo < hi) {
        int32_t middle = lo + (hi - lo) / 2;
        int64_t x = cpu_position_at(list, middle);
        if (x >= 0 && x < pos)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

static inline bool cpu_position_list_has(const cpu_position_list *list, int64_t pos) {
    int32_t i = cpu_position_list_find(list, pos);
    return i < list->n && cpu_position_at(list, i) == pos;
}

/* The list of a token and a KV head of the state from `view`, i32 [n_top, n_tok, n_list] or
 * absent. */
static inline cpu_position_list cpu_position_list_get(const cpu_view *view, int32_t token,
                                                      int32_t head_kv) {
    if (view->data == NULL) return (cpu_position_list){NULL, 0, 0};
    cpu_position_list list = {view->data + token * view->nb[1], view->nb[0], (int32_t)view->ne[0]};
    if (view->ne[2] > 1) list.at += head_kv * view->nb[2];
    list.n = cpu_position_list_find(&list, INT64_MAX);
    return list;
}

#endif
