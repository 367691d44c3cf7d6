/* SPDX-License-Identifier: MIT
 *
 * rules_view.c: rules of views and data movement. A layout is stated in linear element order, so
 * RESHAPE keeps it. The other ops move the cut along with its axis.
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"

/* An op that is linear in its first source, an addend: applied to the terms and to the residual.
 * `id` is a second source, -1 = none. */
static bool partial_map(meta_compiler *c, int32_t addend, int32_t id) {
    int32_t mapped, rest = meta_variant_at(c, addend)->residual, layout = c->partial;
    int32_t src[2] = {addend, id};
    const meta_emission e = {.src = src, .dst_layout = &layout};
    if (!meta_emit(c, &e, &mapped)) return false;
    if (rest >= 0) {
        int32_t kept;
        src[0] = rest;
        layout = meta_variant_at(c, rest)->layout;
        if (!meta_emit(c, &e, &kept)) return false;
        meta_variant_at(c, mapped)->residual = kept;
    }
    meta_variant_link(c, mapped);
    return true;
}

static bool whole_map(meta_compiler *c, int32_t value, const tdm_op_params *params) {
    int32_t f = meta_convert_replicated(c, value);
    return f >= 0 && meta_emit_give(c, &f, meta_variant_at(c, f)->layout, params);
}

static bool reshape_rule(meta_compiler *c, const tdm_node *node) {
    int32_t f = meta_variant_best(c, node->src[0]);
    meta_cut cut;
    if (f < 0) return false;
    if (meta_variant_kind(c, f) == TDM_LAYOUT_PARTIAL_SUM) return partial_map(c, f, -1);
    /* The layout is kept where the new shape has an axis along which it is a cut. */
    if (meta_variant_kind(c, f) == TDM_LAYOUT_SPLIT && meta_variant_cut(c, f, node->dst[0], &cut))
        return meta_emit_give(c, &f, meta_variant_at(c, f)->layout, NULL);
    return whole_map(c, node->src[0], NULL);
}
const meta_rule meta_rule_reshape = {
    reshape_rule, "keeps any layout that has an axis in the new shape; addends stay addends"};

static bool permute_rule(meta_compiler *c, const tdm_node *node) {
    int32_t f = meta_variant_best(c, node->src[0]);
    meta_cut cut;
    if (f < 0) return false;
    if (meta_variant_kind(c, f) == TDM_LAYOUT_PARTIAL_SUM) return partial_map(c, f, -1);
    if (!meta_variant_cut(c, f, node->src[0], &cut)) return whole_map(c, node->src[0], NULL);
    cut.axis = node->params.permute.axis[cut.axis];
    return meta_emit_give(c, &f, meta_cut_id(c, node->dst[0], &cut), NULL);
}
const meta_rule meta_rule_permute = {permute_rule,
                                     "the cut moves with its axis; addends stay addends"};

static bool slice_rule(meta_compiler *c, const tdm_node *node) {
    const int64_t *ne = meta_value(c, node->src[0])->ne, *to = meta_value(c, node->dst[0])->ne;
    int32_t f = meta_variant_best(c, node->src[0]);
    tdm_op_params params[TDM_MAX_MEMBERS];
    int64_t local_off[TDM_MAX_MEMBERS];
    meta_cut cut, window;
    if (f < 0) return false;
    if (meta_variant_kind(c, f) == TDM_LAYOUT_PARTIAL_SUM) return partial_map(c, f, -1);
    if (!meta_variant_cut(c, f, node->src[0], &cut)) return whole_map(c, node->src[0], NULL);
    int64_t off = node->params.slice.offset[cut.axis];
    if (off == 0 && to[cut.axis] == ne[cut.axis])
        return meta_emit_give(c, &f, meta_cut_id(c, node->dst[0], &cut), NULL);
    if (!meta_cut_window(&cut, off, to[cut.axis], c->n_member, &window, local_off))
        return whole_map(c, node->src[0], NULL);
    for (int32_t d = 0; d < c->n_member; d++) {
        params[d] = node->params;
        params[d].slice.offset[cut.axis] = local_off[d];
    }
    return meta_emit_give(c, &f, meta_cut_id(c, node->dst[0], &window), params);
}
const meta_rule meta_rule_slice = {slice_rule,
                                   "other axes: the cut stays; the cut axis: each member's range "
                                   "is intersected with the slice; addends stay addends"};

