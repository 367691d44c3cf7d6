/* SPDX-License-Identifier: MIT
 *
 * rules_matmul.c: rules of the products with weights. The axis along which the weight is cut
 * decides the layout of the result. Cut rows give a result that is cut along axis 0. Cut columns
 * give addends. Cut matrices (one per head) give a result that is cut by heads.
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"
#include "plugins/meta/layout/partition_table.h"

/* `n` columns of zeros, to be joined to a member's value; the other axes are those of the value. */
static int32_t zeros_like(meta_compiler *c, int32_t d, int32_t local, int64_t n) {
    int64_t ne[TDM_MAX_DIMS];
    memcpy(ne, meta_part_value(&c->plan->members[d].part, local)->ne, sizeof ne);
    ne[0] = n;
    return meta_emit_zeros(c, d, TDM_TYPE_F32, ne);
}

/* A weight's cut along the axis that its partition names. A weight of which the same members hold
 * every element could be seen as cut along any axis, so the axis must be given. */
static bool weight_cut(const meta_compiler *c, int32_t variant, int32_t value, meta_cut *out) {
    const tdm_value *v = meta_value(c, value);
    if (v->kind == TDM_VALUE_WEIGHT && v->partition > 0 &&
        meta_layout_get_cut_along(meta_variant_layout(c, variant), v->ne, v->axis, out))
        return true;
    return meta_variant_cut(c, variant, value, out);
}

/* Member d's part of x with zeros in place of the elements that a lower member holds too: each
 * column must enter the sum once. -1 where no element is left. */
static int32_t owned_only(meta_compiler *c, int32_t local, const meta_cut *cut, int32_t d) {
    meta_part *part = &c->plan->members[d].part;
    int64_t at = 0;
    int32_t out = -1;
    bool is_any = false;
    for (int32_t turn = 0; turn < cut->repeat; turn++)
        for (int32_t s = 0; s < cut->n_segment; s++) {
            const tdm_layout_segment *segment = &cut->segments[s];
            int64_t lo, hi, held = segment->hi[d] - segment->lo[d];
            meta_cut_owned(cut, s, d, &lo, &hi);
            bool is_owned = lo < hi;
            is_any |= is_owned;
            lo = is_owned ? lo - segment->lo[d] : held;
            hi = is_owned ? hi - segment->lo[d] : held;
            const int64_t ends[4] = {0, lo, hi, held};
            for (int i = 0; i < 3 && c->status == TDM_OK; i++) {
                if (ends[i] == ends[i + 1]) continue;
                int32_t piece = i == 1 ? meta_part_slice(part, local, 0, at + lo, hi - lo)
                                       : zeros_like(c, d, local, ends[i + 1] - ends[i]);
                out = out < 0 ? piece : meta_part_concat(part, out, piece, 0);
                if (out < 0) meta_out_of_memory(c);
            }
            at += held;
        }
    return is_any ? out : -1;
}

/* x cut like the columns of the weight. Where a superblock of the weight is cut (slice.h), a
 * member's slice is wider than its range; x gets zeros for the additional columns. */
static int32_t columns_convert(meta_compiler *c, const tdm_node *node, const meta_cut *cut) {
    const tdm_value *w = meta_value(c, node->src[0]);
    const bool is_disjoint = meta_cut_is_disjoint(cut, c->n_member);
    int32_t x = meta_convert_cut(c, node->src[1], cut), padded;
    if (x < 0 || (w->kind != TDM_VALUE_WEIGHT && is_disjoint)) return x;
    tdm_tensor_desc desc = meta_value_desc(c->graph, node->src[0]);
    /* The padded parts are no layout of x, so the variant is not linked. As PARTIAL_SUM it is left
     * out of the comparison of replicas (replicas.h). */
    padded = meta_variant_new(c, node->src[1], c->partial);
    for (int32_t d = 0; padded >= 0 && d < c->n_member; d++) {
        int32_t local = meta_variant_at(c, x)->local[d];
        meta_slice slice;
        tdm_error why = {0};
        if (local >= 0 && !is_disjoint) local = owned_only(c, local, cut, d);
        if (local < 0) continue;
        if (meta_slice_find(c->device, &desc, d, &slice, &why) != TDM_OK) {
            meta_fail(c, why.status, "%.400s", why.message);
            return -1;
        }
        const int64_t pads[2] = {slice.pad_lo, slice.pad_hi};
        for (int i = 0; i < 2; i++) {
            meta_part *part = &c->plan->members[d].part;
            if (pads[i] == 0) continue;
            int32_t z = zeros_like(c, d, local, pads[i]);
            local = meta_part_concat(part, i == 0 ? z : local, i == 0 ? local : z, 0);
            if (local < 0) meta_out_of_memory(c);
        }
        meta_variant_at(c, padded)->local[d] = local;
    }
    return c->status == TDM_OK ? padded : -1;
}

