/* SPDX-License-Identifier: MIT
 *
 * pages.c: which member holds each page of a cache that is cut by sequence.
 */
#include "plugins/meta/layout/partition.h"

void meta_pages_assign(const meta_device *device, int64_t n_page, meta_page *page_table_out,
                       int64_t *n_local_out) {
    double share[TDM_MAX_MEMBERS], carry[TDM_MAX_MEMBERS] = {0};
    for (int32_t d = 0; d < device->n_member; d++) {
        share[d] = device->members[d].share;
        n_local_out[d] = 0;
    }
    for (int64_t i = 0; i < n_page; i++) {
        int32_t owner = meta_apportion_next(device->n_member, share, carry);
        page_table_out[i] = (meta_page){.owner = owner, .local = (int32_t)n_local_out[owner]++};
    }
}
