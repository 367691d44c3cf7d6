/* SPDX-License-Identifier: MIT
 *
 * constraint.c: a grammar (server/grammar) as a constraint of an answer (llm/constraint.h). The
 * grammar may begin behind a text, such as the end of reasoning; before that, every token may
 * follow. A grammar of calls begins behind each text that opens a call, and ends with the call.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"
#include "server/grammar/grammar.h"

#define BEHIND_MAX 64 /* bytes of the text behind which a grammar begins, with its NUL */

typedef struct constraint {
    grammar_state *grammar;
    grammar_state *start; /* of calls: the beginning of the grammar, for each call. NULL = not of
                             calls: the grammar begins once */
    const llm_vocab *vocab;
    bool is_waiting;           /* the text `behind` has not come, so every token may follow */
    bool is_quiet;             /* of calls: the text is in reasoning, or in a message of gpt-oss,
                                where `behind` does not open a call */
    bool is_harmony;           /* gpt-oss: calls are in the heads of messages, not within them */
    char behind[BEHIND_MAX];   /* the text behind which the grammar begins */
    char tail[2 * BEHIND_MAX]; /* [n_tail] the last bytes of the text */
    size_t n_tail;
} constraint;

/* A call has ended, or the grammar cannot follow it: every token may follow until the next call. */
static void call_end(constraint *c) {
    grammar_state_assign(c->grammar, c->start);
    c->is_waiting = true;
    c->n_tail = 0;
}

static tdm_status constraint_mask(void *state, uint64_t *allowed, bool *is_limited_out,
                                  tdm_error *err) {
    constraint *c = state;
    *is_limited_out = !c->is_waiting;
    if (c->is_waiting) return TDM_OK;
    const tdm_status status = grammar_state_mask(c->grammar, allowed, err);
    if (status == TDM_OK || c->start == NULL) return status;
    call_end(c); /* the request has no grammar of its own, so it must not fail because of one */
    *is_limited_out = false;
    return TDM_OK;
}

static bool tail_is(const constraint *c, const char *text) {
    const size_t n = strlen(text);
    return c->n_tail >= n && memcmp(c->tail + c->n_tail - n, text, n) == 0;
}

/* Adds a byte to the tail, and notes where reasoning or a message begins and ends. */
static void tail_add(constraint *c, char byte) {
    if (c->n_tail == sizeof c->tail) {
        memmove(c->tail, c->tail + BEHIND_MAX, BEHIND_MAX);
        c->n_tail = BEHIND_MAX;
    }
    c->tail[c->n_tail++] = byte;
    if (c->start == NULL) return;
    if (c->is_harmony) {
        if (tail_is(c, "<|message|>")) c->is_quiet = true;
        if (tail_is(c, "<|end|>") || tail_is(c, "<|start|>") || tail_is(c, "<|channel|>"))
            c->is_quiet = false;
        return;
    }
    if (tail_is(c, REPLY_THINK_OPEN)) c->is_quiet = true;
    if (tail_is(c, REPLY_THINK_CLOSE)) c->is_quiet = false;
}

/* Searches the bytes of a token for the end of the text behind which the grammar begins. The
 * grammar accepts the rest of the token's bytes. */
static tdm_status behind_find(constraint *c, int32_t token, tdm_error *err) {
    const llm_vocab_str bytes = llm_vocab_token_bytes(c->vocab, token);
    for (size_t i = 0; i < bytes.len; i++) {
        tail_add(c, bytes.ptr[i]);
        if (c->is_quiet || !tail_is(c, c->behind)) continue;
        c->is_waiting = false;
        /* white space after it, which a grammar need not allow, is no part of the answer */
        size_t at = i + 1;
        while (at < bytes.len && strchr(" \r\n\t", bytes.ptr[at]) != NULL) at++;
        if (at == bytes.len) return TDM_OK;
        const tdm_status status =
            grammar_state_accept_text(c->grammar, bytes.ptr + at, bytes.len - at, err);
        if (status == TDM_OK || c->start == NULL) return status;
        call_end(c);
        return TDM_OK;
    }
    return TDM_OK;
}

static tdm_status constraint_accept(void *state, int32_t token, tdm_error *err) {
    constraint *c = state;
    if (c->is_waiting) return behind_find(c, token, err);
    const tdm_status status = grammar_state_accept(c->grammar, token, err);
    if (c->start != NULL && (status != TDM_OK || grammar_state_must_end(c->grammar))) {
        call_end(c);
        return TDM_OK;
    }
    return status;
}

static bool constraint_is_done(const void *state) {
    const constraint *c = state;
    return c->start == NULL && !c->is_waiting && grammar_state_must_end(c->grammar);
}

