/* SPDX-License-Identifier: MIT
 *
 * rules_row.c: rules of the ops that combine the elements of a row (axis 0). They keep a cut of any
 * other axis. A norm over cut rows becomes three steps: the sum of squares of each part, an
 * exchange that adds these sums, and the application to each part.
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"

/* The cut of the first source, where it leaves rows whole; else false. A value of which the same
 * members hold every element leaves rows whole, whatever axis it is described along. False with
 * *variant < 0 after a failure. */
static bool whole_rows(meta_compiler *c, const tdm_node *node, int32_t *variant, meta_cut *cut) {
    *variant = meta_variant_best(c, node->src[0]);
    if (*variant < 0) return false;
    for (int32_t axis = 1; axis < TDM_MAX_DIMS; axis++)
        if (meta_layout_get_cut_along(meta_variant_layout(c, *variant),
                                      meta_value(c, node->src[0])->ne, axis, cut))
            return true;
    return false;
}

static bool row_rule(meta_compiler *c, const tdm_node *node) {
    int32_t f;
    meta_cut cut;
    if (whole_rows(c, node, &f, &cut))
        return meta_emit_give(c, &f, meta_variant_at(c, f)->layout, NULL);
    f = meta_convert_replicated(c, node->src[0]);
    return f >= 0 && meta_emit_give(c, &f, c->equivalent, NULL);
}
const meta_rule meta_rule_softmax = {row_rule, "a cut that leaves rows whole passes"};

/* A matrix is small: every member computes all of it. */
static bool sinkhorn_rule(meta_compiler *c, const tdm_node *node) {
    int32_t f = meta_convert_replicated(c, node->src[0]);
    return f >= 0 && meta_emit_give(c, &f, c->equivalent, NULL);
}
const meta_rule meta_rule_sinkhorn = {sinkhorn_rule, "every member computes all of it"};

static bool sum_sq_rule(meta_compiler *c, const tdm_node *node) {
    int32_t f;
    meta_cut cut;
    if (whole_rows(c, node, &f, &cut))
        return meta_emit_give(c, &f, meta_cut_id(c, node->dst[0], &cut), NULL);
    if (f < 0) return false;
    if (meta_variant_cut(c, f, node->src[0], &cut) && meta_cut_is_disjoint(&cut, c->n_member))
        return meta_emit_give(c, &f, c->partial, NULL);
    f = meta_convert_replicated(c, node->src[0]);
    return f >= 0 && meta_emit_give(c, &f, c->equivalent, NULL);
}
const meta_rule meta_rule_sum_sq = {sum_sq_rule,
                                    "a cut that leaves rows whole passes; cut rows give addends"};

/* The optional weight [ne0] for rows that are cut by row_cut (NULL: whole rows). An absent weight
 * (-1) gives -1 in *out. */
static bool weight_convert(meta_compiler *c, int32_t value, const meta_cut *row_cut, int32_t *out) {
    *out = -1;
    if (value < 0) return true;
    *out =
        row_cut != NULL ? meta_convert_cut(c, value, row_cut) : meta_convert_replicated(c, value);
    return *out >= 0;
}

/* RMS_NORM over cut rows: every member sums the squares of its part, an exchange adds the sums, and
 * every member applies the total to its part. */
static bool norm_apart(meta_compiler *c, const tdm_node *node, int32_t x, const meta_cut *cut) {
    const tdm_value *v = meta_value(c, node->src[0]);
    int32_t sums[TDM_MAX_MEMBERS], locals[TDM_MAX_MEMBERS], weight;
    meta_result results[TDM_MAX_MEMBERS];
    if (!weight_convert(c, node->src[1], cut, &weight)) return false;
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) sums[d] = -1;
    for (int32_t d = 0; d < c->n_member; d++) {
        int32_t local = meta_variant_at(c, x)->local[d];
        results[d] = (meta_result){v->type, v->name, {1, v->ne[1], v->ne[2], v->ne[3]}};
        if (local >= 0 &&
            !meta_emit_on(c, d, TDM_OP_SUM_SQ, NULL, &local, 1, &results[d], 1, &sums[d]))
            return false;
    }
    if (!meta_emit_exchange(c, TDM_EXCHANGE_SUM, 0, sums, NULL, NULL, results, locals))
        return false;
    int32_t variant = meta_variant_new(c, node->dst[0], meta_cut_id(c, node->dst[0], cut));
    for (int32_t d = 0; variant >= 0 && d < c->n_member; d++) {
        int32_t src[3] = {meta_variant_at(c, x)->local[d], locals[d],
                          weight >= 0 ? meta_variant_at(c, weight)->local[d] : -1};
        meta_result dst = {v->type, v->name, {0}};
        tdm_op_params params = {{{0}}};
        int32_t out;
        if (src[0] < 0) continue;
        meta_cut_local_shape(cut, v->ne, d, dst.ne);
        params.norm.eps = node->params.norm.eps;
        params.norm.n = v->ne[0];
        if (!meta_emit_on(c, d, TDM_OP_RMS_APPLY, &params, src, 3, &dst, 1, &out)) return false;
        meta_variant_at(c, variant)->local[d] = out;
    }
    meta_variant_link(c, variant);
    return c->status == TDM_OK;
}

