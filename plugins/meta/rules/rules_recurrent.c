/* SPDX-License-Identifier: MIT
 *
 * rules_recurrent.c: rules of the ops on recurrent states. The units of a state are independent of
 * one another: each member computes the channels or heads of its own units. A state that is not cut
 * is kept by every member, or by the one that computes its layer (split = layer).
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"

/* A source in a cut, or whole where cut is NULL. False after a failure; absent gives -1. */
static bool source_get(meta_compiler *c, int32_t value, const meta_cut *cut, int32_t *out) {
    *out = -1;
    if (value < 0) return true;
    *out = cut != NULL ? meta_convert_cut(c, value, cut) : meta_convert_replicated(c, value);
    return *out >= 0;
}

static bool node_emit(meta_compiler *c, const int32_t *src, int32_t layout,
                      const tdm_op_params *params, const meta_state *s, int32_t state_src) {
    int32_t variant = -1;
    const meta_emission e = {
        .src = src, .dst_layout = &layout, .params = params, .state = s, .state_src = state_src};
    if (!meta_emit(c, &e, &variant)) return false;
    meta_variant_link(c, variant);
    return c->status == TDM_OK;
}

/* The channels of each member's units, in every segment. */
static meta_cut channels_cut(const meta_state *s, const tdm_conv_params *p, int64_t n_unit,
                             int32_t axis) {
    meta_cut cut = {.axis = axis, .n_segment = p->n_segment, .repeat = 1};
    for (int32_t i = 0; i < p->n_segment; i++) {
        cut.segments[i].n_unit = n_unit * p->unit_len[i];
        for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
            if (s->head_lo[d] >= s->head_hi[d]) continue;
            cut.segments[i].lo[d] = s->head_lo[d] * p->unit_len[i];
            cut.segments[i].hi[d] = s->head_hi[d] * p->unit_len[i];
        }
    }
    return cut;
}

static bool conv1d_rule(meta_compiler *c, const tdm_node *node) {
    enum { X, W, BIAS, STEP, STATE };
    const tdm_conv_params *p = &node->params.conv;
    const meta_state *s = meta_state_get(c, node->src[STATE], p->kv);
    int32_t src[5] = {-1, -1, -1, meta_convert_exact(c, node->src[STEP]), -1};
    if (s == NULL || src[STEP] < 0) return false;
    const int64_t n_unit = tdm_graph_kv(c->graph, p->kv)->n_head_kv;
    meta_cut row = channels_cut(s, p, n_unit, 0), column = row;
    column.axis = 1;
    if (!source_get(c, node->src[X], s->is_cut ? &row : NULL, &src[X]) ||
        !source_get(c, node->src[W], s->is_cut ? &column : NULL, &src[W]) ||
        !source_get(c, node->src[BIAS], s->is_cut ? &row : NULL, &src[BIAS]))
        return false;
    int32_t layout = s->is_cut ? meta_cut_id(c, node->dst[0], &row) : c->equivalent;
    return node_emit(c, src, layout, NULL, s, STATE);
}
const meta_rule meta_rule_conv1d = {
    conv1d_rule, "state cut by units: x, w, bias and result are cut by their channels"};

/* The state has one unit. */
static bool block_pool_rule(meta_compiler *c, const tdm_node *node) {
    enum { X, SCORE, BIAS, STEP, STATE };
    const meta_state *s = meta_state_get(c, node->src[STATE], node->params.pool.kv);
    int32_t src[5] = {-1, -1, -1, meta_convert_exact(c, node->src[STEP]), -1};
    if (s == NULL || src[STEP] < 0) return false;
    if (s->is_cut)
        return meta_fail(c, TDM_UNSUPPORTED,
                         "a state of block_pool has one unit, which is not cut");
    for (int32_t i = X; i <= BIAS; i++)
        if (!source_get(c, node->src[i], NULL, &src[i])) return false;
    return node_emit(c, src, c->equivalent, NULL, s, STATE);
}
const meta_rule meta_rule_block_pool = {block_pool_rule,
                                        "every member that keeps the state computes all of it"};

