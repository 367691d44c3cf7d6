/* SPDX-License-Identifier: MIT
 *
 * bound.c: see bound.h.
 */
#include "plugins/gpu/queue/bound.h"

#include <stdlib.h>
#include <string.h>

tdm_status gpu_bound_init(gpu_bound *bound, gpu_plan *steps, gpu_scratch_pool *pool,
                          tdm_error *err) {
    *bound = (gpu_bound){.steps = steps, .pool = pool};
    bound->slots = calloc((size_t)steps->n_slot + 1, sizeof *bound->slots);
    if (bound->slots != NULL) {
        gpu_scratch_expect(pool, steps->scratch_size);
        return TDM_OK;
    }
    gpu_bound_free(bound);
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", pool->name);
}

void gpu_bound_free(gpu_bound *bound) {
    gpu_bound_unbind(bound);
    gpu_plan_destroy(bound->steps);
    free(bound->slots);
    *bound = (gpu_bound){0};
}

static tdm_status binding_check(const gpu_bound *bound, int32_t slot, const tdm_device *device,
                                const tdm_binding *b, const gpu_place *buffer, tdm_error *err) {
    const char *name = bound->pool->name;
    const uint64_t needed = bound->steps->slot_sizes[slot];
    if (buffer->device != device)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: the buffer of slot %d is another device's",
                        name, (int)slot);
    if (b->size < needed)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s: slot %d is bound to %llu bytes and needs %llu", name, (int)slot,
                        (unsigned long long)b->size, (unsigned long long)needed);
    if (b->off > buffer->size || b->size > buffer->size - b->off)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "%s: slot %d: %llu bytes at %llu are not inside a buffer of %llu", name,
                        (int)slot, (unsigned long long)b->size, (unsigned long long)b->off,
                        (unsigned long long)buffer->size);
    if (b->off % GPU_BUFFER_ALIGN != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s: slot %d: offset %llu is not a multiple of %d", name, (int)slot,
                        (unsigned long long)b->off, (int)GPU_BUFFER_ALIGN);
    return TDM_OK;
}

tdm_status gpu_bound_bind(gpu_bound *bound, const tdm_device *device,
                          gpu_place (*place)(const tdm_buffer *buffer), const tdm_binding *bindings,
                          int32_t n_binding, tdm_error *err) {
    const char *name = bound->pool->name;
    gpu_bound_unbind(bound);
    if (n_binding != bound->steps->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: %d bindings for a graph of %d slots", name,
                        (int)n_binding, (int)bound->steps->n_slot);
    for (int32_t i = 0; i < n_binding; i++) {
        bound->slots[i] = 0;
        if (bound->steps->slot_sizes[i] == 0) continue;
        if (bindings[i].buffer == NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: slot %d has no buffer", name, (int)i);
        const gpu_place buffer = place(bindings[i].buffer);
        tdm_status status = binding_check(bound, i, device, &bindings[i], &buffer, err);
        if (status != TDM_OK) return status;
        bound->slots[i] = buffer.address + bindings[i].off;
    }
    if (bound->steps->scratch_size > 0) {
        tdm_status status =
            gpu_scratch_get(bound->pool, bound->steps->scratch_size, &bound->scratch, err);
        if (status != TDM_OK) return status;
    }
    bound->is_bound = true;
    return TDM_OK;
}

void gpu_bound_unbind(gpu_bound *bound) {
    if (bound->scratch != NULL) gpu_scratch_drop(bound->pool, bound->scratch);
    bound->scratch = NULL;
    bound->is_bound = false;
}

tdm_status gpu_bound_check(const gpu_bound *bound, const gpu_scratch_pool *pool, tdm_error *err) {
    if (bound->pool != pool)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: the plan belongs to another queue",
                        pool->name);
    if (!bound->is_bound)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: the plan is not bound", pool->name);
    return TDM_OK;
}

static uint64_t operand_address(const gpu_bound *bound, const gpu_operand *operand) {
    switch (operand->space) {
    case GPU_SPACE_SLOT: return bound->slots[operand->index] + operand->off;
    case GPU_SPACE_SCRATCH: return bound->scratch->address + operand->off;
    case GPU_SPACE_CONSTANT: return bound->constants + operand->off;
    case GPU_SPACE_COUNTER: return bound->counters + operand->off;
    default: return 0;
    }
}

void gpu_bound_args(const gpu_bound *bound, const gpu_step *step, gpu_args *args_out) {
    for (int k = 0; k < GPU_MAX_OPERAND; k++)
        args_out->address[k] = operand_address(bound, &step->operand[k]);
    memcpy(args_out->word, step->word, sizeof args_out->word);
}
