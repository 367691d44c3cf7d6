/* SPDX-License-Identifier: MIT
 *
 * test_block_layout.c: the bytes of every block have the meaning that tandem/block.h gives and
 * llama.cpp reads. Two methods: single bits set by hand in a neutral block, and stored hashes of
 * what ggml's functions read from pseudo-random blocks.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/support/random.h"

enum { MAX_LEN = 256, MAX_SIZE = 256 };

static void test_sizes_agree_with_type_h(void **state) {
    (void)state;
    static const struct {
        tdm_type type;
        size_t size;
        int len;
    } rows[] = {
#define SIZE_BLOCK(ID, name, len) {TDM_TYPE_##ID, sizeof(tdm_block_##name), len},
#define SIZE_FLOAT(ID, name, len)
#define SIZE_INTEGER(ID, name, len)
#define SIZE_(ID, name, number, kind, len, size) SIZE_##kind(ID, name, len)
        TDM_TYPE_LIST(SIZE_)};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tdm_type_info info = tdm_type_get_info(rows[i].type);
        assert_int_equal(info.block_size, rows[i].size);
        assert_int_equal(info.block_len, rows[i].len);
        assert_int_equal(tdm_type_row_size(rows[i].type, 4 * rows[i].len), 4 * rows[i].size);
    }
}

/* A block in which all elements are equal. f16: 1.0 is 3c00, 0.5 is 3800. */
static float make_neutral(tdm_type type, uint8_t *b) {
    memset(b, 0, MAX_SIZE);
    switch ((int)type) {
    case TDM_TYPE_Q4_0: b[1] = 0x3c; return -8;
    case TDM_TYPE_Q4_1: b[1] = 0x3c, b[3] = 0x38; return 0.5f;
    case TDM_TYPE_Q5_0: b[1] = 0x3c; return -16;
    case TDM_TYPE_Q5_1: b[1] = 0x3c, b[3] = 0x38; return 0.5f;
    case TDM_TYPE_Q8_0: b[1] = 0x3c; return 0;
    case TDM_TYPE_IQ4_NL: b[1] = 0x3c; return -127;
    case TDM_TYPE_Q2_K: /* all scales 1, minimums 0; dmin = 0.5 */
        memset(b, 0x01, 16);
        b[81] = 0x3c, b[83] = 0x38;
        return 0;
    case TDM_TYPE_Q3_K: /* all scales 33, that is 1; no 4 subtracted */
        memset(b, 0xff, 32);
        memset(b + 96, 0x11, 8);
        memset(b + 104, 0xaa, 4);
        b[109] = 0x3c;
        return 0;
    case TDM_TYPE_Q4_K: /* all scales 1, minimums 0; dmin = 0.5 */
    case TDM_TYPE_Q5_K:
        b[1] = 0x3c, b[3] = 0x38;
        memset(b + 4, 0x01, 4);
        memset(b + 12, 0x01, 4);
        return 0;
    case TDM_TYPE_Q6_K:
        memset(b + 192, 0x01, 16);
        b[209] = 0x3c;
        return -32;
    case TDM_TYPE_IQ4_XS: /* all scales 33, that is 1 */
        b[1] = 0x3c, b[2] = 0xaa, b[3] = 0xaa;
        memset(b + 4, 0x11, 4);
        return -127;
    case TDM_TYPE_MXFP4: b[0] = 128; return 0; /* steps of E2M1's halves are 1 */
    case TDM_TYPE_NVFP4: memset(b, 0x40, 4); return 0; /* the same: 2 in E4M3, halved */
    case TDM_TYPE_IQ2_XXS:                     /* the first point, (8, ...), times 0.5 / 4 */
    case TDM_TYPE_IQ2_XS:
    case TDM_TYPE_IQ2_S: b[1] = 0x3c; return 1;
    case TDM_TYPE_IQ3_XXS: b[1] = 0x3c; return 1; /* (4, ...) times 0.5 / 2 */
    case TDM_TYPE_IQ3_S: b[1] = 0x3c; return 1;
    case TDM_TYPE_IQ1_S: b[1] = 0x3c; return -0.875f; /* (-1, ...) and an eighth */
    case TDM_TYPE_IQ1_M: b[55] = 0x30, b[53] = 0xc0; return -0.875f;
    case TDM_TYPE_TQ1_0: b[53] = 0x3c; return -1;
    case TDM_TYPE_TQ2_0: b[65] = 0x3c; return -1;
    default: return 0;
    }
}

