/* SPDX-License-Identifier: MIT
 *
 * number.h: types of numbers and functions of one or two of them, for kernels. lang.h includes it.
 */
#ifndef TANDEM_GPU_NUMBER_H
#define TANDEM_GPU_NUMBER_H

typedef unsigned int uint;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;
typedef signed int i32;

static inline int min(int a, int b) {
    return a < b ? a : b;
}
static inline int max(int a, int b) {
    return a > b ? a : b;
}
static inline uint min(uint a, uint b) {
    return a < b ? a : b;
}
static inline u64 min(u64 a, u64 b) {
    return a < b ? a : b;
}
static inline u64 max(u64 a, u64 b) {
    return a > b ? a : b;
}
/* Where one argument is NaN, the other one. */
static inline float max(float a, float b) {
    return __builtin_fmaxf(a, b);
}
static inline float abs(float x) {
    return __builtin_fabsf(x);
}
static inline float clamp(float x, float least, float greatest) {
    return x < least ? least : x > greatest ? greatest : x;
}
static inline float fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
static inline float sqrt(float x) {
    return __builtin_sqrtf(x);
}
/* Towards 0. */
static inline float truncate(float x) {
    return __builtin_truncf(x);
}
/* To the nearest integer, ties to even. */
static inline float round_even(float x) {
    return __builtin_rintf(x);
}
static inline uint float_to_bits(float x) {
    uint bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float bits_to_float(uint bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
#define NEGATIVE_INFINITY bits_to_float(0xff800000u)
/* By the bits, because compilers may assume that arithmetic gives no NaN. */
static inline bool is_nan(float x) {
    return (float_to_bits(x) & 0x7fffffffu) > 0x7f800000u;
}
/* The number of the highest bit that is set; -1 where none is. */
static inline int top_bit(uint x) {
    return x == 0 ? -1 : 31 - __builtin_clz(x);
}
static inline uint bit_count(uint x) {
    return uint(__builtin_popcount(x));
}
/* sum + the products of the four signed bytes of a and of b. */
static inline int dot_4_plain(uint a, uint b, int sum) {
    for (int i = 0; i < 32; i += 8) sum += (int(a << (24 - i)) >> 24) * (int(b << (24 - i)) >> 24);
    return sum;
}
/* A word whose byte i is byte number (byte i of index, 0 .. 7) of the eight bytes of low and
 * high. */
static inline uint bytes_pick_plain(uint low, uint high, uint index) {
    uint picked = 0;
    for (int i = 0; i < 32; i += 8) {
        uint number = index >> i & 7u;
        picked |= ((number < 4 ? low : high) >> 8 * (number & 3u) & 255u) << i;
    }
    return picked;
}

#endif
