/* SPDX-License-Identifier: MIT
 *
 * schedule.c: runs the stages of a graph in memory that all schedules of a scratch share.
 * schedule_place.c places nodes; stages.c makes and runs stages.
 */
#include "core/stages/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "core/counters.h"
#include "core/stages/schedule_internal.h"

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "schedule: out of memory");
}

/* ---- Scratch ---- */

static tdm_status device_add(tdm_scratch *s, tdm_open_device *dev, tdm_error *err) {
    tdm_device_info info;
    tdm_status status = tdm_open_device_get_info(dev, &info, err);
    if (status != TDM_OK) return status;
    tdm_stage_device_init(&s->devs[s->n_dev], dev, &info);
    return tdm_queue_adapter_create(dev, &s->queues.queues[s->n_dev++], err);
}

tdm_status tdm_scratch_create(tdm_runtime *rt, tdm_open_device *const *devs, int32_t n_dev,
                              tdm_scratch **scratch_out, tdm_error *err) {
    if (n_dev < 1 || n_dev > TDM_MAX_STAGE_DEVICES)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "schedule: %d devices; 1 to %d are possible",
                        n_dev, TDM_MAX_STAGE_DEVICES);
    tdm_scratch *s = calloc(1, sizeof *s);
    if (s == NULL) return out_of_memory(err);
    s->rt = rt;
    tdm_status status = tdm_semaphore_ops.create(0, &s->queues.semaphore, err);
    for (int32_t d = 0; d < n_dev && status == TDM_OK; d++) status = device_add(s, devs[d], err);
    if (status != TDM_OK) {
        tdm_scratch_destroy(s);
        return status;
    }
    *scratch_out = s;
    return TDM_OK;
}

void tdm_scratch_destroy(tdm_scratch *s) {
    if (s == NULL) return;
    tdm_stage_queues_destroy(&s->queues);
    tdm_stage_memory_free(&s->memory);
    free(s);
}

uint64_t tdm_scratch_size(const tdm_scratch *s, int32_t i) {
    return s->memory.mem[i].size + s->memory.in[i].size + s->memory.out[i].size;
}

static tdm_status mem_grow(tdm_scratch *s, int32_t d, tdm_buffer_purpose purpose, uint64_t size,
                           tdm_mem *mem, tdm_error *err) {
    tdm_mem grown = {0};
    if (size == 0 || (mem->dev != NULL && mem->size >= size)) return TDM_OK;
    tdm_status status = tdm_mem_alloc(s->devs[d].dev, size, purpose, &grown, err);
    if (status == TDM_RESOURCE_EXHAUSTED)
        return tdm_fail(err, status, "%s; a smaller ubatch-size needs less",
                        err != NULL ? err->message : "out of memory");
    if (status != TDM_OK) return status;
    tdm_mem_free(mem);
    *mem = grown;
    s->generation[d]++;
    return TDM_OK;
}

static tdm_status scratch_grow(tdm_scratch *s, int32_t d, const tdm_stages *st, tdm_error *err) {
    tdm_stage_memory *m = &s->memory;
    tdm_status status = mem_grow(s, d, TDM_BUFFER_COMPUTE, st->need[d], &m->mem[d], err);
    if (status == TDM_OK) status = mem_grow(s, d, TDM_BUFFER_INPUT, st->need_in[d], &m->in[d], err);
    if (status == TDM_OK)
        status = mem_grow(s, d, TDM_BUFFER_OUTPUT, st->need_out[d], &m->out[d], err);
    s->in_host[d] = m->in[d].dev != NULL ? tdm_mem_host_pointer(&m->in[d], TDM_ACCESS_WRITE) : NULL;
    s->out_host[d] =
        m->out[d].dev != NULL ? tdm_mem_host_pointer(&m->out[d], TDM_ACCESS_READ) : NULL;
    return status;
}

/* ---- Making a schedule ---- */

/* Every weight and state of a schedule has a device. */
static tdm_status slots_check(const tdm_schedule *c, const int32_t *slot_dev, tdm_error *err) {
    for (int32_t i = 0; i < c->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(c->graph, i);
        if (v->slot < 0 || (v->kind != TDM_VALUE_WEIGHT && v->kind != TDM_VALUE_STATE)) continue;
        if (slot_dev[v->slot] < 0)
            return tdm_fail(err, TDM_INTERNAL, "'%s' has no memory on any device of the schedule",
                            tdm_graph_value_name(c->graph, i));
    }
    return TDM_OK;
}

/* Places and cuts the graph; slot_dev as for tdm_schedule_place_slots. */
static tdm_status stages_cut(tdm_scratch *s, const tdm_graph *graph, int32_t *slot_dev,
                             tdm_stages *stages_out, tdm_error *err) {
    int32_t *node_dev = malloc(((size_t)graph->n_node + 1) * sizeof *node_dev);
    if (node_dev == NULL) return out_of_memory(err);
    tdm_status status = tdm_schedule_place_slots(s, graph, slot_dev, node_dev, err);
    const tdm_cut_params params = {.graph = graph,
                                   .node_dev = node_dev,
                                   .n_dev = s->n_dev,
                                   .slot_dev = slot_dev,
                                   .caller_dev = -1};
    if (status == TDM_OK) status = tdm_stages_create(&params, s->devs, stages_out, err);
    free(node_dev);
    return status;
}