/* Flip `mask` in byte `at` of the neutral block: elements first … first + n - 1 become `value`, and
 * no other changes. */
typedef struct probe {
    tdm_type type;
    int at;
    uint8_t mask;
    int first, n;
    float value;
} probe;

static const probe probes[] = {
    {TDM_TYPE_Q4_0, 2, 0x01, 0, 1, -7},
    {TDM_TYPE_Q4_0, 2, 0x10, 16, 1, -7},
    {TDM_TYPE_Q4_0, 17, 0x0f, 15, 1, 7},
    {TDM_TYPE_Q4_0, 17, 0x80, 31, 1, 0},
    {TDM_TYPE_Q4_0, 1, 0x04, 0, 32, -4}, /* d = 0.5 */
    {TDM_TYPE_Q4_1, 4, 0x02, 0, 1, 2.5f},
    {TDM_TYPE_Q4_1, 19, 0x40, 31, 1, 4.5f},
    {TDM_TYPE_Q4_1, 3, 0x80, 0, 32, -0.5f}, /* m = -0.5 */
    {TDM_TYPE_Q5_0, 2, 0x01, 0, 1, 0},
    {TDM_TYPE_Q5_0, 3, 0x80, 15, 1, 0},
    {TDM_TYPE_Q5_0, 4, 0x01, 16, 1, 0},
    {TDM_TYPE_Q5_0, 5, 0x80, 31, 1, 0},
    {TDM_TYPE_Q5_0, 6, 0x08, 0, 1, -8},
    {TDM_TYPE_Q5_0, 21, 0x10, 31, 1, -15},
    {TDM_TYPE_Q5_1, 4, 0x02, 1, 1, 16.5f},
    {TDM_TYPE_Q5_1, 7, 0x40, 30, 1, 16.5f},
    {TDM_TYPE_Q5_1, 8, 0x10, 16, 1, 1.5f},
    {TDM_TYPE_Q5_1, 23, 0x01, 15, 1, 1.5f},
    {TDM_TYPE_Q8_0, 2, 0xff, 0, 1, -1},
    {TDM_TYPE_Q8_0, 33, 0x80, 31, 1, -128},
    {TDM_TYPE_IQ4_NL, 2, 0x0f, 0, 1, 113},
    {TDM_TYPE_IQ4_NL, 2, 0x80, 16, 1, 1},
    {TDM_TYPE_IQ4_NL, 17, 0x07, 15, 1, -10},
    /* q2_K: scales 0-15, qs 16-79, d 80, dmin 82 */
    {TDM_TYPE_Q2_K, 16, 0x01, 0, 1, 1},
    {TDM_TYPE_Q2_K, 16, 0x08, 32, 1, 2},
    {TDM_TYPE_Q2_K, 16, 0x30, 64, 1, 3},
    {TDM_TYPE_Q2_K, 16, 0x40, 96, 1, 1},
    {TDM_TYPE_Q2_K, 47, 0x80, 127, 1, 2},
    {TDM_TYPE_Q2_K, 48, 0x01, 128, 1, 1},
    {TDM_TYPE_Q2_K, 79, 0xc0, 255, 1, 3},
    {TDM_TYPE_Q2_K, 1, 0x30, 16, 16, -1.5f}, /* a minimum of 3 */
    {TDM_TYPE_Q2_K, 15, 0x80, 240, 16, -4},
    /* q3_K: hmask 0-31, qs 32-95, scales 96-107, d 108 */
    {TDM_TYPE_Q3_K, 0, 0x01, 0, 1, -4},
    {TDM_TYPE_Q3_K, 0, 0x02, 32, 1, -4},
    {TDM_TYPE_Q3_K, 31, 0x80, 255, 1, -4},
    {TDM_TYPE_Q3_K, 32, 0x02, 0, 1, 2},
    {TDM_TYPE_Q3_K, 32, 0x04, 32, 1, 1},
    {TDM_TYPE_Q3_K, 64, 0x01, 128, 1, 1},
    {TDM_TYPE_Q3_K, 95, 0xc0, 255, 1, 3},
    /* q4_K: d 0, dmin 2, scales 4-15, qs 16-143 */
    {TDM_TYPE_Q4_K, 16, 0x0f, 0, 1, 15},
    {TDM_TYPE_Q4_K, 16, 0x80, 32, 1, 8},
    {TDM_TYPE_Q4_K, 47, 0x01, 31, 1, 1},
    {TDM_TYPE_Q4_K, 48, 0x01, 64, 1, 1},
    {TDM_TYPE_Q4_K, 143, 0x40, 255, 1, 4},
    {TDM_TYPE_Q4_K, 8, 0x02, 0, 32, -1},       /* minimum 0: byte 8, low six bits */
    {TDM_TYPE_Q4_K, 11, 0x20, 96, 32, -16},    /* minimum 3 */
    {TDM_TYPE_Q4_K, 12, 0x10, 128, 32, -0.5f}, /* minimum 4: byte 12, high nibble */
    {TDM_TYPE_Q4_K, 8, 0x40, 128, 32, -8},     /* and the top bits of byte 8 */
    {TDM_TYPE_Q4_K, 11, 0x80, 224, 32, -16},   /* minimum 7 */
    /* q5_K: qh 16-47, qs 48-175 */
    {TDM_TYPE_Q5_K, 16, 0x01, 0, 1, 16},
    {TDM_TYPE_Q5_K, 16, 0x02, 32, 1, 16},
    {TDM_TYPE_Q5_K, 47, 0x80, 255, 1, 16},
    {TDM_TYPE_Q5_K, 48, 0x0f, 0, 1, 15},
    {TDM_TYPE_Q5_K, 48, 0x10, 32, 1, 1},
    {TDM_TYPE_Q5_K, 175, 0x10, 255, 1, 1},
    {TDM_TYPE_Q5_K, 9, 0x40, 160, 32, -8}, /* minimum 5 */
    /* q6_K: ql 0-127, qh 128-191, scales 192-207, d 208 */
    {TDM_TYPE_Q6_K, 0, 0x01, 0, 1, -31},
    {TDM_TYPE_Q6_K, 32, 0x01, 32, 1, -31},
    {TDM_TYPE_Q6_K, 0, 0x10, 64, 1, -31},
    {TDM_TYPE_Q6_K, 32, 0x80, 96, 1, -24},
    {TDM_TYPE_Q6_K, 64, 0x02, 128, 1, -30},
    {TDM_TYPE_Q6_K, 127, 0xf0, 255, 1, -17},
    {TDM_TYPE_Q6_K, 128, 0x01, 0, 1, -16},
    {TDM_TYPE_Q6_K, 128, 0x08, 32, 1, 0},
    {TDM_TYPE_Q6_K, 128, 0x30, 64, 1, 16},
    {TDM_TYPE_Q6_K, 159, 0x40, 127, 1, -16},
    {TDM_TYPE_Q6_K, 160, 0x01, 128, 1, -16},
    {TDM_TYPE_Q6_K, 192, 0xfe, 0, 16, 32}, /* a scale of -1 */
    {TDM_TYPE_Q6_K, 207, 0x03, 240, 16, -64},
    /* iq4_xs: d 0, scales_h 2, scales_l 4-7, qs 8-135 */
    {TDM_TYPE_IQ4_XS, 8, 0x08, 0, 1, 1},
    {TDM_TYPE_IQ4_XS, 8, 0x80, 16, 1, 1},
    {TDM_TYPE_IQ4_XS, 24, 0x0f, 32, 1, 113},
    {TDM_TYPE_IQ4_XS, 135, 0x10, 255, 1, -104},
    {TDM_TYPE_IQ4_XS, 4, 0x03, 0, 32, -254}, /* scale 34 */
    {TDM_TYPE_IQ4_XS, 4, 0x30, 32, 32, -254},
    {TDM_TYPE_IQ4_XS, 7, 0x10, 224, 32, 0},         /* scale 32 */
    {TDM_TYPE_IQ4_XS, 2, 0x03, 0, 32, 127 * 15},    /* high bits 2 to 1: scale 17 */
    {TDM_TYPE_IQ4_XS, 3, 0x40, 224, 32, -127 * 17}, /* and to 3: scale 49 */
    {TDM_TYPE_MXFP4, 1, 0x07, 0, 1, 12},
    {TDM_TYPE_MXFP4, 1, 0xf0, 16, 1, -12},
    {TDM_TYPE_MXFP4, 16, 0x01, 15, 1, 1},
    /* nvfp4: scales 0-3, qs 4-35 */
    {TDM_TYPE_NVFP4, 4, 0x07, 0, 1, 12},
    {TDM_TYPE_NVFP4, 4, 0xf0, 8, 1, -12},
    {TDM_TYPE_NVFP4, 12, 0x01, 16, 1, 1},
    {TDM_TYPE_NVFP4, 35, 0x20, 63, 1, 2},
    /* iq2_xxs: d 0, then 4 indices and a word for each 32 */
    {TDM_TYPE_IQ2_XXS, 9, 0x10, 0, 32, 3},     /* scale 1: 1.5 / 4 */
    {TDM_TYPE_IQ2_XXS, 65, 0x80, 224, 32, 17}, /* scale 8 */
    /* iq2_xs: d 0, qs 2-65, scales 66-73 */
    {TDM_TYPE_IQ2_XS, 66, 0x01, 0, 16, 3},
    {TDM_TYPE_IQ2_XS, 73, 0x80, 240, 16, 17},
    /* iq2_s: d 0, qs 2-33, signs 34-65, qh 66-73, scales 74-81 */
    {TDM_TYPE_IQ2_S, 34, 0x01, 0, 1, -1},
    {TDM_TYPE_IQ2_S, 65, 0x80, 255, 1, -1},
    {TDM_TYPE_IQ2_S, 74, 0x10, 16, 16, 3},
    /* iq3_xxs: d 0, qs 2-65, words 66-97 */
    {TDM_TYPE_IQ3_XXS, 69, 0x10, 0, 32, 3},
    {TDM_TYPE_IQ3_XXS, 97, 0x10, 224, 32, 3},
    /* iq3_s: d 0, qs 2-65, qh 66-73, signs 74-105, scales 106-109 */
    {TDM_TYPE_IQ3_S, 74, 0x02, 1, 1, -1},
    {TDM_TYPE_IQ3_S, 105, 0x80, 255, 1, -1},
    {TDM_TYPE_IQ3_S, 106, 0x10, 32, 32, 3},
    /* iq1_s: d 0, qs 2-33, qh 34-49 */
    {TDM_TYPE_IQ1_S, 35, 0x80, 0, 32, -1.125f},
    {TDM_TYPE_IQ1_S, 49, 0x10, 224, 32, -2.625f}, /* scale 3 */
    /* iq1_m: qs 0-31, qh 32-47, scales 48-55 */
    {TDM_TYPE_IQ1_M, 32, 0x80, 8, 8, -1.125f},
    {TDM_TYPE_IQ1_M, 47, 0x08, 240, 8, -1.125f},
    {TDM_TYPE_IQ1_M, 48, 0x01, 0, 16, -2.625f},
    {TDM_TYPE_IQ1_M, 55, 0x02, 240, 16, -2.625f}, /* bit 9 of the last word */
    /* tq1_0: qs 0-47, qh 48-51, d 52. A byte of 86 has the trits 1, 0, 0, 0, 0: 86 * 3 = 256 + 2 */
    {TDM_TYPE_TQ1_0, 0, 0x56, 0, 1, 0},
    {TDM_TYPE_TQ1_0, 31, 0xab, 31, 1, 1},
    {TDM_TYPE_TQ1_0, 0, 0x1d, 32, 1, 0}, /* 29: 0, 1, 0, 0, 0 */
    {TDM_TYPE_TQ1_0, 47, 0x56, 175, 1, 0},
    {TDM_TYPE_TQ1_0, 51, 0x56, 243, 1, 0},
    /* tq2_0: qs 0-63, d 64 */
    {TDM_TYPE_TQ2_0, 0, 0x01, 0, 1, 0},
    {TDM_TYPE_TQ2_0, 0, 0x08, 32, 1, 1},
    {TDM_TYPE_TQ2_0, 63, 0xc0, 255, 1, 2},
};

