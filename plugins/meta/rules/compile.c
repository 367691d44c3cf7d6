/* SPDX-License-Identifier: MIT
 *
 * compile.c: compiles a graph into a part for each member. It applies the rules node by node, makes
 * the outputs outlive the run so that deliver.c can read them, and assigns the arena. The plans and
 * the memory of the parts are made by plan.c.
 */
#include "plugins/meta/rules/compile.h"

#include <string.h>

#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/layout/partition.h"

/* ---- Outputs ---- */

/* Makes member d's piece of an output a value with its own memory that outlives the run. */
static bool output_keep(meta_compiler *c, meta_variant *variant, int32_t d, int32_t value) {
    meta_part *part = &c->plan->members[d].part;
    int32_t v = variant->local[d];
    const tdm_value *x = meta_part_value(part, v);
    bool is_fresh = x->slot >= 0 && x->kind == TDM_VALUE_TEMP;
    if (!is_fresh) {
        meta_result dst = meta_result_like(x);
        if (!meta_emit_on(c, d, TDM_OP_COPY, NULL, &v, 1, &dst, 1, &variant->local[d]))
            return false;
        v = variant->local[d];
    }
    meta_part_keep(part, v, value);
    return true;
}

static bool output_make(meta_compiler *c, int32_t value) {
    meta_plan *p = c->plan;
    int32_t best = meta_variant_best(c, value);
    if (best < 0) return false;
    tdm_layout_kind kind = meta_variant_kind(c, best);
    const bool is_candidates = meta_variant_at(c, best)->is_candidates;
    if (!is_candidates && (kind == TDM_LAYOUT_PARTIAL_SUM || kind == TDM_LAYOUT_PARTIAL_LSE))
        best = meta_convert_replicated(c, value);
    if (best < 0) return false;
    /* The pieces may become copies. Nodes still read the pieces of the old variant, so the output
     * gets a variant of its own. */
    int32_t variant = meta_variant_new(c, value, meta_variant_at(c, best)->layout);
    if (variant < 0) return false;
    memcpy(meta_variant_at(c, variant)->local, meta_variant_at(c, best)->local,
           sizeof meta_variant_at(c, variant)->local);
    bool is_by_page = c->is_by_page[value] != 0;
    for (int32_t d = 0; d < c->n_member && c->status == TDM_OK; d++) {
        meta_variant *f = meta_variant_at(c, variant);
        bool is_needed = is_by_page || is_candidates ||
                         meta_variant_kind(c, variant) == TDM_LAYOUT_SPLIT || d == c->device->owner;
        if (!is_needed) f->local[d] = -1;
        if (f->local[d] >= 0) output_keep(c, f, d, value);
    }
    meta_variant_at(c, variant)->is_candidates = is_candidates;
    p->outputs[p->n_output++] =
        (meta_output){.value = value, .variant = variant, .is_by_page = is_by_page, .ids = -1};
    return c->status == TDM_OK;
}

static int32_t output_find(const meta_plan *p, int32_t value) {
    int32_t i = 0;
    while (i < p->n_output && p->outputs[i].value != value) i++;
    return i;
}

/* Bytes that the members' parts of a variant have together. */
static uint64_t parts_size(const meta_compiler *c, int32_t variant) {
    uint64_t size = 0;
    for (int32_t d = 0; d < c->n_member; d++) {
        int32_t local = meta_variant_at(c, variant)->local[d];
        if (local < 0) continue;
        const tdm_value *v = meta_part_value(&c->plan->members[d].part, local);
        size += tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    }
    return size;
}

/* Pairs the values of candidates with their ids, and makes room for merging them. */
static bool candidates_pair(meta_compiler *c) {
    meta_plan *p = c->plan;
    for (int32_t i = 0; i < c->graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(c->graph, i);
        if (node->op != TDM_OP_TOP_K) continue;
        int32_t values = output_find(p, node->dst[0]), ids = output_find(p, node->dst[1]);
        if (values == p->n_output || !meta_variant_at(c, p->outputs[values].variant)->is_candidates)
            continue;
        p->outputs[values].ids = ids;
        p->outputs[ids].is_ids = true;
        uint64_t size =
            parts_size(c, p->outputs[values].variant) + parts_size(c, p->outputs[ids].variant);
        if (size > p->candidates_size) p->candidates_size = size;
    }
    if (p->candidates_size == 0) return true;
    p->candidates = meta_alloc(c->device->host, (size_t)p->candidates_size);
    return p->candidates != NULL || meta_out_of_memory(c);
}

