/* SPDX-License-Identifier: MIT
 *
 * adapter_plan.c: makes plans for a lent device: decides the side of every node, cuts the graph where
 * sides change, and lays out the memory of what crosses. Running them is adapter_queue.c's.
 */
#include "core/stages/adapter_plan.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/view.h"
#include "core/graph/builder.h"

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: out of memory");
}

/* ---- Sides ---- */

/* Says once for each op that it goes to the fallback. */
static void refusal_report(tdm_device *device, const tdm_node *node, const char *reason) {
    tdm_open_device *dev = device->main;
    if (node->op < 0 || node->op >= TDM_OP_COUNT_) return;
    pthread_mutex_lock(&device->rt->adapter_mutex);
    bool is_new = !dev->refused[node->op];
    dev->refused[node->op] = true;
    pthread_mutex_unlock(&device->rt->adapter_mutex);
    if (is_new)
        tdm_runtime_log(device->rt, TDM_LOG_WARN, "%s does not run %s (%s); it runs on %s",
                        tdm_open_device_name(dev), tdm_op_name(node->op), reason,
                        tdm_open_device_name(device->rt->fallback));
}

static tdm_status node_side(tdm_device *device, const tdm_graph *graph, int32_t index,
                            const tdm_view_place *places, adapter_side *side_out, tdm_error *err) {
    const tdm_node *node = tdm_graph_node(graph, index);
    bool needs_fallback = false, is_state = false;
    tdm_error why = {0};
    for (int32_t i = 0; i < node->n_src; i++) {
        if (node->src[i] < 0) continue;
        int32_t base = places[node->src[i]].base;
        is_state |= tdm_graph_value(graph, base)->kind == TDM_VALUE_STATE;
        needs_fallback |= adapter_source_side(device, graph, index, base) == ADAPTER_FALLBACK;
    }
    tdm_status status =
        adapter_node_side(device, graph, index, needs_fallback, is_state, side_out, &why);
    if (status != TDM_OK)
        return tdm_fail(err, status, "device '%s': %s: %s", tdm_open_device_name(device->main),
                        tdm_op_name(node->op), why.message);
    const tdm_kv_desc *kv = adapter_node_kv(graph, node);
    bool is_as_told = kv != NULL && (kv->flags & TDM_KV_IN_HOST) != 0;
    if (*side_out == ADAPTER_FALLBACK && !is_as_told) refusal_report(device, node, why.message);
    return TDM_OK;
}

/* sides[n_node]; a view, which moves no bytes, is where the node before it is. */
static tdm_status sides_find(tdm_device *device, const tdm_graph *graph, adapter_side *sides,
                             tdm_error *err) {
    tdm_view_place *places = malloc(((size_t)graph->n_value + 1) * sizeof *places);
    if (places == NULL) return out_of_memory(err);
    tdm_view_resolve_all(graph, places);
    tdm_status status = TDM_OK;
    int32_t first = -1;
    for (int32_t i = 0; i < graph->n_node && status == TDM_OK; i++) {
        if (tdm_op_is_view(tdm_graph_node(graph, i)->op)) {
            sides[i] = i > 0 ? sides[i - 1] : ADAPTER_MAIN;
            continue;
        }
        status = node_side(device, graph, i, places, &sides[i], err);
        if (first < 0) first = i;
    }
    for (int32_t i = 0; i < first && status == TDM_OK; i++) sides[i] = sides[first];
    free(places);
    return status;
}

/* ---- Memory that crosses ---- */

/* A value that crosses lives from the first stage to the last one that touches it. */
typedef struct border_life {
    int32_t first, last; /* stages; first -1 = does not cross */
    bool is_on[ADAPTER_SIDE_COUNT_];
} border_life;

typedef struct placing {
    tdm_plan *plan;
    const tdm_value **slot_value; /* [n_slot] of the whole graph */
    border_life *lives;           /* [n_slot] */
    uint64_t size[ADAPTER_SIDE_COUNT_];
    uint64_t temp_size; /* of the fallback's largest stage */
} placing;

static uint64_t round_up(uint64_t size, uint64_t align) {
    return (size + align - 1) / align * align;
}

/* The caller has a place on the device for what he brings or reads, not for what devices hold
 * among themselves. */
