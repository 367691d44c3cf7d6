/* SPDX-License-Identifier: MIT
 *
 * plan.c: gives a plan whose parts are compiled its stages, memory and member plans. The bindings
 * of a run are plan_bind.c's.
 *
 * All plans share a member's memory (meta_memory), because one plan runs at a time. Epoch, step
 * block and copied inputs lie in input memory, outputs in output memory: each has bytes that no
 * other value uses. A plan divides the scratch into two regions:
 *   1. values that cross from one stage to another, or into an exchange that the host performs;
 *   2. temporaries of a stage; all stages use this region from its beginning.
 * A crossing value shares its bytes with no other value from the stage that writes it to the last
 * that reads it. Within a stage such a value is an input or an output, and a device may assume that
 * inputs and outputs overlap nothing.
 */
#include "plugins/meta/exec/plan.h"

#include <string.h>

#include "core/base/packing.h"
#include "plugins/meta/exec/stuck.h"
#include "plugins/meta/exchange/arena.h"

/* Host memory of a plan; host_size counts it. */
static void *plan_alloc(meta_plan *plan, size_t n, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n + 1, size, &bytes)) return NULL;
    void *ptr = meta_alloc(plan->device->host, bytes);
    if (ptr != NULL) plan->host_size += bytes;
    return ptr;
}

static void plan_free(const meta_plan *plan, void *ptr, size_t n, size_t size) {
    meta_free(plan->device->host, ptr, (n + 1) * size);
}

/* Reserves `size` aligned bytes at *end and moves *end; false where the sum exceeds 64 bits. */
static bool bytes_take(uint64_t *end, uint64_t size, uint64_t align, uint64_t *off_out) {
    const uint64_t off = meta_round_up(*end, align);
    if (off == UINT64_MAX) return false;
    *off_out = off;
    return !__builtin_add_overflow(off, size, end);
}

/* ---- Stages ---------------------------------------------------------------------------------- */

static bool has_work(const tdm_graph *graph, int32_t first, int32_t last) {
    for (int32_t i = first; i < last; i++)
        if (!tdm_op_is_view(tdm_graph_node(graph, i)->op)) return true;
    return false;
}

/* Whether a node ends the stage before it: an EXCHANGE that the host performs, or a COLLECT. */
static bool is_border(const meta_member *member, const tdm_node *node) {
    if (node->op != TDM_OP_EXCHANGE || member->exchange == META_EXCHANGE_IN_PLAN) return false;
    return member->exchange == META_EXCHANGE_BY_HOST ||
           node->params.exchange.phase == TDM_EXCHANGE_COLLECT;
}

static int32_t border_next(const meta_member *member, const tdm_graph *graph, int32_t first) {
    while (first < graph->n_node && !is_border(member, tdm_graph_node(graph, first))) first++;
    return first;
}

/* The stage of nodes first .. last-1. Where they are all views, the stage has no graph. */
static tdm_status stage_make(meta_plan *plan, int32_t d, int32_t first, int32_t last,
                             tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    const tdm_graph *graph = &m->part.graph;
    meta_stage *s = &m->stages[m->n_stage++];
    s->exchange = last < graph->n_node ? last : -1;
    if (!has_work(graph, first, last)) return TDM_OK;
    if (first == 0 && last == graph->n_node) {
        s->graph = graph;
    } else {
        s->slot_map = plan_alloc(plan, (size_t)graph->n_slot, sizeof *s->slot_map);
        if (s->slot_map == NULL) return meta_no_memory("for a plan", err);
        tdm_status status = plan->device->host->graph->extract(graph, first, last - first,
                                                               &s->own_graph, s->slot_map, err);
        if (status != TDM_OK) return status;
        s->graph = s->own_graph;
    }
    s->bindings = plan_alloc(plan, (size_t)s->graph->n_slot, sizeof *s->bindings);
    return s->bindings != NULL ? TDM_OK : meta_no_memory("for a plan", err);
}

