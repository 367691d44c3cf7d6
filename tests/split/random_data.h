/* SPDX-License-Identifier: MIT
 *
 * random_data.h: the numbers that random graphs work on: weights of every type whose products keep
 * the size of their input, inputs, and step blocks that fill caches with sequences, some of which
 * share a prefix. All of it follows from a seed.
 */
#ifndef TANDEM_TESTS_RANDOM_DATA_H
#define TANDEM_TESTS_RANDOM_DATA_H

#include "tests/split/random_graph.h"

/* Canonical bytes of a WEIGHT of a graph, by its name and the seed; the caller frees them. NULL
 * without memory. `noise` is added, relative to each number (0 = none). */
void *random_weight(const tdm_graph *graph, int32_t value, uint64_t seed, double noise);
/* The same of an f32 or i32 INPUT for step `at`. Ids are below n_row_max, some of them -1. */
void *random_input(const tdm_graph *graph, int32_t value, uint64_t seed, int32_t at,
                   int32_t n_row_max, double noise);

enum { RANDOM_MAX_ENTRY = 512 };

/* The sequences of a case and where their tokens are, for each class. */
typedef struct random_cache {
    const random_case *facts;
    uint64_t random;
    int32_t n_tok[RANDOM_MAX_SEQ]; /* of each sequence */
    struct random_class {
        int32_t n_entry[RANDOM_MAX_SEQ];
        tdm_page_entry entries[RANDOM_MAX_SEQ][RANDOM_MAX_ENTRY];
        bool is_shared[RANDOM_MAX_SEQ][RANDOM_MAX_ENTRY]; /* with sequence 0: not written to */
        int32_t *order; /* [n_page] pages in the order in which they are taken */
        int32_t n_taken;
    } cls[RANDOM_MAX_CLASS];
    int32_t base;                 /* position of the first tokens: grows by shifts */
    int32_t slot[RANDOM_MAX_SEQ]; /* slots written so far, which take turns: 2 s, 2 s + 1 */
} random_cache;

bool random_cache_begin(random_cache *cache, const random_case *facts);
void random_cache_end(random_cache *cache);
/* Appends tokens to sequences: the step block for them; the caller frees it. NULL without
 * memory. */
int32_t *random_cache_step(random_cache *cache);
/* Step blocks for maintenance of a class, which change the page tables as given; NULL without
 * memory. EXPORT numbers rows by cells, so that IMPORT can take any of them. */
int32_t *random_cache_upkeep(random_cache *cache, random_upkeep kind, int32_t cls);

#endif