static void test_single_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        const probe *p = &probes[i];
        _Alignas(4) uint8_t block[MAX_SIZE];
        float x[MAX_LEN];
        float neutral = make_neutral(p->type, block);
        int len = tdm_type_get_info(p->type).block_len;
        block[p->at] ^= p->mask;
        assert_int_equal(tdm_row_dequantize(p->type, block, x, len), TDM_OK);
        for (int j = 0; j < len; j++) {
            float expected = j >= p->first && j < p->first + p->n ? p->value : neutral;
            if (x[j] == expected) continue;
            fail_msg("%s, byte %d ^ %02x: element %d is %g, not %g", tdm_type_name(p->type), p->at,
                     p->mask, j, (double)x[j], (double)expected);
        }
    }
}

/* Packed scales: one sub-block's integer at a time, all else zero. Bits written by hand. */
static void test_packed_scales(void **state) {
    (void)state;
    uint8_t bytes[12];
    for (int s = 0; s < 8; s++) {
        for (int value = 0; value < 64; value++) {
            memset(bytes, 0, sizeof bytes);
            if (s < 4) {
                bytes[s] = (uint8_t)value;
            } else {
                bytes[s + 4] = (uint8_t)(value & 15);
                bytes[s - 4] = (uint8_t)(value / 16 * 64);
            }
            for (int t = 0; t < 8; t++) {
                assert_int_equal(tdm_q4_K_scale(bytes, t), t == s ? value : 0);
                assert_int_equal(tdm_q4_K_min(bytes, t), 0);
            }
            memset(bytes, 0, sizeof bytes);
            if (s < 4) {
                bytes[s + 4] = (uint8_t)value;
            } else {
                bytes[s + 4] = (uint8_t)(value % 16 * 16);
                bytes[s] = (uint8_t)(value / 16 * 64);
            }
            for (int t = 0; t < 8; t++) {
                assert_int_equal(tdm_q4_K_min(bytes, t), t == s ? value : 0);
                assert_int_equal(tdm_q4_K_scale(bytes, t), 0);
            }
        }
    }
    for (int s = 0; s < 16; s++) {
        for (int value = 0; value < 64; value++) {
            memset(bytes, 0, sizeof bytes);
            bytes[s % 8] = (uint8_t)(s < 8 ? value % 16 : value % 16 * 16);
            bytes[8 + s % 4] = (uint8_t)(value / 16 << s / 4 * 2);
            for (int t = 0; t < 16; t++) {
                assert_int_equal(tdm_q3_K_scale(bytes, t), t == s ? value : 0);
            }
        }
    }
}

