/* SPDX-License-Identifier: MIT
 *
 * block.h: the bytes of a block of each quantised type, exactly as a GGUF file holds them.
 *
 * Source of the facts: ggml (ggml-org/ggml: docs/gguf.md for the type numbers, src/ggml-common.h
 * for the layouts). This header owns layout and meaning; how many elements and bytes a block has
 * is in type.h; there are no conversions here (see type.h).
 *
 * How to read it. A block holds consecutive elements of one row, element 0 first. All integers
 * are little-endian; `tdm_f16` is the bit pattern of an IEEE 754 binary16. Every struct is a
 * multiple of 2 bytes with an alignment of 2 (mxfp4: of 1), so that arrays of blocks have no
 * padding; a pointer to blocks must be aligned likewise. Every byte pattern is a valid block (a
 * scale may be NaN or infinite, and its elements are then whatever the arithmetic gives).
 *
 * Formulas are evaluated in f32, in the order written, each operation rounded (no contraction into
 * fused multiply-add): whoever does the same gets the same bits. `x[i]` is element i; `a[i].lo` and
 * `a[i].hi` are the low and high nibble of byte i; `bit(v, i)` is (v >> i) & 1 and `bits2(v, i)` is
 * (v >> i) & 3.
 *
 * Shapes of quantised tensors: blocks never cross a row, so a row's length is a multiple of the
 * block length.
 */
#ifndef TANDEM_BLOCK_H
#define TANDEM_BLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tandem/type.h"

#ifdef __cplusplus
extern "C" {
#define TDM_BLOCK_ASSERT_(claim, text) static_assert(claim, text)
#else
#define TDM_BLOCK_ASSERT_(claim, text) _Static_assert(claim, text)
#endif

/* Elements in a block of the small types (q4_0 … q8_0, iq4_nl, mxfp4), in a superblock of the
 * rest. A block of nvfp4 has 64. */
#define TDM_BLOCK_LEN      32
#define TDM_SUPERBLOCK_LEN 256

typedef uint16_t tdm_f16; /* bits of an IEEE 754 binary16 */

/* ---- blocks of 32, and of 64 (nvfp4) ---------------------------------------------------------- */

/* q4_0, 18 bytes: signed 4-bit codes around 8.
 *   x[j]      = (qs[j].lo - 8) * d      0 <= j < 16
 *   x[j + 16] = (qs[j].hi - 8) * d */
typedef struct tdm_block_q4_0 {
    tdm_f16 d;
    uint8_t qs[16];
} tdm_block_q4_0;

/* q4_1, 20 bytes: unsigned 4-bit codes above a minimum.
 *   x[j]      = qs[j].lo * d + m        0 <= j < 16
 *   x[j + 16] = qs[j].hi * d + m */
typedef struct tdm_block_q4_1 {
    tdm_f16 d;
    tdm_f16 m;
    uint8_t qs[16];
} tdm_block_q4_1;

/* q5_0, 22 bytes: signed 5-bit codes around 16. `qh` is a 32-bit little-endian word H (as bytes,
 * since it begins at an offset of 2) whose bit i is the fifth bit of element i.
 *   x[j]      = ((qs[j].lo | bit(H, j)      << 4) - 16) * d      0 <= j < 16
 *   x[j + 16] = ((qs[j].hi | bit(H, j + 16) << 4) - 16) * d */
typedef struct tdm_block_q5_0 {
    tdm_f16 d;
    uint8_t qh[4];
    uint8_t qs[16];
} tdm_block_q5_0;

/* q5_1, 24 bytes: unsigned 5-bit codes above a minimum; `qh` as in q5_0.
 *   x[j]      = (qs[j].lo | bit(H, j)      << 4) * d + m         0 <= j < 16
 *   x[j + 16] = (qs[j].hi | bit(H, j + 16) << 4) * d + m */
typedef struct tdm_block_q5_1 {
    tdm_f16 d;
    tdm_f16 m;
    uint8_t qh[4];
    uint8_t qs[16];
} tdm_block_q5_1;

/* q8_0, 34 bytes: signed bytes. The quantiser uses -127 … 127; -128 is valid.
 *   x[i] = qs[i] * d                    0 <= i < 32 */
typedef struct tdm_block_q8_0 {
    tdm_f16 d;
    int8_t qs[32];
} tdm_block_q8_0;

/* iq4_nl, 18 bytes: 4-bit indices into a fixed codebook V (TDM_IQ4_VALUES).
 *   x[j]      = d * V[qs[j].lo]         0 <= j < 16
 *   x[j + 16] = d * V[qs[j].hi] */
typedef struct tdm_block_iq4_nl {
    tdm_f16 d;
    uint8_t qs[16];
} tdm_block_iq4_nl;

/* The codebook of iq4_nl and iq4_xs, as an initialiser list: sixteen int8, ascending. */
#define TDM_IQ4_VALUES                                                                             \
    { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 }

/* mxfp4, 17 bytes: the MXFP4 of the OCP Microscaling Formats specification 1.0 (elements E2M1,
 * scale E8M0), nibbles in the order of iq4_nl. M = TDM_MXFP4_VALUES holds twice the elements'
 * values, so the scale is halved: tdm_mxfp4_scale.
 *   x[j]      = scale * M[qs[j].lo]     0 <= j < 16
 *   x[j + 16] = scale * M[qs[j].hi] */
typedef struct tdm_block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
} tdm_block_mxfp4;