/* Converts the roles of x's tokens (value `role`, [tokens]; < 0 = the node has none) for a product
 * whose x is cut by `cut`; NULL: no axis of tokens is cut. Where `cut` is along an axis of tokens,
 * the roles are cut alike, else every member gets all of them. *variant_out is -1 where the node
 * has no roles. False where roles cannot follow the cut, or after a failure. */
static bool roles_convert(meta_compiler *c, int32_t x, int32_t role, const meta_cut *cut,
                          int32_t *variant_out) {
    *variant_out = -1;
    if (role < 0) return true;
    const int64_t *ne = meta_value(c, x)->ne;
    int64_t n = meta_value(c, role)->ne[0], count = 1;
    int first = TDM_MAX_DIMS; /* axes first .. 3 count the tokens */
    while (count != n && first > 1) count *= ne[--first];
    if (cut == NULL || cut->axis < first) {
        *variant_out = meta_convert_exact(c, role);
    } else if (ne[cut->axis] == n) {
        meta_cut tokens = *cut;
        tokens.axis = 0;
        *variant_out = meta_convert_cut(c, role, &tokens);
    }
    return *variant_out >= 0;
}

static bool matmul_cut_weight(meta_compiler *c, const tdm_node *node, int32_t w,
                              const meta_cut *cut) {
    meta_cut result = *cut;
    int32_t src[3] = {w, -1, -1};
    if (!roles_convert(c, node->src[1], node->src[2], NULL, &src[2])) return false;
    if (cut->axis == 0) {
        src[1] = columns_convert(c, node, cut);
        return src[1] >= 0 && meta_emit_give(c, src, c->partial, NULL);
    }
    if (cut->axis == 1) {
        result.axis = 0;
        src[1] = meta_convert_replicated(c, node->src[1]);
    } else { /* one matrix for each index of axis 1 of x */
        result.axis = 1;
        src[1] = meta_convert_cut(c, node->src[1], &result);
    }
    return src[1] >= 0 && meta_emit_give(c, src, meta_cut_id(c, node->dst[0], &result), NULL);
}

static bool is_same_shape(const meta_compiler *c, int32_t a, int32_t b) {
    return memcmp(meta_value(c, a)->ne, meta_value(c, b)->ne, sizeof meta_value(c, a)->ne) == 0;
}

/* Whether all readers of the product are sums, and the other operand of each is an addend that has
 * been computed and not merged. Then the product may stay an addend: the exchange of the sum merges
 * it, too. Example: the second matrix of a LoRA adapter of a weight that is cut by columns. */
static bool joins_sums(const meta_compiler *c, const tdm_node *node) {
    const int32_t product = node->dst[0];
    bool is_read = false;
    if (meta_value(c, product)->kind == TDM_VALUE_OUTPUT) return false;
    for (int32_t i = c->node + 1; i < c->graph->n_node; i++) {
        const tdm_node *reader = tdm_graph_node(c->graph, i);
        for (int32_t s = 0; s < reader->n_src; s++) {
            if (reader->src[s] != product) continue;
            if (reader->op != TDM_OP_ADD) return false;
            const int32_t other = reader->src[1 - s];
            const int32_t variant = other >= 0 ? c->plan->value_variant[other] : -1;
            if (variant < 0 || meta_variant_kind(c, variant) != TDM_LAYOUT_PARTIAL_SUM ||
                meta_variant_at(c, variant)->next >= 0 || !is_same_shape(c, other, product))
                return false;
            is_read = true;
        }
    }
    return is_read;
}

static bool matmul_whole_weight(meta_compiler *c, const tdm_node *node, int32_t w) {
    bool is_batched = meta_value(c, node->src[0])->ne[2] > 1;
    int32_t src[3] = {w, meta_variant_best(c, node->src[1]), -1};
    meta_cut cut;
    if (src[1] < 0 || !roles_convert(c, node->src[1], node->src[2], NULL, &src[2])) return false;
    /* A product is linear in x, so addends may be merged after it. That sends no more bytes where
     * the product is not larger than x, or is merged with others. */
    if (meta_variant_kind(c, src[1]) == TDM_LAYOUT_PARTIAL_SUM &&
        meta_variant_at(c, src[1])->residual < 0 &&
        (tdm_shape_count(meta_value(c, node->dst[0])->ne) <=
             tdm_shape_count(meta_value(c, node->src[1])->ne) ||
         joins_sums(c, node)))
        return meta_emit_give(c, src, c->partial, NULL);
    for (int32_t axis = is_batched ? 2 : 1; axis < TDM_MAX_DIMS; axis++)
        if (meta_layout_get_cut_along(meta_variant_layout(c, src[1]),
                                      meta_value(c, node->src[1])->ne, axis, &cut) &&
            roles_convert(c, node->src[1], node->src[2], &cut, &src[2]))
            return meta_emit_give(c, src, meta_cut_id(c, node->dst[0], &cut), NULL);
    src[1] = meta_convert_replicated(c, node->src[1]);
    return src[1] >= 0 && roles_convert(c, node->src[1], node->src[2], NULL, &src[2]) &&
           meta_emit_give(c, src, c->equivalent, NULL);
}

