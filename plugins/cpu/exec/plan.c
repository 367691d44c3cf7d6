/* SPDX-License-Identifier: MIT
 *
 * plan.c: makes a list of nodes with fixed views from a graph, and runs the list. The queue decides
 * when a computation may start.
 *
 * Binding computes every address and places the barriers (plan_assign.c).
 *
 * If an exchange fails, the plan ends. All workers must end at the same node, because they wait for
 * each other at barriers. So there is a barrier after every exchange, and workers check for a
 * failure only after that barrier, before the next node.
 */
#include "core/base/op_state.h"
#include "core/base/view.h"
#include "plugins/cpu/buffer.h"
#include "plugins/cpu/exec/plan_internal.h"
#include "plugins/cpu/exec/pool.h"
#include "plugins/cpu/ops/ops.h"
#include "plugins/cpu/ops/weight.h"

/* ---- Making ---------------------------------------------------------------------------------- */

static tdm_status slot_size_find(const cpu_device *device, const tdm_value *v, uint64_t *size_out,
                                 tdm_error *err) {
    if (v->kind == TDM_VALUE_WEIGHT && v->usage != 0) {
        tdm_tensor_desc desc = {.struct_size = sizeof desc,
                                .type = (tdm_type)v->type,
                                .usage = v->usage,
                                .ne = {v->ne[0], v->ne[1], v->ne[2], v->ne[3]}};
        return cpu_weight_size(device, &desc, size_out, err);
    }
    *size_out = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    return TDM_OK;
}

/* Fills view and place of value `index`; -1 is absent. */
static tdm_status view_fill(tdm_plan *plan, const tdm_view_place *places, int32_t index,
                            cpu_view *view, plan_place *place, tdm_error *err) {
    memset(view, 0, sizeof *view);
    *place = (plan_place){.slot = -1};
    if (index < 0) return TDM_OK;
    const tdm_value *v = tdm_graph_value(plan->graph, index);
    const tdm_view_place *at = &places[index];
    const tdm_value *base = tdm_graph_value(plan->graph, at->base);
    view->type = (tdm_type)v->type;
    view->usage = v->kind == TDM_VALUE_WEIGHT ? v->usage : 0;
    memcpy(view->ne, v->ne, sizeof view->ne);
    memcpy(view->nb, at->nb, sizeof view->nb);
    /* The stride of a row with one element is never used. Kernels accept it as a dense row. */
    if (v->ne[0] <= 1) view->nb[0] = tdm_type_get_info(view->type).block_size;
    *place =
        (plan_place){.slot = base->slot, .is_state = base->kind == TDM_VALUE_STATE, .off = at->off};
    return slot_size_find(plan->device, base, &plan->slot_sizes[base->slot], err);
}

/* Copies the node just filled to `user`, the place behind it, and turns the original into the node
 * that prepares the copy's sources. */
static void maker_insert(plan_node *maker, plan_node *user) {
    *user = *maker;
    maker->node.impl = maker->prepared.maker;
    maker->makes_prepared = true;
    maker->scratch_size = 0;
    for (int i = 0; i < TDM_MAX_SRC; i++)
        if (((maker->prepared.made_of | maker->prepared.reads) >> i & 1) == 0)
            maker->src[i].slot = -1;
    for (int i = 0; i < TDM_MAX_DST; i++) maker->dst[i].slot = -1;
}

/* Facts begin at multiples of 64. */
static size_t facts_round(size_t size) {
    return (size + 63) / 64 * 64;
}

