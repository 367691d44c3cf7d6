/* SPDX-License-Identifier: MIT
 *
 * random.h: the random numbers of tests and benchmarks, and their seed.
 *
 * Kept apart: generators whose bytes a stored hash or figure depends on (bench/random_model.c,
 * tests/model/group_cover.c, tests/unit/test_block_layout.c, test_block_quantize.c and
 * test_quantize_error.c).
 */
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_H
#define TANDEM_TESTS_SUPPORT_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). Any
 * state is a good seed. */
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

/* The seed of a test: the environment variable TANDEM_SEED, else `usual`. Prints it, so that a failure
 * can be repeated. */
static inline uint64_t test_seed(const char *test, uint64_t usual) {
    const char *text = getenv("TANDEM_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : usual;
    printf("%s: TANDEM_SEED=%llu\n", test, (unsigned long long)seed);
    return seed;
}

#endif
