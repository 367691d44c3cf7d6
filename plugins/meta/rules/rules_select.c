/* SPDX-License-Identifier: MIT
 *
 * rules_select.c: rules of the ops that select. Members that round differently could select
 * different experts or rows, and their results would no longer belong together. So the owner
 * computes the selection, and one exchange sends it to every member. Members that compute equal
 * bits from equal bits select by themselves.
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"

/* Every member selects for itself: their bits are equal, so their selections are. */
static bool decide_alike(meta_compiler *c, const tdm_node *node, const int32_t *src,
                         const meta_state *state, int32_t state_src) {
    const int32_t layouts[TDM_MAX_DST] = {c->equivalent, c->equivalent};
    int32_t variants[TDM_MAX_DST];
    const meta_emission e = {
        .src = src, .dst_layout = layouts, .state = state, .state_src = state_src};
    if (!meta_emit(c, &e, variants)) return false;
    for (int32_t i = 0; i < node->n_dst; i++) meta_variant_link(c, variants[i]);
    return c->status == TDM_OK;
}

/* state NULL: the op reads none; else every member holds all of it. */
static bool decide(meta_compiler *c, const tdm_node *node, const meta_state *state,
                   int32_t state_src) {
    int32_t src[4] = {-1, -1, -1, -1}, owner = c->device->owner, local[4] = {-1, -1, -1, -1},
            chosen[TDM_MAX_DST];
    tdm_op_params params = node->params;
    meta_result results[TDM_MAX_DST], all[TDM_MAX_DST][TDM_MAX_MEMBERS];
    int32_t x[TDM_MAX_DST][TDM_MAX_MEMBERS], sent[TDM_MAX_DST][TDM_MAX_MEMBERS];
    static const int64_t first[TDM_MAX_MEMBERS];
    meta_crossing what[TDM_MAX_DST];
    for (int32_t i = 0; i < node->n_src; i++) {
        if (node->src[i] < 0 || (state != NULL && i == state_src)) continue;
        src[i] = meta_convert_replicated(c, node->src[i]);
        if (src[i] < 0) return false;
        local[i] = meta_variant_at(c, src[i])->local[owner];
    }
    if (c->device->is_uniform) return decide_alike(c, node, src, state, state_src);
    if (state != NULL) {
        local[state_src] = state->local[owner];
        params.kv.kv = state->kv[owner];
    }
    for (int32_t i = 0; i < node->n_dst; i++)
        results[i] = meta_result_like(meta_value(c, node->dst[i]));
    if (!meta_emit_on(c, owner, node->op, &params, local, node->n_src, results, node->n_dst,
                      chosen))
        return false;
    for (int32_t i = 0; i < node->n_dst; i++) {
        for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
            x[i][d] = d == owner ? chosen[i] : -1;
            all[i][d] = results[i];
        }
        what[i] = (meta_crossing){0, x[i], first, all[i], sent[i]};
    }
    if (!meta_emit_gathers(c, what, node->n_dst)) return false;
    for (int32_t i = 0; i < node->n_dst; i++) {
        int32_t variant = meta_variant_new(c, node->dst[i], c->exact);
        if (variant < 0) return false;
        memcpy(meta_variant_at(c, variant)->local, sent[i], sizeof sent[i]);
        meta_variant_link(c, variant);
    }
    return c->status == TDM_OK;
}

static bool decide_rule(meta_compiler *c, const tdm_node *node) {
    return decide(c, node, NULL, -1);
}

/* Whether only the caller reads the results of the node that is being compiled. */
static bool is_for_caller(const meta_compiler *c, const tdm_node *node) {
    if (c->device->n_override > 0) return false; /* a layout may be declared for them */
    for (int32_t i = 0; i < node->n_dst; i++)
        if (node->dst[i] < 0 || meta_value(c, node->dst[i])->kind != TDM_VALUE_OUTPUT) return false;
    for (int32_t n = c->node + 1; n < c->graph->n_node; n++) {
        const tdm_node *later = tdm_graph_node(c->graph, n);
        for (int32_t i = 0; i < later->n_src; i++)
            if (later->src[i] == node->dst[0] || later->src[i] == node->dst[1]) return false;
    }
    return true;
}

/* Each member selects from its own range of every row; the results are merged when they are
 * delivered. The best of a row are among the best of its ranges. */
