/* SPDX-License-Identifier: MIT
 *
 * chat_answer.c: see chat_answer.h.
 */
#include "runner/chat/chat_answer.h"

#include <stdlib.h>
#include <string.h>

#include "llm/cache/state.h"
#include "runner/interrupt.h"

typedef struct answer {
    runner_session *session;
    runner_chat_held *held;
    const runner_chat_answer_params *params;
    runner_chat_answer_result *result;
    const llm_vocab *vocab;
    llm_sampler *sampler;
    llm_detok *detok;
    char *text; /* so far, NUL-terminated */
    size_t len, capacity;
    size_t n_shown; /* bytes of it that were passed to params->text */
} answer;

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the answer");
}

/* ---- Text ---- */

/* Passes the text up to `end` to the caller. */
static tdm_status show(answer *a, size_t end, tdm_error *err) {
    if (end <= a->n_shown) return TDM_OK;
    tdm_status status =
        a->params->text(a->params->user, 0, a->text + a->n_shown, end - a->n_shown, err);
    a->n_shown = end;
    return status;
}

/* Number of bytes at the end of the text that may be the beginning of the stop text: they are not
 * shown before it is clear that it does not follow. */
static size_t held_back(const answer *a) {
    size_t n = strlen(a->params->stop);
    for (size_t k = n < a->len ? n : a->len; k > 0; k--)
        if (memcmp(a->text + a->len - k, a->params->stop, k) == 0) return k;
    return 0;
}

static tdm_status text_take(answer *a, llm_vocab_str text, tdm_error *err) {
    if (text.len == 0) return TDM_OK;
    if (a->capacity - a->len < text.len + 1) {
        size_t capacity = (a->len + text.len + 1) * 2;
        char *grown = realloc(a->text, capacity);
        if (grown == NULL) return no_memory(err);
        a->text = grown;
        a->capacity = capacity;
    }
    memcpy(a->text + a->len, text.ptr, text.len);
    a->len += text.len;
    a->text[a->len] = '\0';
    size_t n_stop = strlen(a->params->stop);
    if (n_stop == 0) return show(a, a->len, err);
    char *found = memmem(a->text + a->n_shown, a->len - a->n_shown, a->params->stop, n_stop);
    if (found == NULL) return show(a, a->len - held_back(a), err);
    a->len = (size_t)(found - a->text);
    a->text[a->len] = '\0';
    a->result->stop = RUNNER_STOP_END;
    return show(a, a->len, err);
}

/* ---- Tokens ---- */

/* Keeps the tokens that the context and the prompt have in common at their beginning, and computes
 * the rest of the prompt: always the last token, whose logits are needed. */
static tdm_status prompt_read(answer *a, tdm_error *err) {
    const runner_chat_answer_params *p = a->params;
    llm_context *ctx = a->session->ctx;
    int32_t n = 0;
    while (n < p->n_prompt - 1 && n < a->held->n && a->held->tokens[n] == p->prompt[n]) n++;
    uint64_t start = runner_clock();
    tdm_status status = TDM_OK;
    if (llm_context_length(ctx, 0) > n) status = llm_context_truncate(ctx, 0, n, err);
    if (status != TDM_OK) return status;
    a->held->n = n;
    status =
        runner_session_prefill(a->session, p->prompt + n, p->n_prompt - n, p->n_batch, true, err);
    int32_t length = llm_context_length(ctx, 0);
    memcpy(a->held->tokens + n, p->prompt + n, (size_t)(length - n) * sizeof *p->prompt);
    a->held->n = length;
    a->result->n_reused = n;
    a->result->n_prompt = length - n;
    a->result->prompt_ns = runner_clock() - start;
    return status;
}

/* Makes room for a token by a context shift; the answer ends where that is not possible. */
static tdm_status room_make(answer *a, tdm_error *err) {
    llm_context *ctx = a->session->ctx;
    int32_t length = llm_context_length(ctx, 0), n_keep = a->params->n_keep;
    if (length < llm_context_n_ctx(ctx)) return TDM_OK;
    int32_t n_discard = (length - n_keep) / 2;
    if (!a->params->shifts_context || n_discard < 1 || !llm_context_can_shift(ctx)) {
        a->result->stop = RUNNER_STOP_CONTEXT;
        return TDM_OK;
    }
    tdm_status status = llm_context_shift(ctx, 0, n_keep, n_discard, err);
    if (status != TDM_OK) return status;
    memmove(a->held->tokens + n_keep, a->held->tokens + n_keep + n_discard,
            (size_t)(length - n_keep - n_discard) * sizeof *a->held->tokens);
    a->held->n = length - n_discard;
    a->result->n_shift++;
    return TDM_OK;
}