static tdm_status stages_make(meta_plan *plan, int32_t d, tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    const tdm_graph *graph = &m->part.graph;
    const meta_member *member = &plan->device->members[d];
    int32_t n = 1;
    for (int32_t i = 0; i < graph->n_node; i++) n += is_border(member, tdm_graph_node(graph, i));
    m->is_direct = n == 1;
    m->cap_stage = n;
    m->stages = plan_alloc(plan, (size_t)n, sizeof *m->stages);
    if (m->stages == NULL) return meta_no_memory("for a plan", err);
    tdm_status status = TDM_OK;
    for (int32_t first = 0, from = 0; m->n_stage < n && status == TDM_OK;) {
        int32_t last = border_next(member, graph, from);
        status = stage_make(plan, d, first, last, err);
        from = last + 1;
        first = member->exchange == META_EXCHANGE_IN_PHASES ? last : last + 1;
    }
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* True for slots of input and output memory. Inputs are among them where the member does not read
 * the caller's memory, so that they are copied before each run. */
static bool is_copied(const meta_member *member, int32_t source) {
    switch (source) {
    case META_SLOT_OUTPUT:
    case META_SLOT_EPOCH:
    case META_SLOT_STEP: return true;
    case META_SLOT_INPUT: return !meta_reads_in_place(member);
    default: return false;
    }
}

static tdm_status fixed_place(meta_plan *plan, int32_t d, tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    const meta_member *member = &plan->device->members[d];
    for (int32_t i = 0; i < m->part.graph.n_slot; i++) {
        const meta_slot *slot = &m->part.slots[i];
        m->temp_off[i] = META_NOWHERE;
        if (!is_copied(member, slot->source)) continue;
        if (!bytes_take(&m->memory_size[meta_slot_memory(slot->source)], slot->size, member->align,
                        &m->temp_off[i]))
            return tdm_fail(err, TDM_OUT_OF_RANGE, "member '%s': more than 2^64 bytes",
                            member->name);
    }
    m->memory_size[META_MEMORY_ZEROS] = m->part.zeros_size;
    return TDM_OK;
}

/* The first and the last use of a value. Stage s is moment 2 * s, the exchange after it that the
 * host performs is moment 2 * s + 1. first == -1: the value is not used. */
typedef struct life {
    int32_t first, last;
} life;

static void life_note(const meta_part *part, life *lives, int32_t value, int32_t moment) {
    if (value < 0) return;
    int32_t slot = part->graph.values[part->places[value].base].slot;
    if (lives[slot].first < 0) lives[slot].first = moment;
    lives[slot].last = moment;
}

static void lives_find(const meta_member *member, const meta_part *part, life *lives) {
    const tdm_graph *graph = &part->graph;
    int32_t moment = 0;
    for (int32_t i = 0; i < graph->n_slot; i++) lives[i] = (life){-1, -1};
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        bool is_cut = is_border(member, node),
             is_by_host = member->exchange == META_EXCHANGE_BY_HOST;
        if (is_cut) moment += is_by_host ? 1 : 2;
        for (int32_t s = 0; s < node->n_src; s++) life_note(part, lives, node->src[s], moment);
        for (int32_t s = 0; s < node->n_dst; s++) life_note(part, lives, node->dst[s], moment);
        if (is_cut && is_by_host) moment++;
    }
}

/* Region 1: values that are used in more than one stage or by an exchange of the host. */
static tdm_status crossing_place(meta_plan *plan, int32_t d, const life *lives,
                                 tdm_packed *crossing, tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    const meta_part *part = &m->part;
    uint64_t align = plan->device->members[d].align, from, size = 0;
    int32_t n = 0;
    if (!bytes_take(&m->memory_size[META_MEMORY_SCRATCH], 0, align, &from))
        return tdm_fail(err, TDM_OUT_OF_RANGE, "more than 2^64 bytes");
    for (int32_t i = 0; i < part->graph.n_slot; i++) {
        const life *mine = &lives[i];
        if (part->slots[i].source != META_SLOT_TEMP || mine->first < 0) continue;
        if (mine->first == mine->last && mine->first % 2 == 0) continue;
        const uint64_t need = meta_round_up(part->slots[i].size, align);
        if (need == UINT64_MAX) return tdm_fail(err, TDM_OUT_OF_RANGE, "more than 2^64 bytes");
        crossing[n++] = (tdm_packed){i, mine->first, mine->last, need, 0};
    }
    if (!tdm_pack(crossing, n, &size) ||
        __builtin_add_overflow(from, size, &m->memory_size[META_MEMORY_SCRATCH]))
        return tdm_fail(err, TDM_OUT_OF_RANGE, "more than 2^64 bytes");
    for (int32_t i = 0; i < n; i++) m->temp_off[crossing[i].id] = from + crossing[i].off;
    return TDM_OK;
}

