/* SPDX-License-Identifier: MIT
 *
 * context_window.c: the class of caches of layers with a window (LLM_CLASS_WINDOW): how many pages
 * it has, which tokens each sequence keeps in it, and to which lengths a sequence can go back. The
 * page tables themselves: cache/kv_cache.c.
 *
 * The next token of a sequence sees at most the n_window - 1 tokens before it in these layers. A
 * sequence keeps their rows, and those of LLM_WINDOW_SLACK tokens before them. So any number of its
 * last tokens up to LLM_WINDOW_SLACK can be removed at any time. It also keeps the rows that are
 * needed to go back to one earlier length, its mark: the length before the last batch of more than
 * LLM_WINDOW_SLACK tokens, or before the last change of role (where a prompt or an answer began).
 * A batch that fails goes back to the length before it: either that is the mark, or the batch has
 * at most LLM_WINDOW_SLACK tokens. To reach any other length, the sequence goes back to the mark,
 * or to 0, and computes the tokens from there again. Pages that have none of these rows are freed.
 */
#include <stdlib.h>

#include "llm/arch/arch.h"
#include "llm/context_internal.h"

/* The most pages over which n tokens at consecutive positions can be spread. */
static int64_t pages_of(int64_t n, int32_t page_len) {
    return n / page_len + 2;
}

void llm_window_measure(llm_context *ctx, const llm_model *m, const llm_context_params *params) {
    const int32_t page_len = ctx->cache.desc.page_len;
    int32_t n_window = 0;
    for (int32_t l = 0; l < m->hparams.n_layer; l++)
        if (llm_layer_has_window(&m->specs[l]) && m->specs[l].window > n_window)
            n_window = m->specs[l].window;
    ctx->n_window = 0;
    ctx->cache.n_page_window = 0;
    /* No class in these cases. Models with recurrent states go back to snapshots, at lengths for
     * which windows keep no rows. Tokens that see later ones need their whole text. A layer that
     * drafts cannot compute tokens again without hidden states. An index of sparse attention is in
     * the pages of all tokens. */
    if (n_window == 0 || params->is_window_whole || m->hparams.is_bidirectional ||
        llm_model_is_recurrent(m) || m->lender != NULL ||
        (ctx->cache.desc.flags & TDM_KV_SPARSE) != 0)
        return;
    const int64_t n_held = (int64_t)n_window - 1;
    /* Tokens that are added before llm_window_trim frees others: of a step, or of a state file. */
    const int32_t n_added = ctx->n_ubatch > LLM_STATE_CHUNK ? ctx->n_ubatch : LLM_STATE_CHUNK;
    /* For each sequence the pages of its window and of its mark, and three more: its tokens of a
     * step may begin inside a page, a fork leaves one page partly empty, and so does a shift. */
    const int64_t n_page = ctx->n_seq * (pages_of(n_held + LLM_WINDOW_SLACK, page_len) +
                                         pages_of(n_held, page_len) + 3) +
                           n_added / page_len + 1;
    if (n_page >= ctx->cache.n_page) return;
    ctx->n_window = n_window;
    ctx->cache.n_page_window = n_page;
}

tdm_status llm_window_create(llm_context *ctx, tdm_error *err) {
    if (ctx->cache.n_page_window == 0) return TDM_OK;
    tdm_status status = llm_kv_create((int32_t)ctx->cache.n_page_window, ctx->cache.desc.page_len,
                                      ctx->n_seq, &ctx->window, err);
    if (status != TDM_OK) return status;
    /* Models whose rows stand for longer runs are recurrent: they have no such class. */
    const int32_t n_cell = ctx->n_ubatch > LLM_STATE_CHUNK ? ctx->n_ubatch : LLM_STATE_CHUNK;
    ctx->window_cells = calloc((size_t)n_cell, sizeof *ctx->window_cells);
    ctx->max_window_job = llm_kv_max_jobs(ctx->window);
    ctx->window_jobs = calloc((size_t)ctx->max_window_job * 2 + 1, sizeof *ctx->window_jobs);
    ctx->marks = malloc((size_t)ctx->n_seq * sizeof *ctx->marks);
    if (ctx->window_cells == NULL || ctx->window_jobs == NULL || ctx->marks == NULL)
        return llm_context_no_memory(err);
    for (int32_t s = 0; s < ctx->n_seq; s++) ctx->marks[s] = -1;
    return TDM_OK;
}

void llm_window_destroy(llm_context *ctx) {
    llm_kv_destroy(ctx->window);
    free(ctx->window_cells);
    free(ctx->window_jobs);
    free(ctx->marks);
}

bool llm_window_reaches(const llm_context *ctx, int32_t seq, int32_t n_tok) {
    const int32_t first = n_tok - ctx->n_window + 1;
    return ctx->window == NULL || llm_kv_holds(ctx->window, seq, first > 0 ? first : 0, n_tok);
}

int32_t llm_window_return(const llm_context *ctx, int32_t seq, int32_t n_tok) {
    if (llm_window_reaches(ctx, seq, n_tok)) return n_tok;
    const int32_t mark = ctx->marks[seq];
    return mark > 0 && mark <= n_tok && llm_window_reaches(ctx, seq, mark) ? mark : 0;
}

void llm_window_mark(llm_context *ctx, int32_t seq, int32_t n_added, tdm_role role) {
    if (ctx->window == NULL || n_added == 0) return;
    const int32_t n_tok = llm_kv_length(ctx->kv, seq);
    const uint8_t *roles = ctx->roles + (size_t)seq * (size_t)ctx->n_ctx;
    if (n_tok == 0 || n_added > LLM_WINDOW_SLACK || roles[n_tok - 1] != (uint8_t)role)
        ctx->marks[seq] = n_tok;
}

void llm_window_trim(llm_context *ctx, int32_t seq) {
    if (ctx->window == NULL) return;
    const int32_t n_tok = llm_kv_length(ctx->window, seq), mark = ctx->marks[seq];
    const int32_t first = n_tok - ctx->n_window + 1 - LLM_WINDOW_SLACK;
    const int32_t marked = mark < 0 ? first : mark - ctx->n_window + 1;
    llm_kv_forget(ctx->window, seq, 0, marked < first ? marked : first);
    if (mark >= 0) llm_kv_forget(ctx->window, seq, mark, first);
}

void llm_window_move_mark(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard) {
    int32_t *mark = &ctx->marks[seq];
    if (*mark >= n_keep + n_discard)
        *mark -= n_discard;
    else if (*mark > n_keep)
        *mark = -1;
}

bool llm_window_survives(const llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard) {
    if (ctx->window == NULL) return true;
    const int32_t n_left = llm_kv_length(ctx->kv, seq) - n_discard;
    const int32_t first = n_left - ctx->n_window + 1;
    return llm_kv_shift_check(ctx->window, seq, n_keep, n_discard, NULL) == TDM_OK &&
           llm_kv_holds(ctx->window, seq, first > 0 ? first : 0, n_keep) &&
           llm_kv_holds(ctx->window, seq, (first > n_keep ? first : n_keep) + n_discard,
                        n_left + n_discard);
}
