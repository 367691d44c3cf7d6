/* SPDX-License-Identifier: MIT
 *
 * stages.c: see stages.h.
 */
#include "core/stages/stages.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/packing.h"
#include "core/counters.h"
#include "core/graph/builder.h"

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "stages: out of memory");
}

/* ---- Queues ---- */

/* Replaces the semaphore where it is poisoned, since it stays so. Without memory it is kept, and
 * the next run fails. */
static void semaphore_renew(tdm_stage_queues *q) {
    tdm_semaphore *fresh = NULL;
    uint64_t value;
    if (tdm_semaphore_ops.query(q->semaphore, &value, NULL) == TDM_OK) return;
    if (tdm_semaphore_ops.create(q->semaphore_value, &fresh, NULL) != TDM_OK) return;
    tdm_semaphore_ops.destroy(q->semaphore);
    q->semaphore = fresh;
}

/* Waits for a computation of `plan`, at most for the runtime's limit. Waiting in slices leaves out
 * the time during which the process was stopped. */
static tdm_status done_await(const tdm_device_plan *plan, tdm_point done, tdm_error *err) {
    tdm_open_device *dev = tdm_device_plan_device(plan);
    const uint64_t limit = dev->rt->wait_limit_ns, slice = UINT64_C(1000000000);
    tdm_counter_add(TDM_COUNTER_HOST_WAITS, 1);
    if (limit == TDM_WAIT_FOREVER)
        return tdm_semaphore_ops.wait(done.semaphore, done.value, limit, err);
    for (uint64_t spent = 0; spent < limit; spent += slice) {
        uint64_t value = 0, n = limit - spent < slice ? limit - spent : slice;
        /* Not *err: a later slice may succeed. */
        tdm_error why = {0};
        tdm_status status = tdm_semaphore_ops.wait(done.semaphore, done.value, n, &why);
        bool is_over = status != TDM_DEADLINE_EXCEEDED;
        if (!is_over) {
            /* The wait's own timeout, or the status of work that failed with it. */
            status = tdm_semaphore_ops.query(done.semaphore, &value, &why);
            is_over = status != TDM_OK || value >= done.value;
        }
        if (is_over) return status == TDM_OK ? TDM_OK : tdm_fail(err, status, "%s", why.message);
    }
    tdm_open_device_set_stuck(dev);
    return tdm_fail(
        err, TDM_DEADLINE_EXCEEDED,
        "device '%s': a computation has not ended after %.3g s: the device hangs, or is "
        "far too slow for the step; device-timeout sets the limit",
        tdm_open_device_name(dev), (double)limit * 1e-9);
}

/* Replaces the semaphore and never destroys the old one: a device that was given up may still
 * signal it. */
static void semaphore_abandon(tdm_stage_queues *q) {
    tdm_semaphore *fresh = NULL;
    if (tdm_semaphore_ops.create(q->semaphore_value, &fresh, NULL) == TDM_OK) q->semaphore = fresh;
}

tdm_status tdm_stage_queues_run(tdm_stage_queues *q, tdm_device_plan *plan, tdm_error *err) {
    tdm_point done = {q->semaphore, ++q->semaphore_value};
    tdm_status status = tdm_device_plan_compute(plan, NULL, 0, &done, 1, err);
    if (status != TDM_OK) {
        semaphore_renew(q);
        return status;
    }
    status = done_await(plan, done, err);
    if (status == TDM_OK) return TDM_OK;
    if (tdm_open_device_is_stuck(tdm_device_plan_device(plan)))
        semaphore_abandon(q);
    else
        semaphore_renew(q);
    return status;
}

void tdm_stage_queues_destroy(tdm_stage_queues *q) {
    for (int32_t d = 0; d < TDM_MAX_STAGE_DEVICES; d++) tdm_queue_adapter_destroy(q->queues[d]);
    tdm_semaphore_ops.destroy(q->semaphore);
    memset(q, 0, sizeof *q);
}

/* ---- Memory ---- */

tdm_status tdm_stage_memory_grow_staging(tdm_stage_memory *memory, uint64_t size, tdm_error *err) {
    if (memory->staging_size >= size) return TDM_OK;
    void *grown = realloc(memory->staging, size);
    if (grown == NULL) return out_of_memory(err);
    memory->staging = grown;
    memory->staging_size = size;
    return TDM_OK;
}

