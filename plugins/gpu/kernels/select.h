/* SPDX-License-Identifier: MIT
 *
 * select.h: keys of scores, for the kernels of KV_SELECT. A token and list have a key for each slot
 * of the pages of the token's sequence, from its first entry on; a slot whose position the token
 * does not see has key 0.
 */
#ifndef TANDEM_GPU_SELECT_H
#define TANDEM_GPU_SELECT_H

#include "attention_dot.h"

static constexpr uint KEY_NONE = 0u;
static constexpr uint KEY_LEAST = 1u; // of a NaN
// Of slots that are chosen whatever their score is. key_of() gives it for no score.
static constexpr uint KEY_LOCAL = 0xffffffffu;

/* The key of a score. Greater scores have greater keys; -0 and 0 have the same; a NaN has the
 * least. */
static inline uint key_of(float x) {
    uint bits = float_to_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return KEY_LEAST;
    if (bits == 0x80000000u) bits = 0u;
    return (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
}

/* Row `number` of rows of n_key keys. */
static inline U32 key_row(u64 keys, int number, int n_key) {
    return U32(keys + u64(uint(number)) * u64(uint(n_key)) * 4);
}

#endif
