/* SPDX-License-Identifier: MIT
 *
 * queue.h: the queue of a GPU plugin: runs computations in the order in which they were given.
 *
 * The caller submits a computation, or the thread that reaches the last point that it waits for.
 * Where the driver's own queue is full, a thread of this queue submits it. A thread that waits for
 * its signals waits in the driver. A gpu_queue_driver of the plugin submits and waits. Plans,
 * scratch and commands are the plugin's.
 */
#ifndef TANDEM_GPU_QUEUE_H
#define TANDEM_GPU_QUEUE_H

#include "plugins/gpu/plan/work.h"
#include "tandem/queue.h"

/* What the driver remembers of a computation between submitting it and waiting for it. */
typedef struct gpu_ticket {
    uint64_t value; /* of the driver's counter when it is done */
    double start;   /* seconds on a clock of the driver's; 0 = unknown */
    gpu_work work;  /* of its steps */
    uint32_t run;   /* a number of the driver's; 0 = it has none */
} gpu_ticket;

/* Calls get the context that the queue was made with, which outlives the queue. A lost device fails
 * every call. */
typedef struct gpu_queue_driver {
    /* Submits `work` behind all that was submitted before, and fills the ticket. Called by one
     * thread at a time. */
    tdm_status (*submit)(void *context, void *work, gpu_ticket *ticket_out, tdm_error *err);

    /* Returns when the computation is done; TDM_DEADLINE_EXCEEDED after timeout_ns (UINT64_MAX =
     * none). Called by several threads at a time, also of the same computation. */
    tdm_status (*wait)(void *context, const gpu_ticket *ticket, uint64_t timeout_ns,
                       tdm_error *err);

    /* Whether `submit` of `work` may wait for execution, since the driver takes a bounded number of
     * commands. A thread of the queue submits it then, so that no caller waits. NULL = submit never
     * waits. Called by the thread that submits. */
    bool (*is_full)(void *context, void *work);
} gpu_queue_driver;

typedef struct gpu_queue gpu_queue;

/* `name` is the device's, for messages. Released with gpu_queue_destroy. [any-thread] */
tdm_status gpu_queue_create(const char *name, const tdm_host_semaphore_ops *semaphore,
                            const gpu_queue_driver *driver, void *context, gpu_queue **queue_out,
                            tdm_error *err);

/* Waits until all work is done, or the device lost. No call of the driver is under way when it
 * returns, and none follows. NULL is a no-op. [any-thread] */
void gpu_queue_destroy(gpu_queue *queue);

/* Appends a computation of `work`, as tdm_queue_ops.graph_compute says. The caller has checked the
 * plan. [queue-serial] */
tdm_status gpu_queue_compute(gpu_queue *queue, void *work, const tdm_point *waits, int32_t n_wait,
                             const tdm_point *signals, int32_t n_signal, tdm_error *err);

#endif