/* nvfp4, 36 bytes: NVIDIA's NVFP4 (elements E2M1, a scale of 8 bits for each 16 of them), four
 * sub-blocks of 16. Nibbles are paired inside a sub-block. M = TDM_MXFP4_VALUES; the scale is
 * halved, too: tdm_nvfp4_scale. What such a scale of a whole matrix is, a tensor beside it holds.
 *   x[16 * s + j]     = scale[s] * M[qs[8 * s + j].lo]     0 <= s < 4, 0 <= j < 8
 *   x[16 * s + j + 8] = scale[s] * M[qs[8 * s + j].hi] */
typedef struct tdm_block_nvfp4 {
    uint8_t scales[4];
    uint8_t qs[32];
} tdm_block_nvfp4;

/* Twice the values of E2M1 (sign, two bits of exponent, one of mantissa): sixteen int8. */
#define TDM_MXFP4_VALUES                                                                           \
    { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 }

/* ---- superblocks of 256 --------------------------------------------------------------------- */

/* q2_K, 84 bytes: 16 sub-blocks of 16, unsigned 2-bit codes. Sub-block s has the scale
 * scales[s].lo and the minimum scales[s].hi. Codes come in two halves of 128 elements; a half has
 * 32 bytes, and each of its four quarters of 32 elements is one pair of bits of those bytes:
 * element i is at qs[32 * (i / 128) + i % 32], bits 2 * (i % 128 / 32) and the next.
 *   x[i] = (d * scale) * code - (dmin * minimum)      s = i / 16 */
typedef struct tdm_block_q2_K {
    uint8_t scales[16];
    uint8_t qs[64];
    tdm_f16 d;
    tdm_f16 dmin;
} tdm_block_q2_K;

/* q3_K, 110 bytes: 16 sub-blocks of 16, signed 3-bit codes. The low two bits lie as in q2_K; the
 * third bit of element i is bit i / 32 of hmask[i % 32] and, where it is *clear*, 4 is subtracted.
 * Scales are 6 bits with an offset of 32, see tdm_q3_K_scale.
 *   x[i] = (d * (scale - 32)) * (low2 - (high ? 0 : 4))      s = i / 16 */
typedef struct tdm_block_q3_K {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    tdm_f16 d;
} tdm_block_q3_K;

/* q4_K, 144 bytes: 8 sub-blocks of 32, unsigned 4-bit codes; 6-bit scales and minimums, see
 * tdm_q4_K_scale and tdm_q4_K_min. A run of 32 bytes holds two sub-blocks, the even one in the low
 * nibbles: element i is at qs[32 * (i / 64) + i % 32], high nibble where i % 64 >= 32.
 *   x[i] = (d * scale) * code - (dmin * minimum)      s = i / 32 */
typedef struct tdm_block_q4_K {
    tdm_f16 d;
    tdm_f16 dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} tdm_block_q4_K;

/* q5_K, 176 bytes: q4_K with a fifth bit: bit i / 32 of qh[i % 32] adds 16 to the code. */
typedef struct tdm_block_q5_K {
    tdm_f16 d;
    tdm_f16 dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} tdm_block_q5_K;

/* q6_K, 210 bytes: 16 sub-blocks of 16, signed 6-bit codes around 32, signed 8-bit scales. Codes
 * come in two halves of 128; in half h, quarter k = i % 128 / 32 and column c = i % 32:
 *   low four bits:  ql[64 * h + 32 * (k % 2) + c], low nibble for k < 2, high nibble for k >= 2
 *   high two bits:  bits2(qh[32 * h + c], 2 * k)
 *   x[i] = (d * scales[i / 16]) * ((low4 | high2 << 4) - 32) */
