/* SPDX-License-Identifier: MIT
 *
 * codes.h: reads blocks of the types whose elements are a scale times a small integer:
 *   x[i] = scale[i / 16] * (float)code[i]      the formula of tandem/block.h, to the bit
 * (of iq1, where v + o is a multiple of an eighth, the code is 8 * (v + o) and the scale an eighth
 * of the type's). The dequantisers of these types and the kernels that compute with codes call
 * this.
 */
#ifndef TANDEM_BASE_CODES_H
#define TANDEM_BASE_CODES_H

#include <stdint.h>

#include "tandem/block.h"

/* Reads one block. |code| <= 62, so that the sum of two products of codes with signed bytes fits
 * into 16 bits. `scale` has one number for each 16 elements. [any-thread] */
typedef void (*tdm_codes_fn)(const void *block, int8_t code[TDM_SUPERBLOCK_LEN],
                             float scale[TDM_SUPERBLOCK_LEN / 16]);

/* mxfp4, nvfp4, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq1_s, iq1_m, tq1_0 and tq2_0; NULL for
 * other types. One block, of 32 elements (mxfp4), 64 (nvfp4) or 256. [any-thread] */
tdm_codes_fn tdm_codes_get(tdm_type type);

#endif