/* The heads of v of each member's units: one run of heads, or one in each tile where heads are
 * tiled (is_tiled in op.h). */
static bool values_cut(meta_compiler *c, const meta_state *s, const tdm_scan_params *p, int64_t n_v,
                       int64_t n_unit, meta_cut *cut) {
    int32_t n_run = p->is_tiled ? p->heads_per_k : 1;
    int64_t heads = p->is_tiled ? 1 : n_v / n_unit;
    if (n_run > TDM_MAX_SEGMENTS)
        return meta_fail(c, TDM_UNSUPPORTED, "%d tiles of heads cannot be cut, %d can", (int)n_run,
                         TDM_MAX_SEGMENTS);
    *cut = (meta_cut){.axis = 1, .n_segment = n_run, .repeat = 1};
    for (int32_t i = 0; i < n_run; i++) {
        cut->segments[i].n_unit = n_unit * heads;
        for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
            if (s->head_lo[d] >= s->head_hi[d]) continue;
            cut->segments[i].lo[d] = s->head_lo[d] * heads;
            cut->segments[i].hi[d] = s->head_hi[d] * heads;
        }
    }
    return true;
}

/* The heads of q and k that these heads of v read. */
static meta_cut keys_cut(const tdm_scan_params *p, const meta_state *s, const meta_cut *values,
                         int64_t n_k) {
    meta_cut cut = {.axis = 1, .n_segment = 1, .repeat = 1};
    cut.segments[0].n_unit = n_k;
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
        int64_t lo = values->segments[0].lo[d], hi = values->segments[0].hi[d];
        if (lo >= hi) continue;
        cut.segments[0].lo[d] =
            p->is_tiled ? s->head_lo[d] : (p->first_head + lo) / p->heads_per_k - p->first_head_k;
        cut.segments[0].hi[d] =
            p->is_tiled ? s->head_hi[d]
                        : (p->first_head + hi - 1) / p->heads_per_k - p->first_head_k + 1;
    }
    return cut;
}

static bool linear_scan_rule(meta_compiler *c, const tdm_node *node) {
    enum { Q, K, V, G, A, BETA, STEP, STATE, ERASE, WRITE };
    const tdm_scan_params *p = &node->params.scan;
    const meta_state *s = meta_state_get(c, node->src[STATE], p->kv);
    const int64_t n_v = meta_value(c, node->src[V])->ne[1];
    int32_t src[10] = {-1, -1, -1, -1, -1, -1, meta_convert_exact(c, node->src[STEP]), -1, -1, -1};
    tdm_op_params params[TDM_MAX_MEMBERS];
    meta_cut values, keys;
    if (s == NULL || src[STEP] < 0) return false;
    if (s->is_cut) {
        if (!values_cut(c, s, p, n_v, tdm_graph_kv(c->graph, p->kv)->n_head_kv, &values))
            return false;
        keys = keys_cut(p, s, &values, meta_value(c, node->src[Q])->ne[1]);
    }
    for (int32_t i = Q; i <= WRITE; i++) {
        const meta_cut *cut = i <= K || i >= ERASE ? &keys : &values;
        if (i == STEP || i == STATE) continue;
        if (!source_get(c, node->src[i], s->is_cut ? cut : NULL, &src[i])) return false;
    }
    if (!s->is_cut) return node_emit(c, src, c->equivalent, NULL, s, STATE);
    for (int32_t d = 0; d < c->n_member; d++) {
        params[d] = node->params;
        if (p->is_tiled) continue;
        params[d].scan.first_head += (int32_t)values.segments[0].lo[d];
        params[d].scan.first_head_k += (int32_t)keys.segments[0].lo[d];
    }
    return node_emit(c, src, meta_cut_id(c, node->dst[0], &values), params, s, STATE);
}
const meta_rule meta_rule_linear_scan = {
    linear_scan_rule, "state cut by units: v, g, a, beta and result are cut by heads; q, k, erase "
                      "and write hold the heads that those read"};
