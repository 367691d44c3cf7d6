/* SPDX-License-Identifier: MIT
 *
 * plan.h: a plan of this plugin: steps, pipelines, and the command buffer recorded from them.
 */
#ifndef TANDEM_VULKAN_PLAN_H
#define TANDEM_VULKAN_PLAN_H

#include "plugins/gpu/plan/work.h"
#include "plugins/vulkan/transfer.h"

/* A piece of a queue's scratch. It lives until neither the queue nor a bound plan refers to it. */
typedef struct vk_scratch {
    vk_memory memory;
    int32_t n_ref; /* under the queue's scratch mutex */
} vk_scratch;

/* The scratch that the plans of a queue share. */
typedef struct vk_scratch_pool {
    pthread_mutex_t mutex;
    vk_scratch *current; /* the largest; NULL = none yet */
} vk_scratch_pool;

void vk_scratch_pool_init(vk_scratch_pool *pool);
void vk_scratch_pool_destroy(vk_device *device, vk_scratch_pool *pool);

/* What is submitted at once. */
typedef struct vk_part {
    int32_t end; /* the step behind it */
    VkCommandBuffer commands;
    uint64_t value; /* that the queue's timeline has when it is done; of the last submission */
    VkTimelineSemaphoreSubmitInfo timeline;
} vk_part;

struct tdm_plan {
    vk_device *device;
    gpu_plan *steps;
    VkPipeline *pipelines; /* n_step */
    /* of this plan alone, so that plans are recorded at the same time */
    VkCommandPool command_pool;
    vk_part *parts;                /* n_part of n_step + 1 places */
    VkSubmitInfo *submits;         /* likewise: one for each part */
    int32_t n_part;                /* 0 = not recorded */
    gpu_work work;                 /* of all steps but those on caches */
    vk_memory constants;           /* of the steps; no memory where they have none */
    vk_scratch_pool *scratch_pool; /* of its queue */
    vk_scratch *scratch;           /* of the pool; NULL = not bound, or it needs none */
    bool is_bound;
    uint64_t *addresses; /* n_slot: what it is bound to */
    int32_t n_record;    /* how often commands were recorded */
};

/* Makes steps and pipelines for the queue that the pool belongs to. Released with
 * vk_plan_destroy. */
tdm_status vk_plan_create(vk_device *device, vk_scratch_pool *pool, const tdm_graph *graph,
                          tdm_plan **plan_out, tdm_error *err);
void vk_plan_destroy(tdm_plan *plan);

/* The same of steps that are made already; they belong to the plan, also where the call fails. */
tdm_status vk_plan_of_steps(vk_device *device, vk_scratch_pool *pool, gpu_plan *steps,
                            tdm_plan **plan_out, tdm_error *err);
/* … for a queue. */
tdm_status vk_queue_plan(tdm_queue *queue, gpu_plan *steps, tdm_plan **plan_out, tdm_error *err);

/* tdm_queue_ops.plan_bind: checks the bindings, takes scratch from the pool, and records the
 * command buffer. */
tdm_status vk_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                        tdm_error *err);

#endif
