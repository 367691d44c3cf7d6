/* SPDX-License-Identifier: MIT
 *
 * trial.h: many small graphs of one op. Each graph that the device supports is run and compared
 * with the reference. The graphs and the reference of each op are in case_*.c, by family; the table
 * of ops is in op.c.
 */
#ifndef TANDEM_CERTIFY_TRIAL_H
#define TANDEM_CERTIFY_TRIAL_H

#include "certify/reference.h"
#include "certify/rig.h"
#include "certify/suite.h"

typedef enum certify_trial_mode {
    CERTIFY_TRIAL_NUMBERS, /* run the supported graphs and compare the results */
    CERTIFY_TRIAL_TRUTH    /* compare supports_op with the other slots; compare no results */
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
    /* Called after the random filling; NULL = none. `user` is for the case alone; not reset. */
    void (*fill)(certify_trial *t, certify_rig *rig);
    int64_t user;
};

typedef void (*certify_cases_fn)(certify_trial *t);

/* Starts a graph and sets its label; false after a failure, and where there is no memory: the case
 * then adds no nodes. */
TDM_PRINTF(3, 4)
bool certify_trial_begin(certify_trial *t, double nmse, const char *format, ...);
/* Finishes the graph, with `y` as an output, and runs or judges it as the mode says. */
void certify_trial_end(certify_trial *t, int32_t y);

/* The check of an op, the graphs that it runs, and their reference. */
typedef struct certify_op {
    certify_check check;
    certify_cases_fn cases;
    void (*reference)(const certify_operands *o);
} certify_op;

/* certify_op_<name> for each op of TDM_OP_LIST that computes values from sources alone, views
 * included; each is defined in its family's case_*.c. An op without one does not link. Ops on a
 * cache have checks of their own (kv.c), EXCHANGE too (exchange.c). */
#define CERTIFY_OP_VALUE_(name) extern const certify_op certify_op_##name;
#define CERTIFY_OP_VIEW_        CERTIFY_OP_VALUE_
#define CERTIFY_OP_CACHE_(name)
#define CERTIFY_OP_GROUP_                        CERTIFY_OP_CACHE_
#define CERTIFY_OP_(ID, name, number, kind, ...) CERTIFY_OP_##kind##_(name)
TDM_OP_LIST(CERTIFY_OP_)
#undef CERTIFY_OP_
#undef CERTIFY_OP_GROUP_
#undef CERTIFY_OP_CACHE_
#undef CERTIFY_OP_VIEW_
#undef CERTIFY_OP_VALUE_

/* The row of an op; NULL = none. */
const certify_op *certify_op_find(int32_t op);

/* Defines certify_op_<name>; a check takes no parameter, hence a function for each. The citation is
 * of op.h. */
#define CERTIFY_OP(name, id, cases, reference, cites)                                              \
    static certify_verdict name##_check(certify *c) {                                              \
        return certify_op_check(c, &certify_op_##name);                                            \
    }                                                                                              \
    const certify_op certify_op_##name = {{id, 1, cites, name##_check}, cases, reference};
certify_verdict certify_op_check(certify *c, const certify_op *op);

/* Runs the cases of one op; the trial has the outcome. */
void certify_trial_run(certify *c, const certify_op *op, certify_trial_mode mode,
                       certify_trial *trial_out);

/* Bounds on NMSE by the type of arithmetic; docs/abi.md gives the reasons. */
#define CERTIFY_NMSE_F32    1e-10 /* elementwise and row ops */
#define CERTIFY_NMSE_MATMUL 1e-6  /* products with f32 and f16 weights */
#define CERTIFY_NMSE_BF16   1e-5  /* … and bf16 */
#define CERTIFY_NMSE_QUANT  5e-4  /* … and quantised ones: activations may be quantised too */
#define CERTIFY_NMSE_ROPE   1e-6

/* The bound for a product with weights of `type`. */
double certify_trial_bound(tdm_type type);
/* Every type that a weight can have. */
extern const tdm_type certify_weight_types[]; /* [n_certify_weight_types] */
extern const size_t n_certify_weight_types;

#endif
