/* SPDX-License-Identifier: MIT
 *
 * plan_bind.c: derives the bindings of the parts' slots from the caller's bindings, and binds the
 * members' plans to them. That is done again only when memory of the group has moved.
 */
#include <string.h>

#include "plugins/meta/exec/plan.h"
#include "plugins/meta/exchange/arena.h"

static const char *value_name(const meta_plan *plan, int32_t value) {
    return tdm_graph_value_name(plan->graph, value);
}

static const tdm_binding *caller_binding(const meta_plan *plan, int32_t value) {
    return &plan->bindings[tdm_graph_value(plan->graph, value)->slot];
}

/* Checks that a value is bound to a range of a buffer of this group. */
static tdm_status binding_check(const meta_plan *plan, int32_t value, tdm_error *err) {
    const tdm_binding *b = caller_binding(plan, value);
    const char *name = value_name(plan, value);
    if (b->buffer == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "group: '%s' is not bound", name);
    if (b->buffer->device != plan->device)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "group: '%s' is bound to another device", name);
    if (b->off > b->buffer->size || b->size > b->buffer->size - b->off)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "group: '%s': %llu bytes at offset %llu of a buffer of %llu", name,
                        (unsigned long long)b->size, (unsigned long long)b->off,
                        (unsigned long long)b->buffer->size);
    return TDM_OK;
}

/* The item of a weight or state. The buffer must have been allocated with it. */
static tdm_status item_find(const meta_plan *plan, int32_t value, const meta_item **out,
                            tdm_error *err) {
    const tdm_value *v = tdm_graph_value(plan->graph, value);
    const tdm_binding *b = caller_binding(plan, value);
    const char *name = value_name(plan, value);
    const meta_item *item = meta_buffer_item(b->buffer, b->off);
    bool is_state = v->kind == TDM_VALUE_STATE;
    if (item == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "group: '%s': nothing begins at offset %llu of its buffer; a group's "
                        "buffers are allocated with their items",
                        name, (unsigned long long)b->off);
    bool is_same = item->is_state == is_state;
    if (is_same && is_state) {
        is_same = item->n_page == v->ne[1] && item->size >= (uint64_t)tdm_shape_count(v->ne);
    } else if (is_same) {
        int32_t partition =
            v->partition > 0 ? tdm_graph_partition(plan->graph, v->partition)->id : 0;
        is_same = (int32_t)item->tensor.type == v->type && item->tensor.usage == v->usage &&
                  memcmp(item->tensor.ne, v->ne, sizeof v->ne) == 0 &&
                  item->tensor.partition.id == partition;
    }
    if (!is_same)
        return tdm_fail(
            err, TDM_INVALID_ARGUMENT,
            "group: '%s': what its buffer holds at offset %llu has another type, shape, "
            "usage or partition",
            name, (unsigned long long)b->off);
    *out = item;
    return TDM_OK;
}

/* The slice of a weight or state on member d. */
static tdm_status slice_bind(const meta_plan *plan, int32_t d, const meta_slot *slot,
                             tdm_binding *out, tdm_error *err) {
    const meta_item *item = NULL;
    tdm_status status = item_find(plan, slot->value, &item, err);
    if (status != TDM_OK) return status;
    const tdm_buffer *buffer = caller_binding(plan, slot->value)->buffer;
    /* A slice without bytes needs no buffer. */
    if (item->member_size[d] > 0 && buffer->members[d] == NULL)
        return tdm_fail(err, TDM_INTERNAL, "group: '%s' has no memory on member '%s'",
                        value_name(plan, slot->value), plan->device->members[d].name);
    if (slot->source == META_SLOT_STATE && item->member_size[d] < slot->size)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "group: '%s' has %llu bytes on member '%s', its graph needs %llu",
                        value_name(plan, slot->value), (unsigned long long)item->member_size[d],
                        plan->device->members[d].name, (unsigned long long)slot->size);
    *out = (tdm_binding){buffer->members[d], item->member_off[d], item->member_size[d]};
    return TDM_OK;
}

