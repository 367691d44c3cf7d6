/* SPDX-License-Identifier: MIT
 *
 * plan.c: makes a plan of a graph, and captures its launches as a graph of the driver when it is
 * bound to memory. Each computation launches that graph.
 */
#include "plugins/gpu/rt/plan.h"

#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/plan/print.h"
#include "plugins/gpu/rt/card.h"
#include "plugins/gpu/rt/early.h"
#include "plugins/gpu/rt/wait.h"

enum { FETCH_THREADS = 128, COUNTERS_ALIGN = 128 /* a line of the cache */ };

/* ---- Scratch --------------------------------------------------------------------------------- */

static tdm_status scratch_alloc(void *context, uint64_t size, void *memory, uint64_t *address_out,
                                tdm_error *err) {
    rt_memory *piece = memory;
    tdm_status status = rt_memory_alloc(context, size, false, piece, err);
    *address_out = piece->address;
    return status;
}

static void scratch_free(void *context, void *memory) {
    rt_memory_free(context, memory);
}

const gpu_scratch_driver rt_scratch_driver = {
    .memory_size = sizeof(rt_memory), .alloc = scratch_alloc, .free = scratch_free};

/* Destroys the captured launches, and releases the scratch. */
static void unbind(tdm_plan *plan) {
    if (plan->exec != NULL) {
        plan->device->fn->context_set(plan->device->context);
        plan->device->fn->exec_destroy(plan->exec);
    }
    plan->exec = NULL;
    gpu_bound_unbind(&plan->bound);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static tdm_status functions_get(tdm_plan *plan, tdm_error *err) {
    const gpu_step fetch = {.kernel = GPU_KERNEL_FETCH};
    tdm_status status = rt_function_get(plan->device, &fetch, &plan->fetch, err);
    for (int32_t i = 0; i < plan->bound.steps->n_step && status == TDM_OK; i++)
        status =
            rt_function_get(plan->device, &plan->bound.steps->steps[i], &plan->functions[i], err);
    return status;
}

/* Allocates the constants and, behind them, the counters, and uploads both. The counters are 0 from
 * here on, whenever no kernel of the plan runs: each kernel that counts leaves zeros, and runs to
 * its end unless the device is lost. */
static tdm_status constants_create(tdm_plan *plan, tdm_error *err) {
    const gpu_plan *steps = plan->bound.steps;
    const uint64_t at =
        (steps->constants_size + COUNTERS_ALIGN - 1) / COUNTERS_ALIGN * COUNTERS_ALIGN;
    const uint64_t size =
        steps->counters_size > 0 ? at + steps->counters_size : steps->constants_size;
    tdm_status status = rt_memory_alloc(plan->device, size, false, &plan->constants, err);
    if (status != TDM_OK || size == 0) return status;
    plan->bound.constants = plan->constants.address;
    plan->bound.counters = plan->constants.address + at;
    uint8_t *bytes = calloc(1, size);
    if (bytes == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan",
                        plan->device->name);
    if (steps->constants_size > 0) memcpy(bytes, steps->constants, steps->constants_size);
    status = rt_upload(plan->device, &plan->constants, 0, bytes, size, err);
    free(bytes);
    return status;
}

tdm_status rt_plan_create(rt_device *device, rt_workspace *workspace, const tdm_graph *graph,
                          tdm_plan **plan_out, tdm_error *err) {
    gpu_plan *steps = NULL;
    tdm_status status = gpu_plan_create(&device->target, graph, &steps, err);
    if (status != TDM_OK) return status;
    tdm_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        gpu_plan_destroy(steps);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", device->name);
    }
    plan->device = device;
    plan->workspace = workspace;
    plan->waits = rt_wait_is_needed(steps);
    status = gpu_bound_init(&plan->bound, steps, &workspace->scratch, err);
    if (status != TDM_OK) {
        free(plan);
        return status;
    }
    plan->functions = calloc((size_t)steps->n_step + 1, sizeof *plan->functions);
    plan->args = calloc((size_t)steps->n_step + 1, sizeof *plan->args);
    plan->fetches = calloc((size_t)steps->n_slot + 1, sizeof *plan->fetches);
    if (plan->functions == NULL || plan->args == NULL || plan->fetches == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", device->name);
    if (status == TDM_OK) status = functions_get(plan, err);
    if (status == TDM_OK) status = constants_create(plan, err);
    if (status != TDM_OK) {
        rt_plan_destroy(plan);
        return status;
    }
    gpu_plan_cost_log(steps, graph, device->instance->host, device->name);
    *plan_out = plan;
    return TDM_OK;
}

void rt_plan_destroy(tdm_plan *plan) {
    if (plan == NULL) return;
    unbind(plan);
    rt_memory_free(plan->device, &plan->constants);
    gpu_bound_free(&plan->bound);
    free(plan->functions);
    free(plan->args);
    free(plan->fetches);
    free(plan);
}

/* ---- Binding --------------------------------------------------------------------------------- */

static gpu_place buffer_place(const tdm_buffer *buffer) {
    return (gpu_place){buffer->device, buffer->memory.address, buffer->size};
}

static bool slot_is_written(const gpu_plan *steps, int32_t slot) {
    for (int32_t i = 0; i < steps->n_step; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++) {
            const gpu_operand *o = &steps->steps[i].operand[k];
            if (o->space == GPU_SPACE_SLOT && o->index == slot &&
                gpu_kernel_writes(steps->steps[i].kernel, k))
                return true;
        }
    return false;
}

/* Lets kernels read the device's copies of input buffers: changes the addresses of their slots, and
 * sets the fetches that fill the copies before each run. A slot that a step writes keeps its
 * address. */
static void fetches_set(tdm_plan *plan, const tdm_binding *bindings) {
    const gpu_plan *steps = plan->bound.steps;
    plan->n_fetch = 0;
    for (int32_t i = 0; i < steps->n_slot; i++) {
        const tdm_buffer *buffer = bindings[i].buffer;
        const uint64_t first = bindings[i].off, end = first + steps->slot_sizes[i];
        if (steps->slot_sizes[i] == 0 || buffer->copy.address == 0 || slot_is_written(steps, i))
            continue;
        int32_t f = 0;
        while (f < plan->n_fetch && plan->fetches[f].buffer != buffer) f++;
        if (f == plan->n_fetch) plan->fetches[plan->n_fetch++] = (rt_fetch){buffer, first, end};
        rt_fetch *fetch = &plan->fetches[f];
        if (first < fetch->first) fetch->first = first;
        if (end > fetch->end) fetch->end = end;
        plan->bound.slots[i] = buffer->copy.address + first;
    }
}

static void args_set(tdm_plan *plan) {
    for (int32_t i = 0; i < plan->bound.steps->n_step; i++) {
        const gpu_step *step = &plan->bound.steps->steps[i];
        gpu_bound_args(&plan->bound, step, &plan->args[i].args);
        memcpy(plan->args[i].spec, step->spec, sizeof step->spec);
    }
    rt_wait_args_set(plan->device, plan->bound.steps, plan->workspace->wait_state.address,
                     plan->args);
}

static rt_result step_launch(tdm_plan *plan, int32_t i, void *stream) {
    const gpu_step *step = &plan->bound.steps->steps[i];
    void *params[] = {&plan->args[i]};
    return plan->device->fn->launch(plan->functions[i].handle, step->grid[0], step->grid[1],
                                    step->grid[2], (unsigned)step->group_size, 1, 1,
                                    rt_shared_size(step), stream, params, NULL);
}

/* The same during a capture. `before`: the step of the same stream that step i depends on, where it
 * depends on nothing else; else -1. Only then is an early launch possible: CUDA's documents do not
 * say what a capture makes of one behind several launches, or behind a launch of another stream.
 * *symbol_out: the symbol of the call, for messages. */
static rt_result step_capture(tdm_plan *plan, int32_t i, int32_t before, void *stream,
                              const char **symbol_out) {
    const gpu_step *step = &plan->bound.steps->steps[i];
    void *params[] = {&plan->args[i]};
    if (!plan->device->launches_early || before < 0 || !plan->functions[i].waits ||
        !rt_early_allows(step->kernel) ||
        !rt_early_allows(plan->bound.steps->steps[before].kernel)) {
        *symbol_out = rt_symbol(RT_FN_launch);
        return step_launch(plan, i, stream);
    }
    *symbol_out = rt_vendor_this.launch_ex;
    return rt_early_launch(plan->device, step, plan->functions[i].handle, stream, params);
}

static rt_result fetch_launch(tdm_plan *plan, const rt_fetch *fetch, void *stream) {
    const uint32_t n_unit = (uint32_t)((fetch->end - fetch->first + 15) / 16);
    rt_args args = {.args = {.address = {fetch->buffer->copy.address + fetch->first,
                                         fetch->buffer->memory.address + fetch->first},
                             .word = {(int32_t)n_unit}}};
    void *params[] = {&args};
    return plan->device->fn->launch(plan->fetch.handle,
                                    (n_unit + FETCH_THREADS - 1) / FETCH_THREADS, 1, 1,
                                    FETCH_THREADS, 1, 1, 0, stream, params, NULL);
}

static rt_result fetches_launch(tdm_plan *plan, void *stream) {
    rt_result result = RT_SUCCESS;
    for (int32_t i = 0; i < plan->n_fetch && result == RT_SUCCESS; i++)
        result = fetch_launch(plan, &plan->fetches[i], stream);
    return result;
}

/* Puts the launches into the stream one after the other. A stream keeps the order of its commands,
 * where steps need no order too. */
static rt_result steps_launch(tdm_plan *plan, void *stream) {
    rt_result result = fetches_launch(plan, stream);
    for (int32_t i = 0; i < plan->bound.steps->n_step && result == RT_SUCCESS; i++)
        result = step_launch(plan, i, stream);
    return result;
}

/* Makes branch stream `to` wait for what is on branch stream `from` so far. *symbol_out: the symbol
 * of the call that failed. */
static rt_result branch_wait(const tdm_plan *plan, int32_t to, int32_t from,
                             const char **symbol_out) {
    const rt_driver *fn = plan->device->fn;
    const rt_workspace *w = plan->workspace;
    rt_result result = fn->event_record(w->branch_event[from], w->branch_stream[from]);
    if (result != RT_SUCCESS) {
        *symbol_out = rt_symbol(RT_FN_event_record);
        return result;
    }
    result = fn->stream_wait(w->branch_stream[to], w->branch_event[from], 0);
    if (result != RT_SUCCESS) *symbol_out = rt_symbol(RT_FN_stream_wait);
    return result;
}

/* Launches a round, steps first .. last - 1, which need no order between them, on several streams,
 * so that the captured graph has no order between them either. They depend on what stream 0 had
 * before; afterwards stream 0 depends on all of them. *before: the only step that the next launch
 * on stream 0 depends on, else -1; set for the next round. */
static rt_result round_launch(tdm_plan *plan, int32_t first, int32_t last, int32_t *before,
                              const char **symbol_out) {
    const int32_t most = rt_vendor_this.n_branch, n_step = last - first;
    const int32_t n_branch = n_step < most ? n_step : most;
    rt_result result = RT_SUCCESS;
    for (int32_t b = 1; b < n_branch && result == RT_SUCCESS; b++)
        result = branch_wait(plan, b, 0, symbol_out);
    for (int32_t i = first; i < last && result == RT_SUCCESS; i++) {
        /* The first step of a stream other than 0 depends on an event, not on a step. */
        const int32_t own = i - first >= most ? i - most : i == first ? *before : -1;
        void *stream = plan->workspace->branch_stream[(i - first) % most];
        result = step_capture(plan, i, own, stream, symbol_out);
    }
    for (int32_t b = 1; b < n_branch && result == RT_SUCCESS; b++)
        result = branch_wait(plan, 0, b, symbol_out);
    *before = n_branch == 1 ? last - 1 : -1;
    return result;
}

static rt_result rounds_launch(tdm_plan *plan, const char **symbol_out) {
    const gpu_plan *steps = plan->bound.steps;
    *symbol_out = rt_symbol(RT_FN_launch);
    rt_result result = fetches_launch(plan, plan->workspace->branch_stream[0]);
    int32_t before = -1;
    for (int32_t first = 0, last; first < steps->n_step && result == RT_SUCCESS; first = last) {
        for (last = first + 1; last < steps->n_step && !steps->steps[last].has_barrier;) last++;
        result = round_launch(plan, first, last, &before, symbol_out);
    }
    return result;
}

/* Captures a plan as a graph. After a failure *is_short says whether the capture ended, but the
 * driver had no memory for the graph. */
static tdm_status plan_capture(tdm_plan *plan, bool *is_short, tdm_error *err) {
    rt_device *device = plan->device;
    const rt_driver *fn = device->fn;
    void *stream = plan->workspace->branch_stream[0], *graph = NULL;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    rt_result result = fn->capture_begin(stream, RT_CAPTURE_THREAD_LOCAL);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_capture_begin);
    const char *symbol;
    rt_result launched = rounds_launch(plan, &symbol);
    result = fn->capture_end(stream, &graph);
    if (result != RT_SUCCESS) graph = NULL;
    if (launched != RT_SUCCESS) status = rt_fail_symbol(device, err, launched, symbol);
    if (status == TDM_OK && result != RT_SUCCESS)
        status = rt_fail(device, err, result, RT_FN_capture_end);
    if (result == RT_SUCCESS && status == TDM_OK) {
        do {
            result = fn->graph_instantiate(&plan->exec, graph, 0);
        } while (result == RT_OUT_OF_MEMORY && rt_card_settle(device, true));
        if (result != RT_SUCCESS) {
            plan->exec = NULL;
            *is_short = result == RT_OUT_OF_MEMORY;
            status = rt_fail(device, err, result, RT_FN_graph_instantiate);
        }
    }
    if (graph != NULL) fn->graph_destroy(graph);
    return status;
}

