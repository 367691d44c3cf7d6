/* SPDX-License-Identifier: MIT
 *
 * step_block.h: the step block as a member sees it whose caches hold some of the pages only.
 */
#ifndef TANDEM_META_STEP_BLOCK_H
#define TANDEM_META_STEP_BLOCK_H

#include "plugins/meta/layout/partition.h"

/* Writes to `out` what member d must see of `block` (size bytes both, laid out by graph's
 * step_caps): cells of its own pages, -1 for the others; its own entries of the page tables; jobs on
 * its own pages. Pages become the member's own numbers; tokens, positions and rows stay.
 * TDM_UNSUPPORTED where a copy would go from one member to another; TDM_OUT_OF_RANGE names what does
 * not fit pages[n_page]. [any-thread] */
tdm_status meta_step_rewrite(const tdm_graph *graph, const meta_page *pages, int64_t n_page,
                             int32_t d, const int32_t *block, uint64_t size, int32_t *out,
                             tdm_error *err);

#endif
