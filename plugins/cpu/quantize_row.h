/* SPDX-License-Identifier: MIT
 *
 * quantize_row.h: activations as the integer kernels take them: codes of 15 bits, in two bytes that
 * are multiplied apart, with a scale for each 32 elements. One function per instruction set, all
 * giving the same bits.
 *
 * Rationale. Codes of 8 bits would halve the multiplications, and where the stream of a model does
 * not drown what a layer adds (tied random models, text unlike the training data) they cost up to
 * 4e-4 of the probabilities' energy, twice what is allowed. Decoding waits for weights, not for
 * multiplications.
 */
#ifndef TANDEM_CPU_QUANTIZE_ROW_H
#define TANDEM_CPU_QUANTIZE_ROW_H

#include "plugins/cpu/cpu.h"

enum { CPU_Q15_LEN = 32, CPU_Q15_MAX = 127 * 128 };

/* x[i] ~ d * q[i] with q[i] = 128 * hi[i] + lo[i], |q[i]| <= 16256, |hi[i]| <= 127,
 * -64 <= lo[i] <= 63 and d = max |x| / 16256. A block that holds a NaN or an infinity has d = NaN and
 * codes 0, so that what is multiplied with it becomes NaN; a block whose largest
 * magnitude is below 2^-100 counts as zeros (its reciprocal scale would overflow). */
typedef union cpu_q15_sum {
    int32_t bias; /* minus the kernel's code_offset times the sum of q */
    float sum;    /* d times the sum of q: what a minimum multiplies (code_offset 0) */
} cpu_q15_sum;

typedef struct cpu_q15_block {
    int8_t hi[CPU_Q15_LEN];
    int8_t lo[CPU_Q15_LEN];
    float d;
    cpu_q15_sum half[2]; /* of the elements 0 .. 15, and of 16 .. 31 */
    cpu_q15_sum all;
} cpu_q15_block;

/* Fills the sums of a block whose d is set; sum_lo and sum_hi are those of the codes. */
static inline void cpu_q15_sums_set(cpu_q15_block *block, int32_t sum_lo, int32_t sum_hi,
                                    int32_t code_offset) {
    if (code_offset == 0) {
        block->half[0].sum = block->d * (float)sum_lo;
        block->half[1].sum = block->d * (float)sum_hi;
        block->all.sum = block->d * (float)(sum_lo + sum_hi);
    } else {
        block->half[0].bias = -code_offset * sum_lo;
        block->half[1].bias = -code_offset * sum_hi;
        block->all.bias = -code_offset * (sum_lo + sum_hi);
    }
}

/* Quantises n (a multiple of 32) contiguous elements into n / 32 blocks. code_offset is what the
 * kernel's unsigned weight codes are too large by; 0: fill `sum` instead of `bias`. */
typedef void (*cpu_quantize_row_fn)(const float *x, int64_t n, int32_t code_offset,
                                    cpu_q15_block *out);

/* The fastest function that a device with these CPU_ISA_ flags may use. [any-thread] */
cpu_quantize_row_fn cpu_quantize_row_get(uint32_t isa);

void cpu_quantize_row_plain(const float *x, int64_t n, int32_t code_offset, cpu_q15_block *out);
void cpu_quantize_row_avx2(const float *x, int64_t n, int32_t code_offset, cpu_q15_block *out);
void cpu_quantize_row_avx512(const float *x, int64_t n, int32_t code_offset, cpu_q15_block *out);

#endif
