/* SPDX-License-Identifier: MIT
 *
 * plan.h: a plan of CUDA or HIP: steps, functions, and the launches captured from them.
 */
#ifndef TANDEM_GPU_RT_PLAN_H
#define TANDEM_GPU_RT_PLAN_H

#include "plugins/gpu/queue/bound.h"
#include "plugins/gpu/rt/rt.h"

enum { RT_N_BRANCH = 4 }; /* most streams of a capture: rt_vendor.n_branch */

/* What the plans of a queue share. It belongs to the queue. */
typedef struct rt_workspace {
    gpu_scratch_pool scratch;
    /* Plans are captured on the first stream. Steps that need no order between them are also
     * captured on the others, so that the graph has no order between them either. */
    void *branch_stream[RT_N_BRANCH];
    void *branch_event[RT_N_BRANCH]; /* during a capture: the last launch of each stream */
    /* rt_wait_report (host memory) and rt_wait_state (device memory) of wait.h; no memory where
     * kernels do not wait */
    rt_memory report, wait_state;
} rt_workspace;

/* Allocates scratch on a device of CUDA or HIP; its context is the rt_device. */
extern const gpu_scratch_driver rt_scratch_driver;

/* The parameter of a kernel: struct Args of plugins/gpu/kernels/lang.h, which has the same
 * fields. */
typedef struct rt_args {
    gpu_args args;
    int32_t spec[GPU_MAX_SPEC];
} rt_args;

/* The bytes first .. end - 1 of an input buffer, which FETCH copies from `memory` to `copy` of the
 * buffer. All slots of a plan in one buffer share a fetch. */
typedef struct rt_fetch {
    const tdm_buffer *buffer;
    uint64_t first, end;
} rt_fetch;

struct tdm_plan {
    rt_device *device;
    gpu_bound bound;         /* the steps, and the memory that they are bound to */
    rt_function *functions;  /* [n_step] */
    rt_args *args;           /* [n_step] of the present binding */
    rt_memory constants;     /* constants, and behind them counters; no memory where the steps have
                                neither */
    rt_workspace *workspace; /* of its queue */
    rt_function fetch;       /* of FETCH */
    rt_fetch *fetches;       /* [n_fetch] run before the steps */
    int32_t n_fetch;
    bool waits; /* some of its kernels wait for other members */
    void *exec; /* the captured launches; NULL = launches are put into the stream one by one */
};

/* Makes a plan for the queue of the workspace: steps, functions and constants. Fails like
 * gpu_plan_create, or where a function cannot be loaded. Released with rt_plan_destroy, for which
 * NULL is a no-op. */
tdm_status rt_plan_create(rt_device *device, rt_workspace *workspace, const tdm_graph *graph,
                          tdm_plan **plan_out, tdm_error *err);
void rt_plan_destroy(tdm_plan *plan);

/* tdm_queue_ops.plan_bind: checks the bindings, takes scratch from the pool, captures the launches.
 * Where the driver does not capture them, or has no memory to make a graph of them, that is no
 * failure: they are then put into the stream one by one. TDM_RESOURCE_EXHAUSTED where it has no
 * memory during the capture, TDM_UNAVAILABLE where the device is lost. */
tdm_status rt_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                        tdm_error *err);

/* Commands that rt_plan_launch puts into a stream: 1 where the launches were captured. */
int32_t rt_plan_n_command(const tdm_plan *plan);

/* Launches a bound plan on a stream. After a failure some of its commands may be in the stream.
 * After rt_enter. */
tdm_status rt_plan_launch(tdm_plan *plan, void *stream, tdm_error *err);

#endif
