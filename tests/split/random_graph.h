/* SPDX-License-Identifier: MIT
 *
 * random_graph.h: random graphs for a group to cut: every op in every order that its rules allow,
 * weights with random cuts and types, caches. What a graph looks like follows from a sequence of
 * choices (choices.h) alone; what is in its weights and inputs from random_data.h.
 *
 * Every graph is valid and can be run by the CPU plugin: a refusal is a failure of whoever refuses.
 */
#ifndef TANDEM_TESTS_RANDOM_GRAPH_H
#define TANDEM_TESTS_RANDOM_GRAPH_H

#include "core/graph/builder.h"
#include "tests/split/choices.h"

enum { RANDOM_MAX_STATE = 6, RANDOM_MAX_CLASS = 2, RANDOM_MAX_SEQ = 3, RANDOM_MAX_TOK = 24 };

/* A cache, the same in every graph of a case. */
typedef struct random_state {
    char name[16];
    tdm_kv_desc desc;
    int64_t n_page;
    tdm_partition partition; /* id 0 = not cut */
    tdm_rope_params rope;    /* how its keys were turned */
} random_state;

/* What a case is besides its graph. */
typedef struct random_case {
    uint64_t data_seed; /* of weights, inputs and steps */
    bool has_step;
    tdm_step_caps caps;
    int32_t n_seq;
    int32_t n_step;    /* 1 and up: how often the graph is run, on caches that fill up */
    int32_t n_row_max; /* ids are below it */
    int32_t page_len[RANDOM_MAX_CLASS];
    int64_t n_page[RANDOM_MAX_CLASS];
    random_state states[RANDOM_MAX_STATE];
    int n_state;
    int32_t shift;   /* positions by which the cache is shifted between steps; 0 = it is not */
    bool moves_page; /* a page is copied to another between steps */
    bool reimports;  /* rows are exported, compared, and imported into other pages */
} random_case;

/* Bytes of a page on the device that the graph is made for. */
typedef tdm_status (*random_page_size_fn)(void *context, const tdm_kv_desc *desc,
                                          uint64_t *size_out, tdm_error *err);

/* Makes the graph of a sequence of choices. partition_base is added to the partitions' ids. The
 * caller frees *graph_out with tdm_graph_free. Any failure, except one of page_size, is an error of
 * the generator. */
tdm_status random_graph_make(choices *c, int32_t partition_base, random_page_size_fn page_size,
                             void *context, random_case *case_out, tdm_graph **graph_out,
                             tdm_error *err);

/* Graphs that maintain the caches of one class: their steps take two jobs for each page of the
 * class, and EXPORT and IMPORT one row for each cell. */
typedef enum random_upkeep {
    RANDOM_SHIFT,
    RANDOM_COPY,
    RANDOM_EXPORT,
    RANDOM_IMPORT,
    RANDOM_UPKEEP_COUNT_
} random_upkeep;

tdm_status random_upkeep_make(const random_case *facts, random_upkeep kind, int32_t cls,
                              random_page_size_fn page_size, void *context, tdm_graph **graph_out,
                              tdm_error *err);

#endif