typedef struct tdm_block_q6_K {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    tdm_f16 d;
} tdm_block_q6_K;

/* iq4_xs, 136 bytes: 8 sub-blocks of 32, laid out like the codes of iq4_nl, 16 bytes for each;
 * 6-bit scales with an offset of 32, see tdm_iq4_xs_scale.
 *   x[32 * s + j]      = (d * (scale - 32)) * V[qs[16 * s + j].lo]      0 <= j < 16
 *   x[32 * s + j + 16] = (d * (scale - 32)) * V[qs[16 * s + j].hi] */
typedef struct tdm_block_iq4_xs {
    tdm_f16 d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
} tdm_block_iq4_xs;

/* ---- superblocks of grid points: iq2, iq3 and iq1 ---------------------------------------------
 *
 * Eight elements (iq3: four) are a point of the type's grid G (grid.h); a point's index is put
 * together from bytes and further bits. iq2 and iq3 give every element a sign, sign(b) = -1 where
 * the bit b is set and 1 otherwise; seven sign bits stand for eight, since the number of minus
 * signs is even then: `tdm_signs_of_7` adds the eighth. Groups of eight elements have the numbers g
 * = i / 8, sub-blocks of 32 the numbers s = i / 32; words of 32 bits are little-endian. */

/* iq2_xxs, 66 bytes: 32 elements take 8 bytes of qs: an index for each group, then a word W with
 * four sets of 7 sign bits from the low end and 4 bits of scale on top.
 *   x[i] = (d * (0.5 + (W >> 28)) * 0.25) * G[qs[8 * s + g % 4]][i % 8] * sign(bit i % 8 of
 *          tdm_signs_of_7(W >> 7 * (g % 4) & 127)) */
typedef struct tdm_block_iq2_xxs {
    tdm_f16 d;
    uint8_t qs[64];
} tdm_block_iq2_xxs;

/* iq2_xs, 74 bytes: a word of 16 bits for each group, 9 of index and 7 of signs; 4-bit scales for
 * 16 elements each, low nibbles first.
 *   x[i] = (d * (0.5 + scale(i / 16)) * 0.25) * G[qs[g] & 511][i % 8] * sign(bit i % 8 of
 *          tdm_signs_of_7(qs[g] >> 9)) */
typedef struct tdm_block_iq2_xs {
    tdm_f16 d;
    uint16_t qs[32];
    uint8_t scales[8];
} tdm_block_iq2_xs;

/* iq2_s, 82 bytes: low bytes of 10-bit indices, their high bits (two for each group, four groups to
 * a byte), all sign bits, and scales as in iq2_xs.
 *   x[i] = (d * (0.5 + scale(i / 16)) * 0.25) * G[qs[g] | bits2(qh[s], 2 * (g % 4)) << 8][i % 8] *
 *          sign(bit(signs[g], i % 8)) */
typedef struct tdm_block_iq2_s {
    tdm_f16 d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
} tdm_block_iq2_s;

/* iq3_xxs, 98 bytes: an index for each four elements, then for each 32 a word W as in iq2_xxs.
 *   x[i] = (d * (0.5 + (W >> 28)) * 0.5) * G[qs[i / 4]][i % 4] * sign(bit i % 8 of
 *          tdm_signs_of_7(W >> 7 * (g % 4) & 127)) */
typedef struct tdm_block_iq3_xxs {
    tdm_f16 d;
    uint8_t qs[64];
    uint8_t words[32];
} tdm_block_iq3_xxs;

/* iq3_s, 110 bytes: low bytes of 9-bit indices, their ninth bits, all sign bits, 4-bit scales for
 * 32 elements each.
 *   x[i] = (d * (1 + 2 * scale(s))) * G[qs[i / 4] | bit(qh[s], i % 32 / 4) << 8][i % 4] *
 *          sign(bit(signs[g], i % 8)) */
typedef struct tdm_block_iq3_s {
    tdm_f16 d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} tdm_block_iq3_s;

/* iq1_s, 50 bytes: low bytes of 11-bit indices; for each 32 elements a word of 16 bits H with three
 * high bits for each of four groups, 3 bits of scale and, on top, the sign of an offset: o is
 * 0.125, or -0.125 where it is set. v = G / 8 - 1 is -1, 0 or 1.
 *   x[i] = (d * (2 * (H >> 12 & 7) + 1)) * (v[qs[g] | (H >> 3 * (g % 4) & 7) << 8][i % 8] + o) */
