/* SPDX-License-Identifier: MIT
 *
 * rope.h: the kernels of rope.c, one set for each instruction set.
 */
#ifndef TANDEM_CPU_ROPE_H
#define TANDEM_CPU_ROPE_H

#include "plugins/cpu/cpu.h"

/* Each pair (a, b) of x becomes (a cos - b sin, a sin + b cos) in y; n_pair pairs from the given
 * first ones on. x and y are the same or do not overlap. */
typedef struct cpu_rope_kernels {
    uint32_t isa; /* CPU_ISA_* that they need */
    const char *name;
    /* Pairs (x[2i], x[2i + 1]). */
    void (*adjacent)(const float *x, float *y, const float *cos_row, const float *sin_row,
                     int64_t n_pair);
    /* Pairs (x[i], x[i + half]). */
    void (*halves)(const float *x, float *y, int64_t half, const float *cos_row,
                   const float *sin_row, int64_t n_pair);
} cpu_rope_kernels;

extern const cpu_rope_kernels cpu_rope_avx2, cpu_rope_avx512; /* vector/rope.c */

#endif
