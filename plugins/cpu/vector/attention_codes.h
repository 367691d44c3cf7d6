/* SPDX-License-Identifier: MIT
 *
 * vector/attention_codes.h: elements of cached rows in vectors, for scores and weighted sums alike:
 * codes of a K or V tile (kv_page.h) as pairs of 16-bit numbers, and plain types as floats.
 */
#ifndef TANDEM_CPU_VECTOR_ATTENTION_CODES_H
#define TANDEM_CPU_VECTOR_ATTENTION_CODES_H

#include <math.h>
#include <string.h>

#include "plugins/cpu/ops/attention_kernel.h"
#include "plugins/cpu/vector/vector.h"
#include "tandem/block.h"

static const int8_t code_values[16] = TDM_IQ4_VALUES;

enum { HALVES = 32 / N_LANE };              /* vectors that hold a block of 32 elements */
enum { ADD_BLOCKS = 4 };                    /* blocks whose weights are made together */
enum { QUERY_BLOCK = CPU_IS_Q8 ? 32 : 64 }; /* bytes of a query's codes */

/* Prefetches the line `ahead` bytes from the one that is read (cpu_kv_span). */
INLINE void prefetch_ahead(const uint8_t *at, ptrdiff_t ahead) {
    prefetch_l2(at + ahead);
}

/* What is subtracted from a code to get the number that it stands for. */
INLINE int32_t code_offset(int type) {
    return type == TDM_TYPE_Q4_0 ? 8 : type == TDM_TYPE_Q5_0 ? 16 : 0;
}
/* The middle of V's codes: counting from there keeps the rounding of weights small. */
INLINE int32_t code_middle(int type) {
    return type == TDM_TYPE_Q4_1 ? 8 : type == TDM_TYPE_Q5_1 || type == TDM_TYPE_Q5_0 ? 16 : 0;
}
/* The same for the codes in dot products with K. Bytes are multiplied as unsigned numbers, unless
 * DOT8_IS_SIGNED: signed codes are then larger by SIGNED_BYTE. */
enum { SIGNED_BYTE = CPU_IS_Q8 && !DOT8_IS_SIGNED ? 128 : 0 };
INLINE int32_t score_offset(int type) {
    return type == TDM_TYPE_Q8_0 || type == TDM_TYPE_IQ4_NL ? SIGNED_BYTE : code_offset(type);
}
/* Four signed bytes in each lane, made larger by SIGNED_BYTE. */
INLINE ints score_bytes(ints x) {
    return ints_xor(x, ints_set((int32_t)(SIGNED_BYTE * 0x01010101u)));
}
INLINE bool type_has_fifth(int type) {
    return type == TDM_TYPE_Q5_0 || type == TDM_TYPE_Q5_1;
}
INLINE bool type_has_min(int type) {
    return type == TDM_TYPE_Q4_1 || type == TDM_TYPE_Q5_1;
}

/* Bits k and k + 16 of `fifth` to 4 and 20; of bytes, bits k + 8 and k + 24 to 12 and 28. */
INLINE ints fifth_bits(ints fifth, int k) {
    switch (k) {
    case -6: return ints_sll32(fifth, 10);
    case -5: return ints_sll32(fifth, 9);
    case -2: return ints_sll32(fifth, 6);
    case -1: return ints_sll32(fifth, 5);
    case 0: return ints_sll32(fifth, 4);
    case 1: return ints_sll32(fifth, 3);
    case 2: return ints_sll32(fifth, 2);
    case 3: return ints_sll32(fifth, 1);
    case 4: return fifth;
    case 5: return ints_srl32(fifth, 1);
    case 6: return ints_srl32(fifth, 2);
    case 7: return ints_srl32(fifth, 3);
    case 8: return ints_srl32(fifth, 4);
    case 9: return ints_srl32(fifth, 5);
    case 10: return ints_srl32(fifth, 6);
    case 11: return ints_srl32(fifth, 7);
    case 12: return ints_srl32(fifth, 8);
    case 13: return ints_srl32(fifth, 9);
    case 14: return ints_srl32(fifth, 10);
    default: return ints_srl32(fifth, 11);
    }
}

/* Pair i of a word of 4- or 5-bit codes. */
INLINE ints nibble_pair(ints x, ints fifth, int c, int i, int type) {
    ints low = ints_set(0x000f000f), pair;
    switch (i) {
    case 0: pair = ints_and(x, low); break;
    case 1: pair = ints_and(ints_srl16(x, 4), low); break;
    case 2: pair = ints_and(ints_srl16(x, 8), low); break;
    default: pair = ints_srl16(x, 12); break;
    }
    if (type_has_fifth(type))
        pair = ints_or_and(pair, fifth_bits(fifth, 4 * c + i), ints_set(0x00100010));
    return pair;
}

INLINE ints low_bytes(ints x) {
    return ints_sra16(ints_sll16(x, 8), 8);
}
INLINE ints high_bytes(ints x) {
    return ints_sra16(x, 8);
}

/* How many pairs words of codes hold. */
INLINE int word_pairs(int type) {
    return type == TDM_TYPE_Q8_0 ? 2 : 4;
}

/* Pair i of words `x`. `c` numbers the words of a block: their fifth bits follow from it. */
INLINE ints widen(ints x, ints fifth, ints table, int c, int i, int type) {
    if (type == TDM_TYPE_Q8_0) return i == 0 ? low_bytes(x) : high_bytes(x);
    if (type != TDM_TYPE_IQ4_NL) return nibble_pair(x, fifth, c, i, type);
    if (i % 2 == 1) x = ints_srl16(x, 4);
    x = bytes_lookup(table, ints_and(x, ints_set(0x0f0f0f0f)));
    return i < 2 ? low_bytes(x) : high_bytes(x);
}

/* Pair i of words of V, whose nibbles of q4_0 are signed (kv_page.h). */
INLINE ints widen_value(ints x, ints fifth, ints table, int c, int i, int type) {
    if (type != TDM_TYPE_Q4_0) return widen(x, fifth, table, c, i, type);
    switch (i) {
    case 0: return ints_sra16(ints_sll16(x, 12), 12);
    case 1: return ints_sra16(ints_sll16(x, 8), 12);
    case 2: return ints_sra16(ints_sll16(x, 4), 12);
    default: return ints_sra16(x, 12);
    }
}

INLINE lanes plain_load(const uint8_t *at, int type) {
    if (type == TDM_TYPE_F16) return lanes_from_f16(at);
    if (type == TDM_TYPE_BF16) return lanes_from_bf16(at);
    return lanes_load((const float *)(const void *)at);
}

INLINE size_t plain_size(int type) {
    return type == TDM_TYPE_F32 ? 4 : 2;
}

INLINE bool type_is_plain(int type) {
    return type == TDM_TYPE_F32 || type == TDM_TYPE_F16 || type == TDM_TYPE_BF16;
}

#endif
