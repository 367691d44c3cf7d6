/* SPDX-License-Identifier: MIT
 *
 * op.c: checks of every supported op against the reference, and of supports_op against what running
 * does. The graphs are in case_*.c.
 */
#include "certify/trial.h"

#define OP_VALUE(name)                   &certify_op_##name
#define OP_VIEW                          OP_VALUE
#define OP_CACHE(name)                   NULL
#define OP_GROUP                         OP_CACHE
#define OP_(ID, name, number, kind, ...) [TDM_OP_##ID] = OP_##kind(name),
static const certify_op *const ops[TDM_OP_COUNT_] = {TDM_OP_LIST(OP_)};

const certify_op *certify_op_find(int32_t op) {
    return op > TDM_OP_NONE && op < TDM_OP_COUNT_ ? ops[op] : NULL;
}

/* Runs the cases of one op, the first that the device supports. Cache ops do not count: a device
 * that supports no op of the table fails. */
static certify_verdict one_check(certify *c) {
    certify_trial t = {0};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (int32_t i = 0; i < TDM_OP_COUNT_; i++) {
        if (ops[i] == NULL) continue;
        certify_trial_run(c, ops[i], CERTIFY_TRIAL_NUMBERS, &t);
        if (t.verdict != CERTIFY_PASSED || t.n_run > 0) return t.verdict;
    }
    return certify_fail(c, "supports_op refuses every graph of every op; the last: %.300s",
                        c->failure.message);
}

static certify_verdict truth_check(certify *c) {
    certify_trial t = {0};
    certify_verdict verdict = certify_open(c);
    for (int32_t i = 0; verdict == CERTIFY_PASSED && i < TDM_OP_COUNT_; i++) {
        if (ops[i] == NULL) continue;
        certify_trial_run(c, ops[i], CERTIFY_TRIAL_TRUTH, &t);
        verdict = t.verdict;
    }
    return verdict;
}

certify_verdict certify_op_check(certify *c, const certify_op *op) {
    certify_trial t = {0};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    certify_trial_run(c, op, CERTIFY_TRIAL_NUMBERS, &t);
    if (t.verdict == CERTIFY_PASSED && t.n_run == 0)
        return certify_skip(c, "supports_op takes none of %d graphs: %.200s", t.n_refused,
                            c->failure.message);
    return t.verdict;
}

static const certify_check checks[] = {
    {"op.one", 0, "plugin.h: \"Ten slots make one: […] supports_op; graph_compute_sync.\"",
     one_check},
    {"op.truth", 1,
     "device.h: supports_op: \"TDM_OK if the device runs this node with these types and shapes, "
     "TDM_UNSUPPORTED with the reason if not.\"",
     truth_check},
};

#define CHECK_VALUE(name)                   &certify_op_##name.check
#define CHECK_VIEW                          CHECK_VALUE
#define CHECK_CACHE(name)                   NULL
#define CHECK_GROUP                         CHECK_CACHE
#define CHECK_(ID, name, number, kind, ...) [TDM_OP_##ID] = CHECK_##kind(name),
static const certify_check *const op_checks[TDM_OP_COUNT_] = {TDM_OP_LIST(CHECK_)};

const certify_table certify_op_table = {checks, sizeof checks / sizeof checks[0], op_checks,
                                        TDM_OP_COUNT_, true};
