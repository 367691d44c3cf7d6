/* SPDX-License-Identifier: MIT
 *
 * trial.h: many small graphs of one op, each run where the device takes it and compared
 * with the reference. The lists of graphs are in certify_case_*.c, the checks in op.c.
 */
#ifndef TANDEM_RUNNER_CERTIFY_TRIAL_H
#define TANDEM_RUNNER_CERTIFY_TRIAL_H

#include "certify/rig.h"

typedef enum certify_trial_mode {
    CERTIFY_TRIAL_NUMBERS, /* run what is claimed, compare */
    CERTIFY_TRIAL_TRUTH    /* hold what supports_op says against the other slots; judge no number */
} certify_trial_mode;

typedef struct certify_trial certify_trial;
struct certify_trial {
    certify *c;
    certify_trial_mode mode;
    certify_verdict verdict; /* of the first that failed; nothing runs after it */
    int n_run;
    int n_refused;

    /* Of the graph under construction; reset by certify_trial_begin. */
    tdm_builder *b;
    char label[128];
    double nmse;          /* bound, see docs/abi.md */
    double scale;         /* of random numbers */
    double rms;           /* certify_rig.rms */
    int64_t id_lo, id_hi; /* of random i32 */
    /* Called after the random filling; NULL = none. `user` is the case's. */
    void (*fill)(certify_trial *t, certify_rig *rig);
    int64_t user;
};

typedef void (*certify_cases_fn)(certify_trial *t);

/* Starts a graph; false where the trial is over. */
TDM_PRINTF(3, 4)
bool certify_trial_begin(certify_trial *t, double nmse, const char *format, ...);
/* Finishes it: `y` becomes an output, and the graph is run. */
void certify_trial_end(certify_trial *t, int32_t y);

/* The ops that have cases, in the order of op.h; an op of cache or group has none here. */
typedef struct certify_op_cases {
    int32_t op;
    certify_cases_fn cases;
} certify_op_cases;
extern const certify_op_cases certify_all_cases[];
extern const size_t n_certify_all_cases;

/* Runs the cases of one op; the trial says what came of it. */
void certify_trial_run(certify *c, const certify_op_cases *op, certify_trial_mode mode,
                       certify_trial *trial_out);

/* case_move.c */
void certify_case_views(certify_trial *t);
void certify_case_copy(certify_trial *t);
void certify_case_concat(certify_trial *t);
void certify_case_get_rows(certify_trial *t);
/* case_arith.c */
void certify_case_matmul(certify_trial *t);
void certify_case_add(certify_trial *t);
void certify_case_mul(certify_trial *t);
void certify_case_scale(certify_trial *t);
void certify_case_act(certify_trial *t);
void certify_case_glu(certify_trial *t);
/* case_row.c */
void certify_case_softmax(certify_trial *t);
void certify_case_rms_norm(certify_trial *t);
void certify_case_sum_sq(certify_trial *t);
void certify_case_rms_apply(certify_trial *t);
void certify_case_rope(certify_trial *t);
void certify_case_lse_merge(certify_trial *t);
/* case_select.c */
void certify_case_top_k(certify_trial *t);
void certify_case_moe_route(certify_trial *t);
void certify_case_moe_ffn(certify_trial *t);

/* Bounds on NMSE by what computes; docs/abi.md says why these. */
#define CERTIFY_NMSE_F32    1e-10 /* elementwise and row ops */
#define CERTIFY_NMSE_MATMUL 1e-6  /* products with f32 and f16 weights */
#define CERTIFY_NMSE_BF16   1e-5  /* … and bf16 */
#define CERTIFY_NMSE_QUANT  5e-4  /* … and quantised ones: activations may be quantised too */
#define CERTIFY_NMSE_ROPE   1e-6

/* The bound for a product with weights of `type`. */
double certify_trial_bound(tdm_type type);
/* Every type a weight can have, 0-terminated by count. */
extern const tdm_type certify_weight_types[];
extern const size_t n_certify_weight_types;

#endif
