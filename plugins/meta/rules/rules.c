/* SPDX-License-Identifier: MIT
 *
 * rules.c: the table of rules, one row for each op, total: whatever the layouts of an op's sources,
 * its rule makes something of them, by a conversion if need be.
 */
#include "plugins/meta/rules/compile.h"

static const meta_rule rules[TDM_OP_COUNT_] = {
    [TDM_OP_RESHAPE] = {meta_rule_reshape,
                        "keeps any layout that has an axis in the new shape; addends stay addends"},
    [TDM_OP_PERMUTE] = {meta_rule_permute, "the cut moves with its axis; addends stay addends"},
    [TDM_OP_SLICE] = {meta_rule_slice,
                      "other axes: the cut stays; the cut axis: each member's range is "
                      "intersected with the slice; addends stay addends"},
    [TDM_OP_COPY] = {meta_rule_copy, "keeps any cut; addends stay addends where the copy is f32"},
    [TDM_OP_CONCAT] = {meta_rule_concat,
                       "along the cut axis of both: segments side by side; along another: the "
                       "cut of one is taken by the other"},
    [TDM_OP_GET_ROWS] = {meta_rule_get_rows,
                         "table cut by rows: addends, foreign rows are zeros; by columns: the cut "
                         "stays; rows of an addend are an addend"},
    [TDM_OP_MATMUL] = {meta_rule_matmul,
                       "weight cut by rows: the result is cut along axis 0; by columns: x is cut "
                       "alike and results are addends; by matrices: x and result are cut along "
                       "axis 1; whole weight: cuts of x but its rows pass, addends pass where the "
                       "result is no larger"},
    [TDM_OP_ADD] = {meta_rule_add,
                    "addend + addend: an addend; addend + replicated: waits as the residual of "
                    "the sum; addend + bias: one member adds it; else as MUL"},
    [TDM_OP_MUL] = {meta_rule_mul,
                    "a cut of either is taken by the other, axes of length 1 stay whole; addend * "
                    "replicated: an addend"},
    [TDM_OP_SCALE] = {meta_rule_scale, "any cut passes; an addend too where bias is 0"},
    [TDM_OP_ACT] = {meta_rule_act, "any cut passes"},
    [TDM_OP_GLU] = {meta_rule_glu, "a cut of either is taken by the other"},
    [TDM_OP_SOFTMAX] = {meta_rule_row, "a cut that leaves rows whole passes"},
    [TDM_OP_RMS_NORM] = {meta_rule_rms_norm,
                         "a cut that leaves rows whole passes; cut rows: sum of squares, one sum "
                         "over the members, applied to each part"},
    [TDM_OP_SUM_SQ] = {meta_rule_sum_sq,
                       "a cut that leaves rows whole passes; cut rows give addends"},
    [TDM_OP_RMS_APPLY] = {meta_rule_rms_apply,
                          "any cut passes, the sum follows or is replicated, the weight follows"},
    [TDM_OP_ROPE] = {meta_rule_rope,
                     "a cut that leaves heads whole passes; positions follow a cut of tokens"},
    [TDM_OP_TOP_K] = {meta_rule_decide, "decided by the owner and sent"},
    [TDM_OP_MOE_ROUTE] = {meta_rule_decide, "decided by the owner and sent"},
    [TDM_OP_MOE_FFN] = {meta_rule_moe_ffn,
                        "experts cut along their hidden dimension or assigned whole: addends"},
    [TDM_OP_KV_WRITE] = {meta_rule_kv_write,
                         "cache cut by heads: k and v are cut alike; by sequence: each member "
                         "writes the rows of its pages; rows held twice are the owner's"},
    [TDM_OP_ATTENTION] =
        {meta_rule_attention,
         "cache cut by heads: q, sink and result are cut by query heads; by "
         "sequence: all query heads on every member, merged by log-sum-exp, a sink "
         "as one part more; (m, l) as a result is then refused"},
    [TDM_OP_KV_SHIFT] = {meta_rule_kv_maintain, "each member turns what it holds"},
    [TDM_OP_KV_COPY] = {meta_rule_kv_maintain, "each member copies what it holds"},
    [TDM_OP_KV_EXPORT] = {meta_rule_kv_export,
                          "cut by heads: rows are cut alike; by sequence: each row comes from the "
                          "member that has its page"},
    [TDM_OP_KV_IMPORT] = {meta_rule_kv_import, "as KV_WRITE"},
    [TDM_OP_LSE_MERGE] = {meta_rule_lse_merge, "a cut of heads or tokens passes"},
};

const char *meta_op_name(int32_t op) {
    static const char *const names[TDM_OP_COUNT_] = {
        [TDM_OP_RESHAPE] = "reshape",
        [TDM_OP_PERMUTE] = "permute",
        [TDM_OP_SLICE] = "slice",
        [TDM_OP_COPY] = "copy",
        [TDM_OP_CONCAT] = "concat",
        [TDM_OP_GET_ROWS] = "get_rows",
        [TDM_OP_MATMUL] = "matmul",
        [TDM_OP_ADD] = "add",
        [TDM_OP_MUL] = "mul",
        [TDM_OP_SCALE] = "scale",
        [TDM_OP_ACT] = "act",
        [TDM_OP_GLU] = "glu",
        [TDM_OP_SOFTMAX] = "softmax",
        [TDM_OP_RMS_NORM] = "rms_norm",
        [TDM_OP_SUM_SQ] = "sum_sq",
        [TDM_OP_RMS_APPLY] = "rms_apply",
        [TDM_OP_ROPE] = "rope",
        [TDM_OP_TOP_K] = "top_k",
        [TDM_OP_MOE_ROUTE] = "moe_route",
        [TDM_OP_MOE_FFN] = "moe_ffn",
        [TDM_OP_KV_WRITE] = "kv_write",
        [TDM_OP_ATTENTION] = "attention",
        [TDM_OP_KV_SHIFT] = "kv_shift",
        [TDM_OP_KV_COPY] = "kv_copy",
        [TDM_OP_KV_EXPORT] = "kv_export",
        [TDM_OP_KV_IMPORT] = "kv_import",
        [TDM_OP_LSE_MERGE] = "lse_merge",
        [TDM_OP_EXCHANGE] = "exchange",
    };
    return op > TDM_OP_NONE && op < TDM_OP_COUNT_ && names[op] != NULL ? names[op] : "unknown op";
}

const meta_rule *meta_rule_find(int32_t op) {
    if (op <= TDM_OP_NONE || op >= TDM_OP_COUNT_ || rules[op].apply == NULL) return NULL;
    return &rules[op];
}
