/* SPDX-License-Identifier: MIT
 *
 * step_block.h: rewrites the step block for a member whose caches hold only some of the pages.
 */
#ifndef TANDEM_META_STEP_BLOCK_H
#define TANDEM_META_STEP_BLOCK_H

#include "plugins/meta/layout/partition.h"

/* Writes member d's version of `block` to `out`; both have `size` bytes and the layout of the
 * graph's step_caps. Cells of other members' pages become -1. Entries of the page tables and jobs
 * for other members' pages are left out. Page numbers become those of the member. Tokens, positions
 * and rows are unchanged. TDM_UNSUPPORTED where a page would be copied from one member to another;
 * TDM_OUT_OF_RANGE, with a name, for a page number outside pages[n_page]. [any-thread] */
tdm_status meta_step_rewrite(const tdm_graph *graph, const meta_page *pages, int64_t n_page,
                             int32_t d, const int32_t *block, uint64_t size, int32_t *out,
                             tdm_error *err);

#endif
