/* SPDX-License-Identifier: MIT
 *
 * member_queue.h: a member's side of a group's queue. It owns the member's own queue and semaphore,
 * and runs the member's part of a plan. queue.c decides in which order and handles failures.
 *
 * The functions without a thread tag are for one thread at a time: the member's thread while it
 * runs or submits the part, else the coordinator. The coordinator holds device->mutex during the
 * whole run.
 */
#ifndef TANDEM_META_MEMBER_QUEUE_H
#define TANDEM_META_MEMBER_QUEUE_H

#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/exec/plan.h"

typedef struct meta_member_queue {
    meta_device *device;
    int32_t d;                /* member */
    tdm_queue *queue;         /* the member's */
    tdm_semaphore *semaphore; /* NULL: made before the next run */
    uint64_t value;           /* of the last submission */
    _Atomic uint32_t n_step;  /* stages and exchanges done so far, for the watchdog */
    /* Of the current run. A thread that prepares and submits the part raises is_submitted, and the
     * coordinator then waits for the semaphore. A thread that runs all stages raises is_done. */
    _Atomic bool is_submitted, is_done;
    _Atomic bool is_abandoned; /* the thread must leave the run as soon as the driver returns */
    tdm_status status;         /* of the run, once is_done */
    tdm_error err;
} meta_member_queue;

/* Makes the member's queue. [any-thread] */
tdm_status meta_member_queue_create(meta_device *device, int32_t d, meta_member_queue *member_queue,
                                    tdm_error *err);
/* The queue of a stuck member is released once the member has ended. [any-thread] */
void meta_member_queue_destroy(meta_member_queue *member_queue);

/* Prepares for a run. Makes a new semaphore where the last was poisoned or kept by a stuck
 * member. */
tdm_status meta_member_queue_begin(meta_member_queue *member_queue, tdm_error *err);
/* Uploads the epoch, a rewritten step block, and the inputs that the member cannot read in
 * place. */
tdm_status meta_member_queue_upload(meta_member_queue *member_queue, meta_plan *plan,
                                    uint32_t epoch, tdm_error *err);
/* Submits a stage to the member's queue. The semaphore reaches member_queue->value when it is
 * done. */
tdm_status meta_member_queue_submit(meta_member_queue *member_queue, meta_plan *plan, int32_t stage,
                                    tdm_error *err);
/* Waits for the last submission, at most timeout_ns. True when it has ended; *status_out is then
 * its status. False after a timeout. */
bool meta_member_queue_wait(meta_member_queue *member_queue, uint64_t timeout_ns,
                            tdm_status *status_out, tdm_error *err);
/* Runs the whole part on the calling thread: its stages, and between them the exchanges that the
 * host performs, or the flags of exchanges in phases. Returns early when is_abandoned; the member
 * may then still be computing. */
tdm_status meta_member_queue_run(meta_member_queue *member_queue, meta_plan *plan, uint32_t epoch,
                                 tdm_error *err);

/* Fills the arguments of an EXCHANGE node of a part for the host, without the data. */
void meta_exchange_describe(const meta_part *part, int32_t node, uint32_t epoch,
                            meta_exchange_args *out);

#endif
