/* SPDX-License-Identifier: MIT
 *
 * member_queue.h: one member's end of a group's queue: the member's own queue, and running the member's
 * part of a plan on it. In which order, and what when a member fails, is queue.c's.
 */
#ifndef TANDEM_META_MEMBER_QUEUE_H
#define TANDEM_META_MEMBER_QUEUE_H

#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/exec/plan.h"

typedef struct meta_member_queue {
    meta_device *device;
    int32_t d;                /* member */
    tdm_queue *queue;         /* the member's */
    tdm_semaphore *semaphore; /* NULL: to be made anew before the next run */
    uint64_t value;           /* last one promised */
    _Atomic uint32_t n_step;  /* grows with every stage and exchange done, for the watchdog */
    _Atomic bool is_done;     /* with the run under way */
    tdm_status status;        /* of the run, once is_done */
    tdm_error err;
} meta_member_queue;

/* Makes the member's queue. [any-thread] */
tdm_status meta_member_queue_create(meta_device *device, int32_t d, meta_member_queue *member_queue,
                                    tdm_error *err);
/* What a stuck member still uses stays. [any-thread] */
void meta_member_queue_destroy(meta_member_queue *member_queue);

/* Makes the member_queue ready for a run: a fresh semaphore where the last was poisoned or given away. */
tdm_status meta_member_queue_begin(meta_member_queue *member_queue, tdm_error *err);
/* Uploads what the member cannot read where the caller has it: step block, epoch, inputs. */
tdm_status meta_member_queue_upload(meta_member_queue *member_queue, meta_plan *plan,
                                    uint32_t epoch, tdm_error *err);
/* Appends a stage to the member's queue; member_queue->value is reached when it is done. */
tdm_status meta_member_queue_submit(meta_member_queue *member_queue, meta_plan *plan, int32_t stage,
                                    tdm_error *err);
/* Waits for what was submitted, at most timeout_ns. True when it is done or failed, with the outcome
 * in *status_out. */
bool meta_member_queue_wait(meta_member_queue *member_queue, uint64_t timeout_ns,
                            tdm_status *status_out, tdm_error *err);
/* Runs the whole part on the calling thread, exchanges of the host's included. Leaves early, with
 * the member perhaps still at work, when *is_given_up. */
tdm_status meta_member_queue_run(meta_member_queue *member_queue, meta_plan *plan, uint32_t epoch,
                                 const _Atomic bool *is_given_up, tdm_error *err);

/* An EXCHANGE node of a part as the host would do it, without its data. */
void meta_exchange_describe(const meta_part *part, int32_t node, uint32_t epoch,
                            meta_exchange_args *out);

/* Bytes from a view's first element to behind its last. */
uint64_t meta_view_span(const tdm_value *value, const tdm_view_place *place);

#endif
