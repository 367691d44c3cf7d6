/* SPDX-License-Identifier: MIT
 *
 * wire.h: the arithmetic of an exchanged sum, to the bits of tdm_wire_sum (core/base/wire.c) on
 * every driver.
 */
#ifndef TANDEM_GPU_WIRE_H
#define TANDEM_GPU_WIRE_H

#include "half.h"
#include "vec.h"

enum { WIRE_F32 = 0, WIRE_F16 = 1, WIRE_BF16 = 2 }; // gpu_wire

// Denormal numbers and -0 count as +0 (tandem/collective.h), whether the driver keeps them or not.
static inline float wire_flushed(float x) {
    return (float_to_bits(x) & 0x7f800000u) == 0u ? 0.0f : x;
}

static inline float wire_add(float sum, float x) {
    float next = sum + wire_flushed(x);
    return wire_flushed(next);
}

// The bits of a sum; every NaN becomes the same one.
static inline uint wire_result(float sum) {
    return is_nan(sum) ? 0x7fc00000u : float_to_bits(sum);
}

/* The same of four elements. */
static inline vec4 wire_flushed(vec4 x) {
    return vec4(wire_flushed(x.x), wire_flushed(x.y), wire_flushed(x.z), wire_flushed(x.w));
}
static inline vec4 wire_add(vec4 sum, vec4 x) {
    return vec4(wire_add(sum.x, x.x), wire_add(sum.y, x.y), wire_add(sum.z, x.z),
                wire_add(sum.w, x.w));
}
static inline uvec4 wire_result(vec4 sum) {
    return uvec4(wire_result(sum.x), wire_result(sum.y), wire_result(sum.z), wire_result(sum.w));
}

#endif
