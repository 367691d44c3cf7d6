/* SPDX-License-Identifier: MIT
 *
 * plan.h: a plan of CUDA or HIP: steps, functions, and the launches captured from them.
 */
#ifndef TANDEM_GPU_RT_PLAN_H
#define TANDEM_GPU_RT_PLAN_H

#include "plugins/gpu/rt/rt.h"

/* A piece of a queue's scratch. It lives until neither the queue nor a bound plan refers to it. */
typedef struct rt_scratch {
    rt_memory memory;
    int32_t n_ref; /* under the queue's scratch mutex */
} rt_scratch;

/* The scratch that the plans of a queue share, and the stream on which they are captured. */
typedef struct rt_scratch_pool {
    pthread_mutex_t mutex;
    rt_scratch *current; /* the largest; NULL = none yet */
    void *capture_stream;
} rt_scratch_pool;

/* What a kernel is given: struct Args of plugins/gpu/kernels/lang.h. */
typedef struct rt_args {
    gpu_args args;
    int32_t spec[GPU_MAX_SPEC];
} rt_args;

struct tdm_plan {
    rt_device *device;
    gpu_plan *steps;
    void **functions;              /* n_step */
    rt_args *args;                 /* n_step, of the present binding */
    rt_memory constants;           /* of the steps; no memory where they have none */
    rt_scratch_pool *scratch_pool; /* of its queue */
    rt_scratch *scratch;           /* of the pool; NULL = not bound, or it needs none */
    void *exec;                    /* the captured launches; NULL = they are launched one by one */
    bool is_bound;
};

/* Makes steps and functions for the queue that the pool belongs to. Released with
 * rt_plan_destroy. */
tdm_status rt_plan_create(rt_device *device, rt_scratch_pool *pool, const tdm_graph *graph,
                          tdm_plan **plan_out, tdm_error *err);
void rt_plan_destroy(tdm_plan *plan);

/* tdm_queue_ops.plan_bind: checks the bindings, takes scratch from the pool, captures. */
tdm_status rt_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                        tdm_error *err);

/* Launches a bound plan on a stream. */
tdm_status rt_plan_launch(tdm_plan *plan, void *stream, tdm_error *err);

void rt_scratch_pool_destroy(rt_device *device, rt_scratch_pool *pool);

#endif
