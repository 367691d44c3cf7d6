/* SPDX-License-Identifier: MIT
 *
 * schedule.c: cuts a placed graph into stages, gives every value its memory, and runs it.
 *
 * Memory of device d: first the values that cross a stage's border (inputs, outputs, and what one
 * device hands another), each at an address of its own; behind them the temporaries, where the
 * stages overlap one another. A device whose plans hold their temporaries gets no bytes for them.
 */
#include "core/stages/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "core/counters.h"
#include "core/stages/schedule_internal.h"

#define NOWHERE UINT64_MAX

typedef struct stage_copy {
    int32_t slot;    /* of the whole graph */
    int32_t from;    /* device whose scratch it is in; -1 = it is a weight */
    tdm_slot_mem at; /* of a weight */
} stage_copy;

typedef struct stage {
    int32_t dev;
    const tdm_graph *graph;
    tdm_graph *own_graph; /* NULL where the stage is the whole graph */
    int32_t *slot_map;    /* the stage's slot -> the whole graph's */
    tdm_device_plan *plan;
    tdm_binding *bindings;
    bool *is_scratch; /* the binding lies in the scratch and moves with it */
    stage_copy *copies;
    int32_t n_copy;
} stage;

struct tdm_schedule {
    tdm_scratch *scratch;
    tdm_graph *graph;
    stage *stages;
    int32_t n_stage;
    int32_t *slot_value;                          /* slot -> value */
    int32_t *slot_home;                           /* device that produces it, -1 = none yet */
    uint64_t *slot_off[TDM_MAX_SCHEDULE_DEVICES]; /* slot -> offset in the scratch, or NOWHERE */
    uint64_t border_size[TDM_MAX_SCHEDULE_DEVICES];
    uint64_t need[TDM_MAX_SCHEDULE_DEVICES];
    uint32_t generation[TDM_MAX_SCHEDULE_DEVICES]; /* of the scratch when it was bound */
};

/* ---- Scratch ---- */

tdm_status tdm_scratch_create(tdm_runtime *rt, tdm_open_device *const *devs, int32_t n_dev,
                              tdm_scratch **scratch_out, tdm_error *err) {
    if (n_dev < 1 || n_dev > TDM_MAX_SCHEDULE_DEVICES)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "schedule: %d devices; 1 to %d are possible",
                        n_dev, TDM_MAX_SCHEDULE_DEVICES);
    tdm_scratch *s = calloc(1, sizeof *s);
    if (s == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "schedule: out of memory");
    s->rt = rt;
    tdm_status status = tdm_semaphore_ops.create(0, &s->semaphore, err);
    for (int32_t d = 0; d < n_dev && status == TDM_OK; d++) {
        tdm_device_info info;
        s->devs[d] = devs[d];
        status = tdm_open_device_get_info(devs[d], &info, err);
        s->align[d] = info.buffer_align > 64 ? info.buffer_align : 64;
        s->holds_temps[d] = (info.flags & TDM_DEVICE_HOLDS_TEMPS) != 0;
        if (status == TDM_OK) status = tdm_queue_adapter_create(devs[d], &s->queues[d], err);
        s->n_dev = d + 1;
    }
    if (status != TDM_OK) {
        tdm_scratch_destroy(s);
        return status;
    }
    *scratch_out = s;
    return TDM_OK;
}

void tdm_scratch_destroy(tdm_scratch *s) {
    if (s == NULL) return;
    for (int32_t d = 0; d < s->n_dev; d++) {
        tdm_queue_adapter_destroy(s->queues[d]);
        tdm_mem_free(&s->mem[d]);
    }
    tdm_semaphore_ops.destroy(s->semaphore);
    free(s->staging);
    free(s);
}

uint64_t tdm_scratch_size(const tdm_scratch *s, int32_t i) {
    return s->mem[i].size;
}

static tdm_status scratch_grow(tdm_scratch *s, int32_t d, uint64_t size, tdm_error *err) {
    if (s->mem[d].dev != NULL && s->mem[d].size >= size) return TDM_OK;
    tdm_mem grown = {0};
    tdm_status status = tdm_mem_alloc(s->devs[d], size, TDM_BUFFER_COMPUTE, &grown, err);
    if (status != TDM_OK)
        return tdm_fail(err, status, "%s; a smaller ubatch-size needs less",
                        err != NULL ? err->message : "out of memory");
    tdm_mem_free(&s->mem[d]);
    s->mem[d] = grown;
    s->generation[d]++;
    return TDM_OK;
}

