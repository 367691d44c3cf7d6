/* SPDX-License-Identifier: MIT
 *
 * matrix.c: see matrix.h.
 */
#include "tests/simt/matrix.h"

#include <math.h>
#include <string.h>

enum { MAX_SIDE = 16, MAX_DEPTH = 32, POISON = 0x5eadbeef };

/* ---- NVIDIA: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions" ------------------- */

/* "Matrix Fragments for mma.m8n8k16": groupID = laneid >> 2, threadID_in_group = laneid % 4. */
static simt_place m8n8k16_a(uint32_t lane, uint32_t i) {
    return (simt_place){lane >> 2, lane % 4 * 4 + i};
}
static simt_place m8n8k16_b(uint32_t lane, uint32_t i) {
    return (simt_place){lane % 4 * 4 + i, lane >> 2};
}
static simt_place m8n8k16_c(uint32_t lane, uint32_t i) {
    return (simt_place){lane >> 2, lane % 4 * 2 + i};
}

/* "Matrix Fragments for mma.m16n8k16 with integer type". */
static simt_place m16n8k16_a(uint32_t lane, uint32_t i) {
    return (simt_place){i < 4 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 4 + (i & 3)};
}
static simt_place m16n8k16_b(uint32_t lane, uint32_t i) {
    return (simt_place){lane % 4 * 4 + i, lane >> 2};
}
static simt_place m16n8k16_c(uint32_t lane, uint32_t i) {
    return (simt_place){i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1)};
}

/* "Matrix Fragments for mma.m16n8k8" and "mma.m16n8k16 with floating point type", .f16; c of both
 * as above. */
