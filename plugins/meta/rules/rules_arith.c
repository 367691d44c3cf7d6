/* SPDX-License-Identifier: MIT
 *
 * rules_arith.c: rules of the elementwise ops. An addend is a value in the layout PARTIAL_SUM: each
 * member holds one term, and the value is their sum. Linear ops keep addends and do not merge them,
 * so that several ops need one exchange. Two addends are added on each member. A replicated value
 * that is added to an addend becomes the addend's residual: it is added once, in the exchange that
 * merges the addends.
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"

/* Both sources replicated. */
static bool pair_replicated(meta_compiler *c, const tdm_node *node) {
    int32_t f[2] = {meta_convert_replicated(c, node->src[0]),
                    meta_convert_replicated(c, node->src[1])};
    return f[0] >= 0 && f[1] >= 0 && meta_emit_give(c, f, c->equivalent, NULL);
}

/* The second source, cut like the first. Each axis of it has the length of the first's or 1; an
 * axis of length 1 stays whole. */
static int32_t repeated_convert(meta_compiler *c, int32_t value, const int64_t ne[TDM_MAX_DIMS],
                                const meta_cut *cut) {
    const int64_t *small = meta_value(c, value)->ne;
    if (small[cut->axis] == 1 && ne[cut->axis] != 1) return meta_convert_replicated(c, value);
    return meta_convert_cut(c, value, cut);
}

/* At least one source is split; the other is cut in the same way. */
static bool pair_split(meta_compiler *c, const tdm_node *node) {
    const int64_t *ne = meta_value(c, node->src[0])->ne;
    int32_t best[2] = {meta_variant_best(c, node->src[0]), meta_variant_best(c, node->src[1])};
    int32_t f[2] = {-1, -1};
    meta_cut cut;
    if (best[0] < 0 || best[1] < 0) return false;
    if (meta_variant_cut(c, best[0], node->src[0], &cut)) {
        f[0] = best[0];
        f[1] = repeated_convert(c, node->src[1], ne, &cut);
    } else if (meta_variant_cut(c, best[1], node->src[1], &cut) &&
               meta_value(c, node->src[1])->ne[cut.axis] == ne[cut.axis]) {
        f[0] = meta_convert_cut(c, node->src[0], &cut);
        f[1] = best[1];
    } else {
        return pair_replicated(c, node);
    }
    return f[0] >= 0 && f[1] >= 0 && meta_emit_give(c, f, meta_cut_id(c, node->dst[0], &cut), NULL);
}

static bool is_partial(const meta_compiler *c, int32_t variant) {
    return meta_variant_kind(c, variant) == TDM_LAYOUT_PARTIAL_SUM;
}

static bool same_shape(const meta_compiler *c, const tdm_node *node) {
    return memcmp(meta_value(c, node->src[0])->ne, meta_value(c, node->src[1])->ne,
                  sizeof(int64_t) * TDM_MAX_DIMS) == 0;
}

/* The sum of two residuals, both exact variants; either may be -1. Every member computes it from
 * equal bits with one addition, which rounds the same everywhere, so the sum is exact too. */
static int32_t residuals_add(meta_compiler *c, int32_t a, int32_t b) {
    int32_t src[2] = {a, b}, out, layout = c->exact;
    if (a < 0 || b < 0) return a < 0 ? b : a;
    const meta_emission e = {.src = src, .dst_layout = &layout};
    return meta_emit(c, &e, &out) ? out : -1;
}

/* The sum of two addends. A member that holds a term of both adds them; a member with a term of one
 * keeps that term. */
static bool add_partials(meta_compiler *c, const tdm_node *node, int32_t a, int32_t b) {
    const tdm_value *v = meta_value(c, node->dst[0]);
    int32_t variant = meta_variant_new(c, node->dst[0], c->partial);
    for (int32_t d = 0; variant >= 0 && d < c->n_member; d++) {
        int32_t src[2] = {meta_variant_at(c, a)->local[d], meta_variant_at(c, b)->local[d]};
        int32_t out = src[0] >= 0 ? src[0] : src[1];
        meta_result dst = meta_result_like(v);
        if (src[0] >= 0 && src[1] >= 0 &&
            !meta_emit_on(c, d, TDM_OP_ADD, &node->params, src, 2, &dst, 1, &out))
            return false;
        meta_variant_at(c, variant)->local[d] = out;
    }
    if (variant < 0) return false;
    int32_t rest =
        residuals_add(c, meta_variant_at(c, a)->residual, meta_variant_at(c, b)->residual);
    meta_variant_at(c, variant)->residual = rest;
    meta_variant_link(c, variant);
    return c->status == TDM_OK;
}

/* The sum of an addend and a replicated value of its shape, which joins the addend's residual. */
static bool add_residual(meta_compiler *c, const tdm_node *node, int32_t addend, int32_t whole) {
    int32_t variant = meta_variant_new(c, node->dst[0], c->partial);
    if (variant < 0) return false;
    memcpy(meta_variant_at(c, variant)->local, meta_variant_at(c, addend)->local,
           sizeof meta_variant_at(c, variant)->local);
    int32_t rest = residuals_add(c, meta_variant_at(c, addend)->residual, whole);
    meta_variant_at(c, variant)->residual = rest;
    meta_variant_link(c, variant);
    return c->status == TDM_OK;
}

