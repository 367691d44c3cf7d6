/* SPDX-License-Identifier: MIT
 *
 * random_pool.h: the values that a random graph has so far, for the files that add to it.
 */
#ifndef TANDEM_TESTS_RANDOM_POOL_H
#define TANDEM_TESTS_RANDOM_POOL_H

#include "tests/split/random_graph.h"

enum {
    POOL_MAX = 400,
    POOL_MAX_CUT = 64,
    POOL_MAX_ELEMENTS = 24000, /* of a value */
    POOL_MAX_WEIGHT = 160000   /* elements of a weight */
};

typedef struct pool_value {
    int32_t id; /* in the graph */
    int32_t type;
    int64_t ne[TDM_MAX_DIMS];
    int64_t nb[TDM_MAX_DIMS]; /* elements from one to the next along each axis */
    double size;              /* roughly its root mean square: kept near 1 */
    bool is_view, is_leaf;    /* a leaf is produced by no node */
    bool is_used;
    bool is_hidden; /* not to be picked: an i32, a cut of the step block */
} pool_value;

/* A partition's id and what all of that id have in common. */
typedef struct pool_cut {
    int32_t id, layer, n_unit, n_sub;
} pool_cut;

typedef struct pool {
    choices *c;
    tdm_builder *b;
    random_case *facts;
    random_page_size_fn page_size;
    void *context;
    int32_t partition_base;
    int32_t step, pos; /* values of the graph, -1 where there is none */
    int32_t n_tok;     /* tokens of a step; of graphs without, an axis like another */
    pool_value values[POOL_MAX];
    int n;
    pool_cut cuts[POOL_MAX_CUT];
    int n_cut;
    int n_weight, n_input;
    tdm_error err; /* of page_size */
} pool;

static inline uint32_t pool_below(pool *p, uint32_t n) {
    return choice_below(p->c, n);
}

/* One of a list; the first is the simplest. */
int64_t pool_one_of(pool *p, const int64_t *list, int n);
#define POOL_ONE_OF(p, ...)                                                                        \
    pool_one_of(p, (const int64_t[]){__VA_ARGS__},                                                 \
                (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
/* A length for an axis that weights are multiplied along. */
int64_t pool_width(pool *p);

/* Adds a value that the builder made; returns its place in the pool, -1 where the builder failed or
 * the pool is full. `size` as in pool_value. */
int pool_add(pool *p, int32_t id, double size);
/* The same for a view of `of`. nb: its strides in elements; NULL = it is contiguous. */
int pool_add_view(pool *p, int32_t id, int of, const int64_t nb[TDM_MAX_DIMS]);
/* The id for use as a source. */
int32_t pool_use(pool *p, int i);

/* A value of f32, of at most n_axis axes (the others 1): the newest is the simplest choice; -1
 * where there is none. */
int pool_pick(pool *p, int n_axis);
/* One that `fits`. */
typedef bool (*pool_fits_fn)(const pool *p, const pool_value *v, const void *context);
int pool_pick_that(pool *p, pool_fits_fn fits, const void *context);
/* A [k, n_tok] of f32, made where there is none. */
int pool_pick_tokens(pool *p);
bool pool_is_contiguous(const pool_value *v);
/* The value itself, or a copy that lies contiguously. */
int pool_contiguous(pool *p, int i);
/* Brings numbers that have grown or shrunk too much near 1 again. */
int pool_calm(pool *p, int i);

/* A new f32 input. */
int pool_input(pool *p, const int64_t ne[TDM_MAX_DIMS]);
/* A new weight of a random type that rows of ne[0] can have. Its cut is none or random along a
 * random axis of those in axis_mask. Returns the value of the graph. */
int32_t pool_weight(pool *p, uint32_t usage, const int64_t ne[TDM_MAX_DIMS], unsigned axis_mask);
/* The same with the cut given: partition an index of the builder's, 0 = none. */
int32_t pool_weight_cut(pool *p, uint32_t usage, const int64_t ne[TDM_MAX_DIMS], int32_t partition,
                        int32_t axis);
/* A plain f32 weight; `kind` selects its numbers (random_data.c). */
int32_t pool_plain(pool *p, char kind, int64_t n, int32_t partition);

/* A random partition of an axis of n elements, or none: an index of the builder's, 0 = none. */
int32_t pool_partition(pool *p, int64_t n);
/* A new id with these numbers. */
pool_cut pool_new_cut(pool *p, int32_t n_unit, int32_t n_sub);
/* A partition of that id. lens[n_segment]: elements of a unit in each segment. */
int32_t pool_cut_partition(pool *p, const pool_cut *cut, const int32_t *lens, int n_segment,
                           bool is_whole);

int64_t pool_count(const int64_t ne[TDM_MAX_DIMS]);
#define POOL_SHAPE(...) ((const int64_t[TDM_MAX_DIMS]){__VA_ARGS__})

/* Blocks of several nodes, as models have them, right and slightly wrong. random_block.c */
void pool_block_ffn(pool *p);
void pool_block_moe(pool *p);
void pool_block_attention(pool *p);
/* A convolution and a scan with states. random_recurrent.c */
void pool_block_recurrent(pool *p);
/* A device may keep no recurrent states, or none with these flags. Its graphs have none. */
bool pool_keeps_states(pool *p, uint32_t flags);
/* Attention over means of blocks, with a state and a strided cache. random_compressed.c */
void pool_block_compressed(pool *p);
/* w x (+ bias) of a token value, cut as given; a place in the pool. */
int pool_project(pool *p, int x, int64_t n, int32_t partition, int32_t axis, bool has_bias);
/* x + y where the shapes agree, else y. */
int pool_residual(pool *p, int x, int y);

#endif
