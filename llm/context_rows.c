/* SPDX-License-Identifier: MIT
 *
 * context_rows.c: the rows that the tokens of a step have in a table of the file: one row for each
 * token (block/per_layer.c), or some rows for each token together with those before it (llm_ngram,
 * hparams.h). Such a table may be half of the file, and a step needs only a few of its rows. So it
 * takes no memory of a device: the rows are read from the file and are inputs of the step. Models
 * with llm_ngram rows have recurrent states; so their contexts keep the tokens of sequences
 * (llm_context.tokens), on which these rows depend.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/context_internal.h"

/* The numbers of the rows of the token at position `pos` of a sequence: rows_out[(n_gram - 1) *
 * n_head], by the formula at llm_ngram. */
static void ngram_rows(const llm_ngram *g, const int32_t *tokens, int32_t pos, int32_t *rows_out) {
    uint64_t mixed = (uint64_t)tokens[pos] * g->factor[0];
    bool is_cut = false; /* an earlier token is an end of text, or the sequence begins there */
    for (int32_t n = 1; n < g->n_gram; n++) {
        is_cut = is_cut || n > pos || tokens[pos - n] == g->eos;
        mixed ^= (uint64_t)(is_cut ? g->eos : tokens[pos - n]) * g->factor[n];
        for (int32_t i = (n - 1) * g->n_head; i < n * g->n_head; i++)
            rows_out[i] = (int32_t)(mixed % (uint64_t)g->size[i]) + g->first[i];
    }
}

/* The numbers of the rows of token i of a filled step. Writes the token into ctx->tokens where
 * later tokens' rows depend on it. */
static void rows_find(llm_context *ctx, const llm_plan *plan, int32_t i, int32_t *rows_out) {
    const llm_ngram *g = &ctx->model->hparams.ngram;
    const int32_t token = ctx->step[plan->header.token_off + i];
    if (g->n_gram == 0) {
        rows_out[0] = token;
        return;
    }
    const int32_t pos = ctx->step[plan->header.pos_off + i];
    const int32_t seq = ctx->step[plan->header.seq_off + i];
    int32_t *tokens = ctx->tokens + (size_t)seq * (size_t)ctx->n_ctx;
    tokens[pos] = token;
    ngram_rows(g, tokens, pos, rows_out);
}

/* Grows the memory for rows of a step to n rows. */
static tdm_status room_reserve(llm_context *ctx, int64_t n, size_t row_size, tdm_error *err) {
    if (n <= ctx->file_row_room) return TDM_OK;
    uint8_t *rows = realloc(ctx->file_rows, (size_t)n * row_size);
    if (rows != NULL) ctx->file_rows = rows;
    int32_t *ids = realloc(ctx->file_row_ids, (size_t)n * sizeof *ids);
    if (ids != NULL) ctx->file_row_ids = ids;
    if (rows == NULL || ids == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %lld rows of a step",
                        (long long)n);
    for (int64_t i = ctx->file_row_room; i < n; i++) ids[i] = (int32_t)i;
    ctx->file_row_room = n;
    return TDM_OK;
}

tdm_status llm_file_rows_fill(llm_context *ctx, const llm_plan *plan, int32_t n, tdm_io *io,
                              tdm_error *err) {
    int32_t n_row, rows[LLM_MAX_NGRAM_ROWS];
    const llm_gguf_tensor *table = llm_hparams_file_table(&ctx->model->hparams, &n_row);
    const size_t size = tdm_type_row_size(table->type, table->ne[0]);
    const int64_t count = (int64_t)n_row * plan->shape.n_tok;
    tdm_status status = room_reserve(ctx, count, size, err);
    /* Rows are copied from the mapping: a step may need thousands, of a few hundred bytes each. */
    if (status == TDM_OK) status = llm_gguf_check_length(ctx->model->gguf, table, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < n; i++) {
        rows_find(ctx, plan, i, rows);
        for (int32_t r = 0; r < n_row; r++)
            memcpy(ctx->file_rows + (size_t)(i * n_row + r) * size,
                   (const uint8_t *)table->data + (size_t)rows[r] * size, size);
    }
    /* The plan may have room for more tokens: their rows are zero bytes, which are zeros in every
     * type. */
    memset(ctx->file_rows + (size_t)(n * n_row) * size, 0, (size_t)(count - n * n_row) * size);
    io[0] = (tdm_io){plan->file_rows, ctx->file_rows, (uint64_t)count * size};
    io[1] = (tdm_io){plan->file_row_ids, ctx->file_row_ids, (uint64_t)count * sizeof(int32_t)};
    return TDM_OK;
}