/* The sum of an addend and a bias, which is repeated over it. The first member that holds a term
 * adds the bias; no other does, since the bias counts once. At least one member holds a term. */
static bool add_bias(meta_compiler *c, const tdm_node *node, int32_t addend, int32_t bias) {
    const tdm_value *v = meta_value(c, node->dst[0]);
    int32_t d = 0, variant = meta_variant_new(c, node->dst[0], c->partial);
    if (variant < 0) return false;
    memcpy(meta_variant_at(c, variant)->local, meta_variant_at(c, addend)->local,
           sizeof meta_variant_at(c, variant)->local);
    while (meta_variant_at(c, addend)->local[d] < 0) d++;
    int32_t src[2] = {meta_variant_at(c, addend)->local[d], meta_variant_at(c, bias)->local[d]},
            out;
    meta_result dst = meta_result_like(v);
    if (!meta_emit_on(c, d, TDM_OP_ADD, &node->params, src, 2, &dst, 1, &out)) return false;
    meta_variant_at(c, variant)->local[d] = out;
    meta_variant_at(c, variant)->residual = meta_variant_at(c, addend)->residual;
    meta_variant_link(c, variant);
    return true;
}

static bool has_sender(const meta_compiler *c, int32_t variant) {
    for (int32_t d = 0; d < c->n_member; d++)
        if (meta_variant_at(c, variant)->local[d] >= 0) return true;
    return false;
}

static bool add_rule(meta_compiler *c, const tdm_node *node) {
    int32_t a = meta_variant_best(c, node->src[0]), b = meta_variant_best(c, node->src[1]);
    if (a < 0 || b < 0) return false;
    bool equal = same_shape(c, node);
    if (is_partial(c, a) && is_partial(c, b) && equal) return add_partials(c, node, a, b);
    if (is_partial(c, a) && !is_partial(c, b) && has_sender(c, a)) {
        b = meta_convert_exact(c, node->src[1]);
        if (b < 0) return false;
        return equal ? add_residual(c, node, a, b) : add_bias(c, node, a, b);
    }
    if (is_partial(c, b) && !is_partial(c, a) && equal) {
        a = meta_convert_exact(c, node->src[0]);
        return a >= 0 && add_residual(c, node, b, a);
    }
    return pair_split(c, node);
}
const meta_rule meta_rule_add = {
    add_rule, "addend + addend: an addend; addend + replicated: waits as the residual of the sum; "
              "addend + bias: one member adds it; else as MUL"};

static bool mul_rule(meta_compiler *c, const tdm_node *node) {
    int32_t a = meta_variant_best(c, node->src[0]), b = meta_variant_best(c, node->src[1]);
    if (a < 0 || b < 0) return false;
    /* A product is linear in an addend. With a residual the product would also have to scale
     * that. */
    if (is_partial(c, a) && meta_variant_at(c, a)->residual < 0 &&
        meta_variant_kind(c, b) == TDM_LAYOUT_REPLICATED) {
        int32_t src[2] = {a, b};
        return meta_emit_give(c, src, c->partial, NULL);
    }
    return pair_split(c, node);
}
const meta_rule meta_rule_mul = {mul_rule, "a cut of either is taken by the other, axes of length "
                                           "1 stay whole; addend * replicated: an addend"};
/* Addends are merged before: each of them divided by 0 would be infinite, of either sign, and their
 * sum NaN where a device alone computes an infinity. */
const meta_rule meta_rule_div = {pair_split,
                                 "a cut of either is taken by the other, axes of length "
                                 "1 stay whole; an addend is merged before"};

/* An op that computes each element from the same element of its source: keeps any split. */
static bool each(meta_compiler *c, const tdm_node *node) {
    int32_t f = meta_variant_best(c, node->src[0]);
    if (f < 0) return false;
    if (meta_variant_kind(c, f) == TDM_LAYOUT_SPLIT)
        return meta_emit_give(c, &f, meta_variant_at(c, f)->layout, NULL);
    f = meta_convert_replicated(c, node->src[0]);
    return f >= 0 && meta_emit_give(c, &f, c->equivalent, NULL);
}

static bool scale_rule(meta_compiler *c, const tdm_node *node) {
    int32_t f = meta_variant_best(c, node->src[0]);
    if (f < 0) return false;
    if (is_partial(c, f) && meta_variant_at(c, f)->residual < 0 && node->params.scale.bias == 0)
        return meta_emit_give(c, &f, c->partial, NULL);
    return each(c, node);
}
const meta_rule meta_rule_scale = {scale_rule, "any cut passes; an addend too where bias is 0"};

static bool act_rule(meta_compiler *c, const tdm_node *node) {
    return each(c, node);
}
const meta_rule meta_rule_act = {act_rule, "any cut passes"};

const meta_rule meta_rule_clamp = {each, "any cut passes"};
const meta_rule meta_rule_sqrt = {each, "any cut passes"};

static bool glu_rule(meta_compiler *c, const tdm_node *node) {
    return pair_split(c, node);
}
const meta_rule meta_rule_glu = {glu_rule, "a cut of either is taken by the other"};