static bool is_bound_by_caller(const tdm_value *v) {
    return v->kind == TDM_VALUE_INPUT || v->kind == TDM_VALUE_OUTPUT;
}

static void lives_find(placing *p) {
    tdm_plan *plan = p->plan;
    for (int32_t i = 0; i < plan->graph->n_slot; i++) p->lives[i].first = -1;
    for (int32_t s = 0; s < plan->n_stage; s++) {
        const adapter_stage *st = &plan->stages[s];
        for (int32_t i = 0; i < st->graph->n_value; i++) {
            const tdm_value *v = tdm_graph_value(st->graph, i);
            if (v->slot < 0 || !is_bound_by_caller(v)) continue;
            border_life *life = &p->lives[st->slot_map[v->slot]];
            if (life->first < 0) life->first = s;
            life->last = s;
            life->is_on[st->side] = true;
        }
    }
}

/* The lowest offset at which `size` bytes touch nothing that lives at the same time. */
static uint64_t hole_find(const placing *p, adapter_side side, int32_t slot, uint64_t size) {
    const uint64_t *off = p->plan->border_off[side];
    const border_life *life = &p->lives[slot];
    uint64_t at = 0;
    for (bool is_moved = true; is_moved;) {
        is_moved = false;
        for (int32_t i = 0; i < p->plan->graph->n_slot; i++) {
            const border_life *other = &p->lives[i];
            if (off[i] == ADAPTER_NOWHERE || other->first > life->last || other->last < life->first)
                continue;
            uint64_t end = off[i] + round_up(p->plan->slot_size[i], p->plan->device->align);
            if (off[i] < at + size && at < end) {
                at = end;
                is_moved = true;
            }
        }
    }
    return at;
}

static void border_place(placing *p) {
    tdm_plan *plan = p->plan;
    for (int32_t slot = 0; slot < plan->graph->n_slot; slot++) {
        const border_life *life = &p->lives[slot];
        if (life->first < 0) continue;
        for (int s = 0; s < ADAPTER_SIDE_COUNT_; s++) {
            if (!life->is_on[s] || (s == ADAPTER_MAIN && is_bound_by_caller(p->slot_value[slot])))
                continue;
            uint64_t size = round_up(plan->slot_size[slot], plan->device->align);
            plan->border_off[s][slot] = hole_find(p, (adapter_side)s, slot, size);
            if (plan->border_off[s][slot] + size > p->size[s])
                p->size[s] = plan->border_off[s][slot] + size;
        }
    }
}

/* Copies of weights that stay on the device but are read by the fallback too. */
static tdm_status weights_place(placing *p, tdm_error *err) {
    tdm_plan *plan = p->plan;
    tdm_device *device = plan->device;
    for (int32_t s = 0; s < plan->n_stage; s++) {
        const adapter_stage *st = &plan->stages[s];
        for (int32_t i = 0; i < st->graph->n_value && st->side == ADAPTER_FALLBACK; i++) {
            const tdm_value *v = tdm_graph_value(st->graph, i);
            if (v->slot < 0 || v->kind != TDM_VALUE_WEIGHT) continue;
            adapter_weight_copy copy = {.slot = st->slot_map[v->slot],
                                        .desc = adapter_weight_desc(v)};
            if (plan->border_off[ADAPTER_FALLBACK][copy.slot] != ADAPTER_NOWHERE ||
                adapter_tensor_side(device, &copy.desc) == ADAPTER_FALLBACK)
                continue;
            tdm_status status = tdm_open_device_tensor_size(adapter_fallback(device, err),
                                                            &copy.desc, &copy.size, err);
            if (status != TDM_OK) return status;
            copy.off = p->size[ADAPTER_FALLBACK];
            p->size[ADAPTER_FALLBACK] += round_up(copy.size, device->align);
            plan->border_off[ADAPTER_FALLBACK][copy.slot] = copy.off;
            plan->weights[plan->n_weight++] = copy;
            if (plan->staging_size < plan->slot_size[copy.slot])
                plan->staging_size = plan->slot_size[copy.slot];
        }
    }
    return TDM_OK;
}

