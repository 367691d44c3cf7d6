/* SPDX-License-Identifier: MIT
 *
 * stall_timer.c: see stall_timer.h.
 */
#include "plugins/meta/exec/stall_timer.h"

#include "plugins/meta/exec/event.h"

void meta_patience_begin(meta_patience *p, uint64_t now_ns) {
    p->seen_ns = now_ns;
    p->waited_ns = 0;
}

uint64_t meta_patience_look(meta_patience *p, uint64_t now_ns) {
    uint64_t passed = now_ns - p->seen_ns;
    p->seen_ns = now_ns;
    p->waited_ns += passed < META_GAP_NS ? passed : META_GAP_NS;
    return p->waited_ns;
}

tdm_status meta_patience_wait(meta_patience *p, const tdm_host *host, tdm_semaphore *semaphore,
                              uint64_t value, uint64_t limit_ns, tdm_error *err) {
    for (;;) {
        uint64_t waited = meta_patience_look(p, meta_clock_ns()), reached = 0;
        uint64_t left = waited < limit_ns ? limit_ns - waited : 0;
        tdm_error why = {0};
        tdm_status status = host->semaphore->wait(semaphore, value,
                                                  left < META_LOOK_NS ? left : META_LOOK_NS, &why);
        if (status == TDM_OK) return TDM_OK;
        /* The status is also that of a member that failed with it. */
        if (status != TDM_DEADLINE_EXCEEDED || left == 0 ||
            host->semaphore->query(semaphore, &reached, NULL) != TDM_OK)
            return tdm_fail(err, status, "%s", why.message);
    }
}