/* Captures a plan; where that fails, the plan has no graph and launches its steps one by one. A
 * driver that has no memory for this graph may have some for others. After another failure of the
 * driver (TDM_INTERNAL) no plan of the device is captured any more: the streams of a capture that
 * did not end may not be usable. Other failures, as of a lost device, are returned. */
static tdm_status plan_capture_or_not(tdm_plan *plan, tdm_error *err) {
    rt_device *device = plan->device;
    const tdm_host *host = device->instance->host;
    tdm_error failed = {0};
    bool is_short = false;
    tdm_status status = plan_capture(plan, &is_short, &failed);
    if (status == TDM_OK) return TDM_OK;
    if (is_short) {
        if (!atomic_exchange(&device->has_warned_graphs, true) && TDM_HAS(host, log))
            host->log(
                host->context, TDM_LOG_WARN,
                "%s; computations whose graph has no room launch kernels one by one, which is "
                "slower (a smaller ctx-size or ubatch-size leaves more memory)",
                failed.message);
        return TDM_OK;
    }
    if (status != TDM_INTERNAL) return tdm_fail(err, status, "%s", failed.message);
    atomic_store(&device->has_graphs, false);
    if (TDM_HAS(host, log))
        host->log(host->context, TDM_LOG_WARN,
                  "%s; graphs are not used from here on: kernels are launched one by one, which is "
                  "slower (graphs = no hides this message)",
                  failed.message);
    return TDM_OK;
}

