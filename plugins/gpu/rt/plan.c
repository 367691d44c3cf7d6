/* SPDX-License-Identifier: MIT
 *
 * plan.c: makes a plan of a graph, and captures its launches when it is bound to memory. What is
 * captured is launched by every computation.
 */
#include "plugins/gpu/rt/plan.h"

#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/plan/print.h"

/* ---- Scratch --------------------------------------------------------------------------------- */

/* With the pool's mutex held. */
static void scratch_drop(rt_device *device, rt_scratch *scratch) {
    if (scratch == NULL || --scratch->n_ref > 0) return;
    rt_memory_free(device, &scratch->memory);
    free(scratch);
}

void rt_scratch_pool_destroy(rt_device *device, rt_scratch_pool *pool) {
    scratch_drop(device, pool->current);
    pthread_mutex_destroy(&pool->mutex);
}

/* A piece of at least `size` bytes, with a reference for the caller. */
static tdm_status scratch_get(rt_device *device, rt_scratch_pool *pool, uint64_t size,
                              rt_scratch **scratch_out, tdm_error *err) {
    tdm_status status = TDM_OK;
    pthread_mutex_lock(&pool->mutex);
    if (pool->current == NULL || pool->current->memory.size < size) {
        rt_scratch *scratch = calloc(1, sizeof *scratch);
        status = scratch != NULL
                     ? rt_memory_alloc(device, size, false, &scratch->memory, err)
                     : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
        if (status == TDM_OK) {
            scratch_drop(device, pool->current);
            scratch->n_ref = 1;
            pool->current = scratch;
        } else {
            free(scratch);
        }
    }
    if (status == TDM_OK) {
        pool->current->n_ref++;
        *scratch_out = pool->current;
    }
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

static void unbind(tdm_plan *plan) {
    if (plan->exec != NULL) {
        plan->device->fn->context_set(plan->device->context);
        plan->device->fn->exec_destroy(plan->exec);
    }
    plan->exec = NULL;
    if (plan->scratch != NULL) {
        pthread_mutex_lock(&plan->scratch_pool->mutex);
        scratch_drop(plan->device, plan->scratch);
        pthread_mutex_unlock(&plan->scratch_pool->mutex);
    }
    plan->scratch = NULL;
    plan->is_bound = false;
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* Says what a run of the plan costs, to those who run with --verbose. */
static void cost_log(const rt_device *device, const gpu_plan *steps, const tdm_graph *graph) {
    const tdm_host *host = device->instance->host;
    if (!TDM_HAS(host, log)) return;
    char *text = gpu_plan_cost_text(steps, graph), *rest = text, *line;
    while (text != NULL && (line = strtok_r(rest, "\n", &rest)) != NULL)
        host->log(host->context, TDM_LOG_DEBUG, "%s: plan of %d tokens: %s", device->name,
                  (int)graph->step_caps.n_tok, line);
    free(text);
}

static tdm_status functions_get(tdm_plan *plan, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < plan->steps->n_step && status == TDM_OK; i++)
        status = rt_function_get(plan->device, &plan->steps->steps[i], &plan->functions[i], err);
    return status;
}

static tdm_status constants_create(tdm_plan *plan, tdm_error *err) {
    const uint64_t size = plan->steps->constants_size;
    const gpu_runs runs = {0, size, size, 1};
    tdm_status status = rt_memory_alloc(plan->device, size, false, &plan->constants, err);
    if (status != TDM_OK || size == 0) return status;
    return rt_upload(plan->device, &plan->constants, &runs, plan->steps->constants, err);
}

tdm_status rt_plan_create(rt_device *device, rt_scratch_pool *pool, const tdm_graph *graph,
                          tdm_plan **plan_out, tdm_error *err) {
    tdm_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", device->name);
    plan->device = device;
    plan->scratch_pool = pool;
    tdm_status status = gpu_plan_create(&device->target, graph, &plan->steps, err);
    if (status != TDM_OK) {
        free(plan);
        return status;
    }
    size_t n_step = (size_t)plan->steps->n_step;
    plan->functions = calloc(n_step + 1, sizeof *plan->functions);
    plan->args = calloc(n_step + 1, sizeof *plan->args);
    if (plan->functions == NULL || plan->args == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", device->name);
    if (status == TDM_OK) status = functions_get(plan, err);
    if (status == TDM_OK) status = constants_create(plan, err);
    if (status != TDM_OK) {
        rt_plan_destroy(plan);
        return status;
    }
    cost_log(device, plan->steps, graph);
    *plan_out = plan;
    return TDM_OK;
}

void rt_plan_destroy(tdm_plan *plan) {
    if (plan == NULL) return;
    unbind(plan);
    rt_memory_free(plan->device, &plan->constants);
    gpu_plan_destroy(plan->steps);
    free(plan->functions);
    free(plan->args);
    free(plan);
}

/* ---- Binding --------------------------------------------------------------------------------- */

static tdm_status binding_check(const tdm_plan *plan, int32_t slot, const tdm_binding *b,
                                tdm_error *err) {
    const char *name = plan->device->name;
    uint64_t needed = plan->steps->slot_sizes[slot];
    if (needed == 0) return TDM_OK;
    if (b->buffer == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: slot %d has no buffer", name, (int)slot);
    if (b->buffer->device != plan->device)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: the buffer of slot %d is another device's",
                        name, (int)slot);
    if (b->size < needed)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s: slot %d is bound to %llu bytes and needs %llu", name, (int)slot,
                        (unsigned long long)b->size, (unsigned long long)needed);
    if (b->off > b->buffer->size || b->size > b->buffer->size - b->off)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "%s: slot %d: %llu bytes at %llu are not inside a buffer of %llu", name,
                        (int)slot, (unsigned long long)b->size, (unsigned long long)b->off,
                        (unsigned long long)b->buffer->size);
    if (b->off % RT_BUFFER_ALIGN != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s: slot %d: offset %llu is not a multiple of %d", name, (int)slot,
                        (unsigned long long)b->off, (int)RT_BUFFER_ALIGN);
    return TDM_OK;
}

