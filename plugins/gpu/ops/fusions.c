/* SPDX-License-Identifier: MIT
 *
 * fusions.c: the table of fusions and their patterns. The emitters are in the files of the ops,
 * those of streams with their patterns in streams.c.
 */
#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/ops/streams.h"
#include "plugins/gpu/plan/fuse.h"

static const tdm_node *node_if(const gpu_uses *uses, int32_t node, tdm_op op) {
    const tdm_node *n = tdm_graph_node(uses->graph, node);
    return n->op == (int32_t)op ? n : NULL;
}

/* ADD, then RMS_NORM of the sum. Other nodes may read the sum: the kernel stores it. */
static bool add_norm_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    const tdm_node *norm = node_if(uses, node, TDM_OP_RMS_NORM);
    int32_t add = norm == NULL ? -1 : gpu_uses_writer(uses, norm->src[0], TDM_OP_ADD);
    *out = (gpu_fused){.node = {add, node}, .n = 2};
    return add >= 0;
}

/* A node of op `before`, then one of op `after` whose source `src` is its result and which alone
 * reads it. */
static bool chain_match(const gpu_uses *uses, int32_t node, tdm_op before, tdm_op after, int src,
                        gpu_fused *out) {
    const tdm_node *reader = node_if(uses, node, after);
    int32_t writer = reader == NULL ? -1 : gpu_uses_writer(uses, reader->src[src], before);
    *out = (gpu_fused){.node = {writer, node}, .n = 2};
    return writer >= 0 && gpu_uses_is_inner(uses, reader->src[src]);
}

/* The pattern `before`, then a node of op `op` whose first source is its result and which alone
 * reads it. */
static bool after_match(const gpu_uses *uses, int32_t node, tdm_op op,
                        bool (*before)(const gpu_uses *uses, int32_t node, gpu_fused *out),
                        gpu_fused *out) {
    const tdm_node *reader = node_if(uses, node, op);
    if (reader == NULL || !gpu_uses_is_inner(uses, reader->src[0])) return false;
    int32_t value = reader->src[0],
            writer = uses->places[value].base == value ? uses->writer[value] : -1;
    if (writer < 0 || !before(uses, writer, out)) return false;
    out->node[out->n++] = node;
    return true;
}

/* ADD, RMS_NORM, then MUL of the norm by weights. */
static bool add_norm_mul_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return after_match(uses, node, TDM_OP_MUL, add_norm_match, out);
}

static bool norm_mul_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_RMS_NORM, TDM_OP_MUL, 0, out);
}

static bool norm_scale_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_RMS_NORM, TDM_OP_SCALE, 0, out);
}

static bool scale_act_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_SCALE, TDM_OP_ACT, 0, out);
}

static bool act_scale_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_ACT, TDM_OP_SCALE, 0, out);
}

static bool scale_act_scale_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return after_match(uses, node, TDM_OP_SCALE, scale_act_match, out);
}

static bool act_mul_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_ACT, TDM_OP_MUL, 0, out);
}

static bool mul_act_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_ACT, TDM_OP_MUL, 1, out);
}

static bool repeat_mul_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_REPEAT, TDM_OP_MUL, 0, out);
}

/* MUL, then ADD to its result; below also followed by SINKHORN, ACT, or ACT and SCALE. */
static bool affine_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_MUL, TDM_OP_ADD, 0, out);
}

/* MUL, ADD, then SINKHORN of a view of the result. */
static bool affine_sinkhorn_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    const tdm_node *sinkhorn = node_if(uses, node, TDM_OP_SINKHORN);
    if (sinkhorn == NULL || !gpu_uses_is_inner(uses, sinkhorn->src[0])) return false;
    int32_t add = gpu_uses_writer(uses, uses->places[sinkhorn->src[0]].base, TDM_OP_ADD);
    if (add < 0 || !affine_match(uses, add, out)) return false;
    out->node[out->n++] = node;
    return true;
}

static bool affine_act_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return after_match(uses, node, TDM_OP_ACT, affine_match, out);
}

static bool affine_act_scale_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return after_match(uses, node, TDM_OP_SCALE, affine_act_match, out);
}

static bool conv_act_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_CONV1D, TDM_OP_ACT, 0, out);
}

/* Sums of several values, from left to right. */
static bool sum_of_3_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_ADD, TDM_OP_ADD, 0, out);
}

static bool sum_of_4_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return after_match(uses, node, TDM_OP_ADD, sum_of_3_match, out);
}

static bool scaled_sum_of_4_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return after_match(uses, node, TDM_OP_SCALE, sum_of_4_match, out);
}

/* ROPE, then a node of op `op` whose first source is its result and which alone reads it. */
static bool rope_match(const gpu_uses *uses, int32_t node, tdm_op op, gpu_fused *out) {
    return chain_match(uses, node, TDM_OP_ROPE, op, 0, out);
}

/* ROPE of the keys, then KV_WRITE. */
static bool rope_write_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return rope_match(uses, node, TDM_OP_KV_WRITE, out);
}

/* ROPE of the queries, then ATTENTION. */
static bool rope_attention_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return rope_match(uses, node, TDM_OP_ATTENTION, out);
}

/* The MATMUL that writes the value, where only one node reads it; else -1. */
static int32_t inner_matmul(const gpu_uses *uses, int32_t value) {
    return gpu_uses_is_inner(uses, value) ? gpu_uses_writer(uses, value, TDM_OP_MATMUL) : -1;
}

