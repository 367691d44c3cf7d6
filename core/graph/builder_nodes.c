/* SPDX-License-Identifier: MIT
 *
 * builder_nodes.c: a function per op. Each lists sources and parameters; the op's rule decides
 * everything else, so that a graph that could be built is one that verifies.
 */
#include <string.h>

#include "core/graph/builder_state.h"
#include "core/graph/graph_arrays.h"
#include "core/graph/op_rules.h"

/* What a node is made from. */
typedef struct recipe {
    tdm_op op;
    int32_t src[TDM_MAX_SRC];        /* -1 = absent; as many as the op has */
    tdm_op_params params;            /* zero behind what the op uses */
    tdm_op_result want[TDM_MAX_DST]; /* what the rule leaves open */
} recipe;

static recipe recipe_of(tdm_op op, int32_t s0, int32_t s1, int32_t s2, int32_t s3) {
    recipe r;
    int i;
    memset(&r, 0, sizeof r);
    r.op = op;
    for (i = 0; i < TDM_MAX_SRC; i++) r.src[i] = -1;
    r.src[0] = s0, r.src[1] = s1, r.src[2] = s2, r.src[3] = s3;
    for (i = 0; i < TDM_MAX_DST; i++) r.want[i].is_present = true;
    return r;
}

/* Adds the node and its destinations; second_out (nullable) gets the second. Returns the first, or
 * -1 where there is none or something failed. */
static int32_t recipe_add(tdm_builder *b, recipe *r, int32_t *second_out) {
    tdm_graph *g = &b->graph;
    const tdm_op_rule *rule = tdm_op_rule_get(r->op);
    bool is_view = tdm_op_is_view(r->op);
    const tdm_view_place *place = NULL;
    tdm_node *node = tdm_builder_next_node(b);
    int i;
    if (second_out != NULL) *second_out = -1;
    if (node == NULL) return -1;
    node->op = r->op;
    node->n_src = rule->n_src;
    node->n_dst = rule->n_dst;
    memcpy(node->src, r->src, sizeof node->src);
    node->params = r->params;
    if (r->src[0] >= 0 && r->src[0] < g->n_value) place = &b->places[r->src[0]];
    if (tdm_op_infer(g, node, g->n_node, place, r->want, &b->err) != TDM_OK) return -1;
    for (i = 0; i < rule->n_dst; i++) {
        if (!r->want[i].is_present) continue;
        node->dst[i] = tdm_builder_add_value(b, TDM_VALUE_TEMP, r->want[i].type, r->want[i].ne,
                                             NULL, rule->name, is_view);
        if (node->dst[i] < 0) return -1;
    }
    if (is_view)
        tdm_view_place_step(node, tdm_graph_value(g, node->dst[0]), tdm_graph_value(g, r->src[0]),
                            &b->places[r->src[0]], &b->places[node->dst[0]]);
    g->n_node++;
    if (second_out != NULL) *second_out = node->dst[1];
    return node->dst[0];
}