/* FNV-1a over the bits of the floats, every NaN counted as the same. */
static uint64_t hash_floats(const float *x, int64_t n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = x[i] == x[i] ? tdm_f32_to_bits(x[i]) : 0x7fc00000;
        for (int k = 0; k < 4; k++) hash = (hash ^ (bits >> 8 * k & 255)) * 0x100000001b3u;
    }
    return hash;
}

enum { GOLDEN_LEN = 1 << 16 };

/* Hashes of 65536 elements as ggml's dequantize_row_* give them (llama.cpp v0.5.0). */
static const struct {
    tdm_type type;
    uint64_t hash;
} golden[] = {
    {TDM_TYPE_Q4_0, 0xa016137901ab1012},    {TDM_TYPE_Q4_1, 0x17467aed60f6ba9d},
    {TDM_TYPE_Q5_0, 0x695fc3f8f3563b82},    {TDM_TYPE_Q5_1, 0x17dbd7a00a9867a8},
    {TDM_TYPE_Q8_0, 0xe3e3b095b361bc17},    {TDM_TYPE_Q2_K, 0x0be742b9d67cc3d8},
    {TDM_TYPE_Q3_K, 0x3ce6184c41903eea},    {TDM_TYPE_Q4_K, 0x0c3103bdf00db1cd},
    {TDM_TYPE_Q5_K, 0x22184e589fdbdbd7},    {TDM_TYPE_Q6_K, 0xb959665ef8b7e425},
    {TDM_TYPE_IQ4_NL, 0xd4f3390e4015ae6f},  {TDM_TYPE_IQ4_XS, 0xa06eda2b81c15f36},
    {TDM_TYPE_MXFP4, 0xc36dca8a490c67e9},   {TDM_TYPE_IQ2_XXS, 0x601bb086cccb9dc4},
    {TDM_TYPE_IQ2_XS, 0xc44ab4748ba7e9d0},  {TDM_TYPE_IQ2_S, 0x19c28119db2ea8b1},
    {TDM_TYPE_IQ3_XXS, 0xb6984a75c96ca028}, {TDM_TYPE_IQ3_S, 0x55cb19e84a58d4dd},
    {TDM_TYPE_IQ1_S, 0x4224c3fa3945acc1},   {TDM_TYPE_IQ1_M, 0x8c8b29184ea4a436},
    {TDM_TYPE_TQ1_0, 0xcf88dd61b5a15d9b},   {TDM_TYPE_TQ2_0, 0x6ae870c532c1a5e2},
    {TDM_TYPE_NVFP4, 0x5f37650a74cadd6a},
};