static bool top_k_by_parts(meta_compiler *c, const tdm_node *node, int32_t x, const meta_cut *cut) {
    int32_t variants[2];
    for (int32_t i = 0; i < 2; i++) {
        variants[i] = meta_variant_new(c, node->dst[i], c->partial);
        if (variants[i] < 0) return false;
        meta_variant_at(c, variants[i])->is_candidates = true;
    }
    for (int32_t d = 0; d < c->n_member; d++) {
        const int64_t length = meta_cut_local_length(cut, d);
        int32_t local = meta_variant_at(c, x)->local[d], out[2];
        tdm_op_params params = node->params;
        meta_result results[2];
        if (!meta_is_active(c->device, d) || local < 0 || length == 0) continue;
        if (params.top_k.k > length) params.top_k.k = (int32_t)length;
        params.top_k.index_base += (int32_t)cut->segments[0].lo[d];
        for (int32_t i = 0; i < 2; i++) {
            results[i] = meta_result_like(meta_value(c, node->dst[i]));
            results[i].ne[0] = params.top_k.k;
        }
        if (!meta_emit_on(c, d, TDM_OP_TOP_K, &params, &local, 1, results, 2, out)) return false;
        for (int32_t i = 0; i < 2; i++) meta_variant_at(c, variants[i])->local[d] = out[i];
    }
    for (int32_t i = 0; i < 2; i++) meta_variant_link(c, variants[i]);
    return c->status == TDM_OK;
}

static bool top_k_rule(meta_compiler *c, const tdm_node *node) {
    int32_t x = meta_variant_best(c, node->src[0]);
    meta_cut cut;
    if (x < 0) return false;
    if (meta_variant_cut(c, x, node->src[0], &cut) && cut.axis == 0 && cut.repeat == 1 &&
        cut.n_segment == 1 && meta_cut_is_disjoint(&cut, c->n_member) && node->params.top_k.k > 0 &&
        is_for_caller(c, node))
        return top_k_by_parts(c, node, x, &cut);
    return decide_rule(c, node);
}
const meta_rule meta_rule_top_k = {
    top_k_rule,
    "cut rows, for the caller only: each member selects from its part, merged when delivered; else "
    "decided by the owner and sent; by every member where all compute equal bits"};
const meta_rule meta_rule_moe_route = {
    decide_rule, "decided by the owner and sent; by every member where all compute equal bits"};

/* Every member keeps the whole index, though only the owner reads it unless all compute alike. */
static bool kv_select_rule(meta_compiler *c, const tdm_node *node) {
    enum { STATE = 3 };
    const meta_state *s = meta_state_get(c, node->src[STATE], node->params.select.kv);
    if (s == NULL) return false;
    if (s->is_by_page)
        return meta_fail(c, TDM_UNSUPPORTED,
                         "sparse attention over a cache cut by sequence; use attention = heads or "
                         "replicate");
    if (s->is_cut)
        return meta_fail(c, TDM_UNSUPPORTED, "an index that is cut by heads; it has one for all");
    return decide(c, node, s, STATE);
}
const meta_rule meta_rule_kv_select = {
    kv_select_rule, "decided by the owner and sent; by every member where all compute equal bits; "
                    "an index cut by sequence is refused"};

static bool lse_merge_rule(meta_compiler *c, const tdm_node *node) {
    int32_t src[2] = {meta_variant_best(c, node->src[0]), meta_variant_best(c, node->src[1])};
    meta_cut cut;
    if (src[0] < 0 || src[1] < 0) return false;
    if (meta_variant_cut(c, src[0], node->src[0], &cut) && (cut.axis == 1 || cut.axis == 2)) {
        src[1] = meta_convert_cut(c, node->src[1], &cut);
        return src[1] >= 0 && meta_emit_give(c, src, meta_cut_id(c, node->dst[0], &cut), NULL);
    }
    src[0] = meta_convert_replicated(c, node->src[0]);
    src[1] = meta_convert_replicated(c, node->src[1]);
    return src[0] >= 0 && src[1] >= 0 && meta_emit_give(c, src, c->equivalent, NULL);
}
const meta_rule meta_rule_lse_merge = {lse_merge_rule, "a cut of heads or tokens passes"};
