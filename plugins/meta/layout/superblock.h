/* SPDX-License-Identifier: MIT
 *
 * superblock.h: blocks of 256 elements of which two members each use a part, cut at multiples of
 * 32. Each keeps the whole block with the other's sub-blocks silenced: their scales and minimums
 * are such that they dequantise to 0, and all that belongs to the kept ones stays as it was.
 *
 * Types: q2_K q3_K q4_K q5_K q6_K iq4_xs. Those of grid points and of trits (iq1 to iq3, tq) have no
 * scale that is 0, and are cut between blocks only. A scale of the whole block that is infinite or NaN makes
 * a silenced sub-block NaN, as it made all of the block before.
 */
#ifndef TANDEM_META_SUPERBLOCK_H
#define TANDEM_META_SUPERBLOCK_H

#include <stdbool.h>

#include "tandem/type.h"

#define META_SUPERBLOCK_UNIT 32 /* elements; where a superblock may be cut */

/* Whether blocks of this type can be cut. [any-thread] */
bool meta_superblock_is_cuttable(tdm_type type);

/* Silences the elements outside lo .. hi-1 (multiples of 32, 0 .. 256) of the block at `block`,
 * which is of a cuttable type. [any-thread] */
void meta_superblock_silence(tdm_type type, void *block, int lo, int hi);

/* Writes what belongs to elements lo .. hi-1 of the block `src` into the block `dst`, and what
 * belongs to the block as a whole; the rest of dst stays. When every element has been joined, from
 * blocks that came of one by silencing, dst is that one again. [any-thread] */
void meta_superblock_join(tdm_type type, void *dst, const void *src, int lo, int hi);

#endif