static tdm_status staging_grow(tdm_scratch *s, uint64_t size, tdm_error *err) {
    if (size > TDM_STAGING_SIZE) size = TDM_STAGING_SIZE;
    if (s->staging_size >= size) return TDM_OK;
    void *grown = realloc(s->staging, size);
    if (grown == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "schedule: out of memory");
    s->staging = grown;
    s->staging_size = size;
    return TDM_OK;
}

/* ---- Making a schedule ---- */

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "schedule: out of memory");
}

static uint64_t value_size(const tdm_value *v) {
    return tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
}

/* Where slot `slot` of the whole graph lives on device d; places it on first use. */
static uint64_t border_place(tdm_schedule *c, int32_t d, int32_t slot) {
    if (c->slot_off[d][slot] == NOWHERE) {
        uint64_t align = c->scratch->align[d];
        c->slot_off[d][slot] = c->border_size[d];
        uint64_t size = value_size(tdm_graph_value(c->graph, c->slot_value[slot]));
        c->border_size[d] += (size + align - 1) / align * align;
    }
    return c->slot_off[d][slot];
}

/* A plain weight that a node on another device's cache reads comes along as values do. */
static tdm_status weight_bring(tdm_schedule *c, stage *st, int32_t slot, const tdm_slot_mem *at,
                               tdm_error *err) {
    int32_t whole = st->slot_map[slot];
    bool is_new = c->slot_off[st->dev][whole] == NOWHERE;
    st->bindings[slot].size = value_size(tdm_graph_value(c->graph, c->slot_value[whole]));
    st->bindings[slot].off = border_place(c, st->dev, whole);
    st->is_scratch[slot] = true;
    if (!is_new) return TDM_OK;
    st->copies[st->n_copy++] = (stage_copy){.slot = whole, .from = -1, .at = *at};
    return staging_grow(c->scratch, st->bindings[slot].size, err);
}

static tdm_status weight_bind(tdm_schedule *c, stage *st, int32_t slot, const tdm_slot_mem *at,
                              tdm_error *err) {
    const tdm_value *v = tdm_graph_value(c->graph, c->slot_value[st->slot_map[slot]]);
    const char *name = tdm_graph_value_name(c->graph, c->slot_value[st->slot_map[slot]]);
    if (at->mem.dev != c->scratch->devs[st->dev] && at->mem.dev != NULL &&
        v->kind == TDM_VALUE_WEIGHT && v->usage == 0)
        return weight_bring(c, st, slot, at, err);
    if (at->mem.dev != c->scratch->devs[st->dev])
        return tdm_fail(err, TDM_INTERNAL, "'%s' is needed on %s but lives on %s", name,
                        tdm_open_device_name(c->scratch->devs[st->dev]),
                        at->mem.dev != NULL ? tdm_open_device_name(at->mem.dev) : "no device");
    st->bindings[slot] = (tdm_binding){at->mem.buffer, at->off, at->size};
    return TDM_OK;
}

/* Gives each slot of a stage its place; temporaries are offset from the end of the border, which
 * is not known yet, so they are shifted later by stage_shift_temporaries. */
static tdm_status stage_bind(tdm_schedule *c, stage *st, const tdm_slot_mem *weights,
                             const uint64_t *temp_off, tdm_error *err) {
    const tdm_graph *g = st->graph;
    for (int32_t i = 0; i < g->n_value; i++) {
        const tdm_value *v = tdm_graph_value(g, i);
        if (v->slot < 0) continue;
        int32_t slot = st->slot_map[v->slot];
        tdm_binding *b = &st->bindings[v->slot];
        if (v->kind == TDM_VALUE_WEIGHT || v->kind == TDM_VALUE_STATE) {
            tdm_status status = weight_bind(c, st, v->slot, &weights[slot], err);
            if (status != TDM_OK) return status;
            continue;
        }
        if (v->kind == TDM_VALUE_TEMP && c->scratch->holds_temps[st->dev]) continue;
        st->is_scratch[v->slot] = true;
        b->size = value_size(v);
        if (v->kind == TDM_VALUE_TEMP) {
            b->off = temp_off[v->slot];
            continue;
        }
        /* What an earlier stage brought to this device is still there. */
        bool is_new = c->slot_off[st->dev][slot] == NOWHERE;
        b->off = border_place(c, st->dev, slot);
        if (v->kind == TDM_VALUE_OUTPUT) {
            c->slot_home[slot] = st->dev;
        } else if (is_new && c->slot_home[slot] >= 0) {
            st->copies[st->n_copy++] = (stage_copy){.slot = slot, .from = c->slot_home[slot]};
            tdm_status status = staging_grow(c->scratch, b->size, err);
            if (status != TDM_OK) return status;
        }
    }
    return TDM_OK;
}

