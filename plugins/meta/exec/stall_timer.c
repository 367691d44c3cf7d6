/* SPDX-License-Identifier: MIT
 *
 * stall_timer.c: see stall_timer.h.
 */
#include "plugins/meta/exec/stall_timer.h"

#include "plugins/meta/exec/event.h"

void meta_stall_timer_begin(meta_stall_timer *timer, uint64_t now_ns) {
    timer->seen_ns = now_ns;
    timer->waited_ns = 0;
}

uint64_t meta_stall_timer_update(meta_stall_timer *timer, uint64_t now_ns) {
    uint64_t passed = now_ns - timer->seen_ns;
    timer->seen_ns = now_ns;
    timer->waited_ns += passed < META_GAP_NS ? passed : META_GAP_NS;
    return timer->waited_ns;
}

tdm_status meta_stall_timer_wait(meta_stall_timer *timer, const tdm_host *host,
                                 tdm_semaphore *semaphore, uint64_t value, uint64_t limit_ns,
                                 tdm_error *err) {
    for (;;) {
        uint64_t waited = meta_stall_timer_update(timer, meta_clock_ns()), reached = 0;
        uint64_t left = waited < limit_ns ? limit_ns - waited : 0;
        tdm_error why = {0};
        tdm_status status = host->semaphore->wait(semaphore, value,
                                                  left < META_POLL_NS ? left : META_POLL_NS, &why);
        if (status == TDM_OK) return TDM_OK;
        /* TDM_DEADLINE_EXCEEDED is also the status of a member that failed with it. query tells the
         * two apart: it fails for a semaphore that is poisoned. */
        if (status != TDM_DEADLINE_EXCEEDED || left == 0 ||
            host->semaphore->query(semaphore, &reached, NULL) != TDM_OK)
            return tdm_fail(err, status, "%s", why.message);
    }
}
