/* SPDX-License-Identifier: MIT
 *
 * words.h: the words of plugins/cuda/words.h on emulated instructions. __CUDA_ARCH__ is defined by
 * the build.
 */
#ifndef TANDEM_SIMT_CUDA_WORDS_H
#define TANDEM_SIMT_CUDA_WORDS_H

#include "tests/simt/cuda/ptx.h"

#include "plugins/cuda/words.h"

#include "tests/simt/entry.h"

#endif