/* MATMUL gate and MATMUL up of the same x, then GLU. */
static bool matmul_glu_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    const tdm_node *glu = node_if(uses, node, TDM_OP_GLU);
    if (glu == NULL) return false;
    int32_t gate = inner_matmul(uses, glu->src[0]), up = inner_matmul(uses, glu->src[1]);
    *out = (gpu_fused){.node = {gate, up, node}, .n = 3};
    return gate >= 0 && up >= 0 &&
           tdm_graph_node(uses->graph, gate)->src[1] == tdm_graph_node(uses->graph, up)->src[1];
}

/* True where `value`, a factor of the product that begins the chain, is computed no later than the
 * product's sources (by gpu_uses.depth): else the product would have to wait for it. */
static bool is_early(const gpu_uses *uses, const gpu_fused *chain, int32_t value) {
    const tdm_node *matmul = tdm_graph_node(uses->graph, chain->node[0]);
    return value >= 0 && uses->depth[uses->places[value].base] < uses->depth[matmul->dst[0]];
}

/* Appends the node, whose source k is the chain's result so far; before it, where the node is a
 * MUL, the ACT that writes its other source. False where the other source is a factor that is not
 * early. */
static bool end_append(const gpu_uses *uses, int32_t node, int k, gpu_fused *out) {
    const tdm_node *n = tdm_graph_node(uses->graph, node);
    const bool is_mul = n->op == TDM_OP_MUL;
    int32_t other = n->n_src > 1 ? n->src[1 - k] : -1;
    int32_t act = is_mul && gpu_uses_is_inner(uses, other)
                      ? gpu_uses_writer(uses, other, TDM_OP_ACT)
                      : -1;
    if (act >= 0) other = tdm_graph_node(uses->graph, act)->src[0];
    if ((is_mul || n->op == TDM_OP_GLU) && !is_early(uses, out, other)) return false;
    if (act >= 0) out->node[out->n++] = act;
    out->node[out->n++] = node;
    return true;
}

/* MATMUL, then n_end nodes, each of which alone reads the result of the one before. */
static bool ends_match(const gpu_uses *uses, int32_t node, int n_end, gpu_fused *out) {
    const tdm_node *n = tdm_graph_node(uses->graph, node);
    if (n_end == 0) {
        *out = (gpu_fused){.node = {node}, .n = 1};
        return n->op == TDM_OP_MATMUL;
    }
    int n_way = 0;
    if (n->op == TDM_OP_ACT || n->op == TDM_OP_SCALE) n_way = 1;
    if (n->op == TDM_OP_ADD || n->op == TDM_OP_MUL || n->op == TDM_OP_GLU) n_way = 2;
    for (int k = 0; k < n_way; k++) {
        int32_t writer = gpu_uses_is_inner(uses, n->src[k]) ? uses->writer[n->src[k]] : -1;
        if (writer >= 0 && ends_match(uses, writer, n_end - 1, out) &&
            end_append(uses, node, k, out))
            return true;
    }
    return false;
}

static bool matmul_end_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return ends_match(uses, node, 1, out);
}

static bool matmul_2_ends_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return ends_match(uses, node, 2, out);
}

static bool matmul_3_ends_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return ends_match(uses, node, 3, out);
}

const gpu_fusion *gpu_fusions(int32_t *n_out) {
    static const gpu_fusion fusions[] = {
        {"matmul, matmul, glu", matmul_glu_match, gpu_fused_matmul_glu},
        {"matmul with three ends", matmul_3_ends_match, gpu_fused_matmul_ends},
        {"matmul with two ends", matmul_2_ends_match, gpu_fused_matmul_ends},
        {"matmul with an end", matmul_end_match, gpu_fused_matmul_ends},
        {"write of streams, rms_norm, mul", gpu_streams_write_norm_mul_match,
         gpu_fused_streams_write},
        {"write of streams, rms_norm", gpu_streams_write_norm_match, gpu_fused_streams_write},
        {"write of streams", gpu_streams_write_match, gpu_fused_streams_write},
        {"read of streams, rms_norm", gpu_streams_read_norm_match, gpu_fused_streams_read},
        {"read of streams", gpu_streams_read_match, gpu_fused_streams_read},
        {"add, rms_norm, mul", add_norm_mul_match, gpu_fused_add_norm_mul},
        {"add, rms_norm", add_norm_match, gpu_fused_add_norm},
        {"rms_norm, mul", norm_mul_match, gpu_fused_norm_mul},
        {"rms_norm, scale", norm_scale_match, gpu_fused_norm_scale},
        {"rope, kv_write", rope_write_match, gpu_fused_rope_write},
        {"rope, attention", rope_attention_match, gpu_fused_rope_attention},
        {"mul, add, sinkhorn", affine_sinkhorn_match, gpu_fused_affine_sinkhorn},
        {"mul, add, act, scale", affine_act_scale_match, gpu_fused_affine_act},
        {"mul, add, act", affine_act_match, gpu_fused_affine_act},
        {"mul, add", affine_match, gpu_fused_affine_act},
        {"conv1d, act", conv_act_match, gpu_fused_conv_act},
        {"scale, act, scale", scale_act_scale_match, gpu_fused_scale_act_scale},
        {"scale, act", scale_act_match, gpu_fused_scale_act},
        {"act, scale", act_scale_match, gpu_fused_act_scale},
        {"act, mul", act_mul_match, gpu_fused_act_mul},
        {"mul by an act", mul_act_match, gpu_fused_mul_act},
        {"repeat, mul", repeat_mul_match, gpu_fused_repeat_mul},
        {"scaled sum of four", scaled_sum_of_4_match, gpu_fused_scaled_sum_of_4},
        {"sum of four", sum_of_4_match, gpu_fused_sum_of_4},
        {"sum of three", sum_of_3_match, gpu_fused_sum_of_3},
    };
    *n_out = (int32_t)(sizeof fusions / sizeof *fusions);
    return fusions;
}
