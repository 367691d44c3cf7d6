/* SPDX-License-Identifier: MIT
 *
 * attention.h: the step that prepares queries for a cache, which ATTENTION and KV_SELECT share.
 */
#ifndef TANDEM_GPU_OPS_ATTENTION_H
#define TANDEM_GPU_OPS_ATTENTION_H

#include "plugins/gpu/ops/cache.h"
#include "plugins/gpu/ops/rope.h"

/* Appends the step that prepares the rows of q [head_dim, n_head, n_tok]: turns them by `rope`
 * (nullable), multiplies them by scale and temperature of `params`, and pads and rotates them as
 * the rows of K in the cache. *query_out: scratch, [page.k.stored, n_head, n_tok] f32. */
tdm_status gpu_attention_query(gpu_emit *e, const gpu_cache *cache,
                               const tdm_attention_params *params, const gpu_value *q,
                               const gpu_rope *rope, gpu_operand *query_out, tdm_error *err);

#endif
