/* SPDX-License-Identifier: MIT
 *
 * blocks.h: the row functions behind convert.h's table, one pair for each quantised type. Internal
 * to core/base; everyone else goes through convert.h, where the contract is.
 */
#ifndef TANDEM_BASE_BLOCKS_H
#define TANDEM_BASE_BLOCKS_H

#include <stdint.h>

#define TDM_BLOCK_ROWS_(name)                                                                      \
    void tdm_##name##_dequantize(const void *blocks, float *dst, int64_t n);                       \
    void tdm_##name##_quantize(const float *src, void *blocks, int64_t n, const float *importance)

/* blocks_32.c */
TDM_BLOCK_ROWS_(q4_0);
TDM_BLOCK_ROWS_(q4_1);
TDM_BLOCK_ROWS_(q5_0);
TDM_BLOCK_ROWS_(q5_1);
TDM_BLOCK_ROWS_(q8_0);
/* blocks_k.c */
TDM_BLOCK_ROWS_(q2_K);
TDM_BLOCK_ROWS_(q3_K);
TDM_BLOCK_ROWS_(q4_K);
TDM_BLOCK_ROWS_(q5_K);
TDM_BLOCK_ROWS_(q6_K);
/* blocks_iq4.c */
TDM_BLOCK_ROWS_(iq4_nl);
TDM_BLOCK_ROWS_(iq4_xs);
/* blocks_codes.c */
TDM_BLOCK_ROWS_(mxfp4);
TDM_BLOCK_ROWS_(tq1_0);
TDM_BLOCK_ROWS_(tq2_0);
/* blocks_codes.c (reading), blocks_grid.c */
TDM_BLOCK_ROWS_(iq2_xxs);
TDM_BLOCK_ROWS_(iq2_xs);
TDM_BLOCK_ROWS_(iq2_s);
TDM_BLOCK_ROWS_(iq3_xxs);
TDM_BLOCK_ROWS_(iq3_s);
TDM_BLOCK_ROWS_(iq1_s);
TDM_BLOCK_ROWS_(iq1_m);

#undef TDM_BLOCK_ROWS_

#endif
