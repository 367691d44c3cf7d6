/* SPDX-License-Identifier: MIT
 *
 * limits_neon.c: the machine's limits with NEON: loads, SDOT and FMLA.
 *
 * Intrinsics instead of the words of vector/: a limit is the rate of one instruction, so the loops
 * name it.
 */
#include <arm_neon.h>

#include "plugins/cpu/machine/limits.h"

enum { N_STEP = 5000 };

static uint64_t limit_read(const uint8_t *a, const uint8_t *b, size_t step, size_t n) {
    enum { N = CPU_LIMIT_GRAIN / 16 };
    uint8x16_t acc[N];
    for (int i = 0; i < N; i++) acc[i] = vdupq_n_u8(0);
    for (; n > 0; n--, a += step, b += step)
        for (int i = 0; i < N; i++)
            acc[i] ^= vld1q_u8(a + 16 * (size_t)i) ^ vld1q_u8(b + 16 * (size_t)i);
    for (int i = 1; i < N; i++) acc[0] ^= acc[i];
    return vaddlvq_u8(acc[0]);
}

static uint64_t limit_int8(uint32_t seed, double *n_op_out) {
    const int8x16_t x = vdupq_n_s8((int8_t)seed), w = vdupq_n_s8((int8_t)(seed + 1));
    int32x4_t acc[CPU_LIMIT_N_ACC];
    for (int i = 0; i < CPU_LIMIT_N_ACC; i++) acc[i] = vdupq_n_s32(i);
    for (int n = 0; n < N_STEP; n++)
        for (int i = 0; i < CPU_LIMIT_N_ACC; i++) acc[i] = vdotq_s32(acc[i], x, w);
    for (int i = 1; i < CPU_LIMIT_N_ACC; i++) acc[0] = vaddq_s32(acc[0], acc[i]);
    *n_op_out = 2.0 * 16 * CPU_LIMIT_N_ACC * N_STEP;
    return (uint64_t)(uint32_t)vaddvq_s32(acc[0]);
}

/* Sums stay near 2: nothing becomes infinite or denormal, which some cores are slow at. */
static uint64_t limit_f32(uint32_t seed, double *n_op_out) {
    const float32x4_t half = vdupq_n_f32(0.5f), one = vdupq_n_f32((float)seed);
    float32x4_t acc[CPU_LIMIT_N_ACC];
    for (int i = 0; i < CPU_LIMIT_N_ACC; i++) acc[i] = vdupq_n_f32((float)i);
    for (int n = 0; n < N_STEP; n++)
        for (int i = 0; i < CPU_LIMIT_N_ACC; i++) acc[i] = vfmaq_f32(one, acc[i], half);
    for (int i = 1; i < CPU_LIMIT_N_ACC; i++) acc[0] = vaddq_f32(acc[0], acc[i]);
    *n_op_out = 2.0 * 4 * CPU_LIMIT_N_ACC * N_STEP;
    return (uint64_t)vaddvq_f32(acc[0]);
}

const cpu_limit_loops cpu_limit_loops_neon = {"NEON", limit_read, limit_int8, limit_f32};
