/* SPDX-License-Identifier: MIT
 *
 * session_run.h: runs a random session (session_case.h) on its devices, or on one CPU device, and
 * records what every operation returned: its status, the sequences' lengths, and rows of logits. It
 * checks what holds on any device: lengths, statuses and messages, pages that are free again at the
 * end. Rows are compared by the caller.
 */
#ifndef TANDEM_TESTS_SESSION_RUN_H
#define TANDEM_TESTS_SESSION_RUN_H

#include "tests/model/session_place.h"

/* What an operation did. The last record is that of the end of the session: one token behind each
 * sequence. */
typedef struct session_record {
    tdm_status status;
    bool is_injected;             /* a failure that SESSION_FAIL has caused */
    bool is_skipped;              /* the operation had nothing to do */
    int lengths[SESSION_MAX_SEQ]; /* of the sequences after it */
    int n_free;                   /* pages that no sequence uses */
    int n_value;                  /* further results: lengths that a call returned */
    int values[4];
    size_t row_at; /* of session_trace.rows */
    int n_row, row_len;
    size_t hidden_at; /* likewise: the hidden state of a batch's last token */
    int hidden_len;   /* 0 = none */
    size_t other_at;  /* likewise: the last row of the second context */
    int other_len;    /* 0 = none */
    char message[256];
} session_record;

typedef struct session_trace {
    session_record records[SESSION_MAX_OP + 1];
    int n_record;
    float *rows;
    size_t n_float;
    double fresh_nmse; /* worst of sequences computed afresh; 0 = none was compared */
    bool is_refused;   /* model or context cannot be on these devices; `problem` says why */
    bool is_injected;  /* a failure was injected somewhere */
    bool is_lost;      /* a card was lost in the last record */
    bool is_recurrent, is_bidirectional, has_experts, is_quantized;
    char problem[400]; /* a check that failed; empty = none */
    int problem_at;    /* its operation */
} session_trace;

/* Runs the case from the model's file. `guide`: the trace of a run on the case's devices; then the
 * session runs on one CPU device of that path, leaves out operations where a failure was injected,
 * and compares the sequences at the end with the same computed afresh. Free the trace with
 * session_trace_free. */
void session_run(const session_case *c, const char *file, const char *path,
                 const session_trace *guide, session_trace *trace);
void session_trace_free(session_trace *trace);

#endif
