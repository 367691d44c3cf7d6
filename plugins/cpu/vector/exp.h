/* SPDX-License-Identifier: MIT
 *
 * exp.h: e^x over lanes.
 */
#ifndef TANDEM_CPU_VECTOR_EXP_H
#define TANDEM_CPU_VECTOR_EXP_H

#include "plugins/cpu/vector/vector.h"

/* e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2, e^r by a polynomial; within 2 units in the
 * last place, correct at the infinities, through the subnormals, and NaN for NaN. The constants,
 * ln 2 in two parts among them, are those of Moshier's Cephes library (netlib.org/cephes,
 * single/expf.c). */
static inline lanes lanes_exp(lanes x) {
    /* Beyond these the result is infinite, or 0; the order keeps a NaN. */
    x = lanes_min(lanes_set(89.0f), lanes_max(lanes_set(-104.0f), x));
    lanes n = lanes_round(lanes_mul(x, lanes_set(1.44269504f)));
    lanes r = lanes_fnma(n, lanes_set(0.693359375f), x);
    r = lanes_fnma(n, lanes_set(-2.12194440e-4f), r);
    lanes p = lanes_set(1.9875691500e-4f);
    p = lanes_fma(p, r, lanes_set(1.3981999507e-3f));
    p = lanes_fma(p, r, lanes_set(8.3334519073e-3f));
    p = lanes_fma(p, r, lanes_set(4.1665795894e-2f));
    p = lanes_fma(p, r, lanes_set(1.6666665459e-1f));
    p = lanes_fma(p, r, lanes_set(5.0000001201e-1f));
    p = lanes_fma(p, lanes_mul(r, r), lanes_add(r, lanes_set(1.0f)));
    return lanes_scale2(p, n);
}

#endif