static tdm_status node_fill(tdm_plan *plan, const tdm_view_place *places, int32_t index,
                            tdm_error *err) {
    const tdm_node *n = tdm_graph_node(plan->graph, index);
    tdm_status status = cpu_op_supports(plan->device, plan->graph, index, err);
    const cpu_op_impl *impl = cpu_op_find(n->op);
    plan_node *out = &plan->nodes[plan->n_node];
    out->prepared_before = -1;
    out->node = (cpu_node){.device = plan->device, .graph = plan->graph, .node = n, .impl = impl};
    for (int i = 0; i < TDM_MAX_SRC && status == TDM_OK; i++)
        status = view_fill(plan, places, i < n->n_src ? n->src[i] : -1, &out->node.src[i],
                           &out->src[i], err);
    for (int i = 0; i < TDM_MAX_DST && status == TDM_OK; i++)
        status = view_fill(plan, places, i < n->n_dst ? n->dst[i] : -1, &out->node.dst[i],
                           &out->dst[i], err);
    if (status != TDM_OK) return status;
    if (impl->facts_size > 0) {
        impl->facts_make(&out->node, plan->facts + plan->facts_used);
        out->node.facts = plan->facts + plan->facts_used;
        plan->facts_used += facts_round(impl->facts_size);
    }
    if (impl->scratch_size != NULL)
        out->scratch_size = impl->scratch_size(plan->device, plan->graph, n);
    out->writes_state = tdm_op_writes_state(n->op);
    if (n->op == TDM_OP_EXCHANGE) out->node.exchange = &plan->exchange_of[plan->n_exchange++];
    if (plan->device->n_thread > 1 && impl->claims != NULL && impl->claims(&out->node))
        out->node.claims = &plan->claims_of[plan->n_claims++];
    if (impl->prepared != NULL) out->prepared = impl->prepared(&out->node);
    if (out->prepared.size > 0) maker_insert(out, &plan->nodes[++plan->n_node]);
    plan->n_node++;
    return TDM_OK;
}

static void exchanges_reset(tdm_plan *plan) {
    cpu_exchanges_init(&plan->exchanges, plan->device->exchange_timeout_ns);
    for (int32_t i = 0; i < plan->n_node; i++)
        if (plan->nodes[i].node.exchange != NULL)
            cpu_exchange_init(plan->nodes[i].node.exchange, &plan->exchanges, i);
}

tdm_status cpu_plan_create(cpu_device *device, cpu_scratch *scratch, const tdm_graph *graph,
                           tdm_plan **plan_out, tdm_error *err) {
    const tdm_host *host = device->host;
    int32_t n_node = 0, n_exchange = 0, n_claims = 0; /* n_node, n_claims: at most */
    size_t facts_size = 0;
    for (int32_t i = 0; i < graph->n_node; i++) {
        const cpu_op_impl *impl = cpu_op_find(tdm_graph_node(graph, i)->op);
        if (impl != NULL) n_node += impl->prepared != NULL ? 2 : 1;
        n_exchange += tdm_graph_node(graph, i)->op == TDM_OP_EXCHANGE;
        n_claims += device->n_thread > 1 && impl != NULL && impl->claims != NULL;
        if (impl != NULL) facts_size += facts_round(impl->facts_size);
    }
    size_t facts_off = (sizeof(tdm_plan) + 63) / 64 * 64;
    size_t exchange_off = facts_off + facts_size;
    size_t claim_off = exchange_off + ((size_t)n_exchange * sizeof(cpu_exchange) + 63) / 64 * 64;
    size_t n_claim = (size_t)n_claims * (size_t)device->n_thread;
    size_t claims_off = claim_off + n_claim * sizeof(cpu_claim);
    size_t nodes_off = claims_off + (size_t)n_claims * sizeof(cpu_claims);
    size_t sizes_off = nodes_off + (size_t)n_node * sizeof(plan_node);
    size_t bases_off = sizes_off + (size_t)graph->n_slot * sizeof(uint64_t);
    size_t plan_size = bases_off + (size_t)graph->n_slot * sizeof(uint8_t *);
    size_t places_size = ((size_t)graph->n_value + 1) * sizeof(tdm_view_place);
    uint8_t *memory = host->alloc(host->context, plan_size, 64);
    tdm_view_place *places = host->alloc(host->context, places_size, 0);
    tdm_plan *plan = (void *)memory;
    tdm_status status = TDM_OK;
    if (memory == NULL || places == NULL) {
        if (memory != NULL) host->free(host->context, memory, plan_size);
        if (places != NULL) host->free(host->context, places, places_size);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no memory for a plan of %d nodes",
                        (int)graph->n_node);
    }
    memset(memory, 0, plan_size);
    *plan = (tdm_plan){
        .device = device,
        .graph = graph,
        .scratch = scratch,
        .facts = memory + facts_off,
        .exchange_of = (void *)(memory + exchange_off),
        .claims_of = (void *)(memory + claims_off),
        .nodes = (void *)(memory + nodes_off),
        .slot_sizes = (void *)(memory + sizes_off),
        .bases = (void *)(memory + bases_off),
        .plan_size = plan_size,
        .n_slot = graph->n_slot,
    };
    for (int32_t i = 0; i < n_claims; i++)
        plan->claims_of[i] = (cpu_claims){.round = &plan->round,
                                          .of = (cpu_claim *)(void *)(memory + claim_off) +
                                                (size_t)i * (size_t)device->n_thread};
    tdm_view_resolve_all(graph, places);
    for (int32_t i = 0; i < graph->n_node && status == TDM_OK; i++)
        if (!tdm_op_is_view(tdm_graph_node(graph, i)->op)) status = node_fill(plan, places, i, err);
    host->free(host->context, places, places_size);
    if (status == TDM_OK) status = cpu_plan_units_choose(plan, err);
    if (status == TDM_OK) status = cpu_plan_memory_make(plan, err);
    if (status != TDM_OK) {
        cpu_plan_destroy(plan);
        return status;
    }
    exchanges_reset(plan);
    *plan_out = plan;
    return TDM_OK;
}

