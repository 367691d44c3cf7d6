/* SPDX-License-Identifier: MIT
 *
 * limits.h: the upper limits of this machine's memory reads and multiplications, whether or not a
 * kernel reaches them (tdm_device_limits in tandem/device.h), and the loops that measure them, one
 * set for each way of multiplying.
 */
#ifndef TANDEM_CPU_LIMITS_H
#define TANDEM_CPU_LIMITS_H

#include <stddef.h>

#include "plugins/cpu/cpu.h"

enum {
    CPU_LIMIT_GRAIN = 256, /* bytes that a reading loop takes from each of its two fronts */
    CPU_LIMIT_N_ACC = 16   /* sums that do not depend on each other: more than any known core has
                              in flight (latency times units), and no more than there are
                              registers */
};

/* Loops in which only the measured work takes time. Results depend on all of that work, so that a
 * compiler cannot leave any of it out. */
typedef struct cpu_limit_loops {
    const char *name; /* for people: "AVX-512 VNNI" */
    /* Reads n times CPU_LIMIT_GRAIN bytes from `a` and as many from `b`, both of which then move on
     * by `step` bytes. Addresses and step are multiples of 64. */
    uint64_t (*read)(const uint8_t *a, const uint8_t *b, size_t step, size_t n);
    /* Some tens of microseconds of multiply-adds of 8-bit integers, and of f32; *n_op_out
     * gets how many operations, two for each multiply-add. `seed` is any small number that is
     * not a constant at compile time. */
    uint64_t (*int8)(uint32_t seed, double *n_op_out);
    uint64_t (*f32)(uint32_t seed, double *n_op_out);
} cpu_limit_loops;

/* x86/limits_*.c, arm/limits_neon.c */
extern const cpu_limit_loops cpu_limit_loops_avx2, cpu_limit_loops_avx512, cpu_limit_loops_avx_vnni;
extern const cpu_limit_loops cpu_limit_loops_neon;
extern const cpu_limit_loops cpu_limit_loops_amx;
/* Those of AVX-512, which AMX has too. */
uint64_t cpu_limit_read_avx512(const uint8_t *a, const uint8_t *b, size_t step, size_t n);
uint64_t cpu_limit_f32_avx512(uint32_t seed, double *n_op_out);

/* tdm_device_ops.measure_limits, with the instruction sets that the device may use. What could not
 * be measured is 0. [setup] */
tdm_status cpu_limits_measure(cpu_device *device, tdm_device_limits *limits_out, tdm_error *err);

/* Frees the memory that cpu_limits_measure keeps from one call to the next. [setup] */
void cpu_limits_release(cpu_device *device);

#endif
