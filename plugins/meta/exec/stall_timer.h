/* SPDX-License-Identifier: MIT
 *
 * stall_timer.h: how long a member has been waited for. Time in which this process itself stood still
 * (Ctrl-Z, a debugger, a host that took the machine away) is nobody's silence: who waits looks at the
 * clock every META_LOOK_NS, and of what passes between two looks no more than META_GAP_NS counts.
 */
#ifndef TANDEM_META_PATIENCE_H
#define TANDEM_META_PATIENCE_H

#include "tandem/host.h"

#define META_LOOK_NS UINT64_C(50000000)
#define META_GAP_NS  (2 * META_LOOK_NS)

typedef struct meta_patience {
    uint64_t seen_ns;   /* when the clock was looked at last */
    uint64_t waited_ns; /* what counts of the time since it began */
} meta_patience;

/* now_ns is meta_clock_ns(); look returns waited_ns, which never falls. */
void meta_patience_begin(meta_patience *p, uint64_t now_ns);
uint64_t meta_patience_look(meta_patience *p, uint64_t now_ns);

/* Waits like the host's semaphores do, until p has waited limit_ns in all. [any-thread] */
tdm_status meta_patience_wait(meta_patience *p, const tdm_host *host, tdm_semaphore *semaphore,
                              uint64_t value, uint64_t limit_ns, tdm_error *err);

#endif
