/* SPDX-License-Identifier: MIT
 *
 * watchdog.h: noticing that a run does not move, and saying whose fault that is. What is done about
 * it is queue.c's.
 */
#ifndef TANDEM_META_WATCHDOG_H
#define TANDEM_META_WATCHDOG_H

#include "plugins/meta/exec/member_queue.h"
#include "plugins/meta/exec/stall_timer.h"

typedef struct meta_watchdog {
    uint64_t progress; /* of all members, as a number that only moves when one of them does */
    meta_stall_timer stall_timer; /* since it moved last */
} meta_watchdog;

void meta_watchdog_begin(meta_watchdog *dog);
/* True when nothing has moved for as long as the group's options allow. member_queues[n_member_queue]. Called every
 * META_POLL_NS at least. */
bool meta_watchdog_is_late(meta_watchdog *dog, const meta_device *device,
                           const meta_member_queue *member_queues, int32_t n_member_queue);
/* The failure to report of a run that is late: TDM_DEADLINE_EXCEEDED, naming the members that are
 * waited for and the first exchange that they have not come to. */
tdm_status meta_watchdog_blame(const meta_plan *plan, uint32_t epoch,
                               const meta_member_queue *member_queues, int32_t n_member_queue,
                               tdm_error *err);
/* Where member d is in a run, for messages: "before exchange 5 ('blk.2.attn_out')"; returns text. */
const char *meta_watchdog_place(const meta_plan *plan, uint32_t epoch, int32_t d, char *text,
                                size_t text_size);

/* Takes note of members that came back since they were given up, and releases what was left to
 * them. True when none is missing. Under device->mutex, or when closing. */
bool meta_stuck_members_settle(meta_device *device);

#endif
