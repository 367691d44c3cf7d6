/* SPDX-License-Identifier: MIT
 *
 * apportion.c: divides indivisible items by shares, once or repeatedly.
 *
 * Each member first gets the integer part of its quota. The rest is assigned one item at a time by
 * the rule of R. Tijdeman ("The chairman assignment problem", Discrete Mathematics 32, 1980): among
 * the members that are owed enough, the one whose debt would be the first to reach a whole item. A
 * single division gives the result of the largest-remainder method, except for near ties. When
 * divisions are repeated and the debts are carried over, no member is ever a whole item away from
 * its due, for any number of members. The largest-remainder method does not guarantee that.
 */
#include <math.h>

#include "plugins/meta/layout/partition.h"

/* Differences smaller than this are rounding errors: 0.3 and 3 * 0.1 count as equal. */
static const double noise = 1e-9;

int32_t meta_apportion_next(int32_t n_member, const double *share, double *carry) {
    int32_t n_active = 0, best = -1, richest = -1;
    double total = 0, best_wait = 0, least;
    for (int32_t d = 0; d < n_member; d++) {
        if (!(share[d] > 0)) continue;
        n_active++;
        total += share[d];
    }
    least = n_active > 1 ? 1.0 / (2 * n_active - 2) : 0;
    for (int32_t d = 0; d < n_member; d++) {
        if (!(share[d] > 0)) continue;
        double rate = share[d] / total, wait;
        carry[d] += rate;
        if (richest < 0 || carry[d] > carry[richest] + noise) richest = d;
        if (carry[d] < least - noise) continue;
        wait = (1 - least - carry[d]) / rate;
        if (best >= 0 && wait >= best_wait - noise) continue;
        best = d;
        best_wait = wait;
    }
    /* No member is owed `least`, which can happen where the carries of these members add up to less
     * than 0: the one that is owed most. */
    if (best < 0) best = richest;
    if (best >= 0) carry[best] -= 1;
    return best;
}

void meta_apportion(int64_t n_part, int64_t granule, int32_t n_member, const double *share,
                    double *carry, int64_t *lo_out, int64_t *hi_out) {
    double total = 0, rest[TDM_MAX_MEMBERS] = {0}, owed[TDM_MAX_MEMBERS] = {0}, rest_total = 0;
    int64_t count[TDM_MAX_MEMBERS] = {0}, n_left, at = 0;
    for (int32_t d = 0; d < n_member; d++) {
        lo_out[d] = hi_out[d] = 0;
        if (share[d] > 0) total += share[d];
    }
    if (n_part == 0 || !(total > 0)) return;
    if (granule > n_part) granule = n_part;
    n_left = (n_part + granule - 1) / granule;
    for (int32_t d = 0; d < n_member; d++) {
        if (!(share[d] > 0)) continue;
        double quota = share[d] / total * (double)n_part / (double)granule;
        count[d] = (int64_t)floor(quota + noise);
        rest[d] = quota - (double)count[d] > noise ? quota - (double)count[d] : 0;
        rest_total += rest[d];
        owed[d] = carry[d] / (double)granule;
        n_left -= count[d];
    }
    for (; n_left > 0; n_left--)
        count[meta_apportion_next(n_member, rest_total > 0 ? rest : share, owed)]++;
    for (int32_t d = 0; d < n_member; d++) {
        int64_t end = at + count[d] * granule;
        if (!(share[d] > 0)) continue;
        if (end > n_part) end = n_part; /* the last granule may be short */
        carry[d] += share[d] / total * (double)n_part - (double)(end - at);
        if (end == at) continue;
        lo_out[d] = at;
        hi_out[d] = at = end;
    }
}
