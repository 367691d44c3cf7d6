/* SPDX-License-Identifier: MIT
 *
 * graph_print.h: a graph as text, for messages of failed tests.
 */
#ifndef TANDEM_TESTS_GRAPH_PRINT_H
#define TANDEM_TESTS_GRAPH_PRINT_H

#include "tandem/graph.h"

/* A line for the graph, for each cache, for each value that no node writes, and for each node. The
 * caller frees the text with free(). NULL when out of memory. */
char *graph_print(const tdm_graph *graph);

#endif
