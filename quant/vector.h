/* SPDX-License-Identifier: MIT
 *
 * vector.h: four floats at once, for the quantisers that search; every supported processor has
 * registers of this size. Vectors are written explicitly because compilers do not vectorise loops
 * under a sanitizer, and tests that quantise models would spend most of their time there.
 */
#ifndef TANDEM_BASE_VECTOR_H
#define TANDEM_BASE_VECTOR_H

#include <stdint.h>
#include <string.h>

enum { VECTOR_LEN = 4 };
typedef float vector __attribute__((vector_size(VECTOR_LEN * sizeof(float))));
typedef int32_t vector_mask __attribute__((vector_size(VECTOR_LEN * sizeof(int32_t))));

static inline vector vector_load(const float *x) {
    vector loaded;
    memcpy(&loaded, x, sizeof loaded);
    return loaded;
}

static inline void vector_store(float *x, vector v) {
    memcpy(x, &v, sizeof v);
}

static inline vector vector_of(float value) {
    return (vector){value, value, value, value};
}

/* a where the mask is set, b elsewhere. */
static inline vector vector_select(vector_mask mask, vector a, vector b) {
    return (vector)((mask & (vector_mask)a) | (~mask & (vector_mask)b));
}

static inline int vector_any(vector_mask mask) {
    return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
}

#endif
