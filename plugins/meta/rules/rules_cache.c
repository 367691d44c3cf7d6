/* SPDX-License-Identifier: MIT
 *
 * rules_cache.c: rules of the ops that read or write a KV cache.
 *
 * A cache is replicated, cut by KV heads, or cut by sequence. Cut by heads, each member writes its
 * KV heads and computes the attention of their query heads. Cut by sequence, each member holds all
 * heads of its own pages: it writes the rows of these pages, computes the attention of all query
 * heads over them, and the results are merged by log-sum-exp.
 *
 * A row that several members store must have the same bits on all of them. Otherwise their results
 * drift apart with every token that reads it. So stored rows come from meta_convert_exact_pair or
 * meta_convert_cuts_exact, which give every holder the owner's bits.
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"

/* The cut of an axis of n elements by which member d holds elements lo[d] * times up to, but not
 * including, hi[d] * times. */
static meta_cut heads_cut(int32_t axis, int64_t n, const int64_t *lo, const int64_t *hi,
                          int64_t times) {
    meta_cut cut = {.axis = axis, .n_segment = 1, .repeat = 1};
    cut.segments[0].n_unit = n;
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
        if (lo[d] >= hi[d]) continue;
        cut.segments[0].lo[d] = lo[d] * times;
        cut.segments[0].hi[d] = hi[d] * times;
    }
    return cut;
}

/* K and V rows to be stored, as each member needs them. An absent value (-1) gives -1 in out. */
static bool rows_convert(meta_compiler *c, const int32_t values[2], const meta_state *s,
                         int32_t out[2]) {
    meta_cut cuts[2];
    if (!s->is_cut || s->is_by_page) return meta_convert_exact_pair(c, values, out);
    for (int i = 0; i < 2; i++)
        if (values[i] >= 0)
            cuts[i] = heads_cut(1, meta_value(c, values[i])->ne[1], s->head_lo, s->head_hi, 1);
    return meta_convert_cuts_exact(c, values, cuts, out);
}

/* The step block as a whole on every member, also where another layout was declared for it. */
static int32_t step_variant(meta_compiler *c, int32_t value) {
    return meta_convert_exact(c, value);
}

static bool kv_write_rule(meta_compiler *c, const tdm_node *node) {
    const meta_state *s = meta_state_get(c, node->src[3], node->params.kv.kv);
    int32_t src[4] = {-1, -1, step_variant(c, node->src[2]), -1};
    const meta_emission e = {.src = src, .state = s, .state_src = 3};
    return s != NULL && src[2] >= 0 && rows_convert(c, node->src, s, src) && meta_emit(c, &e, NULL);
}
const meta_rule meta_rule_kv_write = {
    kv_write_rule, "cache cut by heads: k and v are cut alike; by sequence: each member writes the "
                   "rows of its pages; rows held twice are the owner's"};

static bool kv_import_rule(meta_compiler *c, const tdm_node *node) {
    return kv_write_rule(c, node);
}
const meta_rule meta_rule_kv_import = {kv_import_rule, "as KV_WRITE"};

/* KV_SHIFT and KV_COPY: each member processes the part of the cache that it holds. */
static bool kv_maintain_rule(meta_compiler *c, const tdm_node *node) {
    const meta_state *s = meta_state_get(c, node->src[1], node->params.kv.kv);
    int32_t src[3] = {step_variant(c, node->src[0]), -1, -1};
    if (s == NULL || src[0] < 0) return false;
    if (node->n_src > 2 && node->src[2] >= 0) {
        src[2] = meta_convert_replicated(c, node->src[2]);
        if (src[2] < 0) return false;
    }
    const meta_emission e = {.src = src, .state = s, .state_src = 1};
    return meta_emit(c, &e, NULL);
}
const meta_rule meta_rule_kv_shift = {kv_maintain_rule, "each member turns what it holds"};
const meta_rule meta_rule_kv_copy = {kv_maintain_rule, "each member copies what it holds"};

static bool kv_export_rule(meta_compiler *c, const tdm_node *node) {
    const meta_state *s = meta_state_get(c, node->src[1], node->params.kv.kv);
    int32_t src[2] = {step_variant(c, node->src[0]), -1}, layouts[2], variants[2];
    if (s == NULL || src[0] < 0) return false;
    for (int32_t i = 0; i < 2; i++) {
        layouts[i] = s->is_by_page ? c->exact : c->equivalent;
        if (node->dst[i] < 0) continue;
        c->is_by_page[node->dst[i]] = s->is_by_page;
        if (!s->is_cut || s->is_by_page) continue;
        meta_cut cut = heads_cut(1, meta_value(c, node->dst[i])->ne[1], s->head_lo, s->head_hi, 1);
        layouts[i] = meta_cut_id(c, node->dst[i], &cut);
    }
    const meta_emission e = {.src = src, .dst_layout = layouts, .state = s, .state_src = 1};
    if (!meta_emit(c, &e, variants)) return false;
    meta_variant_link(c, variants[0]);
    meta_variant_link(c, variants[1]);
    return c->status == TDM_OK;
}
const meta_rule meta_rule_kv_export = {kv_export_rule,
                                       "cut by heads: rows are cut alike; by sequence: each row "
                                       "comes from the member that has its page"};

