/* SPDX-License-Identifier: MIT
 *
 * random.h: a sequence of random numbers that depends on its seed alone. Sampling uses one step of
 * it as a hash (sampler.c).
 */
#ifndef LLM_RANDOM_H
#define LLM_RANDOM_H

#include <stdint.h>

/* The next number of splitmix64 (Steele, Lea and Flood, 2014). Any state is a good seed.
 * [any-thread] */
static inline uint64_t llm_random_next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
