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
static bool decide_alike(meta_compiler *c, const tdm_node *node, const int32_t *src) {
    const int32_t layouts[TDM_MAX_DST] = {c->equivalent, c->equivalent};
    int32_t variants[TDM_MAX_DST];
    const meta_emission e = {.src = src, .dst_layout = layouts};
    if (!meta_emit(c, &e, variants)) return false;
    for (int32_t i = 0; i < node->n_dst; i++) meta_variant_link(c, variants[i]);
    return c->status == TDM_OK;
}

static bool decide_rule(meta_compiler *c, const tdm_node *node) {
    int32_t src[2] = {-1, -1}, owner = c->device->owner, local[2] = {-1, -1}, chosen[TDM_MAX_DST];
    meta_result results[TDM_MAX_DST], all[TDM_MAX_DST][TDM_MAX_MEMBERS];
    int32_t x[TDM_MAX_DST][TDM_MAX_MEMBERS], sent[TDM_MAX_DST][TDM_MAX_MEMBERS];
    static const int64_t first[TDM_MAX_MEMBERS];
    meta_crossing what[TDM_MAX_DST];
    for (int32_t i = 0; i < node->n_src; i++) {
        if (node->src[i] < 0) continue;
        src[i] = meta_convert_replicated(c, node->src[i]);
        if (src[i] < 0) return false;
        local[i] = meta_variant_at(c, src[i])->local[owner];
    }
    if (c->device->is_uniform) return decide_alike(c, node, src);
    for (int32_t i = 0; i < node->n_dst; i++)
        results[i] = meta_result_like(meta_value(c, node->dst[i]));
    if (!meta_emit_on(c, owner, node->op, &node->params, local, node->n_src, results, node->n_dst,
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
const meta_rule meta_rule_top_k = {
    decide_rule, "decided by the owner and sent; by every member where all compute equal bits"};
const meta_rule meta_rule_moe_route = {
    decide_rule, "decided by the owner and sent; by every member where all compute equal bits"};

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