/* ---- Attention ---- */

/* The lists of positions of a sparse attention; *out is -1 where the node has none. A list that all
 * KV heads share is on every member. Where each KV head has a list and the cache is cut by heads,
 * the lists are cut alike. */
static bool list_convert(meta_compiler *c, const tdm_node *node, const meta_state *s,
                         int32_t *out) {
    *out = -1;
    if (node->src[4] < 0) return true;
    const int64_t n_list = meta_value(c, node->src[4])->ne[2];
    if (n_list > 1 && s->is_cut && !s->is_by_page) {
        const meta_cut cut = heads_cut(2, n_list, s->head_lo, s->head_hi, 1);
        *out = meta_convert_cut(c, node->src[4], &cut);
    } else {
        *out = meta_convert_replicated(c, node->src[4]);
    }
    return *out >= 0;
}

/* Each member computes the query heads of `cut`. Its state holds the KV heads from s->head_lo on,
 * or all of them where the state is not cut. */
static bool attention_by_heads(meta_compiler *c, const tdm_node *node, const meta_state *s,
                               const meta_cut *cut) {
    int32_t src[6] = {
        meta_convert_cut(c, node->src[0], cut), step_variant(c, node->src[1]), -1, -1, -1, -1};
    int32_t layouts[2] = {-1, -1}, variants[2] = {-1, -1};
    tdm_op_params params[TDM_MAX_MEMBERS];
    meta_cut sink = *cut; /* the bias has heads on axis 1, as the queries */
    if (src[0] < 0 || src[1] < 0 || !list_convert(c, node, s, &src[4])) return false;
    sink.axis = 0;
    if (node->src[3] >= 0 && (src[3] = meta_convert_cut(c, node->src[3], &sink)) < 0) return false;
    if (node->src[5] >= 0 && (src[5] = meta_convert_cut(c, node->src[5], cut)) < 0) return false;
    for (int32_t i = 0; i < 2; i++)
        if (node->dst[i] >= 0) layouts[i] = meta_cut_id(c, node->dst[i], cut);
    for (int32_t d = 0; d < c->n_member; d++) {
        params[d] = node->params;
        params[d].attention.first_head += (int32_t)cut->segments[0].lo[d];
        if (s->is_cut) params[d].attention.first_head_kv += (int32_t)s->head_lo[d];
    }
    const meta_emission e = {
        .src = src, .dst_layout = layouts, .params = params, .state = s, .state_src = 2};
    if (!meta_emit(c, &e, variants)) return false;
    meta_variant_link(c, variants[0]);
    meta_variant_link(c, variants[1]);
    return c->status == TDM_OK;
}

/* Adds the sink to the merge as one more part with o = 0, m = sink, l = 1. The first member that
 * holds pages adds it to its own part, since the sink counts once. */
static bool sink_add(meta_compiler *c, int32_t d, int32_t sink, int32_t *o, int32_t *ml) {
    meta_part *part = &c->plan->members[d].part;
    int64_t o_ne[TDM_MAX_DIMS], ml_ne[TDM_MAX_DIMS];
    memcpy(o_ne, meta_part_value(part, *o)->ne, sizeof o_ne);
    memcpy(ml_ne, meta_part_value(part, *ml)->ne, sizeof ml_ne);
    const int64_t heads[TDM_MAX_DIMS] = {1, ml_ne[1], 1, 1};
    tdm_op_params one = {{{0}}};
    one.scale.bias = 1;
    int32_t l = meta_emit_zeros(c, d, TDM_TYPE_F32, heads),
            m = meta_part_reshape(part, sink, heads), pair[2];
    meta_result dst = {TDM_TYPE_F32, 0, {1, ml_ne[1], 1, 1}};
    if (l < 0 || m < 0 || !meta_emit_on(c, d, TDM_OP_SCALE, &one, &l, 1, &dst, 1, &l)) return false;
    /* Repeated for every token. */
    pair[0] = meta_emit_zeros(c, d, TDM_TYPE_F32, ml_ne);
    pair[1] = meta_part_concat(part, m, l, 0);
    dst = (meta_result){TDM_TYPE_F32, 0, {ml_ne[0], ml_ne[1], ml_ne[2], ml_ne[3]}};
    if (pair[0] < 0 || pair[1] < 0 ||
        !meta_emit_on(c, d, TDM_OP_ADD, NULL, pair, 2, &dst, 1, &pair[0]))
        return false;
    *o = meta_part_concat(part, *o, meta_emit_zeros(c, d, TDM_TYPE_F32, o_ne), 3);
    *ml = meta_part_concat(part, *ml, pair[0], 3);
    return (*o >= 0 && *ml >= 0) || meta_out_of_memory(c);
}

