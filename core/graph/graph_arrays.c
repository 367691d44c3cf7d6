/* SPDX-License-Identifier: MIT
 *
 * graph_arrays.c: owns the memory of the graphs that the core makes. builder.c and
 * graph_extract.c fill it.
 */
#include "core/graph/graph_arrays.h"

#include <stdlib.h>
#include <string.h>

void tdm_graph_init(tdm_graph *graph) {
    memset(graph, 0, sizeof *graph);
    graph->struct_size = sizeof *graph;
    graph->value_size = sizeof(tdm_value);
    graph->node_size = sizeof(tdm_node);
    graph->partition_size = sizeof(tdm_partition);
    graph->kv_size = sizeof(tdm_kv_desc);
    graph->step = -1;
}

/* The arrays of the ABI's graph are const; the owner allocated them, so it may write. */
tdm_value *tdm_graph_own_value(tdm_graph *graph, int32_t i) {
    return (tdm_value *)(uintptr_t)tdm_graph_value(graph, i);
}

tdm_node *tdm_graph_own_node(tdm_graph *graph, int32_t i) {
    return (tdm_node *)(uintptr_t)tdm_graph_node(graph, i);
}

void tdm_graph_clear(tdm_graph *graph) {
    free((void *)(uintptr_t)graph->values);
    free((void *)(uintptr_t)graph->nodes);
    free((void *)(uintptr_t)graph->partitions);
    free((void *)(uintptr_t)graph->kv);
    free((void *)(uintptr_t)graph->names);
    tdm_graph_init(graph);
}

void tdm_graph_free(tdm_graph *graph) {
    if (graph == NULL) return;
    tdm_graph_clear(graph);
    free(graph);
}
