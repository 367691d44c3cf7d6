/* SPDX-License-Identifier: MIT
 *
 * quantize_row.c: the plain C activation quantiser and the table that chooses one.
 */
#include <math.h>
#include <string.h>

#include "plugins/cpu/quantize_row.h"

void cpu_quantize_row_plain(const float *x, int64_t n, int32_t code_offset, cpu_q15_block *out) {
    for (int64_t b = 0; b < n / CPU_Q15_LEN; b++, x += CPU_Q15_LEN, out++) {
        float largest = 0;
        bool is_finite = true;
        for (int i = 0; i < CPU_Q15_LEN; i++) {
            float magnitude = fabsf(x[i]);
            is_finite &= magnitude <= 3.402823466e38f; /* false for NaN too */
            largest = magnitude > largest ? magnitude : largest;
        }
        memset(out, 0, sizeof *out);
        if (!is_finite) {
            out->d = NAN;
            if (code_offset == 0) out->half[0].sum = out->half[1].sum = out->all.sum = NAN;
            continue;
        }
        if (largest < 0x1p-100f) continue;
        float inverse = CPU_Q15_MAX / largest;
        int32_t sum[2] = {0, 0};
        out->d = largest / CPU_Q15_MAX;
        for (int i = 0; i < CPU_Q15_LEN; i++) {
            int32_t q = (int32_t)nearbyintf(x[i] * inverse); /* to nearest, ties to even */
            int32_t hi = (q + 64) >> 7;
            out->hi[i] = (int8_t)hi;
            out->lo[i] = (int8_t)(q - 128 * hi);
            sum[i / 16] += q;
        }
        cpu_q15_sums_set(out, sum[0], sum[1], code_offset);
    }
}

typedef struct row {
    uint32_t isa;
    cpu_quantize_row_fn run;
} row;

/* First row whose instruction sets the device may use wins. NEON's row goes between x86's and the
 * last. */
static const row rows[] = {
#if defined(__x86_64__)
    {CPU_ISA_AVX512, cpu_quantize_row_avx512},
    {CPU_ISA_AVX2, cpu_quantize_row_avx2},
#endif
    {0, cpu_quantize_row_plain},
};

cpu_quantize_row_fn cpu_quantize_row_get(uint32_t isa) {
    const row *r = rows;
    while ((r->isa & ~isa) != 0) r++;
    return r->run;
}