/* Binds what lies in the plan's own memory; the rest is bound when the caller has spoken. */
static void stage_bind(tdm_plan *plan, adapter_stage *st, const uint64_t *temp_off,
                       uint64_t border_size) {
    for (int32_t i = 0; i < st->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(st->graph, i);
        if (v->slot < 0) continue;
        int32_t slot = st->slot_map[v->slot];
        tdm_binding *b = &st->bindings[v->slot];
        uint64_t off = plan->border_off[st->side][slot];
        if (v->kind == TDM_VALUE_TEMP && st->side == ADAPTER_FALLBACK &&
            temp_off[v->slot] != ADAPTER_NOWHERE)
            off = border_size + temp_off[v->slot];
        if (off == ADAPTER_NOWHERE) {
            st->is_given[v->slot] = true;
            continue;
        }
        *b = (tdm_binding){plan->border[st->side].buffer, off, plan->slot_size[slot]};
    }
}

static tdm_status memory_place(tdm_plan *plan, tdm_error *err) {
    size_t n_slot = (size_t)plan->graph->n_slot + 1;
    placing p = {.plan = plan};
    p.slot_value = calloc(n_slot, sizeof *p.slot_value);
    p.lives = calloc(n_slot, sizeof *p.lives);
    uint64_t *temp_off = malloc((size_t)plan->n_stage * n_slot * sizeof *temp_off);
    tdm_status status = TDM_OK;
    if (p.slot_value == NULL || p.lives == NULL || temp_off == NULL) status = out_of_memory(err);
    for (int32_t i = 0; i < plan->graph->n_value && status == TDM_OK; i++) {
        const tdm_value *v = tdm_graph_value(plan->graph, i);
        if (v->slot < 0) continue;
        p.slot_value[v->slot] = v;
        plan->slot_size[v->slot] = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    }
    if (status == TDM_OK) {
        lives_find(&p);
        border_place(&p);
        status = weights_place(&p, err);
    }
    for (int32_t s = 0; s < plan->n_stage && status == TDM_OK; s++) {
        uint64_t size = 0;
        if (plan->stages[s].side != ADAPTER_FALLBACK) continue;
        status = tdm_graph_plan_memory(plan->stages[s].graph, plan->device->align,
                                       temp_off + (size_t)s * n_slot, &size, err);
        if (size > p.temp_size) p.temp_size = size;
    }
    for (int s = 0; s < ADAPTER_SIDE_COUNT_ && status == TDM_OK; s++) {
        tdm_open_device *dev =
            s == ADAPTER_MAIN ? plan->device->main : adapter_fallback(plan->device, err);
        uint64_t size = p.size[s] + (s == ADAPTER_FALLBACK ? p.temp_size : 0);
        if (size > 0)
            status = dev != NULL
                         ? tdm_mem_alloc(dev, size, TDM_BUFFER_COMPUTE, &plan->border[s], err)
                         : TDM_UNAVAILABLE;
    }
    for (int32_t s = 0; s < plan->n_stage && status == TDM_OK; s++)
        stage_bind(plan, &plan->stages[s], temp_off + (size_t)s * n_slot, p.size[ADAPTER_FALLBACK]);
    free(p.slot_value);
    free(p.lives);
    free(temp_off);
    return status;
}

/* ---- Stages ---- */

static tdm_status stage_make(tdm_plan *plan, adapter_stage *st, int32_t first, int32_t count,
                             tdm_error *err) {
    size_t n_slot = (size_t)plan->graph->n_slot + 1;
    st->slot_map = malloc(n_slot * sizeof *st->slot_map);
    st->bindings = calloc(n_slot, sizeof *st->bindings);
    st->is_given = calloc(n_slot, sizeof *st->is_given);
    st->copies_in = calloc(n_slot, sizeof *st->copies_in);
    st->copies_out = calloc(n_slot, sizeof *st->copies_out);
    if (st->slot_map == NULL || st->bindings == NULL || st->is_given == NULL ||
        st->copies_in == NULL || st->copies_out == NULL)
        return out_of_memory(err);
    if (count == plan->graph->n_node) {
        st->graph = plan->graph;
        for (int32_t i = 0; i < plan->graph->n_slot; i++) st->slot_map[i] = i;
        return TDM_OK;
    }
    tdm_status status =
        tdm_graph_extract(plan->graph, first, count, &st->own_graph, st->slot_map, err);
    st->graph = st->own_graph;
    return status;
}

