/* SPDX-License-Identifier: MIT
 *
 * watch.h: waits for events of the driver with a timeout. The drivers' own wait has no timeout, so
 * a thread of the watch waits in the driver, and callers wait for that thread. The thread is
 * created when it is first needed. The queue decides which event belongs to which computation.
 */
#ifndef TANDEM_GPU_RT_WATCH_H
#define TANDEM_GPU_RT_WATCH_H

#include "plugins/gpu/rt/rt.h"

typedef struct rt_watch rt_watch;

/* Makes a watch, without a thread. Released with rt_watch_destroy. */
tdm_status rt_watch_create(rt_device *device, rt_watch **watch_out, tdm_error *err);

/* No rt_watch_wait may be running, and all events that were waited for must be reached, or the
 * device lost: it waits for the thread. NULL is a no-op. */
void rt_watch_destroy(rt_watch *watch);

/* Waits until `event`, which is recorded behind computation `number` (from 1 on), is reached: polls
 * for some microseconds, then sleeps. TDM_DEADLINE_EXCEEDED after timeout_ns. Events are reached in
 * the order of their numbers. After rt_enter. [any-thread] */
tdm_status rt_watch_wait(rt_watch *watch, void *event, uint64_t number, uint64_t timeout_ns,
                         tdm_error *err);

#endif
