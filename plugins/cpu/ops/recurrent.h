/* SPDX-License-Identifier: MIT
 *
 * recurrent.h: what CONV1D and LINEAR_SCAN share: the sequences of a step with their slots, the
 * checks of `supports`, and the kernels, one set for each instruction set.
 */
#ifndef TANDEM_CPU_RECURRENT_H
#define TANDEM_CPU_RECURRENT_H

#include "plugins/cpu/kv/kv_page.h"

/* The step block as these ops read it. Contents are limited to what the graph has. */
typedef struct cpu_recurrence {
    cpu_kv_layout layout;
    uint8_t *state;
    int64_t n_slot;
    const int32_t *first_tok; /* [n_seq + 1] */
    const int32_t *rs_read;   /* [n_seq] */
    const int32_t *rs_write;  /* [n_tok] */
    int32_t n_tok, n_seq;     /* in use; n_seq is 0 where the tokens are not sorted */
} cpu_recurrence;

/* The checks of `supports`; `step` and `state` are the sources' places. TDM_UNSUPPORTED with the
 * reason. */
tdm_status cpu_recurrent_supports(const tdm_graph *graph, const tdm_node *node, int step, int state,
                                  tdm_error *err);
/* Reads the step block. n_seq is 0 where there is nothing that the op can use. */
void cpu_recurrence_get(const cpu_node *n, int step, int state, cpu_recurrence *out);
/* Tokens first .. last-1 of sequence seq; false where it has none. */
bool cpu_recurrence_tokens(const cpu_recurrence *r, int32_t seq, int32_t *first, int32_t *last);
/* Unit u of the slot, NULL where the slot is -1 or out of range. */
float *cpu_recurrence_unit(const cpu_recurrence *r, int32_t slot, int64_t u);
/* Tokens first .. last-1 of the step belong to sequences, those before and behind them to none. */
void cpu_recurrence_used(const cpu_recurrence *r, int32_t *first, int32_t *last);

/* One token of a head: rows of S, [n_row][dk], and what they give. */
typedef struct cpu_scan_token {
    const float *q, *k; /* [dk] */
    const float *v;     /* [n_row] */
    const float *decay; /* [dk]; NULL = decay_all for all */
    float decay_all;
    bool has_beta; /* false where erase is there */
    float beta, scale;
    const float *erase, *write; /* [dk]; NULL = absent */
    float *o;                   /* [n_row] */
} cpu_scan_token;

typedef struct cpu_recurrent_kernels {
    uint32_t isa; /* CPU_ISA_* that they need */
    const char *name;
    /* y[c] = bias[c] + sum_i w[i * stride + c] * rows[i][c]; bias NULL = 0. */
    void (*conv)(const float *const *rows, const float *w, int64_t stride, int64_t k,
                 const float *bias, float *y, int64_t n);
    /* y[i] = exp(g[i * g_step] * a[i * a_step]); steps are 0 or 1, a NULL = 1. */
    void (*decay)(const float *g, int g_step, const float *a, int a_step, float *y, int64_t n);
    /* S = S * decay + k u + write (erase S), o = scale q S, with u = v or beta (v - k S decay). */
    void (*scan)(float *s, int64_t n_row, int64_t dk, const cpu_scan_token *t);
} cpu_recurrent_kernels;

/* vector/recurrent.c */
extern const cpu_recurrent_kernels cpu_recurrent_avx2, cpu_recurrent_avx512, cpu_recurrent_neon;

/* The best that the device may use; plain C on the reference path. */
const cpu_recurrent_kernels *cpu_recurrent_pick(const cpu_device *device);

#endif
