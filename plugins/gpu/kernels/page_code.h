/* SPDX-License-Identifier: MIT
 *
 * page_code.h: codes of quantised cache types as numbers: the formulas of
 * core/include/tandem/block.h, one rounded operation after the other.
 */
#ifndef TANDEM_GPU_PAGE_CODE_H
#define TANDEM_GPU_PAGE_CODE_H

#include "iq4.h"
#include "page.h"

// code - offset for 0 <= code < 2^23, exactly. The code is inserted into the mantissa of 2^23: that
// takes a subtraction instead of a conversion, of which processors do fewer at a time.
static inline float code_minus(uint code, float offset) {
    return bits_to_float(0x4b000000u | code) - (8388608.0f + offset);
}

// The level of a code.
static inline float iq4_value(uint code) {
    uint low = (code & 4u) != 0u ? iq4_word(1) : iq4_word(0);
    uint high = (code & 4u) != 0u ? iq4_word(3) : iq4_word(2);
    uint word = (code & 8u) != 0u ? high : low;
    return code_minus((word >> 8u * (code & 3u) & 255u) ^ 128u, 128.0f);
}

// The offset that the types without a codebook subtract from a code.
static inline float code_offset(int type) {
    return type == TYPE_Q4_0 ? 8.0f : type == TYPE_Q5_0 ? 16.0f : 0.0f;
}

// The element of a code from which the offset is subtracted already. scale: d and m.
static inline float value_scaled(int type, float value, vec2 scale) {
    float x = value * scale.x, moved = x + scale.y;
    return type_has_min(type) ? moved : x;
}

static inline float byte_scaled(uint code, vec2 scale) {
    return code_minus(code ^ 128u, 128.0f) * scale.x;
}

// The element of a code.
static inline float code_scaled(int type, uint code, vec2 scale) {
    if (type == TYPE_Q8_0) return byte_scaled(code, scale);
    if (type == TYPE_IQ4_NL) return iq4_value(code) * scale.x;
    return value_scaled(type, code_minus(code, code_offset(type)), scale);
}

#endif
