/* SPDX-License-Identifier: MIT
 *
 * norm.h: the kernels of norm.c, one set for each instruction set, on dense rows.
 */
#ifndef TANDEM_CPU_NORM_H
#define TANDEM_CPU_NORM_H

#include "plugins/cpu/cpu.h"

/* n >= 0; sources and destination do not overlap. */
typedef struct cpu_norm_kernels {
    uint32_t isa; /* CPU_ISA_* that they need */
    const char *name;
    /* sum of x[i]^2, in double: rows of 1e20 and of 1e-30 keep their norm. */
    double (*sum_sq)(const float *x, int64_t n);
    /* y = x * factor * weight; weight NULL: x * factor. */
    void (*apply)(const float *x, const float *weight, float factor, float *y, int64_t n);
    /* sum of x[i], and of (x[i] - mean)^2, in double. */
    double (*sum)(const float *x, int64_t n);
    double (*sum_sq_about)(const float *x, int64_t n, double mean);
    /* y = (x - mean) * factor * weight + bias; NULL: * 1, + 0. */
    void (*center)(const float *x, const float *weight, const float *bias, double mean,
                   float factor, float *y, int64_t n);
    /* y = exp(x - max x) / sum; a row of only -inf gives zeros, a NaN makes the row NaN. */
    void (*softmax)(const float *x, float *y, int64_t n);
} cpu_norm_kernels;

/* vector/norm.c */
extern const cpu_norm_kernels cpu_norm_avx2, cpu_norm_avx512, cpu_norm_neon;

#endif