/* Region 2: temporaries of each stage. Devices that hold temporaries themselves need none. */
static tdm_status temps_place(meta_plan *plan, int32_t d, uint64_t *offsets, tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    const meta_member *member = &plan->device->members[d];
    uint64_t from, need = 0;
    if ((member->info.flags & TDM_DEVICE_HOLDS_TEMPS) != 0) return TDM_OK;
    if (!bytes_take(&m->memory_size[META_MEMORY_SCRATCH], 0, member->align, &from))
        return tdm_fail(err, TDM_OUT_OF_RANGE, "more than 2^64 bytes");
    for (int32_t s = 0; s < m->n_stage; s++) {
        const meta_stage *stage = &m->stages[s];
        uint64_t size = 0;
        if (stage->graph == NULL) continue;
        tdm_status status = plan->device->host->graph->plan_memory(stage->graph, member->align,
                                                                   offsets, &size, err);
        if (status != TDM_OK) return status;
        if (size > need) need = size;
        for (int32_t i = 0; i < stage->graph->n_slot; i++) {
            int32_t slot = stage->slot_map != NULL ? stage->slot_map[i] : i;
            if (offsets[i] == UINT64_MAX || m->part.slots[slot].source != META_SLOT_TEMP) continue;
            m->temp_off[slot] = from + offsets[i];
        }
    }
    if (__builtin_add_overflow(from, need, &m->memory_size[META_MEMORY_SCRATCH]))
        return tdm_fail(err, TDM_OUT_OF_RANGE, "more than 2^64 bytes");
    return TDM_OK;
}

static tdm_status memory_place(meta_plan *plan, int32_t d, tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    size_t n_slot = (size_t)m->part.graph.n_slot;
    m->temp_off = plan_alloc(plan, n_slot, sizeof *m->temp_off);
    m->slot_bindings = plan_alloc(plan, n_slot, sizeof *m->slot_bindings);
    if (m->temp_off == NULL || m->slot_bindings == NULL) return meta_no_memory("for a plan", err);
    const tdm_host *host = plan->device->host;
    size_t lives_size = (n_slot + 1) * sizeof(life);
    size_t crossing_size = (n_slot + 1) * sizeof(tdm_packed);
    size_t offsets_size = (n_slot + 1) * sizeof(uint64_t);
    life *lives = meta_alloc(host, lives_size);
    tdm_packed *crossing = meta_alloc(host, crossing_size);
    uint64_t *offsets = meta_alloc(host, offsets_size);
    tdm_status status = lives != NULL && crossing != NULL && offsets != NULL
                            ? TDM_OK
                            : meta_no_memory("for a plan", err);
    if (status == TDM_OK) status = fixed_place(plan, d, err);
    if (status == TDM_OK && !m->is_direct) {
        lives_find(&plan->device->members[d], &m->part, lives);
        status = crossing_place(plan, d, lives, crossing, err);
    }
    if (status == TDM_OK) status = temps_place(plan, d, offsets, err);
    meta_free(host, lives, lives_size);
    meta_free(host, crossing, crossing_size);
    meta_free(host, offsets, offsets_size);
    return status;
}

/* ---- Growing the shared buffers -------------------------------------------------------------- */

static tdm_status member_alloc(meta_member *member, meta_memory kind, uint64_t size,
                               tdm_buffer **out, tdm_error *err) {
    static const tdm_buffer_purpose purposes[META_N_MEMORY] = {
        [META_MEMORY_SCRATCH] = TDM_BUFFER_COMPUTE,
        [META_MEMORY_INPUT] = TDM_BUFFER_INPUT,
        [META_MEMORY_OUTPUT] = TDM_BUFFER_OUTPUT,
        [META_MEMORY_ZEROS] = TDM_BUFFER_COMPUTE};
    tdm_buffer_params params = {
        .struct_size = sizeof params, .size = size, .purpose = purposes[kind]};
    const tdm_buffer_ops *ops = meta_member_buffers(member);
    tdm_error inner = {0};
    tdm_status status = ops->alloc(member->acquired.device, &params, out, &inner);
    if (status != TDM_OK) *out = NULL;
    if (status == TDM_OK && kind == META_MEMORY_ZEROS) status = ops->fill(*out, 0, size, 0, &inner);
    if (status == TDM_OK) return TDM_OK;
    return tdm_fail(err, status, "member '%s': %s; a smaller ubatch-size needs less", member->name,
                    inner.message);
}

