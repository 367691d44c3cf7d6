/* SPDX-License-Identifier: MIT
 *
 * half_scale.h: the power of two with which the numbers of a row fit into f16: of rows of x
 * (halves.cu) and of queries (attention_matrix.h).
 */
#ifndef TANDEM_GPU_HALF_SCALE_H
#define TANDEM_GPU_HALF_SCALE_H

#include "lang.h"

struct HalfScale {
    bool is_finite;
    float times;  // times a number is below 2^15; 0 where a number is not finite
    float factor; // 1 / times; NaN where a number is not finite
};

// exponent: the largest exponent field (bits 23 to 30) of the row's numbers, 255 where one is not
// finite. max |x| < 2^(exponent - 126), so times 2^(141 - exponent) it is below 2^15. Exponents
// below 15, of rows below 2^-112, count as 15: otherwise 1 / times would be no normal f32.
static inline HalfScale half_scale_of(uint exponent) {
    if (exponent >= 255u) return {false, 0.0f, bits_to_float(0x7fc00000u)};
    exponent = exponent < 15u ? 15u : exponent;
    return {true, bits_to_float(268u - exponent << 23), bits_to_float(exponent - 14u << 23)};
}

#endif
