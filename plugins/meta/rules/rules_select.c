/* SPDX-License-Identifier: MIT
 *
 * rules_select.c: rules of the ops that select. The owner computes the selection, and an exchange
 * sends it to every member. Members that round differently could otherwise select different experts
 * or rows, and their results would no longer belong together.
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"

static bool decide_rule(meta_compiler *c, const tdm_node *node) {
    int32_t src[2] = {-1, -1}, owner = c->device->owner, local[2] = {-1, -1}, out[TDM_MAX_DST];
    meta_result results[TDM_MAX_DST];
    for (int32_t i = 0; i < node->n_src; i++) {
        if (node->src[i] < 0) continue;
        src[i] = meta_convert_replicated(c, node->src[i]);
        if (src[i] < 0) return false;
        local[i] = meta_variant_at(c, src[i])->local[owner];
    }
    for (int32_t i = 0; i < node->n_dst; i++) {
        const tdm_value *v = meta_value(c, node->dst[i]);
        results[i] = meta_result_like(v);
    }
    if (!meta_emit_on(c, owner, node->op, &node->params, local, node->n_src, results, node->n_dst,
                      out))
        return false;
    for (int32_t i = 0; i < node->n_dst; i++) {
        static const int64_t first[TDM_MAX_MEMBERS];
        int32_t x[TDM_MAX_MEMBERS], sent[TDM_MAX_MEMBERS];
        meta_result all[TDM_MAX_MEMBERS];
        for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
            x[d] = d == owner ? out[i] : -1;
            all[d] = results[i];
        }
        if (!meta_emit_exchange(c, TDM_EXCHANGE_GATHER, 0, x, first, NULL, all, sent)) return false;
        int32_t variant = meta_variant_new(c, node->dst[i], c->exact);
        if (variant < 0) return false;
        memcpy(meta_variant_at(c, variant)->local, sent, sizeof sent);
        meta_variant_link(c, variant);
    }
    return c->status == TDM_OK;
}
const meta_rule meta_rule_top_k = {decide_rule, "decided by the owner and sent"};
const meta_rule meta_rule_moe_route = {decide_rule, "decided by the owner and sent"};

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