static bool attention_by_page(meta_compiler *c, const tdm_node *node, const meta_state *s) {
    const tdm_value *q = meta_value(c, node->src[0]), *o = meta_value(c, node->dst[0]);
    int32_t src[2] = {meta_convert_replicated(c, node->src[0]), step_variant(c, node->src[1])};
    int32_t sink = node->src[3] >= 0 ? meta_convert_replicated(c, node->src[3]) : -1, list;
    int32_t bias = node->src[5] >= 0 ? meta_convert_replicated(c, node->src[5]) : -1;
    if (node->dst[1] >= 0)
        return meta_fail(c, TDM_UNSUPPORTED,
                         "attention with its (m, l) as a result over a cache cut by sequence; use "
                         "attention = heads or replicate");
    if (src[0] < 0 || src[1] < 0 || (node->src[3] >= 0 && sink < 0) ||
        (node->src[5] >= 0 && bias < 0) || !list_convert(c, node, s, &list))
        return false;
    tdm_layout lse;
    meta_layout_partial(c->n_member, TDM_LAYOUT_PARTIAL_LSE, &lse);
    int32_t layout = meta_layout_id(c, &lse);
    int32_t variant = meta_variant_new(c, node->dst[0], layout);
    int32_t ml = meta_variant_new(c, node->dst[0], layout);
    for (int32_t d = 0; variant >= 0 && ml >= 0 && d < c->n_member; d++) {
        if (s->local[d] < 0) continue;
        int32_t local[6] = {meta_variant_at(c, src[0])->local[d],
                            meta_variant_at(c, src[1])->local[d],
                            s->local[d],
                            -1,
                            list >= 0 ? meta_variant_at(c, list)->local[d] : -1,
                            bias >= 0 ? meta_variant_at(c, bias)->local[d] : -1};
        meta_result results[2] = {meta_result_like(o),
                                  {TDM_TYPE_F32, o->name, {2, q->ne[1], q->ne[2], 1}}};
        tdm_op_params params = node->params;
        int32_t out[2];
        params.attention.kv = s->kv[d];
        if (!meta_emit_on(c, d, node->op, &params, local, 6, results, 2, out)) return false;
        if (sink >= 0 && !sink_add(c, d, meta_variant_at(c, sink)->local[d], &out[0], &out[1]))
            return false;
        sink = -1;
        meta_variant_at(c, variant)->local[d] = out[0];
        meta_variant_at(c, ml)->local[d] = out[1];
    }
    if (variant < 0 || ml < 0) return false;
    meta_variant_at(c, variant)->residual = ml;
    meta_variant_link(c, variant);
    return c->status == TDM_OK;
}

static bool attention_whole(meta_compiler *c, const tdm_node *node, const meta_state *s) {
    int32_t src[6] = {
        meta_convert_replicated(c, node->src[0]), step_variant(c, node->src[1]), -1, -1, -1, -1};
    int32_t layouts[2] = {c->equivalent, c->equivalent}, variants[2];
    if (src[0] < 0 || src[1] < 0 || !list_convert(c, node, s, &src[4])) return false;
    if (node->src[3] >= 0 && (src[3] = meta_convert_replicated(c, node->src[3])) < 0) return false;
    if (node->src[5] >= 0 && (src[5] = meta_convert_replicated(c, node->src[5])) < 0) return false;
    const meta_emission e = {.src = src, .dst_layout = layouts, .state = s, .state_src = 2};
    if (!meta_emit(c, &e, variants)) return false;
    meta_variant_link(c, variants[0]);
    meta_variant_link(c, variants[1]);
    return c->status == TDM_OK;
}

static bool attention_rule(meta_compiler *c, const tdm_node *node) {
    const meta_state *s = meta_state_get(c, node->src[2], node->params.attention.kv);
    int64_t n_head = meta_value(c, node->src[0])->ne[1];
    meta_cut cut;
    if (s == NULL) return false;
    if (s->is_by_page) return attention_by_page(c, node, s);
    if (s->is_cut) {
        if (n_head % s->n_part != 0)
            return meta_fail(c, TDM_UNSUPPORTED,
                             "%lld query heads are not whole parts of a partition of %lld",
                             (long long)n_head, (long long)s->n_part);
        cut = heads_cut(1, n_head, s->part_lo, s->part_hi, n_head / s->n_part);
        return attention_by_heads(c, node, s, &cut);
    }
    /* Every member has the whole cache: a cut of the query heads passes. */
    int32_t q = meta_variant_best(c, node->src[0]);
    if (q < 0) return false;
    if (meta_variant_cut(c, q, node->src[0], &cut) && cut.axis == 1 && cut.repeat == 1 &&
        cut.n_segment == 1)
        return attention_by_heads(c, node, s, &cut);
    return attention_whole(c, node, s);
}
const meta_rule meta_rule_attention = {
    attention_rule,
    "cache cut by heads: q, sink, bias and result are cut by query heads, lists of KV heads with "
    "these; by sequence: "
    "all query heads on every member, merged by log-sum-exp, a sink as one part "
    "more; (m, l) as a result is then refused"};