static bool outputs_make(meta_compiler *c) {
    const tdm_graph *graph = c->graph;
    for (int32_t i = 0; i < graph->n_value && c->status == TDM_OK; i++)
        if (meta_value(c, i)->kind == TDM_VALUE_OUTPUT) output_make(c, i);
    return c->status == TDM_OK && candidates_pair(c);
}

/* ---- The arena ---- */

static void bytes_assign(meta_part *part, int32_t v, uint64_t size) {
    part->values[v].ne[0] = (int64_t)size;
    part->slots[part->values[v].slot].size = size;
}

/* Assigns flags and data of every exchange in the arena, or in the peer memory, where they have the
 * same offsets. The arena then has the flags only.
 *
 * Flags: each exchange of a plan has a line of its own for each active member.
 *
 * Data: exchange number n of the group uses area n % 2, where n counts on from run to run
 * (exchange_base of the step header + the stage). Two areas are enough. A member that writes the
 * data of exchange n+2 has passed exchange n+1, so every member has raised its flag of n+1; a
 * member raises that flag only after it has read all data of exchange n. A third member may still
 * read exchange n+1, but that is the other area. This holds only if every active member takes part
 * in every exchange, senders or not.
 *
 * It also needs areas of one size. An area has the size of the largest that any plan of the group
 * needed so far, so plans that were made before a larger one have smaller areas. Between two runs
 * whose areas differ in size every member must have ended the first (queue.c). */
static void arena_assign(meta_compiler *c) {
    meta_plan *p = c->plan;
    uint64_t area = (c->data_size + 4095) / 4096 * 4096,
             data = meta_arena_data(c->device->n_active);
    if (c->n_exchange == 0) return;
    if (area < c->device->area_size) area = c->device->area_size;
    p->data_size = 2 * area;
    p->arena_size = data + p->data_size;
    if (meta_uses_peer(c->device)) {
        p->peer_size = p->arena_size;
        p->arena_size = data;
    }
    for (int32_t d = 0; d < c->n_member; d++) {
        meta_part *part = &p->members[d].part;
        if (!meta_is_active(c->device, d) || part->arena < 0) continue;
        bytes_assign(part, part->arena, p->arena_size);
        if (part->peer >= 0) bytes_assign(part, part->peer, p->peer_size);
        for (int32_t i = 0; i < part->graph.n_node; i++) {
            tdm_node *node = &part->nodes[i];
            tdm_exchange_params *x = &node->params.exchange;
            if (node->op != TDM_OP_EXCHANGE) continue;
            x->flag_off =
                META_ARENA_FLAGS + (uint64_t)x->stage * 64 * (uint64_t)c->device->n_active;
            x->data_off = data;
            x->area_stride = area;
            if (x->data_off2 != 0) x->data_off2 += data;
        }
    }
}

/* ---- Nodes ---- */

static bool node_compile(meta_compiler *c, int32_t index) {
    const tdm_node *node = tdm_graph_node(c->graph, index);
    const meta_rule *rule = meta_rule_find(node->op);
    c->node = index;
    if (rule == NULL)
        return meta_fail(c, TDM_UNSUPPORTED, "op %d has no place in a graph for a group",
                         (int)node->op);
    for (int32_t i = 0; i < node->n_src; i++)
        if (node->src[i] >= 0 && c->is_by_page[node->src[i]])
            return meta_fail(c, TDM_UNSUPPORTED,
                             "rows exported from a cache cut by sequence are for the caller only");
    bool is_emitted = false;
    if (!meta_holder_emit(c, node, &is_emitted)) return false;
    if (!is_emitted && !rule->apply(c, node)) return false;
    for (int32_t i = 0; i < node->n_dst; i++)
        if (node->dst[i] >= 0 && !meta_override_apply(c, node->dst[i])) return false;
    return c->status == TDM_OK;
}