static void constraint_destroy(void *state) {
    constraint *c = state;
    if (c == NULL) return;
    grammar_state_destroy(c->grammar);
    grammar_state_destroy(c->start);
    free(c);
}

static tdm_status constraint_clone(const void *state, void **state_out, tdm_error *err) {
    const constraint *from = state;
    constraint *c = malloc(sizeof *c);
    if (c == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a grammar");
    *c = *from;
    c->grammar = c->start = NULL;
    tdm_status status = grammar_state_clone(from->grammar, &c->grammar, err);
    if (status == TDM_OK && from->start != NULL)
        status = grammar_state_clone(from->start, &c->start, err);
    if (status == TDM_OK)
        *state_out = c;
    else
        constraint_destroy(c);
    return status;
}

static void constraint_assign(void *state, const void *other) {
    constraint *c = state;
    const constraint *from = other;
    grammar_state *const grammar = c->grammar, *const start = c->start;
    grammar_state_assign(grammar, from->grammar);
    *c = *from;
    c->grammar = grammar;
    c->start = start;
}

/* The status of a grammar that cannot be used. Where it is too large or no token can follow it, the
 * request is wrong: TDM_UNSUPPORTED becomes 400, after which clients do not try again. */
static tdm_status bad_grammar(tdm_status status) {
    return status == TDM_RESOURCE_EXHAUSTED || status == TDM_FAILED_PRECONDITION ? TDM_UNSUPPORTED
                                                                                 : status;
}

/* Computes the first mask, which the grammar keeps. Else the engine's thread would compute it
 * between two steps and delay all requests. */
static tdm_status first_mask(const server_model *model, struct grammar *grammar, tdm_error *err) {
    grammar_state *state = NULL;
    uint64_t *mask = malloc(grammar_vocab_mask_words(model->grammar_vocab) * sizeof *mask);
    if (mask == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a mask");
    tdm_status status = grammar_state_create(grammar, &state, err);
    if (status == TDM_OK) status = grammar_state_mask(state, mask, err);
    grammar_state_destroy(state);
    free(mask);
    return status;
}

/* Compiles the grammar of calls. A failure is logged only, and the calls are not constrained: a
 * request must not fail because of the tools that it offers. */
static void calls_compile(const server_api *api, const server_model *model,
                          api_settings *settings) {
    tdm_error reason = {0};
    tdm_status status =
        api_call_grammar(model, api_family(model), settings->tools, &settings->grammar, &reason);
    if (status == TDM_OK) status = first_mask(model, settings->grammar, &reason);
    if (status == TDM_OK) return;
    grammar_release(settings->grammar);
    settings->grammar = NULL;
    char line[TDM_ERROR_MESSAGE_SIZE + 64];
    snprintf(line, sizeof line, "calls of tools are not constrained: %s", reason.message);
    if (api->params.log != NULL) api->params.log(api->params.log_user, line);
}

tdm_status api_grammar_compile(const server_api *api, const server_model *model,
                               api_settings *settings, tdm_error *err) {
    const char *text = settings->grammar_text;
    if (settings->constrains_calls) {
        calls_compile(api, model, settings);
        return TDM_OK;
    }
    tdm_status status =
        settings->grammar_is_schema
            ? grammar_compile_schema(model->grammar_vocab, text, strlen(text), &settings->grammar,
                                     err)
            : grammar_compile(model->grammar_vocab, text, strlen(text), &settings->grammar, err);
    if (status == TDM_OK) status = first_mask(model, settings->grammar, err);
    return bad_grammar(status);
}

tdm_status api_constraint_make(const server_model *model, const api_settings *settings,
                               llm_constraint *out, tdm_error *err) {
    constraint *c = calloc(1, sizeof *c);
    if (c == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a grammar");
    c->vocab = model->vocab;
    c->is_waiting = settings->grammar_behind != NULL;
    if (c->is_waiting) snprintf(c->behind, sizeof c->behind, "%s", settings->grammar_behind);
    c->is_quiet = settings->constrains_calls && settings->is_reasoning;
    c->is_harmony = settings->constrains_calls && api_family(model) == REPLY_GPT_OSS;
    tdm_status status = grammar_state_create(settings->grammar, &c->grammar, err);
    if (status == TDM_OK && settings->constrains_calls)
        status = grammar_state_create(settings->grammar, &c->start, err);
    if (status != TDM_OK) {
        constraint_destroy(c);
        return status;
    }
    *out = (llm_constraint){
        .state = c,
        .mask = constraint_mask,
        .accept = constraint_accept,
        .is_done = constraint_is_done,
        .destroy = constraint_destroy,
        .clone = constraint_clone,
        .assign = constraint_assign,
    };
    return TDM_OK;
}
