/* SPDX-License-Identifier: MIT
 *
 * exchange_data.h: the inputs and the expected results of exchanges, for test_exchange.c.
 * exchange_data.c computes the expected sums. A function fails the running test when a comparison
 * fails.
 */
#ifndef TANDEM_TESTS_EXCHANGE_DATA_H
#define TANDEM_TESTS_EXCHANGE_DATA_H

#include "bench/exchange_scene.h"

enum { EXCHANGE_MAX_RANK = SCENE_MAX_MEMBER, EXCHANGE_MAX_NODE = 3 };

/* What a member's x, residual and result are in one run. */
typedef struct rank_data {
    uint8_t *x;
    float *crossed; /* of sums: x as it crossed the wire */
    float *residual;
    uint8_t *want;
    size_t want_size;
} rank_data;

typedef struct exchange_data {
    rank_data ranks[EXCHANGE_MAX_NODE][EXCHANGE_MAX_RANK];
} exchange_data;

/* Random numbers from exchange_seed; exchange_below: 0 .. n-1. */
extern uint64_t exchange_seed;
uint64_t exchange_random(void);
int64_t exchange_below(int64_t n);
/* Fails the test unless status is TDM_OK. */
void exchange_must(tdm_status status, const tdm_error *err);
/* Zeroed memory; released with free. */
void *exchange_memory(size_t size);

/* Where element i of a part is inside the whole value. part, whole: the shapes, which count blocks
 * on axis 0 of a quantised type. The part begins at `first` of `axis`. */
int64_t exchange_place_of(const int64_t *part, const int64_t *whole, int axis, int64_t first,
                          int64_t i);
/* Random data for nodes[n_node] of a scene, and what each of n_rank members must get. */
exchange_data *exchange_data_make(const scene *s, const scene_node *nodes, int32_t n_node,
                                  int32_t n_rank);
/* NULL is a no-op. */
void exchange_data_free(exchange_data *run);
/* Gives member `rank` its sources. */
void exchange_data_put(scene *s, int32_t n_node, int32_t rank, const exchange_data *run);
/* Compares its results, bit for bit. */
void exchange_data_check(scene *s, const scene_node *nodes, int32_t n_node, int32_t rank,
                         const exchange_data *run, const char *label);

#endif
