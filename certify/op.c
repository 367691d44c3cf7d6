/* SPDX-License-Identifier: MIT
 *
 * op.c: every op that the device claims against the reference, and what it says about ops
 * against what it does. The graphs are in certify_case_*.c.
 */
#include "certify/trial.h"

const certify_op_cases certify_all_cases[] = {
    {TDM_OP_ADD, certify_case_add},
    {TDM_OP_MUL, certify_case_mul},
    {TDM_OP_SCALE, certify_case_scale},
    {TDM_OP_COPY, certify_case_copy},
    {TDM_OP_RESHAPE, certify_case_views},
    {TDM_OP_CONCAT, certify_case_concat},
    {TDM_OP_GET_ROWS, certify_case_get_rows},
    {TDM_OP_MATMUL, certify_case_matmul},
    {TDM_OP_ACT, certify_case_act},
    {TDM_OP_GLU, certify_case_glu},
    {TDM_OP_SOFTMAX, certify_case_softmax},
    {TDM_OP_RMS_NORM, certify_case_rms_norm},
    {TDM_OP_SUM_SQ, certify_case_sum_sq},
    {TDM_OP_RMS_APPLY, certify_case_rms_apply},
    {TDM_OP_ROPE, certify_case_rope},
    {TDM_OP_TOP_K, certify_case_top_k},
    {TDM_OP_MOE_ROUTE, certify_case_moe_route},
    {TDM_OP_MOE_FFN, certify_case_moe_ffn},
    {TDM_OP_LSE_MERGE, certify_case_lse_merge},
};
const size_t n_certify_all_cases = sizeof certify_all_cases / sizeof certify_all_cases[0];

/* A device may have caches and no op of the table: then the cache checks speak for it. */
static certify_verdict one_check(certify *c) {
    certify_trial t = {0};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < n_certify_all_cases; i++) {
        certify_trial_run(c, &certify_all_cases[i], CERTIFY_TRIAL_NUMBERS, &t);
        if (t.verdict != CERTIFY_PASSED || t.n_run > 0) return t.verdict;
    }
    return certify_fail(c, "supports_op refuses every graph of every op; the last: %.300s",
                        c->failure.message);
}

static certify_verdict truth_check(certify *c) {
    certify_trial t = {0};
    certify_verdict verdict = certify_open(c);
    for (size_t i = 0; verdict == CERTIFY_PASSED && i < n_certify_all_cases; i++) {
        certify_trial_run(c, &certify_all_cases[i], CERTIFY_TRIAL_TRUTH, &t);
        verdict = t.verdict;
    }
    return verdict;
}

static certify_verdict op_check(certify *c, int32_t op) {
    certify_trial t = {0};
    certify_verdict verdict = certify_open(c);
    for (size_t i = 0; verdict == CERTIFY_PASSED && i < n_certify_all_cases; i++) {
        if (certify_all_cases[i].op != op) continue;
        certify_trial_run(c, &certify_all_cases[i], CERTIFY_TRIAL_NUMBERS, &t);
        if (t.verdict == CERTIFY_PASSED && t.n_run == 0)
            return certify_skip(c, "supports_op takes none of %d graphs: %.200s", t.n_refused,
                                c->failure.message);
        return t.verdict;
    }
    return verdict;
}

/* A check function for each op, since a check takes no parameter. */
#define OP_CHECK(name, op)                                                                         \
    static certify_verdict name##_check(certify *c) {                                              \
        return op_check(c, op);                                                                    \
    }
