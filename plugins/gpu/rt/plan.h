/* SPDX-License-Identifier: MIT
 *
 * plan.h: a plan of CUDA or HIP: steps, functions, and the launches captured from them.
 */
#ifndef TANDEM_GPU_RT_PLAN_H
#define TANDEM_GPU_RT_PLAN_H

#include "plugins/gpu/queue/bound.h"
#include "plugins/gpu/rt/rt.h"

enum { RT_N_BRANCH = 4 }; /* most streams of a capture: rt_vendor.n_branch */

/* What the plans of a queue share. */
typedef struct rt_workspace {
    gpu_scratch_pool scratch;
    /* Plans are captured on the first stream; steps without order between them on the others too. */
    void *branch_stream[RT_N_BRANCH];
    void *branch_event[RT_N_BRANCH]; /* the last launch of each stream */
    /* wait.h: rt_wait_report and rt_wait_state; no memory where kernels do not wait */
    rt_memory report, wait_state;
} rt_workspace;

/* How scratch is allocated on a device of CUDA or HIP, which is the context. */
extern const gpu_scratch_driver rt_scratch_driver;

/* The parameter of a kernel: struct Args of plugins/gpu/kernels/lang.h. */
typedef struct rt_args {
    gpu_args args;
    int32_t spec[GPU_MAX_SPEC];
} rt_args;

/* A range of an input buffer that is copied into the device's copy of it. */
typedef struct rt_fetch {
    const tdm_buffer *buffer;
    uint64_t first, end;
} rt_fetch;

struct tdm_plan {
    rt_device *device;
    gpu_bound bound;         /* the steps, and the memory that they are bound to */
    rt_function *functions;  /* [n_step] */
    rt_args *args;           /* [n_step] of the present binding */
    rt_memory constants; /* constants and counters of the steps; no memory where they have none */
    rt_workspace *workspace; /* of its queue */
    rt_function fetch;       /* of FETCH */
    rt_fetch *fetches;       /* [n_fetch] what is copied before the steps */
    int32_t n_fetch;
    bool waits; /* some of its kernels wait for other members */
    void *exec; /* the captured launches; NULL = they are launched one by one */
};

/* Makes steps and functions for the queue that the workspace belongs to. Released with
 * rt_plan_destroy. */
tdm_status rt_plan_create(rt_device *device, rt_workspace *workspace, const tdm_graph *graph,
                          tdm_plan **plan_out, tdm_error *err);
void rt_plan_destroy(tdm_plan *plan);

/* tdm_queue_ops.plan_bind: checks the bindings, takes scratch from the pool, captures. */
tdm_status rt_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                        tdm_error *err);

/* Commands that rt_plan_launch puts into a stream: 1 where they were captured. */
int32_t rt_plan_n_command(const tdm_plan *plan);

/* Launches a bound plan on a stream. */
tdm_status rt_plan_launch(tdm_plan *plan, void *stream, tdm_error *err);

#endif