static simt_place m16n8k8_f16_a(uint32_t lane, uint32_t i) {
    return (simt_place){i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1)};
}
static simt_place m16n8k8_f16_b(uint32_t lane, uint32_t i) {
    return (simt_place){lane % 4 * 2 + i, lane >> 2};
}
static simt_place m16n8k16_f16_a(uint32_t lane, uint32_t i) {
    return (simt_place){i < 2 || (i >= 4 && i < 6) ? lane >> 2 : (lane >> 2) + 8,
                        lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
static simt_place m16n8k16_f16_b(uint32_t lane, uint32_t i) {
    return (simt_place){lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane >> 2};
}

/* ---- AMD: the AMD Matrix Instruction Calculator; of gfx12 GPUOpen, "Using the Matrix Cores of AMD
 * RDNA 4 architecture GPUs" -------------------------------------------------------------------- */

/* V_WMMA_I32_16X16X16_IU8 of gfx11, wave32. A[i][k] lies in register k / 4, byte k % 4, of lanes i
 * and i + 16; B[k][j] likewise in lanes j and j + 16. D[i][j]: register i / 2, lane
 * 16 * (i % 2) + j. */
static simt_place wmma_gfx11_a(uint32_t lane, uint32_t i) {
    return (simt_place){lane % 16, i};
}
static simt_place wmma_gfx11_b(uint32_t lane, uint32_t i) {
    return (simt_place){i, lane % 16};
}
static simt_place wmma_gfx11_c(uint32_t lane, uint32_t i) {
    return (simt_place){2 * i + lane / 16, lane % 16};
}

/* The same of gfx12. The lanes from 16 on have the upper half of the depth, and of D the rows from
 * 8 on. */
static simt_place wmma_gfx12_a(uint32_t lane, uint32_t i) {
    return (simt_place){lane % 16, lane < 16 ? i : 8 + i};
}
static simt_place wmma_gfx12_b(uint32_t lane, uint32_t i) {
    return (simt_place){lane < 16 ? i : 8 + i, lane % 16};
}
static simt_place wmma_gfx12_c(uint32_t lane, uint32_t i) {
    return (simt_place){lane < 16 ? i : 8 + i, lane % 16};
}

/* V_MFMA_I32_16X16X16I8 of gfx908 and gfx90a. A[i][k]: byte k % 4 of lane 16 * (k / 4) + i;
 * B[k][j]: byte k % 4 of lane 16 * (k / 4) + j. D[i][j]: register i % 4 of lane 16 * (i / 4) +
 * j. */
static simt_place mfma_16x16x16_a(uint32_t lane, uint32_t i) {
    return (simt_place){lane % 16, lane / 16 * 4 + i};
}
static simt_place mfma_16x16x16_b(uint32_t lane, uint32_t i) {
    return (simt_place){lane / 16 * 4 + i, lane % 16};
}
static simt_place mfma_c(uint32_t lane, uint32_t i) {
    return (simt_place){lane / 16 * 4 + i, lane % 16};
}

/* V_MFMA_I32_16X16X32_I8 of gfx940 to gfx942: two registers, of eight elements of the depth. */
static simt_place mfma_16x16x32_a(uint32_t lane, uint32_t i) {
    return (simt_place){lane % 16, lane / 16 * 8 + i};
}
static simt_place mfma_16x16x32_b(uint32_t lane, uint32_t i) {
    return (simt_place){lane / 16 * 8 + i, lane % 16};
}

/* V_WMMA_F32_16X16X16_F16 of gfx11 and gfx12, and V_MFMA_F32_16X16X16F16 of gfx908 to gfx942:
 * elements lie as those of bytes, with halves for bytes. */

/* ---- Execution ------------------------------------------------------------------------------- */

/* An element of a matrix; has: a lane has given it. */
typedef struct element {
    int32_t value;
    bool has;
} element;

/* Sets an element; false where another lane has given other bits for it. */
static bool element_put(element *e, int32_t value) {
    bool is_same = !e->has || e->value == value;
    *e = (element){value, true};
    return is_same;
}

static int32_t byte_of(const uint32_t *words, uint32_t i) {
    return (int8_t)(words[i / 4] >> i % 4 * 8);
}

static int32_t half_of(const uint32_t *words, uint32_t i) {
    return (int32_t)(words[i / 2] >> i % 2 * 16 & 0xffff);
}

static float half_value(int32_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                 : exponent == 0 ? ldexpf((float)fraction, -24)
                                 : ldexpf((float)(1024 + fraction), exponent - 25);
    return (bits & 0x8000) != 0 ? -size : size;
}

static float float_of(int32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void matrix_run(const simt_collective *base, uint32_t n_lane,
                       uint32_t (*registers)[SIMT_REGISTERS]) {
    const simt_matrix *m = (const simt_matrix *)base;
    element a[MAX_SIDE][MAX_DEPTH], b[MAX_DEPTH][MAX_SIDE], c[MAX_SIDE][MAX_SIDE];
    const uint32_t in_word = m->is_f16 ? 2 : 4;
    int32_t (*element_of)(const uint32_t *words, uint32_t i) = m->is_f16 ? half_of : byte_of;
    bool is_good = true;
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    memset(c, 0, sizeof c);
    for (uint32_t lane = 0; lane < n_lane; lane++) {
        const uint32_t *of_a = registers[lane], *of_b = of_a + m->a_words;
        const uint32_t *of_c = of_b + m->b_words;
        for (uint32_t i = 0; i < in_word * m->a_words; i++) {
            simt_place at = m->a(lane, i);
            is_good &= element_put(&a[at.row][at.column], element_of(of_a, i));
        }
        for (uint32_t i = 0; i < in_word * m->b_words; i++) {
            simt_place at = m->b(lane, i);
            is_good &= element_put(&b[at.row][at.column], element_of(of_b, i));
        }
        for (uint32_t i = 0; i < m->c_words; i++) {
            simt_place at = m->c(lane, i);
            is_good &= element_put(&c[at.row][at.column], (int32_t)of_c[i]);
        }
    }
    for (uint32_t lane = 0; lane < n_lane; lane++)
        for (uint32_t i = 0; i < m->c_words; i++) {
            simt_place at = m->c(lane, i);
            uint32_t sum = (uint32_t)c[at.row][at.column].value;
            float float_sum = float_of(c[at.row][at.column].value);
            for (uint32_t k = 0; k < m->n_depth && m->is_f16; k++)
                float_sum = fmaf(half_value(a[at.row][k].value), half_value(b[k][at.column].value),
                                 float_sum);
            if (m->is_f16) sum = bits_of(float_sum);
            for (uint32_t k = 0; k < m->n_depth && !m->is_f16; k++)
                sum += (uint32_t)(a[at.row][k].value * b[k][at.column].value);
            registers[lane][m->a_words + m->b_words + i] = is_good ? sum : POISON;
        }
}

void simt_matrix_execute(const simt_matrix *m, const uint32_t *a, const uint32_t *b, int32_t *c) {
    uint32_t registers[SIMT_REGISTERS], *at = registers;
    memcpy(at, a, m->a_words * sizeof *at);
    memcpy(at += m->a_words, b, m->b_words * sizeof *at);
    memcpy(at += m->b_words, c, m->c_words * sizeof *at);
    simt_wave_execute(&m->base, registers, m->a_words + m->b_words + m->c_words);
    memcpy(c, at, m->c_words * sizeof *c);
}

/* ---- The table ------------------------------------------------------------------------------- */

/* Symbol, name, lanes, rows, columns, depth, words of a, b, c, functions. */
#define MATRIX(symbol, text, lanes, m, n, k, of_a, of_b, of_c, at_a, at_b, at_c)                   \
    const simt_matrix symbol = {                                                                   \
        {text, lanes, matrix_run}, m, n, k, of_a, of_b, of_c, at_a, at_b, at_c, false};
#define MATRIX_F16(symbol, text, lanes, m, n, k, of_a, of_b, of_c, at_a, at_b, at_c)               \
    const simt_matrix symbol = {                                                                   \
        {text, lanes, matrix_run}, m, n, k, of_a, of_b, of_c, at_a, at_b, at_c, true};
MATRIX(simt_mma_m8n8k16, "mma.m8n8k16", 32, 8, 8, 16, 1, 1, 2, m8n8k16_a, m8n8k16_b, m8n8k16_c)
MATRIX(simt_mma_m16n8k16, "mma.m16n8k16", 32, 16, 8, 16, 2, 1, 4, m16n8k16_a, m16n8k16_b,
       m16n8k16_c)
MATRIX(simt_wmma_gfx11, "v_wmma_i32_16x16x16_iu8 of gfx11", 32, 16, 16, 16, 4, 4, 8, wmma_gfx11_a,
       wmma_gfx11_b, wmma_gfx11_c)
MATRIX(simt_wmma_gfx12, "v_wmma_i32_16x16x16_iu8 of gfx12", 32, 16, 16, 16, 2, 2, 8, wmma_gfx12_a,
       wmma_gfx12_b, wmma_gfx12_c)
MATRIX(simt_mfma_16x16x16, "v_mfma_i32_16x16x16i8", 64, 16, 16, 16, 1, 1, 4, mfma_16x16x16_a,
       mfma_16x16x16_b, mfma_c)
MATRIX(simt_mfma_16x16x32, "v_mfma_i32_16x16x32_i8", 64, 16, 16, 32, 2, 2, 4, mfma_16x16x32_a,
       mfma_16x16x32_b, mfma_c)
MATRIX_F16(simt_mma_m16n8k8_f16, "mma.m16n8k8 of f16", 32, 16, 8, 8, 2, 1, 4, m16n8k8_f16_a,
           m16n8k8_f16_b, m16n8k16_c)
MATRIX_F16(simt_mma_m16n8k16_f16, "mma.m16n8k16 of f16", 32, 16, 8, 16, 4, 2, 4, m16n8k16_f16_a,
           m16n8k16_f16_b, m16n8k16_c)
MATRIX_F16(simt_wmma_gfx11_f16, "v_wmma_f32_16x16x16_f16 of gfx11", 32, 16, 16, 16, 8, 8, 8,
           wmma_gfx11_a, wmma_gfx11_b, wmma_gfx11_c)
MATRIX_F16(simt_wmma_gfx12_f16, "v_wmma_f32_16x16x16_f16 of gfx12", 32, 16, 16, 16, 4, 4, 8,
           wmma_gfx12_a, wmma_gfx12_b, wmma_gfx12_c)
MATRIX_F16(simt_mfma_16x16x16_f16, "v_mfma_f32_16x16x16f16", 64, 16, 16, 16, 2, 2, 4,
           mfma_16x16x16_a, mfma_16x16x16_b, mfma_c)

const simt_matrix *const simt_matrices[] = {
    &simt_mma_m8n8k16,    &simt_mma_m16n8k16,   &simt_wmma_gfx11,        &simt_wmma_gfx12,
    &simt_mfma_16x16x16,  &simt_mfma_16x16x32,  &simt_mma_m16n8k8_f16,   &simt_mma_m16n8k16_f16,
    &simt_wmma_gfx11_f16, &simt_wmma_gfx12_f16, &simt_mfma_16x16x16_f16, NULL};