static void test_random_bytes_as_ggml_reads_them(void **state) {
    (void)state;
    uint8_t *bytes = malloc(GOLDEN_LEN * 2);
    float *x = malloc(GOLDEN_LEN * sizeof *x);
    assert_non_null(bytes);
    assert_non_null(x);
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        uint32_t seed = 2463534242u;
        for (int j = 0; j < GOLDEN_LEN * 2; j++)
            bytes[j] = (uint8_t)(random_xorshift32(&seed) >> 24);
        assert_int_equal(tdm_row_dequantize(golden[i].type, bytes, x, GOLDEN_LEN), TDM_OK);
        uint64_t hash = hash_floats(x, GOLDEN_LEN);
        if (hash == golden[i].hash) continue;
        fail_msg("%s: hash %016llx, not %016llx", tdm_type_name(golden[i].type),
                 (unsigned long long)hash, (unsigned long long)golden[i].hash);
    }
    free(bytes);
    free(x);
}

enum { N_TRIAL = 6 };

/* Scales of mxfp4 saturate, those of nvfp4 have 7 bits; the last bytes of tq1_0 hold four numbers
 * of three values each. */
static int results_min(tdm_type type) {
    return type == TDM_TYPE_TQ1_0   ? 81
           : type == TDM_TYPE_MXFP4 ? 225
           : type == TDM_TYPE_NVFP4 ? 128
                                    : 230;
}

