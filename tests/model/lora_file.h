/* SPDX-License-Identifier: MIT
 *
 * lora_file.h: adapters for tests, as files, and models with adapters merged into their matrices.
 * A failure of the harness fails the running cmocka test.
 */
#ifndef TANDEM_TESTS_MODEL_LORA_FILE_H
#define TANDEM_TESTS_MODEL_LORA_FILE_H

#include "tests/model/rig.h"

typedef struct lora_spec {
    int rank;       /* of A and B */
    int other_rank; /* of every second pair; 0 = as the others */
    float alpha;    /* 0 = no factor alpha / rank */
    float strength; /* how large alpha / rank * B A is beside a matrix of variance 1 / ne[0] */
    tdm_type type;  /* of A and B; where rows are no whole blocks of it, f16 */
    int seed;
    const char *only; /* part of the names of the matrices that it changes; NULL = all */
    bool has_rows;    /* changes the token embedding, too */
} lora_spec;

/* Writes an adapter for matrices of the model in the file `base`: for all that adapters may change,
 * and whose names have spec->only in them. Returns the number of pairs. */
int lora_file_write(const char *base, const lora_spec *spec, const char *path);

/* Writes the model of `base`, whose matrices are f32, with
 * W + sum of scales[i] * (alpha / rank) * B A of adapters [n], computed here in f64. Where the
 * embedding changes, a head that was tied to it becomes a matrix of its own, unchanged. */
void lora_merge_write(const char *base, const char *const *adapters, const float *scales, int n,
                      const char *path);

#endif
