/* SPDX-License-Identifier: MIT
 *
 * matmul_amx.h: what vector/matmul_tile.h takes from the instruction set where its bodies are
 * compiled with CPU_IS_PANEL, for AMX: they unpack weights into panels (panel.h) and multiply
 * nothing.
 */
#ifndef TANDEM_CPU_X86_MATMUL_AMX_H
#define TANDEM_CPU_X86_MATMUL_AMX_H

#include "plugins/cpu/ops/panel.h"
#include "plugins/cpu/vector/vector.h"

/* As in matmul_avx512.h. Signed codes stay signed. No body keeps sums. */
enum { TILE_TOK = 1, SIGNED_OFFSET = 0 };

#define KERNEL_NAME(name) cpu_matmul_unpack_##name##_amx

INLINE ints codes_from_signed(ints x) {
    return x;
}

/* Byte `i` of each row's four, as numbers. All codes are below 128. */
INLINE ints code_get(ints codes, int i) {
    return i < 3 ? _mm512_srai_epi32(_mm512_slli_epi32(codes, 24 - 8 * i), 24)
                 : _mm512_srai_epi32(codes, 24);
}

/* A pair of neighbours of each row, rounded to bf16, to nearest. */
INLINE void pair_store(lanes a, lanes b, void *out) {
    static const uint16_t in_turn[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                         21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                         11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const ints both = (__m512i)_mm512_cvtne2ps_pbh(b, a); /* all of a, then all of b */
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(_mm512_loadu_si512(in_turn), both));
}

#endif