typedef struct tdm_block_iq1_s {
    tdm_f16 d;
    uint8_t qs[32];
    uint16_t qh[8];
} tdm_block_iq1_s;

/* iq1_m, 56 bytes: as iq1_s, but a nibble of qh for each group holds the index's three high bits
 * and, on top, the sign of o; and 16 elements share a 3-bit scale. `scales` is four words of 16
 * bits: the low 12 bits of a word are four scales (tdm_iq1_m_scale), its top 4 bits are a quarter
 * of d (tdm_iq1_m_d).
 *   x[i] = (d * (2 * scale(i / 16) + 1)) * (v[qs[g] | (qh nibble g & 7) << 8][i % 8] + o) */
typedef struct tdm_block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
} tdm_block_iq1_m;

/* ---- superblocks of trits ------------------------------------------------------------------- */

/* tq1_0, 54 bytes: codes 0, 1 and 2 (trits), five to a byte. A byte B, divided by 256, is a
 * fraction whose digits to the base 3 are the codes: the first is B * 3 / 256, rounded down; the
 * second is (B * 3 mod 256) * 3 / 256; and so on (tdm_tq1_0_trit). The 32 bytes from qs[0] hold
 * elements 0 .. 159, element i at byte i % 32 as trit i / 32. The 16 bytes from qs[32] hold
 * elements 160 .. 239 in runs of 16 in the same way. qh, with four trits to a byte, holds elements
 * 240 .. 255 in runs of 4.
 *   x[i] = (code - 1) * d */
typedef struct tdm_block_tq1_0 {
    uint8_t qs[48];
    uint8_t qh[4];
    tdm_f16 d;
} tdm_block_tq1_0;

/* tq2_0, 66 bytes: 2-bit codes, laid out as those of q2_K; 3 is not used by quantisers.
 *   x[i] = (code - 1) * d */
typedef struct tdm_block_tq2_0 {
    uint8_t qs[64];
    tdm_f16 d;
} tdm_block_tq2_0;

/* ---- packed scales -------------------------------------------------------------------------- */

/* The 6-bit scale, 0 … 63, of sub-block s, 0 … 7, of q4_K and q5_K. Bytes 0-3 hold scales 0-3 in
 * their low six bits, bytes 4-7 the minimums 0-3; byte 8 + k holds the low nibbles of scale and
 * minimum 4 + k, whose high two bits are the top bits of bytes k and 4 + k. [any-thread] */
