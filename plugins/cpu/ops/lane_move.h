/* SPDX-License-Identifier: MIT
 *
 * lane_move.h: moves `size` bytes of each of n_row neighbouring rows, row_pitch apart, to
 * neighbouring lanes: unit u of row r goes to address to + u * pitch + r * (bytes of a unit).
 * A square of units is transposed in registers, so that whole lines of the destination are written
 * with a few stores; what is left over is moved unit by unit. Vectors are the compiler's, 16 bytes,
 * which every 64-bit machine has. weight.c decides which pieces a layout has.
 */
#ifndef TANDEM_CPU_LANE_MOVE_H
#define TANDEM_CPU_LANE_MOVE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t lane_u8 __attribute__((vector_size(16)));
typedef uint16_t lane_u16 __attribute__((vector_size(16)));
typedef uint32_t lane_u32 __attribute__((vector_size(16)));
typedef uint64_t lane_u64 __attribute__((vector_size(16)));

static inline lane_u32 lane_load(const uint8_t *from) {
    lane_u32 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void lane_store(uint8_t *to, lane_u32 v) {
    memcpy(to, &v, sizeof v);
}

#define LANE_ZIP8_(a, b, lo) /* bytes of the low or high halves, in turns */                       \
    ((lane_u32)__builtin_shufflevector((lane_u8)(a), (lane_u8)(b), (lo) + 0, (lo) + 16, (lo) + 1,  \
                                       (lo) + 17, (lo) + 2, (lo) + 18, (lo) + 3, (lo) + 19,        \
                                       (lo) + 4, (lo) + 20, (lo) + 5, (lo) + 21, (lo) + 6,         \
                                       (lo) + 22, (lo) + 7, (lo) + 23))
#define LANE_ZIP16_(a, b, lo)                                                                      \
    ((lane_u32)__builtin_shufflevector((lane_u16)(a), (lane_u16)(b), (lo) + 0, (lo) + 8, (lo) + 1, \
                                       (lo) + 9, (lo) + 2, (lo) + 10, (lo) + 3, (lo) + 11))
#define LANE_ZIP32_(a, b, lo)                                                                      \
    __builtin_shufflevector((lane_u32)(a), (lane_u32)(b), (lo) + 0, (lo) + 4, (lo) + 1, (lo) + 5)
#define LANE_ZIP64_(a, b, lo)                                                                      \
    ((lane_u32)__builtin_shufflevector((lane_u64)(a), (lane_u64)(b), (lo) + 0, (lo) + 2))

/* Transposes 4 x 4 words: v[i] becomes word i of each vector. */
static inline void lane_words_turn(lane_u32 v[4]) {
    lane_u32 a = LANE_ZIP32_(v[0], v[1], 0), b = LANE_ZIP32_(v[0], v[1], 2);
    lane_u32 c = LANE_ZIP32_(v[2], v[3], 0), d = LANE_ZIP32_(v[2], v[3], 2);
    v[0] = LANE_ZIP64_(a, c, 0);
    v[1] = LANE_ZIP64_(a, c, 1);
    v[2] = LANE_ZIP64_(b, d, 0);
    v[3] = LANE_ZIP64_(b, d, 1);
}

/* Units of 4 bytes; `size` is a multiple of them. */
static inline void lane_move_4(uint8_t *to, size_t pitch, const uint8_t *src, uint64_t row_pitch,
                               int32_t size, int32_t n_row) {
    int32_t i = 0;
    for (; i + 16 <= size; i += 16, to += 4 * pitch, src += 16) {
        int32_t r = 0;
        for (; r + 4 <= n_row; r += 4) {
            lane_u32 v[4];
            for (int32_t k = 0; k < 4; k++) v[k] = lane_load(src + (uint64_t)(r + k) * row_pitch);
            lane_words_turn(v);
            for (int32_t k = 0; k < 4; k++) lane_store(to + (size_t)k * pitch + 4 * r, v[k]);
        }
        for (; r < n_row; r++)
            for (int32_t k = 0; k < 4; k++)
                memcpy(to + (size_t)k * pitch + 4 * r, src + (uint64_t)r * row_pitch + 4 * k, 4);
    }
    for (; i < size; i += 4, to += pitch, src += 4)
        for (int32_t r = 0; r < n_row; r++) memcpy(to + 4 * r, src + (uint64_t)r * row_pitch, 4);
}

/* Units of 2 bytes: eight of eight rows at a time. */
static inline void lane_move_2(uint8_t *to, size_t pitch, const uint8_t *src, uint64_t row_pitch,
                               int32_t size, int32_t n_row) {
    int32_t i = 0;
    for (; i + 16 <= size; i += 16, to += 8 * pitch, src += 16) {
        int32_t r = 0;
        for (; r + 8 <= n_row; r += 8) {
            lane_u32 v[8], lo[4], hi[4];
            for (int32_t k = 0; k < 8; k++) v[k] = lane_load(src + (uint64_t)(r + k) * row_pitch);
            for (int32_t k = 0; k < 4; k++) {
                lo[k] = LANE_ZIP16_(v[2 * k], v[2 * k + 1], 0); /* units 0 .. 3 of a pair of rows */
                hi[k] = LANE_ZIP16_(v[2 * k], v[2 * k + 1], 4);
            }
            lane_words_turn(lo);
            lane_words_turn(hi);
            for (int32_t k = 0; k < 4; k++) {
                lane_store(to + (size_t)k * pitch + 2 * r, lo[k]);
                lane_store(to + (size_t)(4 + k) * pitch + 2 * r, hi[k]);
            }
        }
        for (; r < n_row; r++)
            for (int32_t k = 0; k < 8; k++)
                memcpy(to + (size_t)k * pitch + 2 * r, src + (uint64_t)r * row_pitch + 2 * k, 2);
    }
    for (; i < size; i += 2, to += pitch, src += 2) {
        int32_t r = 0;
        for (; r + 8 <= n_row; r += 8) {
            lane_u16 v;
            for (int32_t k = 0; k < 8; k++) {
                uint16_t unit;
                memcpy(&unit, src + (uint64_t)(r + k) * row_pitch, 2);
                v[k] = unit;
            }
            lane_store(to + 2 * r, (lane_u32)v);
        }
        for (; r < n_row; r++) memcpy(to + 2 * r, src + (uint64_t)r * row_pitch, 2);
    }
}

/* Single bytes, up to 16 of a row: words of 16 rows at a time. */
static inline void lane_move_1(uint8_t *to, size_t pitch, const uint8_t *src, uint64_t row_pitch,
                               int32_t size, int32_t n_row) {
    const int32_t n_word = size / 4, n_square = n_row / 16 * 16;
    for (int32_t r = 0; r < n_square && n_word > 0; r += 16) {
        lane_u32 v[4][4]; /* [words of a row][rows / 4]: byte i of four rows at word i */
        for (int32_t k = 0; k < 4; k++) {
            lane_u32 row[4];
            for (int32_t j = 0; j < 4; j++) {
                const uint8_t *from = src + (uint64_t)(r + 4 * k + j) * row_pitch;
                uint32_t words[4] = {0};
                for (int32_t w = 0; w < n_word; w++) memcpy(&words[w], from + 4 * w, 4);
                row[j] = (lane_u32){words[0], words[1], words[2], words[3]};
            }
            lane_u32 a = LANE_ZIP8_(row[0], row[1], 0), b = LANE_ZIP8_(row[0], row[1], 8);
            lane_u32 c = LANE_ZIP8_(row[2], row[3], 0), d = LANE_ZIP8_(row[2], row[3], 8);
            v[0][k] = LANE_ZIP16_(a, c, 0);
            v[1][k] = LANE_ZIP16_(a, c, 4);
            v[2][k] = LANE_ZIP16_(b, d, 0);
            v[3][k] = LANE_ZIP16_(b, d, 4);
        }
        for (int32_t w = 0; w < n_word; w++) {
            lane_words_turn(v[w]);
            for (int32_t k = 0; k < 4; k++)
                lane_store(to + (size_t)(4 * w + k) * pitch + r, v[w][k]);
        }
    }
    for (int32_t i = 0; i < size; i++)
        for (int32_t r = i < 4 * n_word ? n_square : 0; r < n_row; r++)
            to[(size_t)i * pitch + (size_t)r] = src[(uint64_t)r * row_pitch + (uint64_t)i];
}

#endif
