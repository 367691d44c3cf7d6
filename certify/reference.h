/* SPDX-License-Identifier: MIT
 *
 * reference.h: what the ops of op.h give, in double precision and the plainest loops. It is
 * written from the header alone and shares no code with any plugin; only bytes of quantised types
 * are read by the core's converters. Cache ops are certify_cache_model.h's.
 */
#ifndef TANDEM_RUNNER_CERTIFY_REFERENCE_H
#define TANDEM_RUNNER_CERTIFY_REFERENCE_H

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

/* Computes every value of a verified graph without cache ops: want[n_value] gets malloc'd numbers,
 * for WEIGHT and INPUT those in bytes[]. What want[] held is freed. False without memory. */
bool certify_reference_run(const tdm_graph *graph, uint8_t *const *bytes, double **want);

/* Selection and experts (reference_select.c). */
void certify_reference_top_k(const certify_operands *o);
void certify_reference_route(const certify_operands *o);
void certify_reference_experts(const certify_operands *o);

double certify_act(int32_t act, double x);
/* cos and sin, mscale included, of pair i at position pos; `factor` (nullable) divides. `pos` may be
 * a difference of positions; without mscale for KV_SHIFT. */
void certify_rope_angle(const tdm_rope_params *params, double pos, int32_t i, double factor,
                        bool has_mscale, double *cos_out, double *sin_out);

#endif