static void memory_replace(meta_device *device, int32_t d, int kind, tdm_buffer *grown,
                           uint64_t grown_size) {
    meta_member *member = &device->members[d];
    if (grown == NULL) return;
    if (member->memory[kind] != NULL && !meta_member_is_stuck(device, d))
        meta_member_buffers(member)->free(member->memory[kind]);
    member->memory[kind] = grown;
    member->memory_size[kind] = grown_size;
    atomic_fetch_add(&device->generation, 1);
}

tdm_status meta_plan_grow(meta_plan *plan, tdm_error *err) {
    meta_device *device = plan->device;
    tdm_buffer *grown[TDM_MAX_MEMBERS][META_N_MEMORY] = {{NULL}};
    tdm_status status = TDM_OK;
    for (int32_t d = 0; d < device->n_member; d++)
        for (int k = 0; k < META_N_MEMORY && status == TDM_OK && meta_is_active(device, d); k++)
            if (plan->members[d].memory_size[k] > device->members[d].memory_size[k])
                status = member_alloc(&device->members[d], (meta_memory)k,
                                      plan->members[d].memory_size[k], &grown[d][k], err);
    for (int32_t d = 0; d < device->n_member; d++)
        for (int k = 0; k < META_N_MEMORY; k++) {
            if (status == TDM_OK)
                memory_replace(device, d, k, grown[d][k], plan->members[d].memory_size[k]);
            else if (grown[d][k] != NULL)
                meta_member_buffers(&device->members[d])->free(grown[d][k]);
        }
    return status;
}

void meta_plan_memory_release(meta_device *device) {
    pthread_mutex_lock(&device->mutex);
    /* Another thread may have made a plan since. */
    const bool is_unused = atomic_load(&device->n_plan) == 0;
    for (int32_t d = 0; d < device->n_member && is_unused; d++) {
        meta_member *member = &device->members[d];
        if (meta_member_is_stuck(device, d)) continue;
        for (int k = 0; k < META_N_MEMORY; k++) {
            if (member->memory[k] != NULL) meta_member_buffers(member)->free(member->memory[k]);
            member->memory[k] = NULL;
            member->memory_size[k] = 0;
        }
    }
    if (is_unused) atomic_fetch_add(&device->generation, 1);
    pthread_mutex_unlock(&device->mutex);
}

/* ---- Staging memory -------------------------------------------------------------------------- */

/* The largest of three uses: sources and results of one host exchange side by side; a rewritten
 * step block; an output before its pieces are copied to the caller. */
static void staging_measure(meta_plan *plan, int32_t d) {
    meta_member_plan *m = &plan->members[d];
    const tdm_graph *graph = &m->part.graph;
    uint64_t need = sizeof(tdm_step_header);
    for (int32_t i = 0; i < graph->n_slot; i++)
        if ((m->part.slots[i].source == META_SLOT_OUTPUT ||
             m->part.slots[i].source == META_SLOT_STEP) &&
            m->part.slots[i].size > need)
            need = m->part.slots[i].size;
    bool is_by_host = plan->device->members[d].exchange == META_EXCHANGE_BY_HOST;
    for (int32_t s = 0; s < m->n_stage; s++) {
        if (m->stages[s].exchange < 0 || !is_by_host) continue;
        const tdm_node *node = tdm_graph_node(graph, m->stages[s].exchange);
        const int32_t values[5] = {node->src[0], node->src[3], node->src[4], node->dst[0],
                                   node->dst[1]};
        uint64_t sum = 0;
        for (int i = 0; i < 5; i++) {
            if (values[i] < 0) continue;
            const tdm_value *v = tdm_graph_value(graph, values[i]);
            sum += (tdm_tensor_canonical_size((tdm_type)v->type, v->ne) + 63) / 64 * 64;
            if (!tdm_view_is_contiguous(v, &m->part.places[values[i]]))
                sum += (meta_part_span(&m->part, values[i]) + 63) / 64 * 64;
        }
        if (sum > need) need = sum;
    }
    m->staging_size = need;
}

static tdm_status staging_make(meta_plan *plan, int32_t d, tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    m->staging = plan_alloc(plan, (size_t)m->staging_size, 1);
    return m->staging != NULL ? TDM_OK : meta_no_memory("for a plan", err);
}

