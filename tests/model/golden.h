/* SPDX-License-Identifier: MIT
 *
 * golden.h: how near two ways of computing a model must come to each other. docs/accuracy.md says
 * where the numbers come from.
 */
#ifndef TANDEM_TESTS_MODEL_GOLDEN_H
#define TANDEM_TESTS_MODEL_GOLDEN_H

#include "tandem/type.h"

/* The reference path against llama.cpp on the same values in f32, NMSE of probabilities: only the
 * order of additions differs. 1e-6 is asked for; rounding alone stays far below this. */
#define GOLDEN_REFERENCE_BOUND 1e-9

/* The fast path against the reference path, NMSE of probabilities: nothing but the order of
 * additions for weights that are floats; for blocks, what rounding activations to 15 bits costs.
 * 2e-4 is asked for q8_0 and K-quants; every type stays far below. */
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
