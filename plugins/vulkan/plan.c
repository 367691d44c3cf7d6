/* SPDX-License-Identifier: MIT
 *
 * plan.c: makes a plan of a graph, and records its command buffer when it is bound to memory. What
 * is recorded is replayed by every computation.
 */
#include "plugins/vulkan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/plan/print.h"
#include "plugins/vulkan/parts.h"
#include "plugins/vulkan/pipeline.h"
#include "plugins/vulkan/verdict.h"

/* ---- Scratch --------------------------------------------------------------------------------- */

static tdm_status scratch_alloc(void *context, uint64_t size, void *memory, uint64_t *address_out,
                                tdm_error *err) {
    vk_memory *piece = memory;
    tdm_status status = vk_memory_alloc(context, size, VK_USE_DEVICE, piece, err);
    *address_out = piece->address;
    return status;
}

static void scratch_free(void *context, void *memory) {
    vk_memory_free(context, memory);
}

const gpu_scratch_driver vk_scratch_driver = {
    .memory_size = sizeof(vk_memory), .alloc = scratch_alloc, .free = scratch_free};

/* ---- Making ---------------------------------------------------------------------------------- */

static tdm_status commands_create(tdm_plan *plan, tdm_error *err) {
    vk_device *device = plan->device;
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .queueFamilyIndex = device->facts->compute_family};
    VkResult result =
        device->fn.CreateCommandPool(device->device, &pool, NULL, &plan->command_pool);
    if (result == VK_SUCCESS) return TDM_OK;
    plan->command_pool = VK_NULL_HANDLE;
    return vk_fail(device, err, result, "vkCreateCommandPool");
}

static tdm_status constants_create(tdm_plan *plan, tdm_error *err) {
    const uint64_t size = plan->bound.steps->constants_size;
    tdm_status status = vk_memory_alloc(plan->device, size, VK_USE_DEVICE, &plan->constants, err);
    if (status != TDM_OK) return status;
    plan->bound.constants = plan->constants.address;
    return vk_upload(plan->device, &plan->constants, 0, plan->bound.steps->constants, size, err);
}

/* Compiles the pipelines of all steps in parallel, before trials need them one by one. */
static tdm_status pipelines_fetch(vk_device *device, const gpu_plan *steps, tdm_error *err) {
    VkPipeline *pipelines = calloc((size_t)steps->n_step + 1, sizeof *pipelines);
    if (pipelines == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", device->name);
    tdm_status status = vk_pipelines_get(device, steps->steps, steps->n_step, pipelines, err);
    free(pipelines);
    return status;
}

tdm_status vk_plan_of_steps(vk_device *device, gpu_scratch_pool *pool, gpu_plan *steps,
                            tdm_plan **plan_out, tdm_error *err) {
    tdm_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        gpu_plan_destroy(steps);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", device->name);
    }
    tdm_status status = gpu_bound_init(&plan->bound, steps, pool, err);
    if (status != TDM_OK) {
        free(plan);
        return status;
    }
    plan->device = device;
    plan->pipelines = calloc((size_t)steps->n_step + 1, sizeof *plan->pipelines);
    if (plan->pipelines == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", device->name);
    if (status == TDM_OK)
        status = vk_pipelines_get(device, steps->steps, steps->n_step, plan->pipelines, err);
    if (status == TDM_OK) status = constants_create(plan, err);
    if (status == TDM_OK) status = commands_create(plan, err);
    if (status == TDM_OK)
        *plan_out = plan;
    else
        vk_plan_destroy(plan);
    return status;
}

/* The steps of a graph, all of pipelines that are right as far as they could be checked. */
static tdm_status steps_make(vk_device *device, const tdm_graph *graph, gpu_plan **steps_out,
                             tdm_error *err) {
    for (;;) {
        gpu_target target;
        gpu_plan *steps = NULL;
        const int32_t n_wrong = vk_verdicts_target(device, &target);
        tdm_status status = gpu_plan_create(&target, graph, &steps, err);
        if (status == TDM_OK) status = pipelines_fetch(device, steps, err);
        if (status == TDM_OK && !vk_verdicts_check(device, graph, steps, n_wrong)) {
            *steps_out = steps;
            return TDM_OK;
        }
        bool is_replaced =
            status != TDM_OK && steps != NULL && vk_verdicts_uncompiled(device, steps, status);
        gpu_plan_destroy(steps);
        if (status != TDM_OK && !is_replaced) return status;
    }
}

tdm_status vk_plan_create(vk_device *device, gpu_scratch_pool *pool, const tdm_graph *graph,
                          tdm_plan **plan_out, tdm_error *err) {
    gpu_plan *steps = NULL;
    tdm_status status = steps_make(device, graph, &steps, err);
    if (status == TDM_OK) status = vk_plan_of_steps(device, pool, steps, plan_out, err);
    if (status == TDM_OK) gpu_plan_cost_log(steps, graph, device->instance->host, device->name);
    return status;
}

void vk_plan_destroy(tdm_plan *plan) {
    if (plan == NULL) return;
    vk_device *device = plan->device;
    if (plan->command_pool != VK_NULL_HANDLE)
        device->fn.DestroyCommandPool(device->device, plan->command_pool, NULL);
    vk_memory_free(device, &plan->constants);
    gpu_bound_free(&plan->bound);
    free(plan->pipelines);
    free(plan->parts);
    free(plan->submits);
    free(plan);
}

/* ---- Binding --------------------------------------------------------------------------------- */

/* What stages `from` wrote with accesses `wrote` is visible to accesses `next` of stages `to`. */
static void barrier_record(const tdm_plan *plan, VkCommandBuffer commands,
                           VkPipelineStageFlags from, VkPipelineStageFlags to, VkAccessFlags wrote,
                           VkAccessFlags next) {
    const VkMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = wrote, .dstAccessMask = next};
    plan->device->fn.CmdPipelineBarrier(commands, from, to, 0, 1, &barrier, 0, NULL, 0, NULL);
}

