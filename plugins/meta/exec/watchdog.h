/* SPDX-License-Identifier: MIT
 *
 * watchdog.h: detects that a run makes no progress and names the members that hold it up. queue.c
 * decides what follows.
 */
#ifndef TANDEM_META_WATCHDOG_H
#define TANDEM_META_WATCHDOG_H

#include "plugins/meta/exec/member_queue.h"
#include "plugins/meta/exec/stall_timer.h"

typedef struct meta_watchdog {
    uint64_t progress;            /* a sum that changes when a member makes progress */
    meta_stall_timer stall_timer; /* since the last progress */
} meta_watchdog;

void meta_watchdog_begin(meta_watchdog *watchdog);
/* True when no member has made progress for the `timeout` of the group's options. To be called at
 * least every META_POLL_NS. */
bool meta_watchdog_is_late(meta_watchdog *watchdog, const meta_device *device,
                           const meta_member_queue *member_queues, int32_t n_member_queue);
/* The failure of a run that timed out: TDM_DEADLINE_EXCEEDED, with the names of the members that
 * the others wait for and the first exchange that they have not reached. */
tdm_status meta_watchdog_report(const meta_plan *plan, uint32_t epoch,
                                const meta_member_queue *member_queues, int32_t n_member_queue,
                                tdm_error *err);
/* How far member d has come in a run, for messages: "before exchange 5 ('blk.2.attn_out')". Returns
 * text. */
const char *meta_watchdog_place(const meta_plan *plan, uint32_t epoch, int32_t d, char *text,
                                size_t text_size);

#endif
