/* SPDX-License-Identifier: MIT
 *
 * exp.h: e^x over lanes.
 */
#ifndef TANDEM_CPU_VECTOR_EXP_H
#define TANDEM_CPU_VECTOR_EXP_H

#include "plugins/cpu/vector/vector.h"

/* 2^f for 0 <= f <= 1. The polynomial has degree 5 and is 1 at 0; of these it is the nearest in
 * relative error, within 8.3e-8; with the rounding of f32 2^f is within 1.8e-7. */
INLINE lanes lanes_exp2_fraction(lanes f) {
    lanes y = lanes_set(1.86713005e-3f);
    y = lanes_fma(y, f, lanes_set(9.017030708e-3f));
    y = lanes_fma(y, f, lanes_set(5.579991266e-2f));
    y = lanes_fma(y, f, lanes_set(2.401644439e-1f));
    y = lanes_fma(y, f, lanes_set(6.931512952e-1f));
    return lanes_fma(y, f, lanes_set(1.0f));
}

/* e^x = 2^(x / ln 2); within 3 units in the last place (1.8e-7), correct at the infinities, through
 * the subnormals, and NaN for NaN. 1 / ln 2 is the sum of two constants. */
INLINE lanes lanes_exp(lanes x) {
    /* Beyond these the result is infinite, or 0; the order keeps a NaN. */
    x = lanes_min(lanes_set(89.0f), lanes_max(lanes_set(-104.0f), x));
    lanes n = lanes_floor(lanes_mul(x, lanes_set(1.44269502f)));
    lanes f = lanes_fma(x, lanes_set(1.44269502f), lanes_sub(lanes_zero(), n));
    f = lanes_fma(x, lanes_set(1.92596299e-8f), f);
    return lanes_scale2(lanes_exp2_fraction(f), n);
}

/* e^x for attention's weights, x <= 0 or NaN: fewer operations, since attention waits for them. The
 * error is at most 1.7e-7 absolute, but grows with |x| in proportion to the result: x / ln 2 is
 * rounded once, which changes the result by a factor of up to 1 + 6e-8 |x|. 0 for -inf, NaN for
 * NaN; what is below the normal numbers may be 0. */
INLINE lanes lanes_exp_weight(lanes x) {
    lanes t = lanes_mul(x, lanes_set(1.44269504f));
    return lanes_scale2_down(lanes_exp2_fraction(lanes_fraction(t)), t);
}

#endif