bool meta_override_apply(meta_compiler *c, int32_t value) {
    const meta_device *device = c->device;
    for (int32_t i = 0; i < device->n_override && c->status == TDM_OK; i++) {
        const meta_override *o = &device->overrides[i];
        if (o->graph != c->graph || o->hash != c->hash || o->value != value) continue;
        int32_t variant = meta_convert(c, value, meta_layout_id(c, &o->layout));
        int32_t *at = &c->plan->value_variant[value];
        if (variant < 0 || *at == variant) return variant >= 0;
        while (*at != variant) at = &meta_variant_at(c, *at)->next;
        *at = meta_variant_at(c, variant)->next;
        meta_variant_at(c, variant)->next = c->plan->value_variant[value];
        c->plan->value_variant[value] = variant;
    }
    return c->status == TDM_OK;
}

static bool is_cut_by_sequence(const meta_compiler *c) {
    if (c->device->attention != META_ATTENTION_SEQUENCE || c->device->n_active < 2) return false;
    for (int32_t i = 0; i < c->graph->n_value; i++)
        if (meta_value(c, i)->kind == TDM_VALUE_STATE && !meta_state_is_recurrent(c->graph, i))
            return true;
    return false;
}

static bool arrays_make(meta_compiler *c) {
    const tdm_host *host = c->device->host;
    meta_plan *p = c->plan;
    size_t n = (size_t)c->graph->n_value + 1;
    p->value_variant = meta_alloc(host, n * sizeof *p->value_variant);
    p->outputs = meta_alloc(host, n * sizeof *p->outputs);
    c->states = meta_alloc(host, n * sizeof *c->states);
    c->is_by_page = meta_alloc(host, n);
    if (p->value_variant == NULL || p->outputs == NULL || c->states == NULL ||
        c->is_by_page == NULL)
        return meta_out_of_memory(c);
    for (size_t i = 0; i < n; i++) p->value_variant[i] = -1;
    return true;
}

static bool layouts_make(meta_compiler *c) {
    tdm_layout layout;
    meta_layout_replicated(c->n_member, TDM_REPLICA_EXACT, &layout);
    c->exact = meta_layout_id(c, &layout);
    meta_layout_replicated(c->n_member, TDM_REPLICA_EQUIVALENT, &layout);
    c->equivalent = meta_layout_id(c, &layout);
    meta_layout_partial(c->n_member, TDM_LAYOUT_PARTIAL_SUM, &layout);
    c->partial = meta_layout_id(c, &layout);
    return c->status == TDM_OK;
}

static void members_begin(meta_compiler *c) {
    for (int32_t d = 0; d < c->n_member; d++) {
        if (!meta_is_active(c->device, d)) continue;
        meta_part_begin(c->device->host, c->graph, &c->plan->members[d].part);
    }
    c->plan->rewrites_step = is_cut_by_sequence(c);
}

tdm_status meta_compile(meta_device *device, const tdm_graph *graph, meta_plan **out,
                        tdm_error *err) {
    const tdm_host *host = device->host;
    meta_plan *plan = meta_alloc(host, sizeof *plan);
    if (plan == NULL) return meta_no_memory("for a plan", err);
    meta_compiler c = {.device = device,
                       .graph = graph,
                       .hash = device->n_override > 0 ? host->graph->hash(graph) : 0,
                       .plan = plan,
                       .err = err,
                       .node = -1,
                       .n_member = device->n_member};
    plan->device = device;
    plan->division = device->division;
    plan->graph = graph;
    members_begin(&c);
    bool ok = arrays_make(&c) && layouts_make(&c) && meta_holders_find(&c);
    for (int32_t i = 0; i < graph->n_node && ok; i++) ok = node_compile(&c, i);
    c.node = -1;
    ok = ok && outputs_make(&c);
    if (ok && device->options.checks_replicas) ok = meta_checks_select(&c);
    if (ok) arena_assign(&c);
    size_t n = (size_t)graph->n_value + 1;
    meta_free(host, c.states, n * sizeof *c.states);
    meta_free(host, c.is_by_page, n);
    meta_free(host, c.holders, ((size_t)graph->n_node + 1) * sizeof *c.holders);
    if (c.status != TDM_OK) {
        meta_plan_destroy(plan);
        return c.status;
    }
    *out = plan;
    return TDM_OK;
}
