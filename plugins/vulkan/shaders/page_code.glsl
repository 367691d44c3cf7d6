// SPDX-License-Identifier: MIT
//
// page_code.glsl: codes of quantised cache types as numbers: the formulas of
// core/include/tandem/block.h, one rounded operation after the other.
#include "iq4.glsl"

float code_value(int type, uint code) {
    return type == TYPE_IQ4_NL ? iq4_value(code)
           : type == TYPE_Q8_0 ? float(int(code << 24) >> 24)
           : type == TYPE_Q4_0 ? float(int(code) - 8)
           : type == TYPE_Q5_0 ? float(int(code) - 16) : float(code);
}

// A code as a number. scale: d, m
float code_scaled(int type, uint code, vec2 scale) {
    precise float x = code_value(type, code) * scale.x;
    if (type_has_min(type)) x = x + scale.y;
    return x;
}
