/* SPDX-License-Identifier: MIT
 *
 * half.h: f16 and bf16 to f32 and back, one number at a time, without any instruction-set
 * extension. Rows are in convert.h.
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even; what is too large becomes infinity,
 * what is small becomes a subnormal. A NaN stays a NaN of the same sign with the payload bits that
 * fit, as x86's instructions give it: quiet, except that widening a bf16 keeps a signalling NaN.
 * [any-thread]
 */
#ifndef TANDEM_BASE_HALF_H
#define TANDEM_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tdm_f32_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tdm_f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float tdm_f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13; /* exponent still biased by 15, not 127 */
    if (bits >= 0x0f800000) {                        /* infinity or NaN: exponent 31 becomes 255 */
        bits |= 0x7f800000;
        if (bits & 0x007fffff) bits |= 0x00400000;
    } else if (bits >= 0x00800000) {
        bits += (127 - 15) << 23;
    } else { /* zero or subnormal, m * 2^-24 = 2^-14 * (1 + m/1024) - 2^-14, both terms normal */
        bits = tdm_f32_to_bits(tdm_f32_from_bits(bits + ((127 - 14) << 23)) - 0x1p-14f);
    }
    return tdm_f32_from_bits(sign | bits);
}

static inline uint16_t tdm_f32_to_f16(float value) {
    uint32_t bits = tdm_f32_to_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00 | (uint16_t)(bits >> 13 & 0x3ff);
    if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520, half way from 65504 to 65536 */
    if (bits >= 0x38800000) {                     /* 2^-14 and above: a normal f16 */
        bits += 0x0fff + (bits >> 13 & 1);
        return sign | (uint16_t)((bits >> 13) - ((127 - 15) << 10));
    }
    /* The ulp of 0.5f is 2^-24, that of a subnormal f16: the addition does the rounding. */
    return sign | (uint16_t)(tdm_f32_to_bits(tdm_f32_from_bits(bits) + 0.5f) - 0x3f000000);
}

static inline float tdm_bf16_to_f32(uint16_t half) {
    return tdm_f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t tdm_f32_to_bf16(float value) {
    uint32_t bits = tdm_f32_to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
