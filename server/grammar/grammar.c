/* SPDX-License-Identifier: MIT
 *
 * grammar.c: grammars, their states, and the lock around the matcher and the masks that they keep.
 */
#include "server/grammar/grammar.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/grammar/gbnf.h"
#include "server/grammar/mask.h"

#define MASKS_SIZE_MAX ((size_t)32 << 20) /* bytes of kept masks of a grammar */

struct grammar {
    const grammar_vocab *vocab;
    grammar_program program;
    atomic_int n_owner;
    pthread_mutex_t lock; /* guards what follows, and grammar_state.set of all states */
    grammar_matcher matcher;
    grammar_state *states; /* the list of all states */
    int32_t n_state;
    size_t masks_size; /* bytes of the masks that are kept */
    int32_t *path;     /* scratch of grammar_mask_compute */
};

struct grammar_state {
    grammar *grammar;
    grammar_state *before, *after; /* in the list of the grammar */
    int32_t set;                   /* number of a state of the matcher */
};

/* ---- Grammars ---- */

tdm_status grammar_compile(const grammar_vocab *vocab, const char *text, size_t len, grammar **out,
                           tdm_error *err) {
    *out = NULL;
    grammar *g = calloc(1, sizeof *g);
    if (g == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "grammar: no memory");
    if (pthread_mutex_init(&g->lock, NULL) != 0) {
        free(g);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "grammar: no memory for a lock");
    }
    g->vocab = vocab;
    atomic_init(&g->n_owner, 1);
    tdm_status status = grammar_gbnf_read(vocab, text, len, &g->program, err);
    if (status == TDM_OK) {
        g->path = malloc(((size_t)vocab->depth_max + 1) * sizeof *g->path);
        if (g->path == NULL || !grammar_matcher_begin(&g->matcher, &g->program))
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                              "grammar: no memory, or its beginning can be read in too many ways");
    }
    if (status != TDM_OK) {
        grammar_release(g);
        return status;
    }
    *out = g;
    return TDM_OK;
}

tdm_status grammar_compile_schema(const grammar_vocab *vocab, const char *schema, size_t len,
                                  grammar **out, tdm_error *err) {
    char *text = NULL;
    *out = NULL;
    tdm_status status = grammar_schema_to_gbnf(schema, len, "root", &text, err);
    if (status != TDM_OK) return status;
    tdm_error inner = {0};
    status = grammar_compile(vocab, text, strlen(text), out, &inner);
    free(text);
    if (status == TDM_OK) return TDM_OK;
    return tdm_fail(err, status, "JSON Schema, written as a grammar: %s", inner.message);
}

grammar *grammar_retain(grammar *g) {
    atomic_fetch_add(&g->n_owner, 1);
    return g;
}

void grammar_release(grammar *g) {
    if (g == NULL || atomic_fetch_sub(&g->n_owner, 1) != 1) return;
    grammar_matcher_free(&g->matcher);
    grammar_program_free(&g->program);
    pthread_mutex_destroy(&g->lock);
    free(g->path);
    free(g);
}

/* ---- States ---- */

static void list_add(grammar_state *state) {
    grammar *g = state->grammar;
    state->after = g->states;
    if (g->states != NULL) g->states->before = state;
    g->states = state;
    g->n_state++;
}

static tdm_status state_make(grammar *g, const grammar_state *other, grammar_state **out,
                             tdm_error *err) {
    grammar_state *state = *out = calloc(1, sizeof *state);
    if (state == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "grammar: no memory");
    state->grammar = grammar_retain(g);
    pthread_mutex_lock(&g->lock);
    state->set = other != NULL ? other->set : GRAMMAR_START;
    list_add(state);
    pthread_mutex_unlock(&g->lock);
    return TDM_OK;
}

tdm_status grammar_state_create(grammar *g, grammar_state **out, tdm_error *err) {
    return state_make(g, NULL, out, err);
}

tdm_status grammar_state_clone(const grammar_state *state, grammar_state **out, tdm_error *err) {
    return state_make(state->grammar, state, out, err);
}

void grammar_state_assign(grammar_state *state, const grammar_state *other) {
    pthread_mutex_lock(&state->grammar->lock);
    state->set = other->set;
    pthread_mutex_unlock(&state->grammar->lock);
}

void grammar_state_destroy(grammar_state *state) {
    if (state == NULL) return;
    grammar *g = state->grammar;
    pthread_mutex_lock(&g->lock);
    if (state->before != NULL)
        state->before->after = state->after;
    else
        g->states = state->after;
    if (state->after != NULL) state->after->before = state->before;
    g->n_state--;
    pthread_mutex_unlock(&g->lock);
    grammar_release(g);
    free(state);
}

/* Where much is kept, drops the masks, or the matcher's states that no state of a text is at.
 * Without memory the states stay. The lock is held. */
static void memory_limit(grammar *g) {
    grammar_matcher *m = &g->matcher;
    if (g->masks_size > MASKS_SIZE_MAX) {
        for (int32_t i = 0; i < m->n_set; i++) {
            free(m->sets[i].mask);
            m->sets[i].mask = NULL;
        }
        g->masks_size = 0;
    }
    if (!grammar_matcher_is_large(m)) return;
    int32_t **sets = malloc(((size_t)g->n_state + 1) * sizeof *sets);
    if (sets == NULL) return;
    int32_t n = 0;
    for (grammar_state *s = g->states; s != NULL; s = s->after) sets[n++] = &s->set;
    if (grammar_matcher_shrink(m, sets, n)) g->masks_size = 0;
    free(sets);
}

