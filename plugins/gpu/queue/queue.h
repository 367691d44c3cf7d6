/* SPDX-License-Identifier: MIT
 *
 * queue.h: the queue of a GPU plugin: submits computations to the driver in the order in which they
 * were given, each when all of its waits are reached, and connects their signals with the driver's
 * own wait.
 *
 * Which thread submits a computation: the caller of gpu_queue_compute where nothing is left to wait
 * for; else the thread that signals the last of its waits; where the driver's own queue is full, a
 * thread of this queue. A thread that waits for one of its signals waits in the driver. The
 * functions of a gpu_queue_driver submit and wait. The plugin owns plans, scratch and commands.
 */
#ifndef TANDEM_GPU_QUEUE_H
#define TANDEM_GPU_QUEUE_H

#include "plugins/gpu/plan/work.h"
#include "tandem/queue.h"

/* Data of the driver's functions about a submitted computation: submit fills it, wait reads it. */
typedef struct gpu_ticket {
    uint64_t value; /* the value of the driver's counter that says that it is done */
    double start;   /* seconds on a clock of the driver's; 0 = unknown */
    gpu_work_range work; /* of its steps */
    uint32_t run;   /* a number of the driver's functions; 0 = it has none */
} gpu_ticket;

/* The plugin's functions. They get the context that the queue was made with, which outlives the
 * queue. On a lost device every call fails. */
typedef struct gpu_queue_driver {
    /* Submits `work` behind all that was submitted before, and fills the ticket. After a failure
     * nothing of it runs. Called by one thread at a time. */
    tdm_status (*submit)(void *context, void *work, gpu_ticket *ticket_out, tdm_error *err);

    /* Waits until the computation has ended, and returns how: TDM_DEADLINE_EXCEEDED after
     * timeout_ns (UINT64_MAX = without limit). Several threads may call it at the same time, for
     * the same computation too. */
    tdm_status (*wait)(void *context, const gpu_ticket *ticket, uint64_t timeout_ns,
                       tdm_error *err);

    /* True where `submit` of `work` may wait for execution, because the driver takes a bounded
     * number of commands: then a thread of the queue submits it, so that no caller waits. NULL =
     * submit never waits. Called by the thread that would submit. */
    bool (*is_full)(void *context, void *work);
} gpu_queue_driver;

typedef struct gpu_queue gpu_queue;

/* Makes a queue. `name` is the device's, for messages; it is copied. `semaphore` and `driver` must
 * outlive the queue and all signals of its computations. TDM_RESOURCE_EXHAUSTED without memory.
 * Released with gpu_queue_destroy. [any-thread] */
tdm_status gpu_queue_create(const char *name, const tdm_host_semaphore_ops *semaphore,
                            const gpu_queue_driver *driver, void *context, gpu_queue **queue_out,
                            tdm_error *err);

/* Waits until all computations have ended, or the device is lost, and destroys. When it returns, no
 * call of the driver's functions is running and none follows: threads that still wait for a signal
 * get the computation's status, which was stored. NULL is a no-op. [any-thread] */
void gpu_queue_destroy(gpu_queue *queue);

/* Appends a computation, as tdm_queue_ops.graph_compute says; `work` is the plan, which the caller
 * has checked. [queue-serial] */
tdm_status gpu_queue_compute(gpu_queue *queue, void *work, const tdm_point *waits, int32_t n_wait,
                             const tdm_point *signals, int32_t n_signal, tdm_error *err);

#endif
