/* SPDX-License-Identifier: MIT
 *
 * quantize_row.c: the plain C activation quantisers and the table that chooses one.
 */
#include <math.h>
#include <string.h>

#include "plugins/cpu/ops/quantize_row.h"

cpu_x_scale cpu_x_scale_empty(bool is_bad, int32_t code_offset) {
    cpu_x_scale s = {0};
    if (is_bad) s.d = NAN;
    if (is_bad && code_offset == 0) s.half[0].sum = s.half[1].sum = s.all.sum = NAN;
    return s;
}

size_t cpu_x_block_size(cpu_x_format format) {
    switch (format) {
    case CPU_X_F32: return 0;
    case CPU_X_Q8: return sizeof(cpu_q8_block);
    case CPU_X_BF16: return sizeof(cpu_bf16_block);
    default: return sizeof(cpu_q15_block);
    }
}

/* The codes of 32 elements, of magnitude `limit` at most, with their scale and sums. */
static cpu_x_scale codes_get(const float *x, float limit, int32_t code_offset,
                             int32_t codes[CPU_X_LEN]) {
    float largest = 0;
    bool is_finite = true;
    for (int i = 0; i < CPU_X_LEN; i++) {
        float magnitude = fabsf(x[i]);
        is_finite &= magnitude <= 3.402823466e38f; /* false for NaN too */
        largest = magnitude > largest ? magnitude : largest;
    }
    memset(codes, 0, CPU_X_LEN * sizeof *codes);
    if (!is_finite || largest < 0x1p-100f) return cpu_x_scale_empty(!is_finite, code_offset);
    float inverse = limit / largest;
    int32_t sum[2] = {0, 0};
    cpu_x_scale s = {.d = largest / limit};
    for (int i = 0; i < CPU_X_LEN; i++) {
        codes[i] = (int32_t)nearbyintf(x[i] * inverse); /* to nearest, ties to even */
        sum[i / 16] += codes[i];
    }
    cpu_x_sums_set(&s, sum[0], sum[1], code_offset);
    return s;
}

void cpu_quantize_row_q15_plain(const float *x, int64_t n, int32_t code_offset, void *blocks) {
    cpu_q15_block *out = blocks;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        int32_t codes[CPU_X_LEN];
        out->s = codes_get(x, CPU_Q15_MAX, code_offset, codes);
        for (int i = 0; i < CPU_X_LEN; i++) out->q[i] = (int16_t)codes[i];
    }
}

void cpu_quantize_row_q15_bytes_plain(const float *x, int64_t n, int32_t code_offset,
                                      void *blocks) {
    cpu_q15_block *out = blocks;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        int32_t codes[CPU_X_LEN];
        out->s = codes_get(x, CPU_Q15_MAX, code_offset, codes);
        for (int i = 0; i < CPU_X_LEN; i++) {
            int32_t hi = (codes[i] + 64) >> 7;
            out->hi[i] = (int8_t)hi;
            out->lo[i] = (int8_t)(codes[i] - 128 * hi);
        }
    }
}

void cpu_quantize_row_q8_plain(const float *x, int64_t n, int32_t code_offset, void *blocks) {
    cpu_q8_block *out = blocks;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        int32_t codes[CPU_X_LEN];
        out->s = codes_get(x, CPU_Q8_MAX, code_offset, codes);
        for (int i = 0; i < CPU_X_LEN; i++) out->q[i] = (int8_t)codes[i];
    }
}

static uint16_t bf16_round(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40);
    if (fabsf(x) < 0x1p-126f) return (uint16_t)(bits >> 16 & 0x8000);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void cpu_round_row_bf16_plain(const float *x, int64_t n, int32_t code_offset, void *blocks) {
    cpu_bf16_block *out = blocks;
    (void)code_offset;
    for (int64_t i = 0; i < n; i++) out[i / CPU_X_LEN].x[i % CPU_X_LEN] = bf16_round(x[i]);
}

typedef struct row {
    uint32_t isa;
    cpu_x_format format;
    cpu_quantize_row_fn run;
} row;

/* The first row of a format that the device may use is chosen. */
static const row rows[] = {
#if defined(__x86_64__)
    {CPU_ISA_AMX, CPU_X_BF16, cpu_round_row_bf16_amx},
    {CPU_ISA_AVX512, CPU_X_Q15_BYTES, cpu_quantize_row_q15_bytes_avx512},
    {CPU_ISA_AVX512, CPU_X_Q8, cpu_quantize_row_q8_avx512},
    {CPU_ISA_AVX2, CPU_X_Q15, cpu_quantize_row_q15_avx2},
    {CPU_ISA_AVX2, CPU_X_Q8, cpu_quantize_row_q8_avx2},
#elif defined(__aarch64__)
    {CPU_ISA_NEON, CPU_X_Q15_BYTES, cpu_quantize_row_q15_bytes_neon},
    {CPU_ISA_NEON, CPU_X_Q8, cpu_quantize_row_q8_neon},
#endif
    {0, CPU_X_Q15, cpu_quantize_row_q15_plain},
    {0, CPU_X_Q15_BYTES, cpu_quantize_row_q15_bytes_plain},
    {0, CPU_X_Q8, cpu_quantize_row_q8_plain},
    {0, CPU_X_BF16, cpu_round_row_bf16_plain},
};

cpu_quantize_row_fn cpu_quantize_row_get(uint32_t isa, cpu_x_format format) {
    const row *r = rows;
    while (r->format != format || (r->isa & ~isa) != 0) r++;
    return r->run;
}