/* Slice `slice` of n_slice of a step. */
static void slice_record(const tdm_plan *plan, VkCommandBuffer commands, const gpu_step *step,
                         uint32_t slice, uint32_t n_slice) {
    const vk_device_fn *fn = &plan->device->fn;
    uint32_t begin[3], count[3];
    if (!vk_slice_get(step, slice, n_slice, begin, count)) return;
    if (vk_kernel_is_spoilt(plan->device, step->kernel) && slice == n_slice - 1) count[0]--;
    if (begin[0] + begin[1] == 0)
        fn->CmdDispatch(commands, count[0], count[1], count[2]);
    else
        fn->CmdDispatchBase(commands, begin[0], begin[1], begin[2], count[0], count[1], count[2]);
}

static void step_record(const tdm_plan *plan, const vk_part *part, int32_t i) {
    const VkCommandBuffer commands = part->commands;
    const vk_device_fn *fn = &plan->device->fn;
    const gpu_step *step = &plan->bound.steps->steps[i];
    gpu_args args;
    gpu_bound_args(&plan->bound, step, &args);
    if (step->has_barrier)
        barrier_record(plan, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                       VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
                       VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    if (i == part->first || plan->pipelines[i] != plan->pipelines[i - 1])
        fn->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, plan->pipelines[i]);
    fn->CmdPushConstants(commands, plan->device->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         sizeof args, &args);
    if (part->n_slice > 0) {
        slice_record(plan, commands, step, part->slice, part->n_slice);
        return;
    }
    const uint32_t n_share = plan->is_trial ? 2 : 1;
    for (uint32_t share = 0; share < n_share; share++)
        slice_record(plan, commands, step, share, n_share);
}

/* Records the steps of a part. What earlier computations and copies wrote is visible to its first
 * step. What it writes is visible to the host; later copies and parts begin with a barrier of their
 * own. */
static tdm_status part_record(const tdm_plan *plan, vk_part *part, tdm_error *err) {
    vk_device *device = plan->device;
    const VkCommandBufferAllocateInfo allocate = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = plan->command_pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    /* Several computations of one plan may be submitted at the same time. */
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    VkResult result = device->fn.AllocateCommandBuffers(device->device, &allocate, &part->commands);
    if (result != VK_SUCCESS) {
        part->commands = NULL;
        return vk_fail(device, err, result, "vkAllocateCommandBuffers");
    }
    result = device->fn.BeginCommandBuffer(part->commands, &begin);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkBeginCommandBuffer");
    barrier_record(plan, part->commands,
                   VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                   VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                   VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                   VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    for (int32_t i = part->first; i < part->end; i++) step_record(plan, part, i);
    barrier_record(plan, part->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                   VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_SHADER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT);
    result = device->fn.EndCommandBuffer(part->commands);
    return result == VK_SUCCESS ? TDM_OK : vk_fail(device, err, result, "vkEndCommandBuffer");
}

/* Frees the command buffers of an earlier binding, cuts the plan into parts and records them. */
static tdm_status plan_record(tdm_plan *plan, tdm_error *err) {
    vk_device *device = plan->device;
    const tdm_host *host = device->instance->host;
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < plan->n_part; i++)
        if (plan->parts[i].commands != NULL)
            device->fn.FreeCommandBuffers(device->device, plan->command_pool, 1,
                                          &plan->parts[i].commands);
    status = vk_parts_cut(plan, err);
    for (int32_t i = 0; i < plan->n_part && status == TDM_OK; i++)
        status = part_record(plan, &plan->parts[i], err);
    if (status != TDM_OK) return status;
    if (plan->n_part > 1 && TDM_HAS(host, log))
        host->log(host->context, TDM_LOG_DEBUG, "%s: a plan of %d steps is submitted in %d parts",
                  device->name, (int)plan->bound.steps->n_step, (int)plan->n_part);
    return TDM_OK;
}

static gpu_place buffer_place(const tdm_buffer *buffer) {
    return (gpu_place){buffer->device, buffer->memory.address, buffer->size};
}

tdm_status vk_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                        tdm_error *err) {
    tdm_status status =
        gpu_bound_bind(&plan->bound, plan->device, buffer_place, bindings, n_binding, err);
    if (status != TDM_OK) return status;
    status = plan_record(plan, err);
    if (status != TDM_OK) gpu_bound_unbind(&plan->bound);
    return status;
}
