/* SPDX-License-Identifier: MIT
 *
 * fusions.c: the table of fusions: which nodes one kernel computes. Emitters are beside those of the
 * ops.
 */
#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/plan/fuse.h"

static const tdm_node *node_if(const gpu_uses *uses, int32_t node, tdm_op op) {
    const tdm_node *n = tdm_graph_node(uses->graph, node);
    return n->op == (int32_t)op ? n : NULL;
}

/* ADD, then RMS_NORM of the sum. Others may read the sum too: it is written. */
static bool add_norm_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    const tdm_node *norm = node_if(uses, node, TDM_OP_RMS_NORM);
    int32_t add = norm == NULL ? -1 : gpu_uses_writer(uses, norm->src[0], TDM_OP_ADD);
    *out = (gpu_fused){.node = {add, node}, .n = 2};
    return add >= 0;
}

/* ROPE of what the node's first source is, where no other node reads it. */
static bool rope_match(const gpu_uses *uses, int32_t node, tdm_op op, gpu_fused *out) {
    const tdm_node *reader = node_if(uses, node, op);
    int32_t rope = reader == NULL ? -1 : gpu_uses_writer(uses, reader->src[0], TDM_OP_ROPE);
    *out = (gpu_fused){.node = {rope, node}, .n = 2};
    return rope >= 0 && gpu_uses_is_inner(uses, reader->src[0]);
}

/* ROPE of the keys, then KV_WRITE. */
static bool rope_write_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return rope_match(uses, node, TDM_OP_KV_WRITE, out);
}

/* ROPE of the queries, then ATTENTION. */
static bool rope_attention_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return rope_match(uses, node, TDM_OP_ATTENTION, out);
}

const gpu_fusion *gpu_fusions(int32_t *n_out) {
    static const gpu_fusion fusions[] = {
        {"add, rms_norm", add_norm_match, gpu_fused_add_norm},
        {"rope, kv_write", rope_write_match, gpu_fused_rope_write},
        {"rope, attention", rope_attention_match, gpu_fused_rope_attention},
    };
    *n_out = (int32_t)(sizeof fusions / sizeof *fusions);
    return fusions;
}