int32_t tdm_build_reshape(tdm_builder *b, int32_t x, int64_t ne0, int64_t ne1, int64_t ne2,
                          int64_t ne3) {
    const int64_t ne[TDM_MAX_DIMS] = {ne0, ne1, ne2, ne3};
    recipe r = recipe_of(TDM_OP_RESHAPE, x, -1, -1, -1);
    memcpy(r.want[0].ne, ne, sizeof ne);
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_permute(tdm_builder *b, int32_t x, int a0, int a1, int a2, int a3) {
    const int32_t axis[TDM_MAX_DIMS] = {a0, a1, a2, a3};
    recipe r = recipe_of(TDM_OP_PERMUTE, x, -1, -1, -1);
    memcpy(r.params.permute.axis, axis, sizeof axis);
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_slice(tdm_builder *b, int32_t x, const int64_t offset[TDM_MAX_DIMS],
                        const int64_t ne[TDM_MAX_DIMS]) {
    recipe r = recipe_of(TDM_OP_SLICE, x, -1, -1, -1);
    memcpy(r.params.slice.offset, offset, sizeof r.params.slice.offset);
    memcpy(r.want[0].ne, ne, sizeof r.want[0].ne);
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_copy(tdm_builder *b, int32_t x, tdm_type type) {
    recipe r = recipe_of(TDM_OP_COPY, x, -1, -1, -1);
    r.want[0].type = (int32_t)type;
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_concat(tdm_builder *b, int32_t x, int32_t y, int axis) {
    recipe r = recipe_of(TDM_OP_CONCAT, x, y, -1, -1);
    r.params.concat.axis = axis;
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_get_rows(tdm_builder *b, int32_t table, int32_t id, int64_t first_row) {
    recipe r = recipe_of(TDM_OP_GET_ROWS, table, id, -1, -1);
    r.params.rows.first_row = first_row;
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_matmul(tdm_builder *b, int32_t w, int32_t x) {
    recipe r = recipe_of(TDM_OP_MATMUL, w, x, -1, -1);
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_add(tdm_builder *b, int32_t x, int32_t y) {
    recipe r = recipe_of(TDM_OP_ADD, x, y, -1, -1);
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_mul(tdm_builder *b, int32_t x, int32_t y) {
    recipe r = recipe_of(TDM_OP_MUL, x, y, -1, -1);
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_scale(tdm_builder *b, int32_t x, float scale, float bias) {
    recipe r = recipe_of(TDM_OP_SCALE, x, -1, -1, -1);
    r.params.scale.scale = scale;
    r.params.scale.bias = bias;
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_act(tdm_builder *b, int32_t x, tdm_act act) {
    recipe r = recipe_of(TDM_OP_ACT, x, -1, -1, -1);
    r.params.act.act = (int32_t)act;
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_glu(tdm_builder *b, int32_t gate, int32_t up, tdm_act act) {
    recipe r = recipe_of(TDM_OP_GLU, gate, up, -1, -1);
    r.params.act.act = (int32_t)act;
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_softmax(tdm_builder *b, int32_t x) {
    recipe r = recipe_of(TDM_OP_SOFTMAX, x, -1, -1, -1);
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_rms_norm(tdm_builder *b, int32_t x, int32_t weight, float eps) {
    recipe r = recipe_of(TDM_OP_RMS_NORM, x, weight, -1, -1);
    r.params.norm.eps = eps;
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_sum_sq(tdm_builder *b, int32_t x) {
    recipe r = recipe_of(TDM_OP_SUM_SQ, x, -1, -1, -1);
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_rms_apply(tdm_builder *b, int32_t x, int32_t sum, int32_t weight, float eps,
                            int64_t n) {
    recipe r = recipe_of(TDM_OP_RMS_APPLY, x, sum, weight, -1);
    r.params.norm.eps = eps;
    r.params.norm.n = n;
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_rope(tdm_builder *b, int32_t x, int32_t pos, int32_t factor,
                       const tdm_rope_params *params) {
    recipe r = recipe_of(TDM_OP_ROPE, x, pos, factor, -1);
    r.params.rope = *params;
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_top_k(tdm_builder *b, int32_t x, int32_t k, int32_t index_base, int32_t *id_out) {
    recipe r = recipe_of(TDM_OP_TOP_K, x, -1, -1, -1);
    r.params.top_k.k = k;
    r.params.top_k.index_base = index_base;
    return recipe_add(b, &r, id_out);
}

int32_t tdm_build_moe_route(tdm_builder *b, int32_t logit, int32_t bias,
                            const tdm_route_params *params, int32_t *weight_out) {
    recipe r = recipe_of(TDM_OP_MOE_ROUTE, logit, bias, -1, -1);
    r.params.route = *params;
    return recipe_add(b, &r, weight_out);
}

int32_t tdm_build_moe_ffn(tdm_builder *b, int32_t x, int32_t id, int32_t weight, int32_t gate,
                          int32_t up, int32_t down, tdm_act act, int32_t first_expert,
                          int32_t n_expert_all) {
    recipe r = recipe_of(TDM_OP_MOE_FFN, x, id, weight, gate);
    r.src[4] = up;
    r.src[5] = down;
    r.params.moe.act = (int32_t)act;
    r.params.moe.first_expert = first_expert;
    r.params.moe.n_expert_all = n_expert_all;
    return recipe_add(b, &r, NULL);
}

void tdm_build_kv_write(tdm_builder *b, int32_t k, int32_t v, int32_t step, int32_t state,
                        int32_t kv) {
    recipe r = recipe_of(TDM_OP_KV_WRITE, k, v, step, state);
    r.params.kv.kv = kv;
    recipe_add(b, &r, NULL);
}

int32_t tdm_build_attention(tdm_builder *b, int32_t q, int32_t step, int32_t state, int32_t sink,
                            const tdm_attention_params *params, int32_t *ml_out) {
    recipe r = recipe_of(TDM_OP_ATTENTION, q, step, state, sink);
    r.params.attention = *params;
    r.want[1].is_present = ml_out != NULL;
    return recipe_add(b, &r, ml_out);
}

void tdm_build_kv_shift(tdm_builder *b, int32_t step, int32_t state, int32_t factor, int32_t kv,
                        const tdm_rope_params *rope) {
    recipe r = recipe_of(TDM_OP_KV_SHIFT, step, state, factor, -1);
    r.params.shift.kv = kv;
    r.params.shift.rope = *rope;
    recipe_add(b, &r, NULL);
}

void tdm_build_kv_copy(tdm_builder *b, int32_t step, int32_t state, int32_t kv) {
    recipe r = recipe_of(TDM_OP_KV_COPY, step, state, -1, -1);
    r.params.kv.kv = kv;
    recipe_add(b, &r, NULL);
}

int32_t tdm_build_kv_export(tdm_builder *b, int32_t step, int32_t state, int32_t kv, int64_t n_row,
                            int32_t *v_out) {
    recipe r = recipe_of(TDM_OP_KV_EXPORT, step, state, -1, -1);
    r.params.kv.kv = kv;
    r.want[0].ne[2] = n_row;
    /* v follows from the description, so that callers need not ask first */
    if (kv >= 0 && kv < b->graph.n_kv)
        r.want[1].is_present = (tdm_graph_kv(&b->graph, kv)->flags & TDM_KV_V_FROM_K) == 0;
    return recipe_add(b, &r, v_out);
}

void tdm_build_kv_import(tdm_builder *b, int32_t k, int32_t v, int32_t step, int32_t state,
                         int32_t kv) {
    recipe r = recipe_of(TDM_OP_KV_IMPORT, k, v, step, state);
    r.params.kv.kv = kv;
    recipe_add(b, &r, NULL);
}

int32_t tdm_build_lse_merge(tdm_builder *b, int32_t o, int32_t ml) {
    recipe r = recipe_of(TDM_OP_LSE_MERGE, o, ml, -1, -1);
    return recipe_add(b, &r, NULL);
}

int32_t tdm_build_exchange(tdm_builder *b, int32_t x, int32_t arena, int32_t step, int32_t residual,
                           tdm_type type, const int64_t ne[TDM_MAX_DIMS],
                           const tdm_exchange_params *params) {
    recipe r = recipe_of(TDM_OP_EXCHANGE, x, arena, step, residual);
    r.params.exchange = *params;
    r.want[0].type = (int32_t)type;
    memcpy(r.want[0].ne, ne, sizeof r.want[0].ne);
    return recipe_add(b, &r, NULL);
}