static uint64_t operand_address(const tdm_plan *plan, const tdm_binding *bindings,
                                const gpu_operand *operand) {
    switch (operand->space) {
    case GPU_SPACE_SLOT: /* a slot of no bytes needs no buffer (binding_check) */
        if (plan->steps->slot_sizes[operand->index] == 0) return 0;
        return bindings[operand->index].buffer->memory.address + bindings[operand->index].off +
               operand->off;
    case GPU_SPACE_SCRATCH: return plan->scratch->memory.address + operand->off;
    case GPU_SPACE_CONSTANT: return plan->constants.address + operand->off;
    default: return 0;
    }
}

static void args_set(tdm_plan *plan, const tdm_binding *bindings) {
    for (int32_t i = 0; i < plan->steps->n_step; i++) {
        const gpu_step *step = &plan->steps->steps[i];
        rt_args *args = &plan->args[i];
        for (int k = 0; k < GPU_MAX_OPERAND; k++)
            args->args.address[k] = operand_address(plan, bindings, &step->operand[k]);
        memcpy(args->args.word, step->word, sizeof args->args.word);
        memcpy(args->spec, step->spec, sizeof args->spec);
    }
}

/* Each step waits for the one before it: a stream has no finer order. */
static rt_result steps_launch(tdm_plan *plan, void *stream) {
    rt_result result = RT_SUCCESS;
    for (int32_t i = 0; i < plan->steps->n_step && result == RT_SUCCESS; i++) {
        const gpu_step *step = &plan->steps->steps[i];
        void *params[] = {&plan->args[i]};
        result = plan->device->fn->launch(plan->functions[i], step->grid[0], step->grid[1],
                                          step->grid[2], (unsigned)step->group_size, 1, 1,
                                          rt_shared_size(step), stream, params, NULL);
    }
    return result;
}

static tdm_status plan_capture(tdm_plan *plan, tdm_error *err) {
    rt_device *device = plan->device;
    const rt_driver *fn = device->fn;
    void *stream = plan->scratch_pool->capture_stream, *graph = NULL;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    rt_result result = fn->capture_begin(stream, RT_CAPTURE_THREAD_LOCAL);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_capture_begin);
    rt_result launched = steps_launch(plan, stream);
    result = fn->capture_end(stream, &graph);
    if (launched != RT_SUCCESS) status = rt_fail(device, err, launched, RT_FN_launch);
    if (status == TDM_OK && result != RT_SUCCESS)
        status = rt_fail(device, err, result, RT_FN_capture_end);
    if (result == RT_SUCCESS && status == TDM_OK) {
        result = fn->graph_instantiate(&plan->exec, graph, 0);
        if (result != RT_SUCCESS) {
            plan->exec = NULL;
            status = rt_fail(device, err, result, RT_FN_graph_instantiate);
        }
    }
    if (graph != NULL) fn->graph_destroy(graph);
    return status;
}

tdm_status rt_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                        tdm_error *err) {
    tdm_status status = TDM_OK;
    unbind(plan);
    if (n_binding != plan->steps->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: %d bindings for a graph of %d slots",
                        plan->device->name, (int)n_binding, (int)plan->steps->n_slot);
    for (int32_t i = 0; i < n_binding && status == TDM_OK; i++)
        status = binding_check(plan, i, &bindings[i], err);
    if (status == TDM_OK && plan->steps->scratch_size > 0)
        status = scratch_get(plan->device, plan->scratch_pool, plan->steps->scratch_size,
                             &plan->scratch, err);
    if (status != TDM_OK) return status;
    args_set(plan, bindings);
    if (plan->device->has_graphs && plan->steps->n_step > 0) status = plan_capture(plan, err);
    if (status != TDM_OK) unbind(plan);
    plan->is_bound = status == TDM_OK;
    return status;
}

tdm_status rt_plan_launch(tdm_plan *plan, void *stream, tdm_error *err) {
    rt_device *device = plan->device;
    if (plan->exec == NULL) {
        rt_result result = steps_launch(plan, stream);
        return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_launch);
    }
    rt_result result = device->fn->graph_launch(plan->exec, stream);
    return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_graph_launch);
}
