/* SPDX-License-Identifier: MIT
 *
 * hadamard.c: the fast Walsh-Hadamard transform, see hadamard.h.
 */
#include "plugins/cpu/hadamard.h"

#include <math.h>

/* y = H x / sqrt(n) with H[i][j] = (-1)^popcount(i & j): log2(n) passes of butterflies. Each
 * element is the result of one addition per pass, whatever the vector width, hence the same bits
 * on every machine. */
static void rotate_block(float *restrict x, int32_t n) {
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

void cpu_hadamard(float *x, int32_t n, int32_t block) {
    if (block <= 1) return;
    for (int32_t i = 0; i < n; i += block) rotate_block(x + i, block);
}