/* Binds an input in place where the member can read the caller's memory, else to input memory. Sets
 * *has_grown where the plan needs more input memory than the member has: the memory must then grow
 * and the bindings be derived again. */
static tdm_status input_bind(meta_plan *plan, int32_t d, int32_t index, tdm_binding *out,
                             bool *has_grown, tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    const meta_member *member = &plan->device->members[d];
    const meta_slot *slot = &m->part.slots[index];
    const tdm_binding *b = caller_binding(plan, slot->value);
    if (b->size < slot->size || b->buffer->host == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "group: input '%s' needs %llu bytes of a buffer for inputs",
                        value_name(plan, slot->value), (unsigned long long)slot->size);
    if (b->buffer->members[d] != NULL && b->off % member->align == 0) {
        *out = (tdm_binding){b->buffer->members[d], b->off, slot->size};
        return TDM_OK;
    }
    if (m->temp_off[index] == META_NOWHERE) {
        uint64_t *end = &m->memory_size[META_MEMORY_INPUT];
        const uint64_t off = meta_round_up(*end, member->align);
        if (off == UINT64_MAX || __builtin_add_overflow(off, slot->size, end))
            return tdm_fail(err, TDM_OUT_OF_RANGE, "group: more than 2^64 bytes of inputs");
        m->temp_off[index] = off;
    }
    /* True also where an earlier call placed the input but failed before the memory grew. */
    if (m->memory_size[META_MEMORY_INPUT] > member->memory_size[META_MEMORY_INPUT])
        *has_grown = true;
    *out = (tdm_binding){member->memory[META_MEMORY_INPUT], m->temp_off[index], slot->size};
    return TDM_OK;
}

static tdm_status slot_bind(meta_plan *plan, int32_t d, int32_t index, bool *has_grown,
                            tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    const meta_member *member = &plan->device->members[d];
    const meta_slot *slot = &m->part.slots[index];
    tdm_binding *out = &m->slot_bindings[index];
    tdm_status status = TDM_OK;
    *out = (tdm_binding){NULL, 0, 0};
    /* A value without bytes needs no place. */
    if (slot->size == 0 && (slot->source == META_SLOT_INPUT || slot->source == META_SLOT_WEIGHT ||
                            slot->source == META_SLOT_STATE))
        return TDM_OK;
    switch (slot->source) {
    case META_SLOT_WEIGHT:
    case META_SLOT_STATE:
    case META_SLOT_INPUT:
    case META_SLOT_STEP: status = binding_check(plan, slot->value, err); break;
    default: break;
    }
    if (status != TDM_OK) return status;
    if (slot->source == META_SLOT_STEP &&
        (caller_binding(plan, slot->value)->buffer->host == NULL ||
         caller_binding(plan, slot->value)->size < slot->size))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "group: the step block needs %llu bytes of a buffer for inputs",
                        (unsigned long long)slot->size);
    switch (slot->source) {
    case META_SLOT_WEIGHT:
    case META_SLOT_STATE: return slice_bind(plan, d, slot, out, err);
    case META_SLOT_INPUT: return input_bind(plan, d, index, out, has_grown, err);
    case META_SLOT_ARENA: *out = (tdm_binding){member->arena, 0, slot->size}; return TDM_OK;
    case META_SLOT_PEER:
        *out = (tdm_binding){plan->device->arena->peer.buffers[d], 0, slot->size};
        return TDM_OK;
    case META_SLOT_ZEROS:
        *out = (tdm_binding){member->memory[META_MEMORY_ZEROS], 0, slot->size};
        return TDM_OK;
    default:
        if (m->temp_off[index] != META_NOWHERE)
            *out = (tdm_binding){member->memory[meta_slot_memory(slot->source)], m->temp_off[index],
                                 slot->size};
        return TDM_OK;
    }
}