void tdm_stage_memory_free(tdm_stage_memory *memory) {
    for (int32_t d = 0; d < TDM_MAX_STAGE_DEVICES; d++) {
        tdm_mem_free(&memory->mem[d]);
        tdm_mem_free(&memory->in[d]);
        tdm_mem_free(&memory->out[d]);
    }
    free(memory->staging);
    memset(memory, 0, sizeof *memory);
}

/* The room that `size` bytes take. A value without bytes takes some too: a node that uses it must
 * be bound to a buffer, and memory without bytes has none. */
static uint64_t room(uint64_t size, uint64_t align) {
    return size > 0 ? (size + align - 1) / align * align : align;
}

/* Which part of tdm_stage_memory a slot lies in: mem, in or out. */
typedef enum stage_area { AREA_BORDER, AREA_IN, AREA_OUT, AREA_COUNT_ } stage_area;

bool tdm_stage_separates_borders(tdm_open_device *dev, const tdm_device_info *info) {
    return (info->flags & TDM_DEVICE_IS_HOST) == 0 &&
           TDM_HAS(tdm_open_device_plugin(dev)->buffer, host_pointer);
}

void tdm_stage_device_init(tdm_stage_device *out, tdm_open_device *dev,
                           const tdm_device_info *info) {
    *out = (tdm_stage_device){.dev = dev,
                              .align = info->buffer_align > 64 ? info->buffer_align : 64,
                              .places_temps = (info->flags & TDM_DEVICE_HOLDS_TEMPS) == 0,
                              .separates_io = true,
                              .separates_borders = tdm_stage_separates_borders(dev, info)};
}

/* Whether the node reads each element of this source once. A source that is broadcast is read once
 * for each row. Nodes without a destination, such as KV_WRITE, are not among these ops. */
static bool reads_once(const tdm_graph *graph, const tdm_node *node, const tdm_value *src) {
    switch (node->op) {
    case TDM_OP_ADD:
    case TDM_OP_MUL:
    case TDM_OP_DIV:
    case TDM_OP_SCALE:
    case TDM_OP_ACT:
    case TDM_OP_GLU:
    case TDM_OP_CLAMP:
    case TDM_OP_SQRT:
    case TDM_OP_COPY:
        return tdm_shape_count(src->ne) >=
               tdm_shape_count(tdm_graph_value(graph, node->dst[0])->ne);
    default: return false;
    }
}

/* Counts in n_read[slot] how often the nodes of device d read each slot; an op that reads elements
 * more than once counts as two. */
static void reads_count(const tdm_stages *st, int32_t d, int32_t *n_read) {
    for (int32_t s = 0; s < st->cut.n_stage; s++) {
        const tdm_stage *stage = &st->cut.stages[s];
        for (int32_t i = 0; stage->dev == d && i < stage->graph->n_node; i++) {
            const tdm_node *node = tdm_graph_node(stage->graph, i);
            for (int32_t k = 0; k < node->n_src; k++) {
                const tdm_value *v =
                    node->src[k] >= 0 ? tdm_graph_value(stage->graph, node->src[k]) : NULL;
                if (v != NULL && v->slot >= 0)
                    n_read[stage->slot_map[v->slot]] += reads_once(stage->graph, node, v) ? 1 : 2;
            }
        }
    }
}

static stage_area area_find(const tdm_stages *st, int32_t slot, int32_t d, int32_t n_read) {
    const tdm_cut_slot *s = &st->cut.slots[slot];
    int32_t kind = tdm_graph_value(st->cut.graph, s->value)->kind;
    if (st->devs[d].separates_io && kind == TDM_VALUE_INPUT) return AREA_IN;
    if (st->devs[d].separates_io && kind == TDM_VALUE_OUTPUT && s->home == d) return AREA_OUT;
    if (!st->devs[d].separates_borders) return AREA_BORDER;
    if (s->home == d) return n_read == 0 ? AREA_OUT : AREA_BORDER;
    return n_read <= 1 ? AREA_IN : AREA_BORDER;
}

