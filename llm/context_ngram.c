/* SPDX-License-Identifier: MIT
 *
 * context_ngram.c: the rows of a table that the tokens of a step have for themselves and the tokens
 * before them (llm_ngram, hparams.h). A token has a few rows of hundreds of millions, so they are read in
 * the file and given to the step. The model has its recurrent states, so the context has the tokens of
 * its sequences (context_internal.h).
 */
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
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
    const int32_t n_row = llm_ngram_row_count(g);
    const int64_t n_embd = (int64_t)n_row * g->len, count = n_embd * plan->shape.n_tok;
    const size_t row_size = tdm_type_row_size(g->table->type, g->len);
    int32_t rows[LLM_MAX_NGRAM_ROWS];
    const int32_t *token = ctx->step + plan->header.token_off;
    const int32_t *pos = ctx->step + plan->header.pos_off;
    const int32_t *seq = ctx->step + plan->header.seq_off;
    if (count > ctx->ngram_room) {
        float *grown = realloc(ctx->ngram, (size_t)count * sizeof *grown);
        if (grown == NULL)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a step of %d tokens",
                            plan->shape.n_tok);
        ctx->ngram = grown;
        ctx->ngram_room = count;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t *tokens = ctx->tokens + (size_t)seq[i] * (size_t)ctx->n_ctx;
        tokens[pos[i]] = token[i];
        rows_find(g, tokens, pos[i], rows);
        for (int32_t r = 0; r < n_row; r++)
            tdm_row_dequantize(g->table->type,
                               (const uint8_t *)g->table->data + (size_t)rows[r] * row_size,
                               ctx->ngram + i * n_embd + (int64_t)r * g->len, g->len);
    }
    memset(ctx->ngram + n * n_embd, 0, (size_t)(count - n * n_embd) * sizeof *ctx->ngram);
    *io = (tdm_io){plan->ngram, ctx->ngram, (uint64_t)count * sizeof *ctx->ngram};
    return TDM_OK;
}
