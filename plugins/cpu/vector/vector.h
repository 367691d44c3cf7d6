/* SPDX-License-Identifier: MIT
 *
 * vector.h: the words that the vector kernels are written in. Files of this folder are compiled
 * once for each instruction set, with its compiler flags; the flags choose the header that defines
 * the words for it. An instruction set is added by one more header (NEON: plugins/cpu/arm) and one
 * more library in meson.build.
 */
#ifndef TANDEM_CPU_VECTOR_H
#define TANDEM_CPU_VECTOR_H

/* 1 where a file is compiled once more for activations, or queries, of 8 bits. */
#ifndef CPU_IS_Q8
#define CPU_IS_Q8 0
#endif

#if defined(__AVX512VNNI__)
#include "plugins/cpu/x86/vector_avx512.h"
#elif defined(__AVX2__)
#include "plugins/cpu/x86/vector_avx2.h"
#else
#error "no vector words for this instruction set"
#endif

#endif