void cpu_plan_destroy(tdm_plan *plan) {
    if (plan == NULL) return;
    const tdm_host *host = plan->device->host;
    cpu_scratch_drop(plan->scratch, plan->chunk);
    host->free(host->context, plan, plan->plan_size);
}

const cpu_scratch *cpu_plan_scratch(const tdm_plan *plan) {
    return plan->scratch;
}

bool cpu_plan_is_bound(const tdm_plan *plan) {
    return plan->is_bound;
}

void cpu_plan_sizes(const tdm_plan *plan, uint64_t *scratch_size_out, uint64_t *host_size_out) {
    *scratch_size_out = plan->scratch_size;
    *host_size_out = plan->plan_size;
}

/* ---- Binding --------------------------------------------------------------------------------- */

static const char *slot_name(const tdm_plan *plan, int32_t slot) {
    for (int32_t i = 0; i < plan->graph->n_value; i++)
        if (tdm_graph_value(plan->graph, i)->slot == slot)
            return tdm_graph_value_name(plan->graph, i);
    return "";
}

static tdm_status bindings_check(const tdm_plan *plan, const tdm_binding *bindings,
                                 int32_t n_binding, tdm_error *err) {
    if (n_binding != plan->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "cpu: %d bindings for a graph of %d slots",
                        (int)n_binding, (int)plan->n_slot);
    for (int32_t i = 0; i < n_binding; i++) {
        const tdm_binding *b = &bindings[i];
        uint64_t need = plan->slot_sizes[i];
        if (need == 0) continue;
        if (b->buffer == NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "cpu: slot %d ('%s') is not bound", (int)i,
                            slot_name(plan, i));
        if (b->off % CPU_BUFFER_ALIGN != 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "cpu: slot %d ('%s') is bound at offset %llu, not a multiple of %d",
                            (int)i, slot_name(plan, i), (unsigned long long)b->off,
                            (int)CPU_BUFFER_ALIGN);
        if (b->size < need || b->off > b->buffer->size || b->size > b->buffer->size - b->off)
            return tdm_fail(
                err, TDM_OUT_OF_RANGE,
                "cpu: slot %d ('%s') needs %llu bytes and is bound to %llu at %llu of a "
                "buffer of %llu",
                (int)i, slot_name(plan, i), (unsigned long long)need, (unsigned long long)b->size,
                (unsigned long long)b->off, (unsigned long long)b->buffer->size);
    }
    return TDM_OK;
}

