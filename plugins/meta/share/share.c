/* SPDX-License-Identifier: MIT
 *
 * share.c: the share of the work of each member, from the options or from what the members report
 * (bandwidth, threads). It measures nothing; solve.c does.
 */
#include "plugins/meta/share/share.h"

typedef double (*share_measure)(const meta_member *member);

static double by_bandwidth(const meta_member *member) {
    return member->bandwidth > 0 ? member->bandwidth : (double)member->info.bandwidth;
}

static double by_threads(const meta_member *member) {
    return member->info.n_thread;
}

static double all_alike(const meta_member *member) {
    (void)member;
    return 1;
}

/* False where a member does not report this number. Shares are computed from one kind of number for
 * all members, or not at all. */
static bool shares_try(meta_device *device, share_measure measure, double *shares) {
    for (int32_t d = 0; d < device->n_member; d++) {
        shares[d] = measure(&device->members[d]);
        if (!(shares[d] > 0)) return false;
    }
    return true;
}

void meta_share_fill(meta_device *device) {
    double shares[TDM_MAX_MEMBERS], sum = 0;
    if (!device->options.is_share_auto)
        memcpy(shares, device->options.shares, sizeof shares);
    else if (!shares_try(device, by_bandwidth, shares) && !shares_try(device, by_threads, shares))
        (void)shares_try(device, all_alike, shares);
    for (int32_t d = 0; d < device->n_member; d++) sum += shares[d];
    for (int32_t d = 0; d < device->n_member; d++) device->members[d].share = shares[d] / sum;
}