static int compare_hashes(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Converts a block with each of the 256 values of the byte `at`. Returns how many of the results
 * differ from each other. Each result must be the same for the block as the second one of a row.
 * `rows` holds two blocks, `x` two blocks' numbers and one more. */
static int byte_results(tdm_type type, int at, uint8_t *block, uint8_t *rows, float *x) {
    const tdm_type_info info = tdm_type_get_info(type);
    const size_t size = (size_t)info.block_size, len = (size_t)info.block_len;
    const float sentinel = 12345.0f;
    uint64_t hashes[256];
    int n_different = 1;
    for (int value = 0; value < 256; value++) {
        block[at] = (uint8_t)value;
        x[len] = sentinel;
        assert_int_equal(tdm_row_dequantize(type, block, x, info.block_len), TDM_OK);
        assert_true(x[len] == sentinel);
        hashes[value] = hash_floats(x, (int)len);
        memcpy(rows, rows + size, size);
        memcpy(rows + size, block, size);
        x[2 * len] = sentinel;
        assert_int_equal(tdm_row_dequantize(type, rows, x, 2 * info.block_len), TDM_OK);
        assert_true(x[2 * len] == sentinel);
        assert_true(hash_floats(x + len, (int)len) == hashes[value]);
        if (value > 0) assert_true(hash_floats(x, (int)len) == hashes[value - 1]);
    }
    qsort(hashes, 256, sizeof hashes[0], compare_hashes);
    for (int i = 1; i < 256; i++) n_different += hashes[i] != hashes[i - 1];
    return n_different;
}

/* Each byte of a block takes each of its 256 values. Every byte matters, no result depends on where
 * the block is, and nothing is written past the end. Under the sanitizers this finds any shift,
 * conversion or index that some pattern breaks. */
static void test_every_byte_value(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (size_t t = 0; t < sizeof golden / sizeof *golden; t++) {
        tdm_type_info info = tdm_type_get_info(golden[t].type);
        uint8_t *block = malloc((size_t)info.block_size); /* exact, so that a read past it shows */
        uint8_t *rows = calloc(2, (size_t)info.block_size);
        float *x = malloc((2 * (size_t)info.block_len + 1) * sizeof *x);
        int least = 256, min = results_min(golden[t].type);
        assert_non_null(block);
        assert_non_null(rows);
        assert_non_null(x);
        for (int at = 0; at < info.block_size; at++) {
            int most = 0; /* some blocks have a scale of NaN, where no other byte matters */
            for (int trial = 0; trial < N_TRIAL && most < min; trial++) {
                for (int i = 0; i < info.block_size; i++)
                    block[i] = (uint8_t)(random_xorshift32(&seed) >> 24);
                int n_different = byte_results(golden[t].type, at, block, rows, x);
                if (n_different > most) most = n_different;
            }
            if (most < least) least = most;
        }
        print_message("%s: at least %d results of each byte\n", tdm_type_name(golden[t].type),
                      least);
        assert_true(least >= min);
        free(block);
        free(rows);
        free(x);
    }
}

static void test_what_is_not_converted(void **state) {
    (void)state;
    float x[4] = {1, 2, 3, 4};
    uint8_t bytes[64] = {0};
    static const int no_types[] = {-1, 4, 5, 9, 24, 26, 31, 63, 64, 1000};
    for (size_t i = 0; i < sizeof no_types / sizeof *no_types; i++) {
        tdm_type type = (tdm_type)no_types[i];
        assert_null(tdm_row_codec_get(type).dequantize);
        assert_null(tdm_row_codec_get(type).quantize);
        assert_int_equal(tdm_row_dequantize(type, bytes, x, 4), TDM_UNSUPPORTED);
        assert_int_equal(tdm_row_quantize(type, x, bytes, 4, NULL), TDM_UNSUPPORTED);
    }
    assert_int_equal(tdm_row_dequantize(TDM_TYPE_Q8_0, bytes, x, 4), TDM_INVALID_ARGUMENT);
    assert_int_equal(tdm_row_dequantize(TDM_TYPE_Q4_K, bytes, x, 32), TDM_INVALID_ARGUMENT);
    assert_int_equal(tdm_row_quantize(TDM_TYPE_F32, x, bytes, -1, NULL), TDM_INVALID_ARGUMENT);
    assert_int_equal(tdm_row_quantize(TDM_TYPE_Q4_K, NULL, NULL, 0, NULL), TDM_OK);
    for (int i = 0; i < 4; i++) assert_true(x[i] == (float)(i + 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_agree_with_type_h),
        cmocka_unit_test(test_single_bits),
        cmocka_unit_test(test_packed_scales),
        cmocka_unit_test(test_random_bytes_as_ggml_reads_them),
        cmocka_unit_test(test_every_byte_value),
        cmocka_unit_test(test_what_is_not_converted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