static tdm_status slots_bind(meta_plan *plan, bool *has_grown, tdm_error *err) {
    const meta_device *device = plan->device;
    for (int32_t d = 0; d < device->n_member; d++) {
        if (!meta_is_active(device, d)) continue;
        for (int32_t i = 0; i < plan->members[d].part.graph.n_slot; i++) {
            tdm_status status = slot_bind(plan, d, i, has_grown, err);
            if (status != TDM_OK) return status;
        }
    }
    for (int32_t i = 0; i < plan->n_output; i++) {
        int32_t value = plan->outputs[i].value;
        const tdm_value *v = tdm_graph_value(plan->graph, value);
        if (tdm_shape_count(v->ne) == 0) continue;
        tdm_status status = binding_check(plan, value, err);
        if (status != TDM_OK) return status;
        const tdm_binding *b = caller_binding(plan, value);
        if (b->buffer->host == NULL ||
            b->size < tdm_tensor_canonical_size((tdm_type)v->type, v->ne))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "group: output '%s' does not fit what it is bound to",
                            value_name(plan, value));
    }
    return TDM_OK;
}

static void stages_bind(meta_plan *plan) {
    for (int32_t d = 0; d < plan->device->n_member; d++) {
        meta_member_plan *m = &plan->members[d];
        if (!meta_is_active(plan->device, d)) continue;
        for (int32_t s = 0; s < m->n_stage; s++) {
            meta_stage *stage = &m->stages[s];
            if (stage->graph == NULL) continue;
            for (int32_t i = 0; i < stage->graph->n_slot; i++)
                stage->bindings[i] =
                    m->slot_bindings[stage->slot_map != NULL ? stage->slot_map[i] : i];
        }
    }
}

static tdm_status stages_bind_plans(meta_plan *plan, tdm_error *err) {
    for (int32_t d = 0; d < plan->device->n_member; d++) {
        const meta_member *member = &plan->device->members[d];
        meta_member_plan *m = &plan->members[d];
        if (!meta_is_active(plan->device, d)) continue;
        for (int32_t s = 0; s < m->n_stage; s++) {
            const meta_stage *stage = &m->stages[s];
            tdm_error inner = {0};
            if (stage->plan == NULL) continue;
            tdm_status status = member->acquired.plugin->queue->plan_bind(
                stage->plan, stage->bindings, stage->graph->n_slot, &inner);
            if (status != TDM_OK)
                return tdm_fail(err, status, "member '%s': %s", member->name, inner.message);
        }
    }
    return TDM_OK;
}

/* Binds to plan->bindings. */
static tdm_status plan_bind(meta_plan *plan, tdm_error *err) {
    meta_device *device = plan->device;
    if (plan->division != device->division)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "group: the plan was made before the members' shares were found "
                        "(split_prepare); make it again");
    plan->is_bound = false;
    bool has_grown = false;
    tdm_status status = slots_bind(plan, &has_grown, err);
    /* The second pass adds nothing, so it finds enough memory. */
    if (status == TDM_OK && has_grown) status = meta_plan_grow(plan, err);
    if (status == TDM_OK && has_grown) status = slots_bind(plan, &has_grown, err);
    if (status != TDM_OK) return status;
    stages_bind(plan);
    status = stages_bind_plans(plan, err);
    if (status != TDM_OK) return status;
    plan->generation = atomic_load(&device->generation);
    plan->is_bound = true;
    return TDM_OK;
}

tdm_status meta_plan_bind(meta_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                          tdm_error *err) {
    if (n_binding != plan->graph->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "group: %d bindings for a graph of %d slots",
                        (int)n_binding, (int)plan->graph->n_slot);
    if (n_binding > 0)
        memcpy(plan->bindings, bindings, (size_t)plan->graph->n_slot * sizeof *bindings);
    plan->has_bindings = false;
    tdm_status status = plan_bind(plan, err);
    plan->has_bindings = status == TDM_OK;
    return status;
}

tdm_status meta_plan_rebind(meta_plan *plan, tdm_error *err) {
    if (!plan->has_bindings)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "group: the plan is not bound");
    if (plan->is_bound && plan->division == plan->device->division &&
        plan->generation == atomic_load(&plan->device->generation))
        return TDM_OK;
    return plan_bind(plan, err);
}
