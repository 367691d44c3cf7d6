/* SPDX-License-Identifier: MIT
 *
 * vector.h: the words that the vector kernels are written in. Files of this folder are compiled
 * once for each instruction set, with its compiler flags; the flags choose the header that defines
 * the words for it.
 *
 *   lanes_*    a vector of N_LANE floats
 *   ints_*     a vector of N_LANE integers of 32 bits, also read as 16-bit halves
 *   bytes_*    the same vector, read as bytes
 *   quad_*     four floats; halves_*: sixteen integers of 16 bits
 *   LANES_*    names: LANES_FN(name) is a kernel's name for this instruction set
 *
 * x86/vector_avx512.h describes each word; the other headers define the same words. To add an
 * instruction set, write one such header and what LANES_MATMUL_H names, include it here, add a
 * library to meson.build, and add its rows to the tables in ops/ and kv/.
 */
#ifndef TANDEM_CPU_VECTOR_H
#define TANDEM_CPU_VECTOR_H

/* 1 where a file is compiled once more for activations, or queries, of 8 bits. */
#ifndef CPU_IS_Q8
#define CPU_IS_Q8 0
#endif
/* 1 where matmul.c is compiled once more to unpack weights for a matrix unit (panel.h). */
#ifndef CPU_IS_PANEL
#define CPU_IS_PANEL 0
#endif

#if defined(__AVX512VNNI__)
#include "plugins/cpu/x86/vector_avx512.h"
#elif defined(__AVX2__)
#include "plugins/cpu/x86/vector_avx2.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "plugins/cpu/arm/vector_neon.h"
#else
#error "no vector words for this instruction set"
#endif

#endif