static bool copy_rule(meta_compiler *c, const tdm_node *node) {
    int32_t f = meta_variant_best(c, node->src[0]);
    if (f < 0) return false;
    bool is_linear = meta_value(c, node->dst[0])->type == TDM_TYPE_F32;
    if (meta_variant_kind(c, f) == TDM_LAYOUT_PARTIAL_SUM && is_linear)
        return partial_map(c, f, -1);
    if (meta_variant_kind(c, f) == TDM_LAYOUT_SPLIT)
        return meta_emit_give(c, &f, meta_variant_at(c, f)->layout, NULL);
    return whole_map(c, node->src[0], NULL);
}
const meta_rule meta_rule_copy = {copy_rule,
                                  "keeps any cut; addends stay addends where the copy is f32"};

/* Joins two values along their cut axis: each member joins its part of a and its part of b. */
static bool concat_along(meta_compiler *c, const tdm_node *node, const int32_t f[2],
                         const meta_cut *cut) {
    int32_t variant = meta_variant_new(c, node->dst[0], meta_cut_id(c, node->dst[0], cut));
    for (int32_t d = 0; variant >= 0 && d < c->n_member; d++) {
        int32_t a = meta_variant_at(c, f[0])->local[d], b = meta_variant_at(c, f[1])->local[d];
        if (!meta_is_active(c->device, d) || (a < 0 && b < 0)) continue;
        int32_t v = a < 0   ? b
                    : b < 0 ? a
                            : meta_part_concat(&c->plan->members[d].part, a, b, cut->axis);
        if (v < 0) meta_out_of_memory(c);
        meta_variant_at(c, variant)->local[d] = v;
    }
    meta_variant_link(c, variant);
    return c->status == TDM_OK;
}

static bool concat_rule(meta_compiler *c, const tdm_node *node) {
    int32_t f[2] = {meta_variant_best(c, node->src[0]), meta_variant_best(c, node->src[1])};
    int32_t axis = node->params.concat.axis;
    meta_cut cuts[2], joined;
    bool is_cut[2];
    if (f[0] < 0 || f[1] < 0) return false;
    for (int i = 0; i < 2; i++) is_cut[i] = meta_variant_cut(c, f[i], node->src[i], &cuts[i]);
    if (is_cut[0] && is_cut[1] && cuts[0].axis == axis && cuts[1].axis == axis &&
        meta_cut_join(&cuts[0], &cuts[1], c->n_member, &joined))
        return concat_along(c, node, f, &joined);
    for (int i = 0; i < 2; i++) {
        if (!is_cut[i] || cuts[i].axis == axis) continue;
        int32_t other = meta_convert_cut(c, node->src[1 - i], &cuts[i]);
        int32_t src[2] = {i == 0 ? f[0] : other, i == 0 ? other : f[1]};
        return other >= 0 && meta_emit_give(c, src, meta_cut_id(c, node->dst[0], &cuts[i]), NULL);
    }
    f[0] = meta_convert_replicated(c, node->src[0]);
    f[1] = meta_convert_replicated(c, node->src[1]);
    if (f[0] < 0 || f[1] < 0) return false;
    bool is_exact = meta_variant_at(c, f[0])->layout == c->exact &&
                    meta_variant_at(c, f[1])->layout == c->exact;
    return meta_emit_give(c, f, is_exact ? c->exact : c->equivalent, NULL);
}
const meta_rule meta_rule_concat = {concat_rule,
                                    "along the cut axis of both: segments side by side; along "
                                    "another: the cut of one is taken by the other"};

/* A table that is cut by rows. GET_ROWS gives zeros for rows outside a member's slice, so the
 * results are addends. */
static bool rows_foreign(meta_compiler *c, const tdm_node *node, int32_t table, int32_t id,
                         const meta_cut *cut) {
    tdm_op_params params[TDM_MAX_MEMBERS];
    int32_t src[2] = {table, id};
    for (int32_t d = 0; d < c->n_member; d++) {
        params[d] = node->params;
        params[d].rows.first_row += cut->segments[0].lo[d];
    }
    return meta_emit_give(c, src, c->partial, params);
}

/* A table that is cut by columns. Where a superblock is cut, a member's slice is wider than its
 * columns (slice.h); the result is cut down to them. */
