/* SPDX-License-Identifier: MIT
 *
 * arith.h: the kernels of arith.c, one set for each instruction set. They take dense rows; what is
 * strided or repeated along ne[0] stays with arith.c.
 */
#ifndef TANDEM_CPU_ARITH_H
#define TANDEM_CPU_ARITH_H

#include "plugins/cpu/cpu.h"

/* Sources and destination do not overlap; n >= 0. An element's result does not depend on n or on
 * its place in the row. */
typedef struct cpu_arith_kernels {
    uint32_t isa; /* CPU_ISA_* that they need */
    const char *name;
    /* `op` is one of two sources, such as ADD. */
    void (*pair)(int32_t op, const float *a, const float *b, float *y, int64_t n);
    /* The node's op is one of one source with its parameters, such as SCALE. */
    void (*map)(const tdm_node *node, const float *x, float *y, int64_t n);
    /* act(x) * up; up NULL: act(x). */
    void (*glu)(tdm_act act, const float *x, const float *up, float *y, int64_t n);
} cpu_arith_kernels;

/* vector/arith.c */
extern const cpu_arith_kernels cpu_arith_avx2, cpu_arith_avx512, cpu_arith_neon;

/* The formulas of op.h with every operation in double, rounded once: the oracle. */
float cpu_act_reference(tdm_act act, float x);

/* act(x) in f32, for kernels that have no vectors for `act`. */
float cpu_act_plain(tdm_act act, float x);

#endif