static tdm_status areas_find(tdm_stages *st, tdm_error *err) {
    const size_t n_slot = (size_t)st->cut.graph->n_slot;
    int32_t *n_read = malloc((n_slot + 1) * sizeof *n_read);
    if (n_read == NULL) return out_of_memory(err);
    for (int32_t d = 0; d < st->n_dev; d++) {
        memset(n_read, 0, n_slot * sizeof *n_read);
        reads_count(st, d, n_read);
        for (int32_t i = 0; i < st->cut.graph->n_slot; i++)
            st->area[d][i] = (uint8_t)area_find(st, i, d, n_read[i]);
    }
    free(n_read);
    return TDM_OK;
}

/* Whether the owner writes or reads the slot itself: an INPUT or OUTPUT that has its bytes for the
 * whole run. */
static bool is_owners(const tdm_stages *st, int32_t slot, int32_t d) {
    const tdm_cut_slot *s = &st->cut.slots[slot];
    int32_t kind = tdm_graph_value(st->cut.graph, s->value)->kind;
    return st->devs[d].separates_io &&
           (kind == TDM_VALUE_INPUT || (kind == TDM_VALUE_OUTPUT && s->home == d));
}

static tdm_status too_large(tdm_error *err) {
    return tdm_fail(err, TDM_OUT_OF_RANGE, "stages: values of more than 2^64 bytes");
}

/* Lays out the values that cross in one area of device d, behind those of the owner there. */
static tdm_status area_place(tdm_stages *st, int32_t d, stage_area area, tdm_packed *things,
                             tdm_error *err) {
    uint64_t begin = 0, size, packed;
    int32_t n = 0;
    for (int32_t i = 0; i < st->cut.graph->n_slot; i++) {
        const tdm_cut_slot *slot = &st->cut.slots[i];
        if ((slot->devs & 1u << d) == 0 || st->area[d][i] != area) continue;
        size = room(slot->size, st->devs[d].align);
        if (size < slot->size)
            return tdm_fail(err, TDM_OUT_OF_RANGE, "stages: '%s' has more than 2^64 bytes",
                            tdm_cut_slot_name(&st->cut, i));
        if (!is_owners(st, i, d)) {
            things[n++] = (tdm_packed){i, slot->first, slot->last, size, 0};
            continue;
        }
        st->off[d][i] = begin;
        if (__builtin_add_overflow(begin, size, &begin)) return too_large(err);
    }
    if (!tdm_pack(things, n, &packed)) return too_large(err);
    for (int32_t i = 0; i < n; i++) st->off[d][things[i].id] = begin + things[i].off;
    uint64_t *end = area == AREA_IN    ? &st->need_in[d]
                    : area == AREA_OUT ? &st->need_out[d]
                                       : &st->border_size[d];
    return __builtin_add_overflow(begin, packed, end) ? too_large(err) : TDM_OK;
}

static tdm_status border_place(tdm_stages *st, int32_t d, tdm_packed *things, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int area = 0; area < AREA_COUNT_ && status == TDM_OK; area++)
        status = area_place(st, d, (stage_area)area, things, err);
    return status;
}

/* Copies of weights have bytes of their own: they outlast a run. Conversion takes whole rows. */
static tdm_status weights_place(tdm_stages *st, tdm_error *err) {
    for (int32_t i = 0; i < st->cut.n_weight; i++) {
        const tdm_stage_copy *copy = &st->cut.weights[i];
        const tdm_cut_slot *slot = &st->cut.slots[copy->slot];
        tdm_tensor_desc desc = tdm_weight_desc(tdm_graph_value(st->cut.graph, slot->value));
        uint64_t size, row = tdm_type_row_size(desc.type, desc.ne[0]);
        tdm_status status = tdm_open_device_tensor_size(st->devs[copy->to].dev, &desc, &size, err);
        if (status != TDM_OK) return status;
        st->weights[i].desc = desc;
        st->weights[i].size = size;
        st->off[copy->to][copy->slot] = st->border_size[copy->to];
        st->border_size[copy->to] += room(size, st->devs[copy->to].align);
        uint64_t staging = slot->size < TDM_STAGING_SIZE ? slot->size : TDM_STAGING_SIZE;
        if (staging < row) staging = row;
        if (st->staging_size < staging) st->staging_size = staging;
    }
    return TDM_OK;
}