/* Begins a call that may compute states or masks: takes the lock, which the caller releases. */
static grammar_matcher *work_begin(grammar *g) {
    pthread_mutex_lock(&g->lock);
    g->matcher.effort = 0; /* the last call may have left it too large for memory_limit */
    memory_limit(g);
    g->matcher.effort = 0;
    return &g->matcher;
}

static tdm_status too_much(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                    "grammar: no memory, or the text can be read in too many ways; write rules "
                    "whose alternatives differ in their first characters");
}

static bool mask_is_empty(const uint64_t *mask, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (mask[i] != 0) return false;
    return true;
}

tdm_status grammar_state_mask(grammar_state *state, uint64_t *mask, tdm_error *err) {
    grammar *g = state->grammar;
    const grammar_vocab *v = g->vocab;
    const size_t size = v->n_word * sizeof *mask;
    grammar_matcher *m = work_begin(g);
    const uint64_t *kept = m->sets[state->set].mask;
    bool is_good = true;
    if (kept != NULL) {
        memcpy(mask, kept, size);
    } else {
        is_good = grammar_mask_compute(m, v, state->set, g->path, mask);
        uint64_t *copy = is_good ? malloc(size) : NULL;
        if (copy != NULL) {
            memcpy(copy, mask, size);
            m->sets[state->set].mask = copy;
            g->masks_size += size;
        }
    }
    pthread_mutex_unlock(&g->lock);
    if (!is_good) {
        memset(mask, 0, size);
        return too_much(err);
    }
    if (mask_is_empty(mask, v->n_word))
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "grammar: no token of the vocabulary goes on from here");
    return TDM_OK;
}

/* The state behind bytes, GRAMMAR_DEAD or GRAMMAR_FAILED. */
static int32_t text_step(grammar_matcher *m, int32_t set, const char *text, size_t len) {
    for (size_t i = 0; i < len && set > 0; i++)
        set = grammar_matcher_step(m, set, (uint8_t)text[i]);
    return set;
}

static bool has_bit(const uint64_t *mask, int32_t i) {
    return mask[i / 64] >> (i % 64) & 1;
}

/* The state behind a token, GRAMMAR_DEAD where the grammar does not allow it, or
 * GRAMMAR_FAILED. */
static int32_t token_step(grammar *g, int32_t set, int32_t token) {
    grammar_matcher *m = &g->matcher;
    if (token < 0 || token >= g->vocab->n_token || !has_bit(g->vocab->known, token))
        return GRAMMAR_DEAD;
    const bool is_end = has_bit(g->vocab->ends, token);
    const int32_t next = grammar_matcher_token(m, set, token, is_end);
    if (is_end) {
        if (next != GRAMMAR_DEAD) return next; /* the grammar names it */
        return m->sets[set].can_end ? GRAMMAR_OVER : GRAMMAR_DEAD;
    }
    const llm_vocab_str bytes = grammar_token_bytes(g->vocab, token);
    if (bytes.len == 0 || next < 0) return next;
    const int32_t behind = text_step(m, set, bytes.ptr, bytes.len);
    return grammar_matcher_join(m, next, behind);
}

tdm_status grammar_state_accept(grammar_state *state, int32_t token, tdm_error *err) {
    grammar *g = state->grammar;
    work_begin(g);
    const int32_t next = token_step(g, state->set, token);
    if (next > 0) state->set = next;
    pthread_mutex_unlock(&g->lock);
    if (next < 0) return too_much(err);
    if (next == GRAMMAR_DEAD)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "grammar: token %d is not allowed here", token);
    return TDM_OK;
}

tdm_status grammar_state_accept_text(grammar_state *state, const char *text, size_t len,
                                     tdm_error *err) {
    grammar *g = state->grammar;
    grammar_matcher *m = work_begin(g);
    const int32_t next = text_step(m, state->set, text, len);
    if (next > 0) state->set = next;
    pthread_mutex_unlock(&g->lock);
    if (next < 0) return too_much(err);
    if (next == GRAMMAR_DEAD)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "grammar: the text is not allowed here");
    return TDM_OK;
}

static tdm_status constraint_mask(void *state, uint64_t *mask, bool *is_limited_out,
                                  tdm_error *err) {
    *is_limited_out = true;
    return grammar_state_mask(state, mask, err);
}

static tdm_status constraint_accept(void *state, int32_t token, tdm_error *err) {
    return grammar_state_accept(state, token, err);
}

static bool constraint_is_done(const void *state) {
    return grammar_state_must_end(state);
}

llm_constraint grammar_state_constraint(grammar_state *state) {
    return (llm_constraint){.state = state,
                            .mask = constraint_mask,
                            .accept = constraint_accept,
                            .is_done = constraint_is_done};
}

bool grammar_state_can_end(grammar_state *state) {
    pthread_mutex_lock(&state->grammar->lock);
    const bool can_end = state->grammar->matcher.sets[state->set].can_end;
    pthread_mutex_unlock(&state->grammar->lock);
    return can_end;
}

bool grammar_state_must_end(const grammar_state *state) {
    pthread_mutex_lock(&state->grammar->lock);
    const grammar_set *set = &state->grammar->matcher.sets[state->set];
    const bool must_end = set->can_end && set->n == 0;
    pthread_mutex_unlock(&state->grammar->lock);
    return must_end;
}
