/* SPDX-License-Identifier: MIT
 *
 * quantize_row.h: activations as the kernels of quantised weights take them: codes with a scale for
 * each 32 elements, or bf16, in one of the formats below. Each format has one function per
 * instruction set, and all give the same bits.
 *
 * Rationale. Codes of 8 bits halve the multiplications, but the NMSE of next-token probabilities
 * reaches 6.3e-4 (docs/accuracy.md) in models where each layer changes the residual stream much
 * (tied random models, text unlike the training data). Prompts are limited by multiplications:
 * their tokens have 8 bits by default. Decoding is limited by reading weights: generated tokens
 * have 15. The option activation-bits gives all tokens the same.
 */
#ifndef TANDEM_CPU_QUANTIZE_ROW_H
#define TANDEM_CPU_QUANTIZE_ROW_H

#include "plugins/cpu/cpu.h"

/* Elements of a block; largest codes. */
enum { CPU_X_LEN = 32, CPU_Q15_MAX = 127 * 128, CPU_Q8_MAX = 127 };

typedef enum cpu_x_format {
    CPU_X_F32,       /* floats, where they are */
    CPU_X_Q15,       /* cpu_q15_block with q */
    CPU_X_Q15_BYTES, /* cpu_q15_block with hi and lo, which are multiplied apart */
    CPU_X_Q8,        /* cpu_q8_block */
    CPU_X_BF16       /* cpu_panel_x of cpu_bf16_block (panel.h) */
} cpu_x_format;

/* What kernels need of the sum of 16 or 32 codes: `sum` where code_offset is 0, else `bias`. */
typedef union cpu_x_sum {
    int32_t bias; /* minus the kernel's code_offset times the sum of q */
    float sum;    /* d times the sum of q: what a minimum multiplies (code_offset 0) */
} cpu_x_sum;

typedef struct cpu_x_scale {
    float d;
    cpu_x_sum half[2]; /* of the elements 0 .. 15, and of 16 .. 31 */
    cpu_x_sum all;
} cpu_x_scale;

/* x[i] ~ d * q[i] with |q[i]| <= CPU_Q15_MAX or CPU_Q8_MAX and d = max |x| over that. A block that
 * holds a NaN or an infinity has d = NaN and codes 0, so that what is multiplied with it becomes
 * NaN; a block whose largest magnitude is below 2^-100 counts as zeros (its reciprocal scale would
 * overflow). */
typedef struct cpu_q15_block {
    union {
        int16_t q[CPU_X_LEN];
        struct { /* q[i] = 128 * hi[i] + lo[i], |hi[i]| <= 127, -64 <= lo[i] <= 63 */
            int8_t hi[CPU_X_LEN];
            int8_t lo[CPU_X_LEN];
        };
    };
    cpu_x_scale s;
} cpu_q15_block;

typedef struct cpu_q8_block {
    int8_t q[CPU_X_LEN];
    cpu_x_scale s;
} cpu_q8_block;

/* Each element rounded to bf16, to nearest, ties to even. Magnitudes below 2^-126 become zeros, and
 * NaN stays NaN, as the instruction does it. */
typedef struct cpu_bf16_block {
    uint16_t x[CPU_X_LEN];
} cpu_bf16_block;

/* Fills the sums of a block whose d is set; sum_lo and sum_hi are those of the codes. */
static inline void cpu_x_sums_set(cpu_x_scale *s, int32_t sum_lo, int32_t sum_hi,
                                  int32_t code_offset) {
    if (code_offset == 0) {
        s->half[0].sum = s->d * (float)sum_lo;
        s->half[1].sum = s->d * (float)sum_hi;
        s->all.sum = s->d * (float)(sum_lo + sum_hi);
    } else {
        s->half[0].bias = -code_offset * sum_lo;
        s->half[1].bias = -code_offset * sum_hi;
        s->all.bias = -code_offset * (sum_lo + sum_hi);
    }
}

/* The scale of a block with codes 0: 0 if it counts as zeros, NaN if an element is not finite. */
cpu_x_scale cpu_x_scale_empty(bool is_bad, int32_t code_offset);

/* Bytes of a block of that format; 0 for floats. */
size_t cpu_x_block_size(cpu_x_format format);

/* Quantises n (a multiple of 32) contiguous elements into n / 32 blocks. code_offset is what the
 * kernel's unsigned weight codes are too large by, 0 for none; see cpu_x_sum. */
typedef void (*cpu_quantize_row_fn)(const float *x, int64_t n, int32_t code_offset, void *blocks);

/* The fastest function that a device with these CPU_ISA_ flags may use for that format, which is
 * not CPU_X_F32. [any-thread] */
cpu_quantize_row_fn cpu_quantize_row_get(uint32_t isa, cpu_x_format format);

void cpu_quantize_row_q15_plain(const float *x, int64_t n, int32_t code_offset, void *blocks);
void cpu_quantize_row_q15_bytes_plain(const float *x, int64_t n, int32_t code_offset, void *blocks);
void cpu_quantize_row_q8_plain(const float *x, int64_t n, int32_t code_offset, void *blocks);
void cpu_round_row_bf16_plain(const float *x, int64_t n, int32_t code_offset, void *blocks);
void cpu_quantize_row_q15_avx2(const float *x, int64_t n, int32_t code_offset, void *blocks);
void cpu_quantize_row_q8_avx2(const float *x, int64_t n, int32_t code_offset, void *blocks);
void cpu_quantize_row_q15_bytes_avx512(const float *x, int64_t n, int32_t code_offset,
                                       void *blocks);
void cpu_quantize_row_q8_avx512(const float *x, int64_t n, int32_t code_offset, void *blocks);
void cpu_round_row_bf16_amx(const float *x, int64_t n, int32_t code_offset, void *blocks);
void cpu_quantize_row_q15_bytes_neon(const float *x, int64_t n, int32_t code_offset, void *blocks);
void cpu_quantize_row_q8_neon(const float *x, int64_t n, int32_t code_offset, void *blocks);

#endif