static tdm_status stage_make(tdm_schedule *c, stage *st, int32_t first, int32_t count,
                             const tdm_slot_mem *weights, tdm_error *err) {
    size_t n_slot = (size_t)c->graph->n_slot + 1;
    tdm_status status = TDM_OK;
    st->slot_map = malloc(n_slot * sizeof *st->slot_map);
    st->bindings = calloc(n_slot, sizeof *st->bindings);
    st->is_scratch = calloc(n_slot, sizeof *st->is_scratch);
    st->copies = calloc(n_slot, sizeof *st->copies);
    uint64_t *temp_off = malloc(n_slot * sizeof *temp_off);
    if (st->slot_map == NULL || st->bindings == NULL || st->is_scratch == NULL ||
        st->copies == NULL || temp_off == NULL) {
        free(temp_off);
        return out_of_memory(err);
    }
    if (count == c->graph->n_node) {
        st->graph = c->graph;
        for (int32_t i = 0; i < c->graph->n_slot; i++) st->slot_map[i] = i;
    } else {
        status = tdm_graph_extract(c->graph, first, count, &st->own_graph, st->slot_map, err);
        st->graph = st->own_graph;
    }
    uint64_t temp_size = 0;
    if (status == TDM_OK && !c->scratch->holds_temps[st->dev])
        status =
            tdm_graph_plan_memory(st->graph, c->scratch->align[st->dev], temp_off, &temp_size, err);
    if (status == TDM_OK) status = stage_bind(c, st, weights, temp_off, err);
    if (temp_size > c->need[st->dev]) c->need[st->dev] = temp_size;
    free(temp_off);
    return status;
}

static void stage_shift_temporaries(const tdm_schedule *c, stage *st) {
    for (int32_t i = 0; i < st->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(st->graph, i);
        if (v->slot >= 0 && v->kind == TDM_VALUE_TEMP && st->is_scratch[v->slot])
            st->bindings[v->slot].off += c->border_size[st->dev];
    }
}

/* Points every binding that lies in the scratch at the buffers of today. */
static void schedule_rebind(tdm_schedule *c) {
    for (int32_t s = 0; s < c->n_stage; s++) {
        stage *st = &c->stages[s];
        for (int32_t i = 0; i < st->graph->n_slot; i++)
            if (st->is_scratch[i]) st->bindings[i].buffer = c->scratch->mem[st->dev].buffer;
    }
    memcpy(c->generation, c->scratch->generation, sizeof c->generation);
}

/* Slots of weights and states that already have a device. */
static tdm_status slots_fix(const tdm_schedule *c, const tdm_slot_mem *weights, int32_t *slot_dev,
                            tdm_error *err) {
    for (int32_t i = 0; i < c->graph->n_slot; i++) slot_dev[i] = -1;
    for (int32_t i = 0; i < c->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(c->graph, i);
        if (v->slot < 0) continue;
        c->slot_value[v->slot] = i;
        if (v->kind != TDM_VALUE_WEIGHT && v->kind != TDM_VALUE_STATE) continue;
        for (int32_t d = 0; d < c->scratch->n_dev; d++)
            if (weights[v->slot].mem.dev == c->scratch->devs[d]) slot_dev[v->slot] = d;
        if (slot_dev[v->slot] < 0)
            return tdm_fail(err, TDM_INTERNAL, "'%s' has no memory on any device of the schedule",
                            tdm_graph_value_name(c->graph, i));
    }
    return TDM_OK;
}

