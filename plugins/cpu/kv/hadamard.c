/* SPDX-License-Identifier: MIT
 *
 * hadamard.c: the fast Walsh-Hadamard transform in plain C, and the table of its kernels.
 */
#include "plugins/cpu/kv/hadamard.h"

#include <math.h>

#include "plugins/cpu/cpu.h"

/* y = H x / sqrt(n) with H[i][j] = (-1)^popcount(i & j): log2(n) passes of butterflies. Each
 * element is the result of one addition per pass, whatever the vector width, hence the same bits
 * on every machine. */
static void rotate_block(float *x, int32_t n) {
    for (int32_t half = 1; half < n; half *= 2) {
        for (int32_t i = 0; i < n; i += 2 * half) {
            for (int32_t j = i; j < i + half; j++) {
                float a = x[j], b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
        }
    }
    float norm = 1 / sqrtf((float)n);
    for (int32_t i = 0; i < n; i++) x[i] *= norm;
}

void cpu_hadamard_plain(float *x, int32_t n, int32_t block) {
    if (block <= 1) return;
    for (int32_t i = 0; i < n; i += block) rotate_block(x + i, block);
}

static const struct {
    uint32_t isa;
    cpu_hadamard_fn fn;
    const char *name;
} rows[] = {
#if defined(__x86_64__)
    {CPU_ISA_AVX512, cpu_hadamard_avx512, "hadamard_avx512"},
    {CPU_ISA_AVX2, cpu_hadamard_avx2, "hadamard_avx2"},
#elif defined(__aarch64__)
    {CPU_ISA_NEON, cpu_hadamard_neon, "hadamard_neon"},
#endif
    {0, cpu_hadamard_plain, "hadamard_plain"},
};

cpu_hadamard_fn cpu_hadamard_choose(uint32_t isa) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((rows[i].isa & ~isa) == 0) return rows[i].fn;
    return cpu_hadamard_plain;
}