static tdm_status pages_make(meta_plan *plan, tdm_error *err) {
    int64_t n_local[TDM_MAX_MEMBERS];
    if (!plan->rewrites_step) return TDM_OK;
    for (int32_t i = 0; i < plan->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(plan->graph, i);
        if (v->kind == TDM_VALUE_STATE && v->ne[1] > plan->n_page &&
            !meta_state_is_recurrent(plan->graph, i))
            plan->n_page = v->ne[1];
    }
    plan->pages = plan_alloc(plan, (size_t)plan->n_page, sizeof *plan->pages);
    if (plan->pages == NULL) return meta_no_memory("for a plan", err);
    meta_pages_assign(plan->device, plan->n_page, plan->pages, n_local);
    return TDM_OK;
}

/* ---- Preparing ------------------------------------------------------------------------------- */

static tdm_status plans_make(meta_plan *plan, int32_t d, tdm_error *err) {
    const meta_member *member = &plan->device->members[d];
    meta_member_plan *m = &plan->members[d];
    tdm_plan_params params = {.struct_size = sizeof params};
    for (int32_t s = 0; s < m->n_stage; s++) {
        tdm_error inner = {0};
        if (m->stages[s].graph == NULL) continue;
        tdm_status status = member->acquired.plugin->queue->graph_prepare(
            m->queue, m->stages[s].graph, &params, &m->stages[s].plan, &inner);
        if (status == TDM_OK) continue;
        m->stages[s].plan = NULL;
        return tdm_fail(err, status, "member '%s': %s", member->name, inner.message);
    }
    return TDM_OK;
}

/* Checks that the flags of each exchange lie in its own lines and its data behind all flag lines.
 * Otherwise the data of one plan would be read as flags by another. */
static tdm_status exchanges_check(meta_plan *plan, int32_t d, tdm_error *err) {
    meta_device *device = plan->device;
    const tdm_graph *graph = &plan->members[d].part.graph;
    uint64_t line = 64 * (uint64_t)device->n_active;
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        const tdm_exchange_params *p = &node->params.exchange;
        if (node->op != TDM_OP_EXCHANGE) continue;
        if (p->n_member != device->n_active || p->stage >= META_ARENA_MAX_EXCHANGES ||
            p->flag_off != META_ARENA_FLAGS + (uint64_t)p->stage * line ||
            p->data_off < meta_arena_data(device->n_active))
            return tdm_fail(err, TDM_INTERNAL, "exchange %d: its flags or data are misplaced",
                            (int)p->stage);
        if (p->stage >= plan->n_exchange) plan->n_exchange = p->stage + 1;
    }
    return TDM_OK;
}

tdm_status meta_plan_lay_out(meta_plan *plan, tdm_error *err) {
    meta_device *device = plan->device;
    tdm_status status = pages_make(plan, err);
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++) {
        tdm_error inner = {0};
        if (!meta_is_active(device, d)) continue;
        status = device->host->graph->verify(&plan->members[d].part.graph, &inner);
        if (status == TDM_OK) status = exchanges_check(plan, d, &inner);
        if (status == TDM_OK) status = stages_make(plan, d, &inner);
        if (status == TDM_OK) status = memory_place(plan, d, &inner);
        if (status == TDM_OK) staging_measure(plan, d);
        if (status != TDM_OK)
            tdm_fail(err, status, "group: the part of member '%s': %s", device->members[d].name,
                     inner.message);
    }
    return status;
}

/* Lets the parts refer to names of the plan, as plan.h says. */
static tdm_status names_keep(meta_plan *plan, tdm_error *err) {
    const size_t size = (size_t)plan->graph->names_size;
    plan->names = meta_alloc(plan->device->host, size + 1);
    if (plan->names == NULL) return meta_no_memory("for a plan", err);
    plan->names_size = size + 1;
    if (size > 0) memcpy(plan->names, plan->graph->names, size);
    for (int32_t d = 0; d < plan->device->n_member; d++)
        if (plan->members[d].part.host != NULL) plan->members[d].part.graph.names = plan->names;
    return TDM_OK;
}

tdm_status meta_plan_prepare(meta_plan *plan, tdm_error *err) {
    meta_device *device = plan->device;
    tdm_status status = meta_plan_lay_out(plan, err);
    if (status == TDM_OK) status = names_keep(plan, err);
    if (status != TDM_OK) return status;
    plan->bindings = plan_alloc(plan, (size_t)plan->graph->n_slot, sizeof *plan->bindings);
    if (plan->bindings == NULL) return meta_no_memory("for a plan", err);
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++) {
        if (!meta_is_active(device, d)) continue;
        status = staging_make(plan, d, err);
        if (status == TDM_OK) status = plans_make(plan, d, err);
    }
    if (status == TDM_OK && plan->arena_size > 0)
        status = meta_arena_reserve(device, plan->arena_size, err);
    if (status == TDM_OK && plan->peer_size > 0)
        status = meta_arena_reserve_peer(device, plan->peer_size, err);
    /* Only after meta_arena_reserve does the arena have that many lines. */
    if (status == TDM_OK && plan->n_exchange > device->arena->n_exchange)
        device->arena->n_exchange = plan->n_exchange;
    if (status == TDM_OK && plan->data_size / 2 > device->area_size)
        device->area_size = plan->data_size / 2;
    if (status == TDM_OK) status = meta_plan_grow(plan, err);
    return status;
}

