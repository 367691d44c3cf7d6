/* SPDX-License-Identifier: MIT
 *
 * quantize_row_neon.c: the quantisers of quantize_row.c for NEON, bit for bit.
 */
#include <arm_neon.h>

#include "plugins/cpu/ops/quantize_row.h"
#include "plugins/cpu/vector/unroll.h"

enum { N_QUAD = CPU_X_LEN / 4 };

/* The codes of 32 elements, four in each register. */
INLINE cpu_x_scale codes_get(const float *x, float limit, int32_t code_offset,
                             int32x4_t codes[N_QUAD]) {
    float32x4_t v[N_QUAD], largest4 = vdupq_n_f32(0);
    uint32x4_t finite = vdupq_n_u32(~0u);
    UNROLL
    for (int i = 0; i < N_QUAD; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        float32x4_t magnitude = vabsq_f32(v[i]);
        /* false for infinities and NaN */
        finite &= vcleq_f32(magnitude, vdupq_n_f32(3.402823466e38f));
        largest4 = vmaxnmq_f32(largest4, magnitude);
    }
    bool is_bad = vminvq_u32(finite) == 0;
    float largest = vmaxvq_f32(largest4);
    if (is_bad || largest < 0x1p-100f) {
        for (int i = 0; i < N_QUAD; i++) codes[i] = vdupq_n_s32(0);
        return cpu_x_scale_empty(is_bad, code_offset);
    }
    float32x4_t inverse = vdupq_n_f32(limit / largest);
    int32x4_t sum[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    UNROLL
    for (int i = 0; i < N_QUAD; i++) {
        codes[i] = vcvtnq_s32_f32(vmulq_f32(v[i], inverse));
        sum[i / 4] = vaddq_s32(sum[i / 4], codes[i]);
    }
    cpu_x_scale s = {.d = largest / limit};
    cpu_x_sums_set(&s, vaddvq_s32(sum[0]), vaddvq_s32(sum[1]), code_offset);
    return s;
}

/* The numbers of four registers as bytes. */
INLINE int8x16_t bytes_pack(const int32x4_t x[4]) {
    int16x8_t low = vmovn_high_s32(vmovn_s32(x[0]), x[1]);
    int16x8_t high = vmovn_high_s32(vmovn_s32(x[2]), x[3]);
    return vmovn_high_s16(vmovn_s16(low), high);
}

void cpu_quantize_row_q15_bytes_neon(const float *x, int64_t n, int32_t code_offset, void *blocks) {
    cpu_q15_block *out = blocks;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        int32x4_t codes[N_QUAD], hi[N_QUAD], lo[N_QUAD];
        out->s = codes_get(x, CPU_Q15_MAX, code_offset, codes);
        UNROLL
        for (int i = 0; i < N_QUAD; i++) {
            hi[i] = vrshrq_n_s32(codes[i], 7);
            lo[i] = vsubq_s32(codes[i], vshlq_n_s32(hi[i], 7));
        }
        for (int i = 0; i < 2; i++) {
            vst1q_s8(out->hi + 16 * i, bytes_pack(hi + 4 * i));
            vst1q_s8(out->lo + 16 * i, bytes_pack(lo + 4 * i));
        }
    }
}

void cpu_quantize_row_q8_neon(const float *x, int64_t n, int32_t code_offset, void *blocks) {
    cpu_q8_block *out = blocks;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        int32x4_t codes[N_QUAD];
        out->s = codes_get(x, CPU_Q8_MAX, code_offset, codes);
        for (int i = 0; i < 2; i++) vst1q_s8(out->q + 16 * i, bytes_pack(codes + 4 * i));
    }
}
