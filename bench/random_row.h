/* SPDX-License-Identifier: MIT
 *
 * random_row.h: rows of random numbers that are the same on every machine, each element computed
 * alone from a key and its index.
 */
#ifndef BENCH_RANDOM_ROW_H
#define BENCH_RANDOM_ROW_H

#include <stdint.h>

/* The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * 2014): a good hash of a counter. */
static inline uint64_t random_hash_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A hash of a text, begun with a seed. */
static inline uint64_t random_hash_text(uint64_t seed, const char *text) {
    uint64_t hash = random_hash_mix(seed);
    for (; *text != '\0'; ++text) hash = random_hash_mix(hash ^ (unsigned char)*text);
    return hash;
}

/* dst[i] = offset + scale * g(key + i), with g the sum of four 16-bit uniform numbers. That is
 * close enough to a standard normal (its kurtosis is 2.7 instead of 3) and costs a fraction of one.
 * The sum is exact, so the numbers are the same on every machine. */
static inline void random_row_fill(float *dst, int64_t n, uint64_t key, float offset, float scale) {
    const float unit = scale / 37837.227f; /* standard deviation of the sum: 65536 / sqrt(3) */
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t r = random_hash_mix(key + (uint64_t)i);
        const int32_t sum =
            (int32_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) -
            2 * 65535;
        dst[i] = offset + (float)sum * unit;
    }
}

#endif