/* ---- Destroying ------------------------------------------------------------------------------ */

static void member_plans_destroy(meta_plan *plan, int32_t d) {
    meta_member_plan *m = &plan->members[d];
    for (int32_t s = 0; s < m->n_stage; s++) {
        if (m->stages[s].plan != NULL)
            plan->device->members[d].acquired.plugin->queue->plan_destroy(m->stages[s].plan);
        m->stages[s].plan = NULL;
    }
}

static void member_destroy(meta_plan *plan, int32_t d) {
    meta_member_plan *m = &plan->members[d];
    const tdm_host *host = plan->device->host;
    size_t n_slot = (size_t)m->part.graph.n_slot;
    member_plans_destroy(plan, d);
    for (int32_t s = 0; s < m->n_stage; s++) {
        meta_stage *stage = &m->stages[s];
        plan_free(plan, stage->slot_map, n_slot, sizeof *stage->slot_map);
        if (stage->bindings != NULL)
            plan_free(plan, stage->bindings, (size_t)stage->graph->n_slot, sizeof *stage->bindings);
        if (stage->own_graph != NULL) host->graph->graph_free(stage->own_graph);
    }
    plan_free(plan, m->stages, (size_t)m->cap_stage, sizeof *m->stages);
    plan_free(plan, m->temp_off, n_slot, sizeof *m->temp_off);
    plan_free(plan, m->slot_bindings, n_slot, sizeof *m->slot_bindings);
    if (m->staging != NULL) plan_free(plan, m->staging, (size_t)m->staging_size, 1);
    meta_part_end(&m->part);
}

static void plan_free_all(meta_plan *plan) {
    const tdm_host *host = plan->device->host;
    size_t n_value = (size_t)plan->n_value + 1;
    for (int32_t d = 0; d < plan->device->n_member; d++)
        if (plan->members[d].part.host != NULL) member_destroy(plan, d);
    meta_free(host, plan->layouts.layouts,
              (size_t)plan->layouts.capacity * sizeof *plan->layouts.layouts);
    meta_free(host, plan->variants, (size_t)plan->cap_variant * sizeof *plan->variants);
    meta_free(host, plan->value_variant, n_value * sizeof *plan->value_variant);
    meta_free(host, plan->outputs, n_value * sizeof *plan->outputs);
    meta_free(host, plan->candidates, (size_t)plan->candidates_size);
    meta_free(host, plan->checks, (size_t)plan->cap_check * sizeof *plan->checks);
    plan_free(plan, plan->pages, (size_t)plan->n_page, sizeof *plan->pages);
    plan_free(plan, plan->bindings, (size_t)plan->n_slot, sizeof *plan->bindings);
    meta_free(host, plan->names, plan->names_size);
    meta_free(host, plan, sizeof *plan);
}

static void plan_release(meta_device *device, int32_t d, void *plan) {
    (void)device;
    (void)d;
    meta_plan_destroy(plan);
}

void meta_plan_destroy(meta_plan *plan) {
    if (plan == NULL) return;
    meta_device *device = plan->device;
    if (plan->graph != NULL) {
        plan->n_value = plan->graph->n_value;
        plan->n_slot = plan->graph->n_slot;
    }
    bool has_stuck = false;
    /* A plan must be destroyed before its queue. Only a stuck member is sure to keep its queue, so
     * the plans of the others are destroyed now. */
    for (int32_t d = 0; d < device->n_member; d++) {
        if (plan->members[d].n_stage > 0 && meta_member_is_stuck(device, d))
            has_stuck = true;
        else
            member_plans_destroy(plan, d);
    }
    if (!has_stuck) {
        plan_free_all(plan);
        return;
    }
    /* The member may still run its plans, which read its graphs. */
    plan->graph = NULL;
    meta_release_later(device, META_ANY_MEMBER, NULL, 0, plan_release, plan, &plan->later);
}
