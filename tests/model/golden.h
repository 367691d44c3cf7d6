/* SPDX-License-Identifier: MIT
 *
 * golden.h: bounds of the difference between two ways of computing a model. docs/accuracy.md gives
 * the sources of the numbers.
 */
#ifndef TANDEM_TESTS_MODEL_GOLDEN_H
#define TANDEM_TESTS_MODEL_GOLDEN_H

#include "tandem/type.h"

/* The reference path against llama.cpp on the same values in f32, NMSE of probabilities. Only the
 * order of additions differs. The requirement is 1e-6; rounding alone stays far below. */
#define GOLDEN_REFERENCE_BOUND 1e-9

/* The fast path against the reference path, NMSE of probabilities. With weights in floats only the
 * order of additions differs; with blocks, activations are rounded to 15 bits. The requirement for
 * q8_0 and K-quants is 2e-4; every type stays far below. */
static inline double golden_fast_bound(tdm_type type) {
    bool is_float = type == TDM_TYPE_F32 || type == TDM_TYPE_F16 || type == TDM_TYPE_BF16;
    return is_float ? 1e-10 : 1e-6;
}

/* The same with activations of 8 bits, which is what llama.cpp's own kernels round them to. */
static inline double golden_8_bound(tdm_type type) {
    double bound = golden_fast_bound(type);
    return bound < 1e-6 ? bound : 7e-4;
}

#endif