OP_CHECK(add, TDM_OP_ADD)
OP_CHECK(mul, TDM_OP_MUL)
OP_CHECK(scale, TDM_OP_SCALE)
OP_CHECK(copy, TDM_OP_COPY)
OP_CHECK(views, TDM_OP_RESHAPE)
OP_CHECK(concat, TDM_OP_CONCAT)
OP_CHECK(get_rows, TDM_OP_GET_ROWS)
OP_CHECK(matmul, TDM_OP_MATMUL)
OP_CHECK(act, TDM_OP_ACT)
OP_CHECK(glu, TDM_OP_GLU)
OP_CHECK(softmax, TDM_OP_SOFTMAX)
OP_CHECK(rms_norm, TDM_OP_RMS_NORM)
OP_CHECK(sum_sq, TDM_OP_SUM_SQ)
OP_CHECK(rms_apply, TDM_OP_RMS_APPLY)
OP_CHECK(rope, TDM_OP_ROPE)
OP_CHECK(top_k, TDM_OP_TOP_K)
OP_CHECK(moe_route, TDM_OP_MOE_ROUTE)
OP_CHECK(moe_ffn, TDM_OP_MOE_FFN)
OP_CHECK(lse_merge, TDM_OP_LSE_MERGE)

static const certify_check checks[] = {
    {"op.one", 0, "plugin.h: \"Ten slots make one: […] supports_op; graph_compute_sync.\"",
     one_check},
    {"op.truth", 1,
     "device.h: supports_op: \"TDM_OK if the device runs this node with these types and shapes, "
     "TDM_UNSUPPORTED with the reason if not.\"",
     truth_check},
    {"op.add", 1,
     "op.h: ADD: \"a, b -> a + b; each ne of b equals a's or is 1 (repeated)\"; \"No op reads "
     "outside its sources or writes outside its destinations\"",
     add_check},
    {"op.mul", 1, "op.h: MUL: \"a, b -> a * b; shapes as in ADD\"", mul_check},
    {"op.scale", 1,
     "op.h: SCALE: \"x -> x * scale + bias\"; \"No op reads outside its sources or writes outside "
     "its destinations\"",
     scale_check},
    {"op.copy", 1, "op.h: COPY: \"x (any view, f32 f16 bf16 i32) -> contiguous y of y's type\"",
     copy_check},
    {"op.views", 1,
     "op.h: Views: \"no bytes move; strides are derived by whoever executes. The source may itself "
     "be a view\"",
     views_check},
    {"op.concat", 1, "op.h: CONCAT: \"a, b -> y: a then b along axis\"", concat_check},
    {"op.get-rows", 1,
     "op.h: GET_ROWS: \"row id - first_row of the table; a foreign id […] gives a row of zeros\"",
     get_rows_check},
    {"op.matmul", 1, "op.h: MATMUL: \"y[j] = sum_i w[i, j] * x[i]\"", matmul_check},
    {"op.act", 1, "op.h: ACT: \"x -> act(x)\", tdm_act", act_check},
    {"op.glu", 1, "op.h: GLU: \"gate, up -> act(gate) * up\"", glu_check},
    {"op.softmax", 1, "op.h: SOFTMAX: \"x -> softmax over ne[0]; a row of only -inf gives zeros\"",
     softmax_check},
    {"op.rms-norm", 1, "op.h: RMS_NORM: \"x / sqrt(mean(x^2) + eps) * weight\"", rms_norm_check},
    {"op.sum-sq", 1, "op.h: SUM_SQ: \"x -> [1, ...]: sum of squares\"", sum_sq_check},
    {"op.rms-apply", 1, "op.h: RMS_APPLY: \"x / sqrt(sum / n + eps) * weight\"", rms_apply_check},
    {"op.rope", 1,
     "op.h: ROPE: \"elements rope_offset .. + n_rot of each head are turned by their position, the "
     "rest copied; a token at position -1 is copied\"",
     rope_check},
    {"op.top-k", 1,
     "op.h: TOP_K: \"descending; ids + index_base\"; \"Ties go to the lower index. NaN ranks below "
     "everything.\"",
     top_k_check},
    {"op.moe-route", 1, "op.h: MOE_ROUTE and tdm_route_params", moe_route_check},
    {"op.moe-ffn", 1,
     "op.h: MOE_FFN: \"y = sum_u weight[u] * down_e(act(gate_e x) * (up_e x)), e = id[u]; experts "
     "outside first_expert .. + n_expert add nothing\"",
     moe_ffn_check},
    {"op.lse-merge", 1, "op.h: LSE_MERGE: \"attention over the union of the parts\"",
     lse_merge_check},
};
const certify_table certify_op_table = CERTIFY_TABLE(checks);
