/* SPDX-License-Identifier: MIT
 *
 * checks.c: selects what `check = replicas` compares after a run. exec/replicas.c compares it.
 */
#include "plugins/meta/rules/compile.h"

static bool is_overlapping(const meta_compiler *c, int32_t variant) {
    meta_cut cut;
    return meta_variant_cut(c, variant, meta_variant_at(c, variant)->value, &cut) &&
           !meta_cut_is_disjoint(&cut, c->n_member);
}

static bool variant_keep(meta_compiler *c, int32_t variant) {
    meta_plan *p = c->plan;
    const meta_variant *f = meta_variant_at(c, variant);
    int32_t n = 0;
    for (int32_t d = 0; d < c->n_member; d++)
        n += meta_part_is_keepable(&p->members[d].part, f->local[d]);
    if (n < 2) return true;
    if (meta_grow(c->device->host, &p->checks, &p->cap_check, (int64_t)p->n_check + 1,
                  sizeof *p->checks, NULL) != TDM_OK)
        return meta_out_of_memory(c);
    for (int32_t d = 0; d < c->n_member; d++)
        if (meta_part_is_keepable(&p->members[d].part, f->local[d]))
            meta_part_keep(&p->members[d].part, f->local[d], f->value);
    p->checks[p->n_check++] = variant;
    return true;
}

/* Whether KV_EXPORT computes the value. Its rows without a job are undefined, so it is not
 * compared. */
static bool is_exported(const meta_compiler *c, int32_t value) {
    for (int32_t i = 0; i < c->graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(c->graph, i);
        for (int32_t k = 0; node->op == TDM_OP_KV_EXPORT && k < node->n_dst; k++)
            if (node->dst[k] == value) return true;
    }
    return false;
}

bool meta_checks_select(meta_compiler *c) {
    for (int32_t variant = 0; variant < c->plan->n_variant && c->status == TDM_OK; variant++) {
        tdm_layout_kind kind = meta_variant_kind(c, variant);
        if (is_exported(c, meta_variant_at(c, variant)->value)) continue;
        if (kind == TDM_LAYOUT_REPLICATED ||
            (kind == TDM_LAYOUT_SPLIT && is_overlapping(c, variant)))
            variant_keep(c, variant);
    }
    return c->status == TDM_OK;
}