static bool matmul_rule(meta_compiler *c, const tdm_node *node) {
    int32_t w = meta_variant_best(c, node->src[0]);
    meta_cut cut;
    if (w < 0) return false;
    if (weight_cut(c, w, node->src[0], &cut) && cut.axis <= 2 &&
        (cut.axis != 0 || meta_cut_is_disjoint(&cut, c->n_member) ||
         meta_value(c, node->src[0])->usage != 0))
        return matmul_cut_weight(c, node, w, &cut);
    w = meta_convert_replicated(c, node->src[0]);
    return w >= 0 && matmul_whole_weight(c, node, w);
}
const meta_rule meta_rule_matmul = {
    matmul_rule,
    "weight cut by rows: the result is cut along axis 0; by columns: x is cut alike "
    "and results are addends; by matrices: x and result are cut along axis 1; whole "
    "weight: cuts of x but its rows pass, addends pass where the result is no larger, or is "
    "added to addends alone"};

/* Several members hold all matrices: the lowest of them computes alone, so that the result counts
 * once. False where a member holds only some of the columns. */
static bool owner_alone(meta_compiler *c, int32_t *variant, const meta_cut *cut) {
    int32_t owner = -1;
    for (int32_t d = 0; d < c->n_member; d++) {
        bool is_whole = true, is_any = false;
        for (int32_t s = 0; s < cut->n_segment; s++) {
            const tdm_layout_segment *segment = &cut->segments[s];
            is_any |= segment->hi[d] > segment->lo[d];
            is_whole &= segment->hi[d] - segment->lo[d] == segment->n_unit;
        }
        if (is_any && !is_whole) return false;
        if (is_any && owner < 0) owner = d;
    }
    int32_t alone = meta_variant_new(c, meta_variant_at(c, *variant)->value,
                                     meta_variant_at(c, *variant)->layout);
    if (alone < 0 || owner < 0) return false;
    meta_variant_at(c, alone)->local[owner] = meta_variant_at(c, *variant)->local[owner];
    *variant = alone;
    return true;
}

/* The biases of MOE_FFN, sources 7 to 9. Those of gate and up are cut as their matrices. The bias
 * of down is cut where whole experts are assigned; where columns are cut, only the first member
 * that has any gets it. `cut` NULL: the matrices are whole. */
static bool expert_biases_convert(meta_compiler *c, const tdm_node *node, const meta_cut *cut,
                                  int32_t src[10]) {
    for (int32_t i = 7; i < 10; i++) {
        src[i] = -1;
        if (node->src[i] < 0) continue;
        if (cut == NULL) {
            src[i] = meta_convert_replicated(c, node->src[i]);
        } else if (cut->axis == 2 || i < 9) {
            meta_cut own = *cut;
            own.axis = cut->axis - 1;
            src[i] = meta_convert_cut(c, node->src[i], &own);
        } else {
            int32_t whole = meta_convert_replicated(c, node->src[i]), owner = 0;
            while (owner < c->n_member && cut->segments[0].hi[owner] <= cut->segments[0].lo[owner])
                owner++;
            if (whole < 0 || owner == c->n_member) return false;
            src[i] = meta_variant_new(c, node->src[i], c->partial);
            if (src[i] >= 0)
                meta_variant_at(c, src[i])->local[owner] = meta_variant_at(c, whole)->local[owner];
        }
        if (src[i] < 0) return false;
    }
    return true;
}

/* The cut of experts' matrices: along the hidden dimension, or of whole experts. *is_cut_out is
 * false where members hold all of them. */
static bool experts_cut(meta_compiler *c, int32_t variant, int32_t value, meta_cut *cut_out,
                        bool *is_cut_out) {
    *is_cut_out = meta_variant_kind(c, variant) == TDM_LAYOUT_SPLIT;
    if (*is_cut_out && !(meta_assigns_experts(c->device, meta_value(c, value)->usage)
                             ? meta_layout_get_cut_along(meta_variant_layout(c, variant),
                                                         meta_value(c, value)->ne, 2, cut_out)
                             : weight_cut(c, variant, value, cut_out)))
        return meta_fail(c, TDM_INTERNAL, "experts that no axis describes");
    return true;
}

/* Each member's parameters of MOE_FFN or MOE_MATMUL for matrices of n_expert experts; cut NULL:
 * they are whole. */
