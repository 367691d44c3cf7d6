/* SPDX-License-Identifier: MIT
 *
 * attention.h: what the emitters of ATTENTION and KV_SELECT share: queries made ready for a cache.
 */
#ifndef TANDEM_GPU_OPS_ATTENTION_H
#define TANDEM_GPU_OPS_ATTENTION_H

#include "plugins/gpu/ops/cache.h"
#include "plugins/gpu/ops/rope.h"

/* Appends the step that makes queries of q [head_dim, n_head, n_tok], whose rows `rope` (nullable)
 * turns on the way: scaled and at the temperature of `params`, padded and rotated as the rows of K.
 * *query_out: scratch, [stored, n_head, n_tok] f32. */
tdm_status gpu_attention_query(gpu_emit *e, const gpu_cache *cache,
                               const tdm_attention_params *params, const gpu_value *q,
                               const gpu_rope *rope, gpu_operand *query_out, tdm_error *err);

#endif
