/* SPDX-License-Identifier: MIT
 *
 * session_internal.h: what session_run.c and session_ops.c share: a running session, and the record
 * of the running operation. Not for others.
 */
#ifndef TANDEM_TESTS_SESSION_INTERNAL_H
#define TANDEM_TESTS_SESSION_INTERNAL_H

#include "llm/context_internal.h"
#include "tests/model/session_run.h"
#include "tests/support/random.h"

enum {
    SESSION_MAX_TOK = SESSION_MAX_CTX + 8,
    SESSION_MAX_LAYER = 64,
    SESSION_CLEAN = SESSION_MAX_TOK + 1
};

/* A sequence, as it should be. */
typedef struct session_sequence {
    int n;
    int n_clean; /* tokens before the first that a shift has moved; SESSION_CLEAN = none is moved */
    int n_encoded; /* of its first tokens, which an encoder has read */
    int32_t tokens[SESSION_MAX_TOK];
    float scales[SESSION_MAX_ADAPTER];
} session_sequence;

typedef struct session {
    const session_case *c;
    const char *file, *path;
    const session_trace *guide;
    session_trace *trace;
    int place; /* of c->places */
    session_rig rig;
    llm_model *model;
    llm_context *ctx, *other;
    session_sequence seqs[SESSION_MAX_SEQ], files[SESSION_N_FILE];
    bool has_file[SESSION_N_FILE];
    int n_vocab, n_free; /* pages of an empty context */
    int n_candidate, n_other;
    bool is_armed;
    bool is_losing; /* SESSION_LOSE has run: any call may be the one that finds a card lost */
    bool is_lost;   /* a card is lost: calls may fail */
    bool has_encoder; /* beside a decoder */
    bool is_encoder;  /* no decoder: batches give the states of all tokens, and no logits */
    llm_layer_types layers[SESSION_MAX_LAYER];
    uint64_t random; /* of the running operation */
} session;

/* Notes a check that failed; the first one counts. Returns false. */
TDM_PRINTF(2, 3)
bool session_problem(session *s, const char *format, ...);
static inline int session_below(session *s, int n) {
    return (int)random_u32_below(&s->random, (uint32_t)n);
}
/* Opens devices, model and context; closes them. */
bool session_up(session *s);
void session_down(session *s);
bool session_is_latent(const llm_model *m);
/* Whether a group may cut caches by sequence. */
bool session_may_cut_sequence(const session *s);
/* Whether a card has little memory, or small buffers. */
bool session_has_limits(const session *s);

/* The record of the running operation. */
session_record *session_record_now(session *s);
void session_floats_take(session *s, const float *row, int n);
void session_row_take(session *s, const float *row, int n);
void session_value_take(session *s, int value);
/* The statuses that an operation may have, as bits. */
#define MAY(status) (1u << (status))
/* Judges the status of an operation. True where the operation was done. */
bool session_took(session *s, tdm_status status, unsigned may, const tdm_error *err);

/* Shortens a sequence to n tokens. */
void session_cut(session_sequence *q, int n);
/* Appends a token. */
void session_add(session_sequence *q, int32_t token);
void session_op_run(session *s, const session_op *op);

#endif
