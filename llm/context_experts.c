/* SPDX-License-Identifier: MIT
 *
 * context_experts.c: the experts of a model's first layers in which the token's id alone determines
 * them (llm_hparams.n_layer_given). The tables are tensors of the file.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/context_internal.h"

tdm_status llm_expert_ids_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io,
                               tdm_error *err) {
    const llm_hparams *h = &ctx->model->hparams;
    const int32_t *token = ctx->step + plan->header.token_off;
    const int64_t n_used = h->n_expert_used, n_each = n_used * h->n_layer_given,
                  count = n_each * plan->shape.n_tok;
    if (count > ctx->expert_room) {
        int32_t *grown = realloc(ctx->expert_ids, (size_t)count * sizeof *grown);
        if (grown == NULL)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a step of %d tokens",
                            plan->shape.n_tok);
        ctx->expert_ids = grown;
        ctx->expert_room = count;
    }
    for (int32_t layer = 0; layer < h->n_layer_given; layer++) {
        const int32_t *table = ctx->model->specs[layer].expert_table;
        for (int32_t i = 0; i < n; i++)
            memcpy(ctx->expert_ids + i * n_each + layer * n_used, table + token[i] * n_used,
                   (size_t)n_used * sizeof *table);
    }
    for (int64_t i = n * n_each; i < count; i++) ctx->expert_ids[i] = -1;
    *io = (tdm_io){plan->expert_ids, ctx->expert_ids, (uint64_t)count * sizeof *ctx->expert_ids};
    return TDM_OK;
}