/* Which values each stage needs brought, given what earlier ones left where. */
static tdm_status copies_find(tdm_plan *plan, tdm_error *err) {
    uint8_t *is_at = calloc((size_t)plan->graph->n_slot + 1, ADAPTER_SIDE_COUNT_);
    bool *is_output = calloc((size_t)plan->graph->n_slot + 1, sizeof *is_output);
    if (is_at == NULL || is_output == NULL) {
        free(is_at);
        free(is_output);
        return out_of_memory(err);
    }
    for (int32_t i = 0; i < plan->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(plan->graph, i);
        if (v->slot < 0) continue;
        if (v->kind == TDM_VALUE_INPUT) is_at[v->slot * ADAPTER_SIDE_COUNT_ + ADAPTER_MAIN] = 1;
        if (v->kind == TDM_VALUE_OUTPUT) is_output[v->slot] = true;
    }
    for (int32_t s = 0; s < plan->n_stage; s++) {
        adapter_stage *st = &plan->stages[s];
        for (int32_t i = 0; i < st->graph->n_value; i++) {
            const tdm_value *v = tdm_graph_value(st->graph, i);
            if (v->slot < 0 || !is_bound_by_caller(v)) continue;
            int32_t slot = st->slot_map[v->slot];
            uint8_t *at = &is_at[slot * ADAPTER_SIDE_COUNT_];
            if (v->kind == TDM_VALUE_OUTPUT) {
                at[ADAPTER_MAIN] = at[ADAPTER_FALLBACK] = 0;
                at[st->side] = 1;
                if (st->side == ADAPTER_FALLBACK && is_output[slot]) {
                    st->copies_out[st->n_copy_out++] = slot;
                    at[ADAPTER_MAIN] = 1;
                    plan->crossing_size += plan->slot_size[slot];
                }
            } else if (!at[st->side]) {
                st->copies_in[st->n_copy_in++] = slot;
                at[st->side] = 1;
                plan->crossing_size += plan->slot_size[slot];
            } else {
                continue;
            }
            if (plan->staging_size < plan->slot_size[slot])
                plan->staging_size = plan->slot_size[slot];
        }
    }
    free(is_at);
    free(is_output);
    return TDM_OK;
}

static tdm_status stages_make(tdm_plan *plan, const adapter_side *sides, tdm_error *err) {
    const tdm_graph *g = plan->graph;
    size_t n_slot = (size_t)g->n_slot + 1;
    int32_t n_stage = 0;
    for (int32_t i = 0; i < g->n_node; i++) n_stage += i == 0 || sides[i] != sides[i - 1];
    plan->stages = calloc((size_t)n_stage + 1, sizeof *plan->stages);
    plan->slot_size = calloc(n_slot, sizeof *plan->slot_size);
    plan->weights = calloc(n_slot, sizeof *plan->weights);
    tdm_status status = TDM_OK;
    if (plan->stages == NULL || plan->slot_size == NULL || plan->weights == NULL)
        status = out_of_memory(err);
    for (int s = 0; s < ADAPTER_SIDE_COUNT_ && status == TDM_OK; s++) {
        plan->border_off[s] = malloc(n_slot * sizeof *plan->border_off[s]);
        if (plan->border_off[s] == NULL)
            status = out_of_memory(err);
        else
            memset(plan->border_off[s], 0xff, n_slot * sizeof *plan->border_off[s]);
    }
    for (int32_t i = 0, end; i < g->n_node && status == TDM_OK; i = end) {
        for (end = i; end < g->n_node && sides[end] == sides[i];) end++;
        adapter_stage *st = &plan->stages[plan->n_stage++];
        st->side = sides[i];
        status = stage_make(plan, st, i, end - i, err);
    }
    if (status == TDM_OK) status = memory_place(plan, err);
    if (status == TDM_OK) status = copies_find(plan, err);
    for (int32_t s = 0; s < plan->n_stage && status == TDM_OK; s++) {
        adapter_stage *st = &plan->stages[s];
        tdm_open_device *dev =
            st->side == ADAPTER_MAIN ? plan->device->main : adapter_fallback(plan->device, err);
        status =
            dev != NULL ? tdm_device_plan_create(dev, st->graph, &st->plan, err) : TDM_UNAVAILABLE;
    }
    if (status != TDM_OK) return status;
    uint64_t limit = TDM_STAGING_SIZE; /* but a row of a weight is converted in one piece */
    for (int32_t i = 0; i < plan->n_weight; i++) {
        const tdm_tensor_desc *desc = &plan->weights[i].desc;
        uint64_t row = tdm_type_row_size(desc->type, desc->ne[0]);
        if (limit < row) limit = row;
    }
    if (plan->staging_size > limit) plan->staging_size = limit;
    plan->staging = malloc(plan->staging_size + 1);
    if (plan->staging == NULL) return out_of_memory(err);
    atomic_store(&plan->device->is_staged, true);
    return TDM_OK;
}

