/* SPDX-License-Identifier: MIT
 *
 * words.h: the words of plugins/hip/words.h on emulated instructions. What clang defines for a
 * processor, as __gfx90a__ and __AMDGCN_WAVEFRONT_SIZE, is defined by the build.
 */
#ifndef TANDEM_SIMT_HIP_WORDS_H
#define TANDEM_SIMT_HIP_WORDS_H

#include "tests/simt/hip/builtins.h"

/* Shared memory belongs to the thread of the operating system that runs the workgroup. */
#define shared_memory vendor_shared_memory
#include "plugins/hip/words.h"
#undef shared_memory
static inline char *shared_memory() {
    return simt_lane->block->shared;
}

#include "tests/simt/entry.h"

#endif
