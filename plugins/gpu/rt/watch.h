/* SPDX-License-Identifier: MIT
 *
 * watch.h: waits for events of the driver with a timeout. The drivers' own wait has none, so a
 * thread waits in the driver, and waits with a timeout are waits for that thread. It is made when
 * it is first needed. The queue decides which computation an event belongs to.
 */
#ifndef TANDEM_GPU_RT_WATCH_H
#define TANDEM_GPU_RT_WATCH_H

#include "plugins/gpu/rt/rt.h"

typedef struct rt_watch rt_watch;

/* Released with rt_watch_destroy. */
tdm_status rt_watch_create(rt_device *device, rt_watch **watch_out, tdm_error *err);

/* No wait may be under way, and all events that were waited for must be reached, or the device
 * lost. NULL is a no-op. */
void rt_watch_destroy(rt_watch *watch);

/* Waits until `event`, the one of computation `number`, is reached: polls for some microseconds,
 * then sleeps. TDM_DEADLINE_EXCEEDED after timeout_ns. [any-thread] */
tdm_status rt_watch_wait(rt_watch *watch, void *event, uint64_t number, uint64_t timeout_ns,
                         tdm_error *err);

#endif