static bool rows_columns(meta_compiler *c, const tdm_node *node, int32_t table, int32_t id,
                         const meta_cut *cut) {
    const tdm_value *v = meta_value(c, node->dst[0]);
    tdm_tensor_desc desc = meta_value_desc(c->graph, node->src[0]);
    int32_t variant = meta_variant_new(c, node->dst[0], meta_cut_id(c, node->dst[0], cut));
    for (int32_t d = 0; variant >= 0 && d < c->n_member; d++) {
        meta_part *part = &c->plan->members[d].part;
        int32_t src[2] = {meta_variant_at(c, table)->local[d], meta_variant_at(c, id)->local[d]},
                out;
        meta_result dst = {v->type, v->name, {0}};
        meta_slice slice = {0};
        tdm_error why = {0};
        if (src[0] < 0 || src[1] < 0) continue;
        if (meta_value(c, node->src[0])->kind == TDM_VALUE_WEIGHT &&
            meta_slice_find(c->device, &desc, d, &slice, &why) != TDM_OK)
            return meta_fail(c, why.status, "%.400s", why.message);
        meta_cut_local_shape(cut, v->ne, d, dst.ne);
        int64_t len = dst.ne[0];
        dst.ne[0] += slice.pad_lo + slice.pad_hi;
        if (!meta_emit_on(c, d, TDM_OP_GET_ROWS, &node->params, src, 2, &dst, 1, &out))
            return false;
        out = meta_part_slice(part, out, 0, slice.pad_lo, len);
        if (out < 0) return meta_out_of_memory(c);
        meta_variant_at(c, variant)->local[d] = out;
    }
    meta_variant_link(c, variant);
    return c->status == TDM_OK;
}

/* Where the cut axis is repeated, its pattern repeats too: each member repeats its own part. */
static bool repeat_rule(meta_compiler *c, const tdm_node *node) {
    const int64_t *ne = meta_value(c, node->src[0])->ne, *to = meta_value(c, node->dst[0])->ne;
    int32_t f = meta_variant_best(c, node->src[0]);
    meta_cut cut;
    if (f < 0) return false;
    if (meta_variant_kind(c, f) == TDM_LAYOUT_SPLIT && meta_variant_cut(c, f, node->src[0], &cut) &&
        ne[cut.axis] > 0 && to[cut.axis] > 0) {
        cut.repeat *= to[cut.axis] / ne[cut.axis];
        return meta_emit_give(c, &f, meta_cut_id(c, node->dst[0], &cut), NULL);
    }
    return whole_map(c, node->src[0], NULL);
}
const meta_rule meta_rule_repeat = {
    repeat_rule, "any cut passes; along a repeated axis its pattern is repeated too"};

static bool get_rows_rule(meta_compiler *c, const tdm_node *node) {
    int32_t table = meta_variant_best(c, node->src[0]), id = meta_convert_exact(c, node->src[1]);
    meta_cut cut;
    if (table < 0 || id < 0) return false;
    int32_t src[2] = {table, id};
    if (meta_variant_kind(c, table) == TDM_LAYOUT_PARTIAL_SUM) return partial_map(c, table, id);
    if (meta_variant_cut(c, table, node->src[0], &cut)) {
        /* A row held by two members would be added twice. */
        if (cut.axis == 1 && cut.repeat == 1 && cut.n_segment == 1 &&
            meta_cut_is_disjoint(&cut, c->n_member))
            return rows_foreign(c, node, table, id, &cut);
        if (cut.axis == 0) return rows_columns(c, node, table, id, &cut);
    }
    /* Rows of an f32 table are copied, so they are as exact as the table. Rows of a quantised table
     * are converted by each member, so they are only equivalent. */
    src[0] = meta_convert_replicated(c, node->src[0]);
    if (src[0] < 0) return false;
    bool is_copied = meta_value(c, node->src[0])->type == TDM_TYPE_F32;
    return meta_emit_give(c, src, is_copied ? meta_variant_at(c, src[0])->layout : c->equivalent,
                          NULL);
}
const meta_rule meta_rule_get_rows = {get_rows_rule,
                                      "table cut by rows: addends, foreign rows are zeros; by "
                                      "columns: the cut stays; rows of an addend are an addend"};