/* Samples a token and appends its text; sets the reason where it ends the answer. */
static tdm_status token_pick(answer *a, int32_t *id, tdm_error *err) {
    const runner_chat_answer_params *p = a->params;
    llm_row row = llm_context_row(a->session->ctx, 0);
    llm_vocab_str text = {NULL, 0};
    if (row.n == 0) return tdm_fail(err, TDM_INTERNAL, "the prompt has no logits");
    tdm_status status = llm_sampler_pick(a->sampler, &row, id, err);
    if (status != TDM_OK) return status;
    llm_sampler_accept(a->sampler, *id);
    a->result->n_generated++;
    if (llm_vocab_ends_generation(a->vocab, *id) || *id == p->stop_id) {
        a->result->stop = RUNNER_STOP_END;
        return TDM_OK;
    }
    if (*id < llm_vocab_n_token(a->vocab)) status = llm_detok_push(a->detok, *id, &text, err);
    if (status == TDM_OK) status = text_take(a, text, err);
    if (status == TDM_OK && a->result->stop == RUNNER_STOP_NONE && p->n_predict >= 0 &&
        a->result->n_generated >= p->n_predict)
        a->result->stop = RUNNER_STOP_LENGTH;
    return status;
}

static tdm_status loop(answer *a, tdm_error *err) {
    tdm_status status = TDM_OK;
    uint64_t start = runner_clock();
    if (a->params->n_predict == 0) a->result->stop = RUNNER_STOP_LENGTH;
    while (status == TDM_OK && a->result->stop == RUNNER_STOP_NONE) {
        int32_t id = 0;
        if (runner_interrupt_came()) {
            a->result->stop = RUNNER_STOP_INTERRUPT;
            break;
        }
        status = token_pick(a, &id, err);
        if (status == TDM_OK && a->result->stop == RUNNER_STOP_NONE) status = room_make(a, err);
        if (status != TDM_OK || a->result->stop != RUNNER_STOP_NONE) break;
        llm_batch batch = {&id, NULL, NULL, 1};
        status = llm_context_decode(a->session->ctx, &batch, err);
        if (status == TDM_OK) a->held->tokens[a->held->n++] = id;
    }
    a->result->decode_ns = runner_clock() - start;
    return status;
}

static tdm_status held_reserve(runner_session *session, runner_chat_held *held, tdm_error *err) {
    if (held->tokens != NULL) return TDM_OK;
    held->tokens = malloc((size_t)llm_context_n_ctx(session->ctx) * sizeof *held->tokens);
    return held->tokens != NULL ? TDM_OK : no_memory(err);
}

tdm_status runner_chat_held_save(runner_session *session, const runner_chat_held *held,
                                 const char *path, tdm_error *err) {
    return llm_state_save(session->ctx, 0, held->tokens, held->n, path, err);
}

tdm_status runner_chat_held_load(runner_session *session, runner_chat_held *held, const char *path,
                                 tdm_error *err) {
    int32_t *tokens = NULL, n = 0;
    tdm_status status = held_reserve(session, held, err);
    held->n = 0;
    if (status == TDM_OK) status = llm_context_truncate(session->ctx, 0, 0, err);
    if (status == TDM_OK) status = llm_state_load(session->ctx, 0, path, &tokens, &n, err);
    if (status != TDM_OK) return status;
    memcpy(held->tokens, tokens, (size_t)n * sizeof *tokens);
    held->n = n;
    free(tokens);
    return TDM_OK;
}

static tdm_status answer_begin(answer *a, tdm_error *err) {
    int32_t n_ctx = llm_context_n_ctx(a->session->ctx);
    tdm_status status = llm_model_vocab(a->session->model, &a->vocab, err);
    if (status == TDM_OK) status = held_reserve(a->session, a->held, err);
    if (status == TDM_OK && (a->text = calloc(1, 1)) == NULL) status = no_memory(err);
    if (status != TDM_OK) return status;
    a->capacity = 1;
    status = llm_sampler_create(&a->params->sampler, a->session->model->hparams.n_vocab, n_ctx,
                                &a->sampler, err);
    if (status == TDM_OK)
        status = llm_detok_create(a->vocab, LLM_DETOKENIZE_CONTINUE, &a->detok, err);
    if (status == TDM_OK) status = runner_session_candidates(a->session, a->sampler, 0, err);
    for (int32_t i = 0; i < a->params->n_prompt && status == TDM_OK; i++)
        llm_sampler_accept(a->sampler, a->params->prompt[i]);
    return status;
}

tdm_status runner_chat_answer(runner_session *session, runner_chat_held *held,
                              const runner_chat_answer_params *params,
                              runner_chat_answer_result *result, char **text_out, tdm_error *err) {
    answer a = {.session = session, .held = held, .params = params, .result = result};
    *result = (runner_chat_answer_result){0};
    *text_out = NULL;
    tdm_status status = answer_begin(&a, err);
    if (status == TDM_OK) status = prompt_read(&a, err);
    if (status == TDM_OK) status = loop(&a, err);
    if (status == TDM_CANCELLED) {
        result->stop = RUNNER_STOP_INTERRUPT;
        status = TDM_OK;
    }
    /* llm_context_truncate may have to compute tokens again. If that fails, the context holds
     * fewer. */
    const int32_t length = llm_context_length(session->ctx, 0);
    if (held->n > length) held->n = length;
    /* An answer that was cut off may end inside a code point, or in a beginning of the stop
     * text. */
    if (status == TDM_OK && result->stop != RUNNER_STOP_END)
        status = text_take(&a, llm_detok_flush(a.detok), err);
    if (status == TDM_OK) status = show(&a, a.len, err);
    llm_sampler_destroy(a.sampler);
    llm_detok_destroy(a.detok);
    if (status == TDM_OK)
        *text_out = a.text;
    else
        free(a.text);
    return status;
}