tdm_status rt_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                        tdm_error *err) {
    unbind(plan);
    tdm_status status =
        gpu_bound_bind(&plan->bound, plan->device, buffer_place, bindings, n_binding, err);
    if (status != TDM_OK) return status;
    fetches_set(plan, bindings);
    args_set(plan);
    if (atomic_load(&plan->device->has_graphs) && plan->bound.steps->n_step > 0)
        status = plan_capture_or_not(plan, err);
    if (status != TDM_OK) unbind(plan);
    return status;
}

int32_t rt_plan_n_command(const tdm_plan *plan) {
    return plan->exec != NULL ? 1 : plan->n_fetch + plan->bound.steps->n_step;
}

tdm_status rt_plan_launch(tdm_plan *plan, void *stream, tdm_error *err) {
    rt_device *device = plan->device;
    if (plan->exec == NULL) {
        rt_result result = steps_launch(plan, stream);
        return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_launch);
    }
    /* A failed launch fails the computation, where memory was short too: launching the kernels one
     * by one instead could run some of them twice, which is wrong for kernels that change a state.
     * For the documents of cuGraphLaunch and hipGraphLaunch list no error of memory, and CUDA's
     * says that the error may be that of earlier work: so some kernels of the graph may have
     * run. */
    rt_result result = device->fn->graph_launch(plan->exec, stream);
    return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_graph_launch);
}
