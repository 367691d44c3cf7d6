/* SPDX-License-Identifier: MIT
 *
 * rope.h: the rotation of rope.c for single rows, and its kernels, one set for each instruction
 * set.
 */
#ifndef TANDEM_CPU_ROPE_H
#define TANDEM_CPU_ROPE_H

#include "plugins/cpu/cpu.h"

/* cos and sin of the angle of each pair at `pos`, times mscale (op.h); pairs n_rot / 2. `factor` is
 * f32 [n_rot / 2] with any stride, or absent. with_mscale false: mscale counts as 1 (KV_SHIFT). */
void cpu_rope_angles(const tdm_rope_params *params, const cpu_view *factor, int32_t pos,
                     bool with_mscale, float *cos_out, float *sin_out);
/* Turns the params->n_rot elements at x + rope_offset in place by such angles. */
void cpu_rope_turn(const tdm_rope_params *params, const float *cos_row, const float *sin_row,
                   float *x);

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

/* vector/rope.c */
extern const cpu_rope_kernels cpu_rope_avx2, cpu_rope_avx512, cpu_rope_neon;

#endif