static inline uint8_t tdm_q4_K_scale(const uint8_t scales[12], int s) {
    return s < 4 ? scales[s] & 63 : (uint8_t)((scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4);
}

/* The 6-bit minimum, 0 … 63, of sub-block s, 0 … 7, of q4_K and q5_K. [any-thread] */
static inline uint8_t tdm_q4_K_min(const uint8_t scales[12], int s) {
    return s < 4 ? scales[s + 4] & 63 : (uint8_t)(scales[s + 4] >> 4 | (scales[s] >> 6) << 4);
}

/* The 6-bit scale, 0 … 63 and still with its offset of 32, of sub-block s, 0 … 15, of q3_K. Bytes
 * 0-7 hold the low nibbles (0-7 low, 8-15 high), byte 8 + s % 4 the high two bits at 2 * (s / 4).
 * [any-thread] */
static inline uint8_t tdm_q3_K_scale(const uint8_t scales[12], int s) {
    uint8_t low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
    return (uint8_t)(low | (scales[8 + s % 4] >> 2 * (s / 4) & 3) << 4);
}

/* The 6-bit scale, 0 … 63 and still with its offset of 32, of sub-block s, 0 … 7, of iq4_xs.
 * [any-thread] */
static inline uint8_t tdm_iq4_xs_scale(const tdm_block_iq4_xs *block, int s) {
    uint8_t low = block->scales_l[s / 2] >> 4 * (s % 2) & 15;
    return (uint8_t)(low | (block->scales_h >> 2 * s & 3) << 4);
}

/* The scale of an mxfp4 block, halved: 2^(e - 128), which is subnormal for e = 0 and 1. An e of
 * 255, NaN in OCP's E8M0, is 2^127 like ggml's. [any-thread] */
static inline float tdm_mxfp4_scale(uint8_t e) {
    const uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* The scale of a sub-block of nvfp4, halved: E4M3 without its sign, which is not read. 0x7f, a NaN
 * of E4M3, is 0 like ggml's; 0xff is 240. [any-thread] */
static inline float tdm_nvfp4_scale(uint8_t e) {
    const uint32_t exponent = e >> 3 & 15, mantissa = e & 7;
    const uint32_t bits = (exponent + 119) << 23 | mantissa << 20;
    float scale;
    if (e == 0x7f) return 0;
    if (exponent == 0) return (float)mantissa * 0x1p-10f;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* Eight sign bits from seven. [any-thread] */
static inline uint8_t tdm_signs_of_7(uint32_t signs) {
    uint32_t parity = signs ^ signs >> 4;
    parity ^= parity >> 2;
    return (uint8_t)(signs | ((parity ^ parity >> 1) & 1) << 7);
}

/* The 3-bit scale, 0 … 7, of sub-block s, 0 … 15, of iq1_m: four to a word of 16 bits.
 * [any-thread] */
static inline uint8_t tdm_iq1_m_scale(const uint8_t scales[8], int s) {
    uint32_t word = scales[s / 4 * 2] | (uint32_t)scales[s / 4 * 2 + 1] << 8;
    return (uint8_t)(word >> 3 * (s % 4) & 7);
}

/* d of iq1_m: the top nibbles of the four words; that of the first word is the lowest nibble of d.
 * [any-thread] */
static inline tdm_f16 tdm_iq1_m_d(const uint8_t scales[8]) {
    return (tdm_f16)(scales[1] >> 4 | (scales[3] & 0xf0) | (scales[5] & 0xf0) << 4 |
                     (scales[7] & 0xf0) << 8);
}

/* Trit number n, 0 … 4, of a byte of tq1_0. [any-thread] */
static inline uint8_t tdm_tq1_0_trit(uint8_t byte, int n) {
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    return (uint8_t)((uint8_t)(byte * powers[n]) * 3 >> 8);
}

TDM_BLOCK_ASSERT_(sizeof(tdm_block_q4_0) == 18 && offsetof(tdm_block_q4_0, qs) == 2, "q4_0");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_q4_1) == 20 && offsetof(tdm_block_q4_1, qs) == 4, "q4_1");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_q5_0) == 22 && offsetof(tdm_block_q5_0, qs) == 6, "q5_0");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_q5_1) == 24 && offsetof(tdm_block_q5_1, qs) == 8, "q5_1");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_q8_0) == 34 && offsetof(tdm_block_q8_0, qs) == 2, "q8_0");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_iq4_nl) == 18 && offsetof(tdm_block_iq4_nl, qs) == 2, "iq4_nl");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_q2_K) == 84 && offsetof(tdm_block_q2_K, d) == 80, "q2_K");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_q3_K) == 110 && offsetof(tdm_block_q3_K, d) == 108, "q3_K");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_q4_K) == 144 && offsetof(tdm_block_q4_K, qs) == 16, "q4_K");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_q5_K) == 176 && offsetof(tdm_block_q5_K, qs) == 48, "q5_K");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_q6_K) == 210 && offsetof(tdm_block_q6_K, d) == 208, "q6_K");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_iq4_xs) == 136 && offsetof(tdm_block_iq4_xs, qs) == 8, "iq4_xs");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_mxfp4) == 17 && offsetof(tdm_block_mxfp4, qs) == 1, "mxfp4");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_nvfp4) == 36 && offsetof(tdm_block_nvfp4, qs) == 4, "nvfp4");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_iq2_xxs) == 66, "iq2_xxs");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_iq2_xs) == 74 && offsetof(tdm_block_iq2_xs, scales) == 66,
                  "iq2_xs");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_iq2_s) == 82 && offsetof(tdm_block_iq2_s, scales) == 74,
                  "iq2_s");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_iq3_xxs) == 98 && offsetof(tdm_block_iq3_xxs, words) == 66,
                  "iq3_xxs");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_iq3_s) == 110 && offsetof(tdm_block_iq3_s, scales) == 106,
                  "iq3_s");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_iq1_s) == 50 && offsetof(tdm_block_iq1_s, qh) == 34, "iq1_s");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_iq1_m) == 56 && offsetof(tdm_block_iq1_m, scales) == 48,
                  "iq1_m");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_tq1_0) == 54 && offsetof(tdm_block_tq1_0, d) == 52, "tq1_0");
TDM_BLOCK_ASSERT_(sizeof(tdm_block_tq2_0) == 66 && offsetof(tdm_block_tq2_0, d) == 64, "tq2_0");
#undef TDM_BLOCK_ASSERT_

#ifdef __cplusplus
}
#endif

#endif
