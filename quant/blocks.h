/* SPDX-License-Identifier: MIT
 *
 * blocks.h: the row functions behind convert.h's table, a pair for each type of TDM_TYPE_LIST that
 * is not INTEGER. Internal to quant/; other folders use convert.h, which has the contract.
 */
#ifndef TANDEM_BASE_BLOCKS_H
#define TANDEM_BASE_BLOCKS_H

#include <stdint.h>

#include "tandem/type.h"

/* Plain types are in convert.c, q4_0 to q8_0 in blocks_32.c, q2_K to q6_K in blocks_k.c, iq4_nl and
 * iq4_xs in blocks_iq4.c, mxfp4, tq1_0 and tq2_0 in blocks_codes.c; of the other iq types reading
 * is in blocks_codes.c and writing in blocks_grid.c. A type without them does not link. */
#define TDM_BLOCK_ROWS_BLOCK_(name)                                                                \
    void tdm_##name##_dequantize(const void *blocks, float *dst, int64_t n);                       \
    void tdm_##name##_quantize(const float *src, void *blocks, int64_t n, const float *importance);
#define TDM_BLOCK_ROWS_FLOAT_ TDM_BLOCK_ROWS_BLOCK_
#define TDM_BLOCK_ROWS_INTEGER_(name)
#define TDM_BLOCK_ROWS_(ID, name, number, kind, ...) TDM_BLOCK_ROWS_##kind##_(name)
TDM_TYPE_LIST(TDM_BLOCK_ROWS_)
#undef TDM_BLOCK_ROWS_
#undef TDM_BLOCK_ROWS_INTEGER_
#undef TDM_BLOCK_ROWS_FLOAT_
#undef TDM_BLOCK_ROWS_BLOCK_

#endif
