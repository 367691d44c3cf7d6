/* SPDX-License-Identifier: MIT
 *
 * random.h: the random numbers of tests and benchmarks, and their seed.
 *
 * random_u64 is the generator of every test. random_xorshift32 and random_lcg32 are for tests with
 * stored hashes or figures, which were made with them. bench/random_model.c has its own: the values
 * of a weight depend on its name and place alone.
 */
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_H
#define TANDEM_TESTS_SUPPORT_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
 * Any state is a good seed. */
static inline uint64_t random_u64(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* 0 .. n-1 */
static inline uint32_t random_u32_below(uint64_t *state, uint32_t n) {
    return (uint32_t)(random_u64(state) >> 32) % n;
}

/* xorshift32 (Marsaglia, "Xorshift RNGs", 2003). The state is not 0. */
static inline uint32_t random_xorshift32(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* A linear congruence (Press et al., "Numerical Recipes", 7.1). The high bits are the better
 * ones. */
static inline uint32_t random_lcg32(uint32_t *state) {
    return *state = *state * 1664525u + 1013904223u;
}

/* The seed of a test: the environment variable TANDEM_SEED, else `usual`. Prints it, so that a
 * failure can be repeated. */
static inline uint64_t test_seed(const char *test, uint64_t usual) {
    const char *text = getenv("TANDEM_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : usual;
    printf("%s: TANDEM_SEED=%llu\n", test, (unsigned long long)seed);
    return seed;
}

#endif
