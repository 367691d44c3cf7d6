/* SPDX-License-Identifier: MIT
 *
 * made_weight.h: weights for the tests of matmul, experts and layouts: canonical bytes of any
 * type, random or with the worst values that the format allows, and the numbers that they encode.
 */
#ifndef TANDEM_TESTS_MADE_WEIGHT_H
#define TANDEM_TESTS_MADE_WEIGHT_H

#include "tandem/op.h"

typedef enum made_kind {
    MADE_RANDOM,    /* random codes (for plain types: values), random scales of an ordinary size */
    MADE_LARGEST,   /* every code bit set, every scale the largest of its format */
    MADE_SMALLEST,  /* every code bit clear, every scale the largest of its format */
    MADE_SUBNORMAL, /* random codes, scales that are subnormal f16 of both signs */
    MADE_ZERO,      /* random codes, scales zero */
    MADE_KINDS
} made_kind;

extern const tdm_type made_types[]; /* all that weights can have */
#define MADE_COUNT_FLOAT                         +1
#define MADE_COUNT_BLOCK                         +1
#define MADE_COUNT_INTEGER                       +0
#define MADE_COUNT_(ID, name, number, kind, ...) MADE_COUNT_##kind
enum { MADE_TYPES = 0 TDM_TYPE_LIST(MADE_COUNT_) };

/* Fills n_row canonical rows of k elements; never a NaN or an infinity. */
void made_weight_fill(uint64_t *seed, tdm_type type, made_kind kind, int64_t k, int64_t n_row,
                      uint8_t *rows);

/* As made_weight_fill, in memory to be released with free(). */
uint8_t *made_weight_create(uint64_t *seed, tdm_type type, made_kind kind, int64_t k,
                            int64_t n_row);

/* Row `row` as f32, by the reference conversion. */
void made_weight_row(tdm_type type, const uint8_t *rows, int64_t k, int64_t row, float *out);

/* malloc that ends the test without memory; never NULL. */
void *made_alloc(size_t size);

#endif