static void experts_params(const meta_compiler *c, const tdm_node *node, int64_t n_expert,
                           const meta_cut *cut, tdm_op_params params_out[TDM_MAX_MEMBERS]) {
    for (int32_t d = 0; d < c->n_member; d++) {
        tdm_moe_params *p = &params_out[d].moe;
        params_out[d] = node->params;
        if (p->n_expert_all == 0) p->n_expert_all = (int32_t)n_expert;
        if (cut != NULL && cut->axis == 2) p->first_expert += (int32_t)cut->segments[0].lo[d];
    }
}

/* The op reaches from the routed input to the weighted sum over experts. The result is linear in
 * the experts' outputs, so cut experts give addends. */
static bool moe_ffn_rule(meta_compiler *c, const tdm_node *node) {
    tdm_op_params params[TDM_MAX_MEMBERS];
    int32_t src[10];
    meta_cut cut;
    src[0] = meta_convert_replicated(c, node->src[0]);
    src[1] = meta_convert_exact(c, node->src[1]);
    src[2] = meta_convert_exact(c, node->src[2]);
    for (int32_t i = 3; i < 6; i++) src[i] = meta_variant_best(c, node->src[i]);
    for (int32_t i = 0; i < 6; i++)
        if (src[i] < 0) return false;
    if (!roles_convert(c, node->src[0], node->src[6], NULL, &src[6])) return false;
    bool is_cut;
    if (!experts_cut(c, src[3], node->src[3], &cut, &is_cut) ||
        !expert_biases_convert(c, node, is_cut ? &cut : NULL, src))
        return false;
    experts_params(c, node, meta_value(c, node->src[3])->ne[2], is_cut ? &cut : NULL, params);
    if (is_cut && !meta_cut_is_disjoint(&cut, c->n_member) && !owner_alone(c, &src[3], &cut))
        return meta_fail(c, TDM_UNSUPPORTED,
                         "columns of experts that two members hold would count twice");
    const int32_t layout = is_cut ? c->partial : c->equivalent;
    int32_t variant[TDM_MAX_DST];
    const meta_emission e = {
        .src = src, .dst_layout = &layout, .params = params, .single_src = 1u << 9};
    if (!meta_emit(c, &e, variant)) return false;
    meta_variant_link(c, variant[0]);
    return c->status == TDM_OK;
}
const meta_rule meta_rule_moe_ffn = {
    moe_ffn_rule,
    "experts cut along their hidden dimension or assigned whole: addends; biases of gate "
    "and up are cut alike, that of down with whole experts, else one member adds it"};

/* One product of each choice. */
static bool moe_matmul_rule(meta_compiler *c, const tdm_node *node) {
    tdm_op_params params[TDM_MAX_MEMBERS];
    int32_t src[4] = {meta_variant_best(c, node->src[0]), -1, -1,
                      meta_convert_exact(c, node->src[3])};
    int32_t layout = c->partial, variant[TDM_MAX_DST];
    meta_cut cut;
    bool is_cut;
    if (src[0] < 0 || src[3] < 0 || !roles_convert(c, node->src[1], node->src[2], NULL, &src[2]) ||
        !experts_cut(c, src[0], node->src[0], &cut, &is_cut))
        return false;
    experts_params(c, node, meta_value(c, node->src[0])->ne[2], is_cut ? &cut : NULL, params);
    if (is_cut && cut.axis == 0) { /* columns */
        src[1] = columns_convert(c, node, &cut);
    } else if (is_cut) {
        if (cut.axis == 2 && !meta_cut_is_disjoint(&cut, c->n_member) &&
            !owner_alone(c, &src[0], &cut))
            return meta_fail(c, TDM_UNSUPPORTED, "experts that two members hold would count twice");
        src[1] = meta_convert_replicated(c, node->src[1]);
        if (cut.axis == 1) {
            meta_cut result = cut;
            result.axis = 0;
            layout = meta_cut_id(c, node->dst[0], &result);
        }
    } else {
        src[1] = meta_variant_best(c, node->src[1]);
        if (src[1] < 0) return false;
        /* As in matmul_whole_weight: linear in x. */
        if (meta_variant_kind(c, src[1]) != TDM_LAYOUT_PARTIAL_SUM ||
            meta_variant_at(c, src[1])->residual >= 0 || !joins_sums(c, node)) {
            src[1] = meta_convert_replicated(c, node->src[1]);
            layout = c->equivalent;
        }
    }
    const meta_emission e = {.src = src, .dst_layout = &layout, .params = params};
    if (src[1] < 0 || !meta_emit(c, &e, variant)) return false;
    meta_variant_link(c, variant[0]);
    return c->status == TDM_OK;
}
const meta_rule meta_rule_moe_matmul = {
    moe_matmul_rule,
    "experts cut by rows: the result is cut along axis 0; by columns: x is cut alike and results "
    "are addends; assigned whole: addends; whole matrices: addends pass where the result is added "
    "to "
    "addends alone"};
