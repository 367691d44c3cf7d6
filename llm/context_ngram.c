/* SPDX-License-Identifier: MIT
 *
 * context_ngram.c: which rows of a table the tokens of a step have for themselves and the tokens
 * before them (llm_ngram, hparams.h). The model has its recurrent states, so the context has the
 * tokens of its sequences (context_internal.h).
 */
#include <stdlib.h>
#include <string.h>

#include "llm/context_internal.h"

/* The rows of a token at position `pos` of a sequence with these tokens. */
static void rows_find(const llm_ngram *g, const int32_t *tokens, int32_t pos, int32_t *rows_out) {
    uint64_t mixed = (uint64_t)tokens[pos] * g->factor[0];
    bool is_cut = false; /* a token before is an end of text, or there is none */
    for (int32_t n = 1; n < g->n_gram; n++) {
        is_cut = is_cut || n > pos || tokens[pos - n] == g->eos;
        mixed ^= (uint64_t)(is_cut ? g->eos : tokens[pos - n]) * g->factor[n];
        for (int32_t i = (n - 1) * g->n_head; i < n * g->n_head; i++)
            rows_out[i] = (int32_t)(mixed % (uint64_t)g->size[i]) + g->first[i];
    }
}

tdm_status llm_ngram_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io,
                          tdm_error *err) {
    const llm_ngram *g = &ctx->model->hparams.ngram;
    const int64_t n_row = llm_ngram_row_count(g), count = n_row * plan->shape.n_tok;
    const int32_t *token = ctx->step + plan->header.token_off;
    const int32_t *pos = ctx->step + plan->header.pos_off;
    const int32_t *seq = ctx->step + plan->header.seq_off;
    if (count > ctx->ngram_room) {
        int32_t *grown = realloc(ctx->ngram, (size_t)count * sizeof *grown);
        if (grown == NULL)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a step of %d tokens",
                            plan->shape.n_tok);
        ctx->ngram = grown;
        ctx->ngram_room = count;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t *tokens = ctx->tokens + (size_t)seq[i] * (size_t)ctx->n_ctx;
        tokens[pos[i]] = token[i];
        rows_find(g, tokens, pos[i], ctx->ngram + i * n_row);
    }
    for (int64_t i = n * n_row; i < count; i++) ctx->ngram[i] = -1;
    *io = (tdm_io){plan->ngram, ctx->ngram, (uint64_t)count * sizeof *ctx->ngram};
    return TDM_OK;
}