static tdm_status stages_make(tdm_schedule *c, const tdm_slot_mem *weights, tdm_error *err) {
    int32_t n_node = c->graph->n_node;
    int32_t *slot_dev = malloc(((size_t)c->graph->n_slot + 1) * sizeof *slot_dev);
    int32_t *node_dev = malloc(((size_t)n_node + 1) * sizeof *node_dev);
    tdm_status status = slot_dev != NULL && node_dev != NULL ? TDM_OK : out_of_memory(err);
    if (status == TDM_OK) status = slots_fix(c, weights, slot_dev, err);
    if (status == TDM_OK)
        status = tdm_schedule_place_slots(c->scratch, c->graph, slot_dev, node_dev, err);
    int32_t n_stage = 0;
    for (int32_t i = 0; i < n_node && status == TDM_OK; i++)
        n_stage += i == 0 || node_dev[i] != node_dev[i - 1];
    if (status == TDM_OK && (c->stages = calloc((size_t)n_stage + 1, sizeof(stage))) == NULL)
        status = out_of_memory(err);
    for (int32_t i = 0, end; i < n_node && status == TDM_OK; i = end) {
        for (end = i; end < n_node && node_dev[end] == node_dev[i];) end++;
        stage *st = &c->stages[c->n_stage++];
        st->dev = node_dev[i];
        status = stage_make(c, st, i, end - i, weights, err);
    }
    free(slot_dev);
    free(node_dev);
    return status;
}

static tdm_status schedule_allocate(tdm_schedule *c, tdm_error *err) {
    for (int32_t d = 0; d < c->scratch->n_dev; d++) {
        c->need[d] += c->border_size[d];
        if (c->need[d] == 0) continue;
        tdm_status status = scratch_grow(c->scratch, d, c->need[d], err);
        if (status != TDM_OK) return status;
    }
    for (int32_t s = 0; s < c->n_stage; s++) {
        stage *st = &c->stages[s];
        stage_shift_temporaries(c, st);
        tdm_status status =
            tdm_device_plan_create(c->scratch->devs[st->dev], st->graph, &st->plan, err);
        if (status != TDM_OK) return status;
    }
    schedule_rebind(c);
    return TDM_OK;
}

tdm_status tdm_schedule_create(tdm_scratch *scratch, tdm_graph *graph, const tdm_slot_mem *bindings,
                               tdm_schedule **schedule_out, tdm_error *err) {
    tdm_schedule *c = calloc(1, sizeof *c);
    if (c == NULL) {
        tdm_graph_free(graph);
        return out_of_memory(err);
    }
    size_t n_slot = (size_t)graph->n_slot + 1;
    c->scratch = scratch;
    c->graph = graph;
    c->slot_value = calloc(n_slot, sizeof *c->slot_value);
    c->slot_home = malloc(n_slot * sizeof *c->slot_home);
    tdm_status status = c->slot_value != NULL && c->slot_home != NULL ? TDM_OK : out_of_memory(err);
    for (size_t i = 0; i < n_slot && status == TDM_OK; i++) c->slot_home[i] = -1;
    for (int32_t d = 0; d < scratch->n_dev && status == TDM_OK; d++) {
        c->slot_off[d] = malloc(n_slot * sizeof *c->slot_off[d]);
        if (c->slot_off[d] == NULL)
            status = out_of_memory(err);
        else
            memset(c->slot_off[d], 0xff, n_slot * sizeof *c->slot_off[d]);
    }
    if (status == TDM_OK) status = stages_make(c, bindings, err);
    if (status == TDM_OK) status = schedule_allocate(c, err);
    if (status != TDM_OK) {
        tdm_schedule_destroy(c);
        return status;
    }
    *schedule_out = c;
    return TDM_OK;
}

void tdm_schedule_destroy(tdm_schedule *c) {
    if (c == NULL) return;
    for (int32_t s = 0; s < c->n_stage; s++) {
        stage *st = &c->stages[s];
        tdm_device_plan_destroy(st->plan);
        tdm_graph_free(st->own_graph);
        free(st->slot_map);
        free(st->bindings);
        free(st->is_scratch);
        free(st->copies);
    }
    free(c->stages);
    for (int32_t d = 0; d < TDM_MAX_SCHEDULE_DEVICES; d++) free(c->slot_off[d]);
    free(c->slot_value);
    free(c->slot_home);
    tdm_graph_free(c->graph);
    free(c);
}

const tdm_graph *tdm_schedule_graph(const tdm_schedule *c) {
    return c->graph;
}
int32_t tdm_schedule_stage_count(const tdm_schedule *c) {
    return c->n_stage;
}

uint64_t tdm_schedule_plan_size(const tdm_schedule *c) {
    uint64_t size = 0;
    for (int32_t s = 0; s < c->n_stage; s++) {
        tdm_plan_info info;
        if (tdm_device_plan_get_info(c->stages[s].plan, &info, NULL) == TDM_OK)
            size += info.device_size + info.host_size;
    }
    return size;
}

/* ---- Running ---- */

