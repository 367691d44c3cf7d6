/* SPDX-License-Identifier: MIT
 *
 * bound.h: a plan's steps and the memory that they are bound to: checks bindings, and computes the
 * addresses that kernels get. The plugin records or captures the launches.
 *
 * A gpu_bound belongs to the plan of the plugin and follows its thread rules (tandem/queue.h).
 */
#ifndef TANDEM_GPU_BOUND_H
#define TANDEM_GPU_BOUND_H

#include "plugins/gpu/plan/plan.h"
#include "plugins/gpu/queue/scratch.h"
#include "tandem/queue.h"

enum {
    GPU_BUFFER_ALIGN = 256 /* bytes; of the offsets of bindings: whole cache lines, and more than
                              the 16 bytes of the widest load */
};

/* Where a buffer of the plugin lies. */
typedef struct gpu_place {
    const tdm_device *device; /* that it belongs to */
    uint64_t address;         /* the device's */
    uint64_t size;            /* bytes */
} gpu_place;

typedef struct gpu_bound {
    gpu_plan *steps;        /* owned */
    gpu_scratch_pool *pool; /* of the plan's queue */
    gpu_scratch *scratch;   /* of the pool; NULL = not bound, or the steps need none */
    uint64_t *slots;        /* [steps->n_slot] addresses; 0 where the plan does not use the slot */
    uint64_t constants;     /* address of the steps' constants, and of their counters; the plugin */
    uint64_t counters;      /* sets both before gpu_bound_args. 0 = there are none */
    bool is_bound;
} gpu_bound;

/* Takes ownership of the steps, also where it fails (TDM_RESOURCE_EXHAUSTED), and reports their
 * scratch to the pool (gpu_scratch_expect). Released with gpu_bound_free, which also frees the
 * steps and does nothing on a zeroed struct. */
tdm_status gpu_bound_init(gpu_bound *bound, gpu_plan *steps, gpu_scratch_pool *pool,
                          tdm_error *err);
void gpu_bound_free(gpu_bound *bound);

/* Checks the bindings as tdm_queue_ops.plan_bind says, stores their addresses, and takes scratch
 * from the pool. `place` gives a buffer's place. First releases what it was bound to before; after
 * a failure it is not bound. */
tdm_status gpu_bound_bind(gpu_bound *bound, const tdm_device *device,
                          gpu_place (*place)(const tdm_buffer *buffer), const tdm_binding *bindings,
                          int32_t n_binding, tdm_error *err);

/* Releases the scratch: the plan is not bound any more. No computation of it may be running. */
void gpu_bound_unbind(gpu_bound *bound);

/* Before a computation on the queue of `pool`: TDM_FAILED_PRECONDITION where the plan belongs to
 * another queue, or is not bound. */
tdm_status gpu_bound_check(const gpu_bound *bound, const gpu_scratch_pool *pool, tdm_error *err);

/* The arguments of a step's kernel: addresses and words. The plan is bound. */
void gpu_bound_args(const gpu_bound *bound, const gpu_step *step, gpu_args *args_out);

#endif
