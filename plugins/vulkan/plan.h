/* SPDX-License-Identifier: MIT
 *
 * plan.h: a plan of this plugin: steps, pipelines, and the command buffer recorded from them.
 */
#ifndef TANDEM_VULKAN_PLAN_H
#define TANDEM_VULKAN_PLAN_H

#include "plugins/gpu/plan/work.h"
#include "plugins/gpu/queue/bound.h"
#include "plugins/vulkan/transfer.h"

/* How scratch is allocated on a Vulkan device, which is the context. */
extern const gpu_scratch_driver vk_scratch_driver;

/* What is submitted at once: steps, or a slice of one step that alone would run too long. */
typedef struct vk_part {
    int32_t first, end; /* steps first .. end - 1 */
    uint32_t slice;     /* of the only step, where n_slice is not 0 */
    uint32_t n_slice;   /* equal shares of its workgroups; 0 = steps are whole */
    VkCommandBuffer commands;
    /* Of its last submission: the value of the queue's timeline that says that it is done */
    uint64_t value;
    VkTimelineSemaphoreSubmitInfo timeline;
} vk_part;

struct tdm_plan {
    vk_device *device;
    gpu_bound bound;       /* the steps, and the memory that they are bound to */
    VkPipeline *pipelines; /* n_step */
    /* Of this plan alone, so that several threads can record plans at the same time */
    VkCommandPool command_pool;
    vk_part *parts;        /* n_part of max_part */
    VkSubmitInfo *submits; /* likewise: one for each part */
    int32_t n_part;        /* 0 = not recorded */
    int32_t max_part;
    /* Each step is launched in two shares, so that a trial covers slices. No rate is learned, since
     * drivers compile at the first launch. */
    bool is_trial;
    gpu_work_range work; /* of all steps */
    vk_memory constants; /* of the steps; no memory where they have none */
};

/* Makes steps and pipelines for the queue that the pool belongs to. Released with
 * vk_plan_destroy. */
tdm_status vk_plan_create(vk_device *device, gpu_scratch_pool *pool, const tdm_graph *graph,
                          tdm_plan **plan_out, tdm_error *err);
void vk_plan_destroy(tdm_plan *plan);

/* A plan of steps that exist already, without a check of their pipelines. Takes over the steps,
 * also where it fails. */
tdm_status vk_plan_of_steps(vk_device *device, gpu_scratch_pool *pool, gpu_plan *steps,
                            tdm_plan **plan_out, tdm_error *err);
/* The same for a queue. */
tdm_status vk_queue_plan(tdm_queue *queue, gpu_plan *steps, tdm_plan **plan_out, tdm_error *err);

/* Binds a plan, computes it once as a trial (tdm_plan.is_trial) and waits for its end. */
tdm_status vk_queue_run(tdm_queue *queue, tdm_plan *plan, const tdm_binding *bindings,
                        int32_t n_binding, tdm_error *err);

/* tdm_queue_ops.plan_bind: checks the bindings, takes scratch from the pool, and records the
 * command buffer. */
tdm_status vk_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                        tdm_error *err);

#endif
