/* SPDX-License-Identifier: MIT
 *
 * bound.h: a plan's steps and the memory that they are bound to: the checks of bindings, and the
 * addresses that kernels get. Recording or capturing launches is the plugin's.
 */
#ifndef TANDEM_GPU_BOUND_H
#define TANDEM_GPU_BOUND_H

#include "plugins/gpu/plan/plan.h"
#include "plugins/gpu/queue/scratch.h"
#include "tandem/queue.h"

enum {
    GPU_BUFFER_ALIGN = 256 /* of bindings: operands are loaded in up to 16 bytes; lines are 128 */
};

/* Where a buffer of the plugin's lies. */
typedef struct gpu_place {
    const tdm_device *device; /* that it belongs to */
    uint64_t address;         /* the device's */
    uint64_t size;            /* bytes */
} gpu_place;

typedef struct gpu_bound {
    gpu_plan *steps;
    gpu_scratch_pool *pool; /* of the plan's queue */
    gpu_scratch *scratch;   /* of the pool; NULL = not bound, or it needs none */
    uint64_t *slots;        /* [steps->n_slot] addresses; 0 where the plan does not use the slot */
    uint64_t constants;     /* address of the steps' constants; the plugin fills it */
    uint64_t counters;      /* and of their counters */
    bool is_bound;
} gpu_bound;

/* Takes over the steps, also where it fails. Released with gpu_bound_free, which also frees the
 * steps and does nothing on a zeroed struct. */
tdm_status gpu_bound_init(gpu_bound *bound, gpu_plan *steps, gpu_scratch_pool *pool,
                          tdm_error *err);
void gpu_bound_free(gpu_bound *bound);

/* Checks bindings of buffers of `device`, notes their addresses, and takes scratch from the pool.
 * What it was bound to before is released first. After a failure it is not bound. */
tdm_status gpu_bound_bind(gpu_bound *bound, const tdm_device *device,
                          gpu_place (*place)(const tdm_buffer *buffer), const tdm_binding *bindings,
                          int32_t n_binding, tdm_error *err);

/* Releases the scratch. */
void gpu_bound_unbind(gpu_bound *bound);

/* TDM_FAILED_PRECONDITION where the plan belongs to a queue with another pool, or is not bound. */
tdm_status gpu_bound_check(const gpu_bound *bound, const gpu_scratch_pool *pool, tdm_error *err);

/* What a step's kernel is given. The plan is bound. */
void gpu_bound_args(const gpu_bound *bound, const gpu_step *step, gpu_args *args_out);

#endif