static tdm_status io_check(const tdm_schedule *c, const tdm_io *io, int32_t kind, tdm_error *err) {
    const tdm_graph *g = c->graph;
    if (io->value < 0 || io->value >= g->n_value || tdm_graph_value(g, io->value)->kind != kind)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "schedule: value %d is no %s of the graph",
                        io->value, kind == TDM_VALUE_INPUT ? "input" : "output");
    if (io->size > value_size(tdm_graph_value(g, io->value)))
        return tdm_fail(err, TDM_OUT_OF_RANGE, "schedule: %llu bytes for '%s', which has fewer",
                        (unsigned long long)io->size, tdm_graph_value_name(g, io->value));
    return TDM_OK;
}

static tdm_status inputs_upload(const tdm_schedule *c, const tdm_io *inputs, int32_t n_input,
                                tdm_error *err) {
    for (int32_t i = 0; i < n_input; i++) {
        tdm_status status = io_check(c, &inputs[i], TDM_VALUE_INPUT, err);
        if (status != TDM_OK) return status;
        if (inputs[i].size == 0) continue; /* a graph of nothing has no memory to go to */
        int32_t slot = tdm_graph_value(c->graph, inputs[i].value)->slot;
        for (int32_t d = 0; d < c->scratch->n_dev; d++) {
            if (c->slot_off[d][slot] == NOWHERE) continue;
            status = tdm_mem_upload(&c->scratch->mem[d], c->slot_off[d][slot], inputs[i].data,
                                    inputs[i].size, err);
            if (status != TDM_OK) return status;
        }
    }
    return TDM_OK;
}

static tdm_status stage_run(const tdm_schedule *c, const stage *st, tdm_error *err) {
    tdm_scratch *s = c->scratch;
    for (int32_t i = 0; i < st->n_copy; i++) {
        const stage_copy *copy = &st->copies[i];
        int32_t slot = copy->slot;
        bool is_weight = copy->from < 0;
        tdm_status status =
            tdm_mem_copy_staged(&s->mem[st->dev], c->slot_off[st->dev][slot],
                                is_weight ? &copy->at.mem : &s->mem[copy->from],
                                is_weight ? copy->at.off : c->slot_off[copy->from][slot],
                                value_size(tdm_graph_value(c->graph, c->slot_value[slot])),
                                s->staging, s->staging_size, err);
        if (status != TDM_OK) return status;
    }
    tdm_point done = {s->semaphore, ++s->semaphore_value};
    tdm_status status = tdm_queue_adapter_compute(s->queues[st->dev], st->plan, st->bindings,
                                                  st->graph->n_slot, NULL, 0, &done, 1, err);
    if (status != TDM_OK) return status;
    return tdm_semaphore_ops.wait(done.semaphore, done.value, TDM_WAIT_FOREVER, err);
}

/* A poisoned semaphore stays poisoned; the next run deserves a fresh one. */
static void semaphore_renew(tdm_scratch *s) {
    tdm_semaphore *fresh = NULL;
    uint64_t value;
    if (tdm_semaphore_ops.query(s->semaphore, &value, NULL) == TDM_OK) return;
    if (tdm_semaphore_ops.create(s->semaphore_value, &fresh, NULL) != TDM_OK) return;
    tdm_semaphore_ops.destroy(s->semaphore);
    s->semaphore = fresh;
}

tdm_status tdm_schedule_run(tdm_schedule *c, const tdm_io *inputs, int32_t n_input,
                            const tdm_io *outputs, int32_t n_output, tdm_error *err) {
    if (memcmp(c->generation, c->scratch->generation, sizeof c->generation) != 0)
        schedule_rebind(c);
    tdm_status status = inputs_upload(c, inputs, n_input, err);
    for (int32_t s = 0; s < c->n_stage && status == TDM_OK; s++) {
        status = stage_run(c, &c->stages[s], err);
        if (status != TDM_OK) semaphore_renew(c->scratch);
    }
    for (int32_t i = 0; i < n_output && status == TDM_OK; i++) {
        status = io_check(c, &outputs[i], TDM_VALUE_OUTPUT, err);
        if (status != TDM_OK) break;
        if (outputs[i].size == 0) continue;
        int32_t slot = tdm_graph_value(c->graph, outputs[i].value)->slot;
        int32_t home = c->slot_home[slot];
        status = tdm_mem_download(&c->scratch->mem[home], c->slot_off[home][slot], outputs[i].data,
                                  outputs[i].size, err);
    }
    return status;
}