static tdm_status temps_place(tdm_stages *st, tdm_error *err) {
    uint64_t most[TDM_MAX_STAGE_DEVICES] = {0};
    for (int32_t s = 0; s < st->cut.n_stage; s++) {
        const tdm_stage *stage = &st->cut.stages[s];
        const tdm_stage_device *dev = &st->devs[stage->dev];
        uint64_t size = 0;
        if (!dev->places_temps) continue;
        tdm_status status =
            tdm_graph_plan_memory(stage->graph, dev->align, st->execs[s].temp_off, &size, err);
        if (status != TDM_OK) return status;
        for (int32_t i = 0; i < stage->graph->n_slot && size == 0; i++)
            if (st->execs[s].temp_off[i] != TDM_NO_PLACE) size = dev->align; /* all are empty */
        if (most[stage->dev] < size) most[stage->dev] = size;
    }
    for (int32_t d = 0; d < st->n_dev; d++) st->need[d] = st->border_size[d] + most[d];
    return TDM_OK;
}

static tdm_status arrays_alloc(tdm_stages *st, tdm_error *err) {
    size_t n_slot = (size_t)st->cut.graph->n_slot + 1;
    st->execs = calloc((size_t)st->cut.n_stage + 1, sizeof *st->execs);
    st->weights = calloc((size_t)st->cut.n_weight + 1, sizeof *st->weights);
    if (st->execs == NULL || st->weights == NULL) return out_of_memory(err);
    for (int32_t s = 0; s < st->cut.n_stage; s++) {
        const tdm_stage *stage = &st->cut.stages[s];
        tdm_stage_exec *exec = &st->execs[s];
        size_t n = (size_t)stage->graph->n_slot + 1;
        exec->bindings = calloc(n, sizeof *exec->bindings);
        exec->temp_off = malloc(n * sizeof *exec->temp_off);
        exec->copies = calloc((size_t)(stage->n_before + stage->n_after) + 1, sizeof *exec->copies);
        if (exec->bindings == NULL || exec->temp_off == NULL || exec->copies == NULL)
            return out_of_memory(err);
        memset(exec->temp_off, 0xff, n * sizeof *exec->temp_off);
    }
    for (int32_t d = 0; d < st->n_dev; d++) {
        st->off[d] = malloc(n_slot * sizeof *st->off[d]);
        st->area[d] = calloc(n_slot, 1);
        if (st->off[d] == NULL || st->area[d] == NULL) return out_of_memory(err);
        memset(st->off[d], 0xff, n_slot * sizeof *st->off[d]);
    }
    return TDM_OK;
}

/* ---- Making stages ---- */

tdm_status tdm_stages_create(const tdm_cut_params *params, const tdm_stage_device *devs,
                             tdm_stages *stages_out, tdm_error *err) {
    tdm_stages st = {.n_dev = params->n_dev};
    memcpy(st.devs, devs, (size_t)params->n_dev * sizeof *devs);
    tdm_packed *things = malloc(((size_t)params->graph->n_slot + 1) * sizeof *things);
    tdm_status status = things != NULL ? TDM_OK : out_of_memory(err);
    if (status == TDM_OK) status = tdm_cut_make(params, &st.cut, err);
    if (status == TDM_OK) {
        st.staging_size = st.cut.max_copy < TDM_STAGING_SIZE ? st.cut.max_copy : TDM_STAGING_SIZE;
        status = arrays_alloc(&st, err);
    }
    if (status == TDM_OK) status = areas_find(&st, err);
    for (int32_t d = 0; d < st.n_dev && status == TDM_OK; d++)
        status = border_place(&st, d, things, err);
    if (status == TDM_OK) status = weights_place(&st, err);
    if (status == TDM_OK) status = temps_place(&st, err);
    free(things);
    if (status != TDM_OK) {
        tdm_stages_free(&st);
        return status;
    }
    *stages_out = st;
    return TDM_OK;
}

void tdm_stages_free(tdm_stages *st) {
    for (int32_t s = 0; s < st->cut.n_stage && st->execs != NULL; s++) {
        tdm_device_plan_destroy(st->execs[s].plan);
        free(st->execs[s].bindings);
        free(st->execs[s].temp_off);
        free(st->execs[s].copies);
    }
    for (int32_t d = 0; d < st->n_dev; d++) {
        free(st->off[d]);
        free(st->area[d]);
    }
    free(st->execs);
    free(st->weights);
    tdm_cut_free(&st->cut);
    memset(st, 0, sizeof *st);
}