tdm_status adapter_plan_create(tdm_device *device, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err) {
    (void)params; /* has no flags yet */
    tdm_plan *plan = calloc(1, sizeof *plan);
    adapter_side *sides = malloc(((size_t)graph->n_node + 1) * sizeof *sides);
    tdm_status status = plan != NULL && sides != NULL ? TDM_OK : out_of_memory(err);
    bool is_whole = true;
    if (status == TDM_OK) {
        plan->device = device;
        plan->graph = graph;
        plan->job.run = adapter_plan_run;
        plan->given = calloc((size_t)graph->n_slot + 1, sizeof *plan->given);
        plan->bound = calloc((size_t)graph->n_slot + 1, sizeof *plan->bound);
        if (plan->given == NULL || plan->bound == NULL) status = out_of_memory(err);
    }
    if (status == TDM_OK) status = sides_find(device, graph, sides, err);
    for (int32_t i = 0; i < graph->n_node && status == TDM_OK; i++)
        is_whole &= sides[i] == ADAPTER_MAIN;
    if (status == TDM_OK)
        status = is_whole ? tdm_device_plan_create(device->main, graph, &plan->whole, err)
                          : stages_make(plan, sides, err);
    free(sides);
    if (status != TDM_OK) {
        adapter_plan_destroy(plan);
        return status;
    }
    *plan_out = plan;
    return TDM_OK;
}

void adapter_plan_destroy(tdm_plan *plan) {
    if (plan == NULL) return;
    tdm_device_plan_destroy(plan->whole);
    for (int32_t s = 0; s < plan->n_stage; s++) {
        adapter_stage *st = &plan->stages[s];
        tdm_device_plan_destroy(st->plan);
        tdm_graph_free(st->own_graph);
        free(st->slot_map);
        free(st->bindings);
        free(st->is_given);
        free(st->copies_in);
        free(st->copies_out);
    }
    for (int s = 0; s < ADAPTER_SIDE_COUNT_; s++) {
        tdm_mem_free(&plan->border[s]);
        free(plan->border_off[s]);
    }
    free(plan->stages);
    free(plan->slot_size);
    free(plan->weights);
    free(plan->staging);
    free(plan->given);
    free(plan->bound);
    free(plan);
}

tdm_status adapter_plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    size_t known = info_out->struct_size;
    tdm_plan_info sum = {.struct_size = known}, part;
    tdm_status status = TDM_OK;
    if (plan->whole != NULL) {
        status = tdm_device_plan_get_info(plan->whole, &sum, err);
        sum.struct_size = known;
    }
    for (int32_t s = 0; s < plan->n_stage && status == TDM_OK; s++) {
        status = tdm_device_plan_get_info(plan->stages[s].plan, &part, err);
        if (status != TDM_OK) break;
        bool is_main = plan->stages[s].side == ADAPTER_MAIN;
        sum.device_size += is_main ? part.device_size : 0;
        sum.host_size += part.host_size + (is_main ? 0 : part.device_size);
        sum.crossing_size += part.crossing_size;
    }
    sum.device_size += plan->border[ADAPTER_MAIN].size;
    sum.host_size += plan->border[ADAPTER_FALLBACK].size + plan->staging_size;
    sum.crossing_size += plan->crossing_size;
    if (status == TDM_OK)
        memcpy(info_out, &sum, known > 0 && known < sizeof sum ? known : sizeof sum);
    return status;
}
