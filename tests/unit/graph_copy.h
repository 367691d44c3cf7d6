/* SPDX-License-Identifier: MIT
 *
 * graph_copy.h: a graph that a test may damage: arrays of exactly the size they need, so that a
 * sanitizer sees every step outside.
 */
#ifndef TANDEM_TEST_GRAPH_COPY_H
#define TANDEM_TEST_GRAPH_COPY_H

#include "graph_fixture.h"

typedef struct graph_copy {
    tdm_graph g;
    tdm_value *values;
    tdm_node *nodes;
    tdm_partition *partitions;
    tdm_kv_desc *kv;
    char *names;
} graph_copy;

static inline void *copy_of(const void *array, size_t size) {
    void *copy = malloc(size != 0 ? size : 1);
    assert_non_null(copy);
    if (size != 0) memcpy(copy, array, size);
    return copy;
}

/* The hash is 0, so that damage is not found by it alone. */
static inline graph_copy graph_copy_make(const tdm_graph *graph) {
    graph_copy c;
    c.g = *graph;
    c.g.values = c.values = copy_of(graph->values, (size_t)graph->n_value * sizeof(tdm_value));
    c.g.nodes = c.nodes = copy_of(graph->nodes, (size_t)graph->n_node * sizeof(tdm_node));
    c.g.partitions = c.partitions =
        copy_of(graph->partitions, (size_t)graph->n_partition * sizeof(tdm_partition));
    c.g.kv = c.kv = copy_of(graph->kv, (size_t)graph->n_kv * sizeof(tdm_kv_desc));
    c.g.names = c.names = copy_of(graph->names, (size_t)graph->names_size);
    c.g.hash = 0;
    return c;
}

static inline void graph_copy_free(graph_copy *c) {
    free(c->values);
    free(c->nodes);
    free(c->partitions);
    free(c->kv);
    free(c->names);
}

#endif