tdm_status tdm_stages_plan(tdm_stages *st, const tdm_stage_queues *queues, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t s = 0; s < st->cut.n_stage && status == TDM_OK; s++)
        status = tdm_device_plan_create(queues->queues[st->cut.stages[s].dev],
                                        st->cut.stages[s].graph, &st->execs[s].plan, err);
    return status;
}

tdm_status tdm_stages_add_plan_info(const tdm_stages *st, int32_t dev, tdm_plan_info *sum,
                                    tdm_error *err) {
    tdm_status result = TDM_OK;
    uint64_t scratch[TDM_MAX_STAGE_DEVICES] = {0}; /* the most of any plan */
    for (int32_t s = 0; s < st->cut.n_stage; s++) {
        tdm_plan_info info;
        if (dev >= 0 && st->cut.stages[s].dev != dev) continue;
        if (st->execs[s].plan == NULL) continue;
        tdm_status status = tdm_device_plan_get_info(st->execs[s].plan, &info, err);
        if (status != TDM_OK) {
            result = status;
            continue;
        }
        sum->device_size += info.device_size;
        sum->host_size += info.host_size;
        sum->crossing_size += info.crossing_size;
        int32_t d = st->cut.stages[s].dev;
        if (info.scratch_size <= scratch[d]) continue;
        sum->scratch_size += info.scratch_size - scratch[d];
        scratch[d] = info.scratch_size;
    }
    return result;
}

/* ---- Binding ---- */

/* What binding works with. */
typedef struct binder {
    tdm_stages *stages;
    const tdm_stage_memory *memory;
    tdm_stage_locate_fn locate;
    void *owner;
} binder;

/* The bytes of a slot as device d keeps it: a copy of a weight has that device's layout. */
static uint64_t slot_size(const tdm_stages *st, int32_t slot, int32_t d) {
    for (int32_t i = 0; i < st->cut.n_weight; i++)
        if (st->cut.weights[i].slot == slot && st->cut.weights[i].to == d)
            return st->weights[i].size;
    return st->cut.slots[slot].size;
}

void tdm_stages_place(const tdm_stages *st, const tdm_stage_memory *memory, int32_t slot, int32_t d,
                      tdm_slot_mem *out) {
    const uint64_t off = st->off[d][slot];
    *out = (tdm_slot_mem){0};
    if (off == TDM_NO_PLACE) return;
    const uint8_t area = st->area[d][slot];
    *out = (tdm_slot_mem){area == AREA_IN    ? memory->in[d]
                          : area == AREA_OUT ? memory->out[d]
                                             : memory->mem[d],
                          off, slot_size(st, slot, d)};
}

static tdm_status stage_bind(const binder *b, int32_t s, tdm_error *err) {
    const tdm_stages *st = b->stages;
    const tdm_stage *stage = &st->cut.stages[s];
    tdm_stage_exec *exec = &st->execs[s];
    for (int32_t i = 0; i < stage->graph->n_slot; i++) {
        int32_t slot = stage->slot_map[i];
        tdm_slot_mem at;
        tdm_status status = TDM_OK;
        if (exec->temp_off[i] != TDM_NO_PLACE)
            at = (tdm_slot_mem){b->memory->mem[stage->dev],
                                st->border_size[stage->dev] + exec->temp_off[i],
                                st->cut.slots[slot].size};
        else
            tdm_stages_place(st, b->memory, slot, stage->dev, &at);
        if (at.mem.dev == NULL) status = b->locate(b->owner, slot, stage->dev, &at, err);
        if (status != TDM_OK) return status;
        exec->bindings[i] = (tdm_binding){at.mem.buffer, at.off, at.size};
    }
    return TDM_OK;
}

/* One end of a copy. */
static tdm_status end_find(const binder *b, int32_t slot, int32_t dev, tdm_slot_mem *out,
                           tdm_error *err) {
    const tdm_cut *cut = &b->stages->cut;
    tdm_stages_place(b->stages, b->memory, slot, dev, out);
    if (out->mem.dev != NULL) return TDM_OK;
    tdm_status status = b->locate(b->owner, slot, dev, out, err);
    if (status == TDM_OK && out->mem.dev == NULL)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' is bound to nothing",
                          tdm_cut_slot_name(cut, slot));
    if (status != TDM_OK) return status;
    out->mem.size = out->off + out->size;
    out->size = cut->slots[slot].size;
    return TDM_OK;
}

