/* SPDX-License-Identifier: MIT
 *
 * graph_arrays.h: a graph that owns its arrays: builder and extraction write them,
 * tdm_graph_free releases them. Every array is an allocation of its own.
 */
#ifndef TANDEM_CORE_GRAPH_ARRAYS_H
#define TANDEM_CORE_GRAPH_ARRAYS_H

#include "core/graph/builder.h"

/* An empty graph: struct sizes and strides set, no arrays, no step block. [any-thread] */
void tdm_graph_init(tdm_graph *graph);
/* The arrays as their owner writes them. [any-thread] */
tdm_value *tdm_graph_own_value(tdm_graph *graph, int32_t i);
tdm_node *tdm_graph_own_node(tdm_graph *graph, int32_t i);
/* Frees the arrays, not the struct, and empties it. [any-thread] */
void tdm_graph_clear(tdm_graph *graph);

#endif
