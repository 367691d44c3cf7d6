// SPDX-License-Identifier: MIT
//
// select.glsl: keys of scores, for the kernels of KV_SELECT. A token and list have a key for each
// slot of the pages of the token's sequence, from its first entry on; a slot whose position the
// token does not see has key 0.
#include "number.glsl"

const uint KEY_NONE = 0u;
const uint KEY_LEAST = 1u;          // of a NaN
const uint KEY_LOCAL = 0xffffffffu; // of slots chosen whatever their score; no score has it

// A workgroup reads keys that other threads of it have changed.
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer Keys { uint at[]; };

// Greater scores have greater keys; -0 is 0.
uint key_of(float x) {
    uint bits = floatBitsToUint(x);
    if (is_nan(x)) return KEY_LEAST;
    if (bits == 0x80000000u) bits = 0u;
    return (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
}

// Row `number` of rows of n_key keys.
Keys key_row(uint64_t keys, int number, int n_key) {
    return Keys(keys + uint64_t(uint(number)) * uint64_t(uint(n_key)) * 4);
}