static tdm_status copy_bind(const binder *b, const tdm_stage_copy *copy, tdm_bound_copy *out,
                            tdm_error *err) {
    tdm_status status = end_find(b, copy->slot, copy->from, &out->src, err);
    return status == TDM_OK ? end_find(b, copy->slot, copy->to, &out->dst, err) : status;
}

tdm_status tdm_stages_bind(tdm_stages *st, const tdm_stage_memory *memory,
                           tdm_stage_locate_fn locate, void *owner, tdm_error *err) {
    const binder b = {st, memory, locate, owner};
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < st->cut.n_weight && status == TDM_OK; i++)
        status = copy_bind(&b, &st->cut.weights[i], &st->weights[i].copy, err);
    for (int32_t s = 0; s < st->cut.n_stage && status == TDM_OK; s++) {
        const tdm_stage *stage = &st->cut.stages[s];
        status = stage_bind(&b, s, err);
        if (status == TDM_OK)
            status = tdm_device_plan_bind(st->execs[s].plan, st->execs[s].bindings,
                                          stage->graph->n_slot, err);
        for (int32_t i = 0; i < stage->n_before + stage->n_after && status == TDM_OK; i++)
            status = copy_bind(&b, &stage->copies[i], &st->execs[s].copies[i], err);
    }
    return status;
}

/* ---- Running ---- */

tdm_status tdm_stages_copy_weight(const tdm_stages *st, int32_t i, const tdm_stage_memory *memory,
                                  tdm_error *err) {
    const tdm_tensor_desc *desc = &st->weights[i].desc;
    const tdm_slot_mem *src = &st->weights[i].copy.src, *dst = &st->weights[i].copy.dst;
    uint64_t row_size = tdm_type_row_size(desc->type, desc->ne[0]);
    int64_t n_row = tdm_shape_rows(desc->ne);
    int64_t step = row_size > 0 ? (int64_t)(memory->staging_size / row_size) : n_row;
    bool is_input = desc->usage == 0; /* cut.c: of the stage that reads it */
    tdm_status status = TDM_OK;
    for (int64_t row = 0; row < n_row && row_size > 0 && status == TDM_OK; row += step) {
        int64_t n = n_row - row < step ? n_row - row : step;
        status = tdm_mem_tensor_download(&src->mem, src->off, desc, memory->staging, row_size, row,
                                         n, 0, desc->ne[0], err);
        if (status != TDM_OK) return status;
        if (is_input)
            status = tdm_mem_upload(&dst->mem, dst->off + (uint64_t)row * row_size, memory->staging,
                                    (uint64_t)n * row_size, err);
        else
            status = tdm_mem_tensor_upload(&dst->mem, dst->off, desc, memory->staging, row_size,
                                           row, n, 0, desc->ne[0], err);
    }
    return status;
}

static tdm_status copy_run(const tdm_bound_copy *copy, const tdm_stage_memory *memory,
                           tdm_error *err) {
    if (copy->src.size == 0) return TDM_OK;
    return tdm_mem_copy_staged(&copy->dst.mem, copy->dst.off, &copy->src.mem, copy->src.off,
                               copy->src.size, memory->staging, memory->staging_size, err);
}

tdm_status tdm_stages_run(const tdm_stages *st, tdm_stage_queues *queues,
                          const tdm_stage_memory *memory, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t s = 0; s < st->cut.n_stage && status == TDM_OK; s++) {
        const tdm_stage *stage = &st->cut.stages[s];
        const tdm_stage_exec *exec = &st->execs[s];
        for (int32_t i = 0; i < stage->n_before && status == TDM_OK; i++)
            status = copy_run(&exec->copies[i], memory, err);
        if (status == TDM_OK) status = tdm_stage_queues_run(queues, exec->plan, err);
        for (int32_t i = 0; i < stage->n_after && status == TDM_OK; i++)
            status = copy_run(&exec->copies[stage->n_before + i], memory, err);
    }
    return status;
}