/* Gives each exchange the weights of the product after it, which it prefetches while waiting. */
static void exchanges_look_ahead(tdm_plan *plan) {
    cpu_exchange *before = NULL;
    for (int32_t i = 0; i < plan->n_node; i++) {
        const plan_node *p = &plan->nodes[i];
        const cpu_view *w = &p->node.src[0];
        if (p->node.exchange != NULL) {
            before = p->node.exchange;
            before->ahead = NULL;
        } else if (before != NULL && p->node.impl == &cpu_op_matmul && w->usage != 0) {
            before->ahead = w->data;
            before->ahead_size = plan->slot_sizes[p->src[0].slot] - (size_t)p->src[0].off;
            before = NULL;
        }
    }
}

static void node_bind(const tdm_plan *plan, plan_node *p) {
    for (int k = 0; k < TDM_MAX_SRC + TDM_MAX_DST; k++) {
        const plan_place *place = k < TDM_MAX_SRC ? &p->src[k] : &p->dst[k - TDM_MAX_SRC];
        cpu_view *view = k < TDM_MAX_SRC ? &p->node.src[k] : &p->node.dst[k - TDM_MAX_SRC];
        if (place->slot < 0) continue;
        /* NULL means absent: an empty value gets an address, which is not read. */
        const uint8_t *base = plan->bases[place->slot];
        view->data = base != NULL ? plan->bases[place->slot] + place->off : (uint8_t *)p;
    }
    p->node.scratch =
        p->scratch_size > 0 && !p->makes_prepared ? plan->chunk->data + p->scratch_off : NULL;
    p->node.prepared = p->prepared.size > 0 ? plan->chunk->data + p->prepared_off : NULL;
}

tdm_status cpu_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                         tdm_error *err) {
    cpu_chunk *chunk = NULL;
    plan->is_bound = false;
    tdm_status status = bindings_check(plan, bindings, n_binding, err);
    if (status == TDM_OK) status = cpu_scratch_take(plan->scratch, plan->scratch_size, &chunk, err);
    if (status != TDM_OK) return status;
    cpu_scratch_drop(plan->scratch, plan->chunk);
    plan->chunk = chunk;
    for (int32_t i = 0; i < plan->n_slot; i++)
        plan->bases[i] =
            plan->slot_sizes[i] != 0 ? bindings[i].buffer->data + bindings[i].off : NULL;
    for (int32_t i = 0; i < plan->n_node; i++) node_bind(plan, &plan->nodes[i]);
    cpu_plan_barriers_place(plan);
    exchanges_look_ahead(plan);
    plan->is_bound = true;
    return TDM_OK;
}

/* ---- Running --------------------------------------------------------------------------------- */

static void plan_work(void *arg, cpu_worker *w) {
    const tdm_plan *plan = arg;
    for (int32_t i = 0; i < plan->n_node; i++) {
        const plan_node *p = &plan->nodes[i];
        const cpu_op_impl *impl = p->node.impl;
        if (p->is_idle) continue;
        if (p->needs_barrier) cpu_worker_barrier(w);
        if (w->ith == 0)
            atomic_store_explicit(plan->progress,
                                  atomic_load_explicit(plan->progress, memory_order_relaxed) + 1,
                                  memory_order_relaxed);
        if (atomic_load_explicit(&plan->exchanges.failed_at, memory_order_relaxed) < i) return;
        if (plan->device->is_reference && impl->run_reference != NULL)
            impl->run_reference(&p->node, w);
        else
            impl->run(&p->node, w);
    }
}

tdm_status cpu_plan_run(tdm_plan *plan, _Atomic uint64_t *progress, tdm_error *err) {
    plan->progress = progress;
    plan->round++;
    cpu_pool_run(plan->device->pool, plan_work, plan);
    tdm_status status = cpu_exchanges_status(&plan->exchanges, err);
    if (status != TDM_OK) exchanges_reset(plan);
    return status;
}
