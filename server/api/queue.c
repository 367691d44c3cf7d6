/* SPDX-License-Identifier: MIT
 *
 * queue.c: see queue.h. The events run on the engine's thread, which computes nothing meanwhile. So
 * they only copy text and find strings that end the answer; parsing and writing is for answer.c.
 */
#include "server/api/queue.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

bool api_tokens_append(api_token **tokens, int *n, int *size, const api_token *more, int n_more) {
    if (*size - *n < n_more) {
        const int grown_size = (*n + n_more) * 2;
        api_token *grown = realloc(*tokens, (size_t)grown_size * sizeof *grown);
        if (grown == NULL) return false;
        *tokens = grown;
        *size = grown_size;
    }
    if (n_more > 0) memcpy(*tokens + *n, more, (size_t)n_more * sizeof *more);
    *n += n_more;
    return true;
}

/* reply_text_fn: adds text to the queue. The lock is held. */
static void text_add(void *user, const char *text, size_t len) {
    api_choice *c = user;
    api_buffer_add(&c->text, text, len);
}

/* Whether a token belongs to the text of the answer. With shows_special, tokens that end the answer
 * have a text, too, which is not to be shown. */
static bool has_text(const api_choice *c, int32_t token) {
    const server_model *model = c->answer->model;
    return !c->answer->shows_special ||
           (!llm_vocab_ends_generation(model->vocab, token) && token != model->stop_id);
}

static void token_add(api_choice *c, const server_token *token) {
    api_token one = {.token = token->token, .logprob = token->logprob};
    one.n_top = token->n_top < ANSWER_TOP_MAX ? token->n_top : ANSWER_TOP_MAX;
    if (one.n_top > 0) memcpy(one.top, token->top, (size_t)one.n_top * sizeof *one.top);
    if (!api_tokens_append(&c->tokens, &c->n_token, &c->token_size, &one, 1))
        c->text.is_short = true;
}

/* Whether line_limit ends the answer: it has a line end, and its time is over. */
static bool is_late(api_choice *c, const server_token *token) {
    const uint64_t limit = c->answer->line_limit;
    if (limit == 0) return false;
    const uint64_t now = server_clock();
    if (c->first_ns == 0) c->first_ns = now;
    if (token->len > 0 && memchr(token->text, '\n', token->len) != NULL) c->has_line = true;
    c->is_late = c->has_line && now - c->first_ns > limit;
    return c->is_late;
}

static bool token_take(void *user, server_request_id id, const server_token *token) {
    api_choice *c = user;
    api_answer *a = c->answer;
    bool goes_on = true;
    if (a->only_reads) return true; /* the token shows that the prompt has been read */
    pthread_mutex_lock(&a->lock);
    if (a->wants_tokens && has_text(c, token->token)) token_add(c, token);
    if (token->len > 0 && has_text(c, token->token))
        goes_on = reply_stop_push(&c->stop, token->text, token->len, text_add, c);
    goes_on = goes_on && !is_late(c, token);
    if (goes_on && !c->is_paused &&
        (c->text.len > ANSWER_QUEUE_MAX || c->n_token > ANSWER_TOKEN_MAX)) {
        c->is_paused = true;
        server_engine_pause(a->model->engine, id, true);
    }
    api_pool_add(a->api->writers, &a->task);
    pthread_mutex_unlock(&a->lock);
    return goes_on;
}

/* Notes the last event of a choice. The lock is held; once it is released, the answer may be
 * freed. */
static void over(api_choice *c) {
    c->is_over = true;
    c->answer->n_open--;
    api_pool_add(c->answer->api->writers, &c->answer->task);
}

static void finished_take(void *user, server_request_id id, const server_result *result) {
    api_choice *c = user;
    api_answer *a = c->answer;
    (void)id;
    pthread_mutex_lock(&a->lock);
    c->result = *result;
    c->result.text = NULL;
    c->result.len = 0;
    if (a->only_reads) {
        if (result->usage.n_generated > 0) c->result.end = SERVER_END_LENGTH;
        c->result.usage.n_generated = 0;
    } else if (result->end != SERVER_END_SINK || c->is_late) {
        if (c->is_late) c->result.end = SERVER_END_LENGTH;
        reply_stop_push(&c->stop, result->text, result->len, text_add, c);
        reply_stop_flush(&c->stop, text_add, c);
    }
    over(c);
    pthread_mutex_unlock(&a->lock);
}

static void failed_take(void *user, server_request_id id, tdm_status status, const char *message) {
    api_choice *c = user;
    api_answer *a = c->answer;
    (void)id;
    pthread_mutex_lock(&a->lock);
    c->failure = status;
    snprintf(c->message, sizeof c->message, "%s", message);
    over(c);
    pthread_mutex_unlock(&a->lock);
}

void api_queue_sink(api_choice *c, server_sink *sink) {
    *sink = (server_sink){
        .token = token_take,
        .finished = finished_take,
        .failed = failed_take,
        .user = c,
    };
}
