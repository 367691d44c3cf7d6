/* SPDX-License-Identifier: MIT
 *
 * superblock.h: blocks of 256 elements that are cut between two members at a multiple of 32. Both
 * members hold the whole block, each with the other's sub-blocks masked: scale and minimum of a
 * masked sub-block are set so that its elements dequantise to 0. The bits of the member's own
 * sub-blocks are unchanged, so its products are exactly those of the whole block.
 *
 * Types: q2_K q3_K q4_K q5_K q6_K iq4_xs. Types of grid points and of trits (iq1 to iq3, tq) have
 * no scale that means 0 and are cut between blocks only. If the scale of a block is infinite or
 * NaN, the masked elements become NaN; so were all elements of that block before.
 */
#ifndef TANDEM_META_SUPERBLOCK_H
#define TANDEM_META_SUPERBLOCK_H

#include <stdbool.h>

#include "tandem/type.h"

#define META_SUPERBLOCK_UNIT 32 /* elements; a superblock may be cut at multiples of it */

/* Whether blocks of this type can be cut. [any-thread] */
bool meta_superblock_is_cuttable(tdm_type type);

/* Masks the elements outside lo .. hi-1 (multiples of 32, 0 .. 256) of a block. The type is
 * cuttable. [any-thread] */
void meta_superblock_mask(tdm_type type, void *block, int lo, int hi);

/* Copies the bits of elements lo .. hi-1 and those of the whole block from `src` to `dst`; the
 * other bits of dst are unchanged. After every element was joined from masked copies of one block,
 * dst equals that block. [any-thread] */
void meta_superblock_join(tdm_type type, void *dst, const void *src, int lo, int hi);

#endif