static tdm_status stages_make(tdm_schedule *c, tdm_error *err) {
    int32_t *slot_dev = tdm_schedule_slot_devs(c->scratch, c->graph, c->outside, err);
    if (slot_dev == NULL) return TDM_RESOURCE_EXHAUSTED;
    tdm_status status = slots_check(c, slot_dev, err);
    if (status == TDM_OK) status = stages_cut(c->scratch, c->graph, slot_dev, &c->stages, err);
    free(slot_dev);
    return status;
}

/* Where a weight or a state lives. Temporaries that the stages do not place are the device's
 * own. */
static tdm_status slot_locate(void *owner, int32_t slot, int32_t dev, tdm_slot_mem *out,
                              tdm_error *err) {
    const tdm_schedule *c = owner;
    const tdm_slot_mem *at = &c->outside[slot];
    int32_t kind = tdm_graph_value(c->graph, c->stages.cut.slots[slot].value)->kind;
    if (kind == TDM_VALUE_TEMP) return TDM_OK;
    if (at->mem.dev != c->scratch->devs[dev].dev)
        return tdm_fail(err, TDM_INTERNAL, "'%s' is needed on %s but lives on %s",
                        tdm_cut_slot_name(&c->stages.cut, slot),
                        tdm_open_device_name(c->scratch->devs[dev].dev),
                        at->mem.dev != NULL ? tdm_open_device_name(at->mem.dev) : "no device");
    *out = *at;
    return TDM_OK;
}

static tdm_status schedule_bind(tdm_schedule *c, tdm_error *err) {
    tdm_status status = tdm_stages_bind(&c->stages, &c->scratch->memory, slot_locate, c, err);
    if (status == TDM_OK) memcpy(c->generation, c->scratch->generation, sizeof c->generation);
    return status;
}

/* Only plain weights are copied: a weight with a layout of its device's is bound to that device. */
static tdm_status weights_check(const tdm_schedule *c, tdm_error *err) {
    for (int32_t i = 0; i < c->stages.cut.n_weight; i++) {
        const tdm_stage_copy *copy = &c->stages.cut.weights[i];
        if (c->stages.weights[i].desc.usage != 0)
            return tdm_fail(err, TDM_INTERNAL, "'%s' is needed on %s but lives on %s",
                            tdm_cut_slot_name(&c->stages.cut, copy->slot),
                            tdm_open_device_name(c->scratch->devs[copy->to].dev),
                            tdm_open_device_name(c->scratch->devs[copy->from].dev));
    }
    return TDM_OK;
}

static tdm_status schedule_allocate(tdm_schedule *c, tdm_error *err) {
    tdm_status status =
        tdm_stage_memory_grow_staging(&c->scratch->memory, c->stages.staging_size, err);
    for (int32_t d = 0; d < c->scratch->n_dev && status == TDM_OK; d++)
        status = scratch_grow(c->scratch, d, &c->stages, err);
    if (status == TDM_OK) status = tdm_stages_plan(&c->stages, &c->scratch->queues, err);
    return status == TDM_OK ? schedule_bind(c, err) : status;
}

tdm_status tdm_schedule_create(tdm_scratch *scratch, tdm_graph *graph, const tdm_slot_mem *bindings,
                               tdm_schedule **schedule_out, tdm_error *err) {
    size_t n_slot = (size_t)graph->n_slot;
    tdm_schedule *c = calloc(1, sizeof *c);
    if (c == NULL) {
        tdm_graph_free(graph);
        return out_of_memory(err);
    }
    c->scratch = scratch;
    c->graph = graph;
    c->outside = calloc(n_slot + 1, sizeof *c->outside);
    tdm_status status = c->outside != NULL ? TDM_OK : out_of_memory(err);
    if (status == TDM_OK && n_slot > 0) memcpy(c->outside, bindings, n_slot * sizeof *bindings);
    if (status == TDM_OK) status = stages_make(c, err);
    if (status == TDM_OK) status = weights_check(c, err);
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
    /* A device that was given up may still read the graphs. */
    for (int32_t d = 0; d < c->scratch->n_dev; d++)
        if (tdm_open_device_is_stuck(c->scratch->devs[d].dev)) return;
    tdm_stages_free(&c->stages);
    free(c->outside);
    tdm_graph_free(c->graph);
    free(c);
}

uint64_t tdm_schedule_plan_size(const tdm_schedule *c, uint64_t *scratch_out) {
    tdm_plan_info sum = {.struct_size = sizeof sum};
    tdm_stages_add_plan_info(&c->stages, -1, &sum, NULL);
    *scratch_out = sum.scratch_size;
    return sum.device_size + sum.host_size;
}

