/* SPDX-License-Identifier: MIT
 *
 * reference.h: the ops of op.h in double precision, with simple loops. The reference follows the
 * header alone and shares no code with any plugin; only quantised bytes are read with the core's
 * converters. Each op's function is in the case_*.c of its family; cache ops are in cache.h.
 */
#ifndef TANDEM_CERTIFY_REFERENCE_H
#define TANDEM_CERTIFY_REFERENCE_H

#include "tandem/graph.h"

/* A value in canonical order; x[((i3 * ne[2] + i2) * ne[1] + i1) * ne[0] + i0]. */
typedef struct certify_array {
    double *x;
    int64_t ne[TDM_MAX_DIMS];
} certify_array;

/* One node: sources and destinations by position, x NULL where absent. */
typedef struct certify_operands {
    const tdm_node *node;
    certify_array src[TDM_MAX_SRC];
    certify_array dst[TDM_MAX_DST];
} certify_operands;

static inline int64_t certify_array_count(const certify_array *a) {
    return a->ne[0] * a->ne[1] * a->ne[2] * a->ne[3];
}
static inline double *certify_array_at(const certify_array *a, int64_t i0, int64_t i1, int64_t i2,
                                       int64_t i3) {
    return &a->x[((i3 * a->ne[2] + i2) * a->ne[1] + i1) * a->ne[0] + i0];
}
static inline double certify_array_get(const certify_array *a, const int64_t i[4]) {
    return *certify_array_at(a, i[0], i[1], i[2], i[3]);
}
static inline void certify_array_set(const certify_array *a, const int64_t i[4], double x) {
    *certify_array_at(a, i[0], i[1], i[2], i[3]) = x;
}
/* Runs the statement behind it for every index of an array; i[] is the loop's. */
#define CERTIFY_EACH(i, a)                                                                         \
    for (int64_t i[4] = {0}; i[3] < (a)->ne[3]; i[3]++)                                            \
        for (i[2] = 0; i[2] < (a)->ne[2]; i[2]++)                                                  \
            for (i[1] = 0; i[1] < (a)->ne[1]; i[1]++)                                              \
                for (i[0] = 0; i[0] < (a)->ne[0]; i[0]++)

/* Computes every value of a verified graph without cache ops: want[n_value] gets malloc'd numbers,
 * for WEIGHT and INPUT those in bytes[]. What want[] held is freed. False without memory. */
bool certify_reference_run(const tdm_graph *graph, uint8_t *const *bytes, double **want);

double certify_act(int32_t act, double x); /* case_arith.c */
/* cos and sin by which ROPE turns pair i at position pos, times mscale where has_mscale: KV_SHIFT
 * has none. `pos` may be a difference of positions. `factor` divides the frequency; 1 = none. In
 * case_row.c. */
void certify_rope_angle(const tdm_rope_params *params, double pos, int32_t i, double factor,
                        bool has_mscale, double *cos_out, double *sin_out);

#endif