static bool rms_norm_rule(meta_compiler *c, const tdm_node *node) {
    int32_t src[2];
    meta_cut cut;
    if (whole_rows(c, node, &src[0], &cut))
        return weight_convert(c, node->src[1], NULL, &src[1]) &&
               meta_emit_give(c, src, meta_variant_at(c, src[0])->layout, NULL);
    if (src[0] < 0) return false;
    if (meta_variant_cut(c, src[0], node->src[0], &cut) && cut.repeat == 1 &&
        meta_cut_is_disjoint(&cut, c->n_member))
        return norm_apart(c, node, src[0], &cut);
    src[0] = meta_convert_replicated(c, node->src[0]);
    return src[0] >= 0 && weight_convert(c, node->src[1], NULL, &src[1]) &&
           meta_emit_give(c, src, c->equivalent, NULL);
}
const meta_rule meta_rule_rms_norm = {rms_norm_rule,
                                      "a cut that leaves rows whole passes; cut rows: sum of "
                                      "squares, one sum over the members, applied to each part"};

static bool layer_norm_rule(meta_compiler *c, const tdm_node *node) {
    int32_t src[3];
    meta_cut cut;
    bool is_whole = whole_rows(c, node, &src[0], &cut);
    if (src[0] >= 0 && !is_whole) src[0] = meta_convert_replicated(c, node->src[0]);
    return src[0] >= 0 && weight_convert(c, node->src[1], NULL, &src[1]) &&
           weight_convert(c, node->src[2], NULL, &src[2]) &&
           meta_emit_give(c, src, is_whole ? meta_variant_at(c, src[0])->layout : c->equivalent,
                          NULL);
}
const meta_rule meta_rule_layer_norm = {
    layer_norm_rule, "a cut that leaves rows whole passes; cut rows are gathered"};

static bool rms_apply_rule(meta_compiler *c, const tdm_node *node) {
    tdm_op_params params[TDM_MAX_MEMBERS];
    int32_t src[3];
    meta_cut cut;
    bool is_whole = whole_rows(c, node, &src[0], &cut);
    if (src[0] < 0) return false;
    if (!is_whole && meta_variant_cut(c, src[0], node->src[0], &cut)) {
        for (int32_t d = 0; d < c->n_member; d++) {
            params[d] = node->params;
            if (params[d].norm.n == 0) params[d].norm.n = meta_value(c, node->src[0])->ne[0];
        }
        src[1] = meta_convert_replicated(c, node->src[1]);
        return src[1] >= 0 && weight_convert(c, node->src[2], &cut, &src[2]) &&
               meta_emit_give(c, src, meta_variant_at(c, src[0])->layout, params);
    }
    if (is_whole) {
        src[1] = meta_convert_cut(c, node->src[1], &cut);
    } else {
        src[0] = meta_convert_replicated(c, node->src[0]);
        src[1] = meta_convert_replicated(c, node->src[1]);
    }
    return src[0] >= 0 && src[1] >= 0 && weight_convert(c, node->src[2], NULL, &src[2]) &&
           meta_emit_give(c, src, is_whole ? meta_variant_at(c, src[0])->layout : c->equivalent,
                          NULL);
}
const meta_rule meta_rule_rms_apply = {
    rms_apply_rule, "any cut passes, the sum follows or is replicated, the weight follows"};

static bool rope_rule(meta_compiler *c, const tdm_node *node) {
    int32_t src[3];
    meta_cut cut;
    bool is_whole = whole_rows(c, node, &src[0], &cut);
    if (src[0] < 0) return false;
    if (!is_whole) src[0] = meta_convert_replicated(c, node->src[0]);
    if (is_whole && cut.axis == 2) { /* cut by tokens: the positions are cut alike */
        cut.axis = 0;
        src[1] = meta_convert_cut(c, node->src[1], &cut);
    } else {
        src[1] = meta_convert_exact(c, node->src[1]);
    }
    return src[0] >= 0 && src[1] >= 0 && weight_convert(c, node->src[2], NULL, &src[2]) &&
           meta_emit_give(c, src, is_whole ? meta_variant_at(c, src[0])->layout : c->equivalent,
                          NULL);
}
const meta_rule meta_rule_rope = {
    rope_rule, "a cut that leaves heads whole passes; positions follow a cut of tokens"};
