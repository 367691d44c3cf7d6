/* SPDX-License-Identifier: MIT
 *
 * words.h: the words of plugins/cuda/words.h on emulated instructions. __CUDA_ARCH__ is defined by
 * the build.
 */
#ifndef TANDEM_SIMT_CUDA_WORDS_H
#define TANDEM_SIMT_CUDA_WORDS_H

#include "tests/simt/cuda/ptx.h"

/* Shared memory belongs to the thread of the operating system that runs the workgroup. */
#define shared_memory vendor_shared_memory
#include "plugins/cuda/words.h"
#undef shared_memory
static inline char *shared_memory() {
    return simt_lane->block->shared;
}

#include "tests/simt/entry.h"

#endif
