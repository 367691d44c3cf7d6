/* SPDX-License-Identifier: MIT
 *
 * context_next.c: the next token of each token of a step, which convolutions read that see later
 * tokens (block/short_conv.c).
 */
#include <stdlib.h>

#include "llm/context_internal.h"

static tdm_status room_make(llm_context *ctx, int32_t n, tdm_error *err) {
    if (n <= ctx->next_room) return TDM_OK;
    int32_t *row = realloc(ctx->next_row, (size_t)n * sizeof *row);
    if (row != NULL) ctx->next_row = row;
    float *has = realloc(ctx->has_next, (size_t)n * sizeof *has);
    if (has != NULL) ctx->has_next = has;
    if (row == NULL || has == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a step of %d tokens", n);
    ctx->next_room = n;
    return TDM_OK;
}

tdm_status llm_next_rows_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io,
                              tdm_error *err) {
    const int32_t *seq = ctx->step + plan->header.seq_off, n_tok = plan->shape.n_tok;
    tdm_status status = room_make(ctx, n_tok, err);
    for (int32_t i = 0; i < n_tok && status == TDM_OK; i++) {
        const bool has_next = i + 1 < n && seq[i + 1] == seq[i];
        ctx->next_row[i] = has_next ? i + 1 : i;
        ctx->has_next[i] = has_next;
    }
    io[0] = (tdm_io){plan->next_row, ctx->next_row, (uint64_t)n_tok * sizeof *ctx->next_row};
    io[1] = (tdm_io){plan->has_next, ctx->has_next, (uint64_t)n_tok * sizeof *ctx->has_next};
    return status;
}