tdm_status tdm_schedule_measure(tdm_scratch *s, const tdm_graph *graph, const tdm_slot_mem *fixed,
                                uint64_t *sizes_out, tdm_error *err) {
    tdm_stages stages = {0};
    int32_t *slot_dev = tdm_schedule_slot_devs(s, graph, fixed, err);
    if (slot_dev == NULL) return TDM_RESOURCE_EXHAUSTED;
    tdm_status status = stages_cut(s, graph, slot_dev, &stages, err);
    if (status == TDM_OK) (void)tdm_stages_plan(&stages, &s->queues, NULL);
    for (int32_t d = 0; d < s->n_dev && status == TDM_OK; d++) {
        tdm_plan_info info = {.struct_size = sizeof info};
        tdm_stages_add_plan_info(&stages, d, &info, NULL);
        sizes_out[d] = stages.need[d] + stages.need_in[d] + stages.need_out[d] + info.device_size +
                       info.host_size + info.scratch_size;
    }
    tdm_stages_free(&stages);
    free(slot_dev);
    return status;
}

/* ---- Running ---- */

static tdm_status io_check(const tdm_schedule *c, const tdm_io *io, int32_t kind, tdm_error *err) {
    const tdm_graph *g = c->graph;
    if (io->value < 0 || io->value >= g->n_value || tdm_graph_value(g, io->value)->kind != kind)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "schedule: value %d is not an %s of the graph",
                        io->value, kind == TDM_VALUE_INPUT ? "input" : "output");
    if (io->size > c->stages.cut.slots[tdm_graph_value(g, io->value)->slot].size)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "schedule: %llu bytes for '%s', which has fewer",
                        (unsigned long long)io->size, tdm_graph_value_name(g, io->value));
    return TDM_OK;
}

/* The host writes inputs where the device gives it their address, and uploads them elsewhere. */
static tdm_status inputs_write(const tdm_schedule *c, const tdm_io *inputs, int32_t n_input,
                               tdm_error *err) {
    for (int32_t i = 0; i < n_input; i++) {
        tdm_status status = io_check(c, &inputs[i], TDM_VALUE_INPUT, err);
        if (status != TDM_OK) return status;
        if (inputs[i].size == 0) continue;
        int32_t slot = tdm_graph_value(c->graph, inputs[i].value)->slot;
        for (int32_t d = 0; d < c->scratch->n_dev; d++) {
            uint64_t off = c->stages.off[d][slot];
            if (off == TDM_NO_PLACE) continue;
            tdm_counter_add(TDM_COUNTER_INPUT_BYTES, inputs[i].size);
            if (c->scratch->in_host[d] != NULL) {
                memcpy(c->scratch->in_host[d] + off, inputs[i].data, (size_t)inputs[i].size);
                continue;
            }
            status =
                tdm_mem_upload(&c->scratch->memory.in[d], off, inputs[i].data, inputs[i].size, err);
            if (status != TDM_OK) return status;
        }
    }
    return TDM_OK;
}

static tdm_status outputs_read(const tdm_schedule *c, const tdm_io *outputs, int32_t n_output,
                               tdm_error *err) {
    for (int32_t i = 0; i < n_output; i++) {
        tdm_status status = io_check(c, &outputs[i], TDM_VALUE_OUTPUT, err);
        if (status != TDM_OK) return status;
        if (outputs[i].size == 0) continue;
        int32_t slot = tdm_graph_value(c->graph, outputs[i].value)->slot;
        int32_t home = c->stages.cut.slots[slot].home;
        uint64_t off = c->stages.off[home][slot];
        tdm_counter_add(TDM_COUNTER_OUTPUT_BYTES, outputs[i].size);
        if (c->scratch->out_host[home] != NULL) {
            memcpy(outputs[i].data, c->scratch->out_host[home] + off, (size_t)outputs[i].size);
            continue;
        }
        status = tdm_mem_download(&c->scratch->memory.out[home], off, outputs[i].data,
                                  outputs[i].size, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

/* The memory of copied weights is shared with other schedules, so each run copies them again. They
 * are small: the frequencies of a shift. */
static tdm_status weights_copy(const tdm_schedule *c, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < c->stages.cut.n_weight && status == TDM_OK; i++)
        status = tdm_stages_copy_weight(&c->stages, i, &c->scratch->memory, err);
    return status;
}

tdm_status tdm_schedule_run(tdm_schedule *c, const tdm_io *inputs, int32_t n_input,
                            const tdm_io *outputs, int32_t n_output, tdm_error *err) {
    tdm_status status = TDM_OK;
    if (memcmp(c->generation, c->scratch->generation, sizeof c->generation) != 0)
        status = schedule_bind(c, err);
    if (status == TDM_OK) status = inputs_write(c, inputs, n_input, err);
    if (status == TDM_OK) status = weights_copy(c, err);
    if (status == TDM_OK)
        status = tdm_stages_run(&c->stages, &c->scratch->queues, &c->scratch->memory, err);
    return status == TDM_OK ? outputs_read(c, outputs, n_output, err) : status;
}
