/* SPDX-License-Identifier: MIT
 *
 * half_scale.h: the power of two by which the numbers of a row fit into f16: that of x in halves.cu, and
 * that of queries in attention_tile_matrix.cu.
 */
#ifndef TANDEM_GPU_HALF_SCALE_H
#define TANDEM_GPU_HALF_SCALE_H

#include "lang.h"

struct HalfScale {
    bool is_finite;
    float
        times; // what a number is multiplied by, so that it is below 2^15; 0 where not all are finite
    float factor; // 1 / times; NaN where not all are finite
};

// exponent: the largest of the bits of the row's exponents, 255 where a number is not finite.
// max |x| < 2^(exponent - 126): times 2^(141 - exponent) it is below 2^15. Of a row below 2^-111 neither
// that factor nor its inverse would be a normal f32.
static inline HalfScale half_scale_of(uint exponent) {
    if (exponent >= 255u) return {false, 0.0f, bits_to_float(0x7fc00000u)};
    exponent = exponent < 15u ? 15u : exponent;
    return {true, bits_to_float(268u - exponent << 23), bits_to_float(exponent - 14u << 23)};
}

#endif
