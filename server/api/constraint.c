/* SPDX-License-Identifier: MIT
 *
 * constraint.c: a grammar (server/grammar) as a constraint of the engine (engine.h). The grammar may
 * begin behind a text, such as the end of reasoning: before that, every token may follow.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"
#include "server/grammar/grammar.h"

#define BEHIND_MAX 64

typedef struct constraint {
    grammar_state *grammar;
    const llm_vocab *vocab;
    bool is_waiting;         /* the text `behind` has not come */
    char behind[BEHIND_MAX]; /* where the grammar begins */
    char tail[2 * BEHIND_MAX];
    size_t n_tail; /* bytes of text that came last */
} constraint;

static tdm_status constraint_mask(void *state, uint64_t *allowed, bool *is_limited_out,
                                  tdm_error *err) {
    constraint *c = state;
    *is_limited_out = !c->is_waiting;
    return c->is_waiting ? TDM_OK : grammar_state_mask(c->grammar, allowed, err);
}

/* Looks for the text behind which the grammar begins; the rest of the token is the grammar's. */
static tdm_status behind_find(constraint *c, int32_t token, tdm_error *err) {
    const llm_vocab_str bytes = llm_vocab_token_bytes(c->vocab, token);
    const size_t n_behind = strlen(c->behind);
    for (size_t i = 0; i < bytes.len; i++) {
        if (c->n_tail == sizeof c->tail) {
            memmove(c->tail, c->tail + BEHIND_MAX, BEHIND_MAX);
            c->n_tail = BEHIND_MAX;
        }
        c->tail[c->n_tail++] = bytes.ptr[i];
        if (c->n_tail < n_behind ||
            memcmp(c->tail + c->n_tail - n_behind, c->behind, n_behind) != 0)
            continue;
        c->is_waiting = false;
        /* white space after it, which a grammar need not allow, is no part of the answer */
        size_t at = i + 1;
        while (at < bytes.len && strchr(" \r\n\t", bytes.ptr[at]) != NULL) at++;
        if (at == bytes.len) return TDM_OK;
        return grammar_state_accept_text(c->grammar, bytes.ptr + at, bytes.len - at, err);
    }
    return TDM_OK;
}

static tdm_status constraint_accept(void *state, int32_t token, tdm_error *err) {
    constraint *c = state;
    return c->is_waiting ? behind_find(c, token, err)
                         : grammar_state_accept(c->grammar, token, err);
}

static bool constraint_is_done(const void *state) {
    const constraint *c = state;
    return !c->is_waiting && grammar_state_must_end(c->grammar);
}

static void constraint_destroy(void *state) {
    constraint *c = state;
    if (c == NULL) return;
    grammar_state_destroy(c->grammar);
    free(c);
}

/* A grammar that is too large, or that no token follows, is the request's fault: status 400, and not
 * one after which clients try again. */
static tdm_status bad_grammar(tdm_status status) {
    return status == TDM_RESOURCE_EXHAUSTED || status == TDM_FAILED_PRECONDITION ? TDM_UNSUPPORTED
                                                                                 : status;
}

tdm_status api_grammar_compile(const server_model *model, api_settings *settings, tdm_error *err) {
    grammar_state *state = NULL;
    const char *text = settings->grammar_text;
    tdm_status status =
        settings->grammar_is_schema
            ? grammar_compile_schema(model->grammar_vocab, text, strlen(text), &settings->grammar,
                                     err)
            : grammar_compile(model->grammar_vocab, text, strlen(text), &settings->grammar, err);
    if (status != TDM_OK) return bad_grammar(status);
    /* The first mask is computed here, where it holds nobody up, and kept in the grammar. Without
     * it the engine's thread would compute it between two steps. */
    uint64_t *mask = malloc(grammar_vocab_mask_words(model->grammar_vocab) * sizeof *mask);
    if (mask == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a mask");
    status = grammar_state_create(settings->grammar, &state, err);
    if (status == TDM_OK) status = grammar_state_mask(state, mask, err);
    grammar_state_destroy(state);
    free(mask);
    return bad_grammar(status);
}

tdm_status api_constraint_make(const server_model *model, const api_settings *settings,
                               server_constraint *out, tdm_error *err) {
    constraint *c = calloc(1, sizeof *c);
    if (c == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a grammar");
    c->vocab = model->vocab;
    c->is_waiting = settings->grammar_behind != NULL;
    if (c->is_waiting) snprintf(c->behind, sizeof c->behind, "%s", settings->grammar_behind);
    tdm_status status = grammar_state_create(settings->grammar, &c->grammar, err);
    if (status != TDM_OK) {
        constraint_destroy(c);
        return status;
    }
    *out = (server_constraint){
        .state = c,
        .mask = constraint_mask,
        .accept = constraint_accept,
        .is_done = constraint_is_done,
        .destroy = constraint_destroy,
    };
    return TDM_OK;
}
