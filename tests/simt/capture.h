/* SPDX-License-Identifier: MIT
 *
 * capture.h: graphs of captured launches. A launch depends on the launches at the front of its
 * stream. An event carries the front of a stream to another stream, which joins the capture so. A
 * graph's launches run in an order that the dependencies allow, but that differs from the order of
 * the capture where it can: so a test fails where a dependency is missing.
 */
#ifndef TANDEM_SIMT_CAPTURE_H
#define TANDEM_SIMT_CAPTURE_H

#include <stdbool.h>

#include "tests/simt/block.h"

enum { SIMT_MAX_FRONT = 16 };

/* The launches that the next launch of a stream depends on. */
typedef struct simt_front {
    int node[SIMT_MAX_FRONT];
    int n;
} simt_front;

/* Adds the nodes of another front; false where there are more than SIMT_MAX_FRONT. */
bool simt_front_join(simt_front *front, const simt_front *other);

typedef struct simt_graph simt_graph;

simt_graph *simt_graph_create(void); /* NULL where there is no memory */
void simt_graph_free(simt_graph *graph);

/* Appends a launch that depends on the front. The front becomes this launch alone. False: no
 * memory. */
bool simt_graph_append(simt_graph *graph, simt_front *front, const simt_work *launch);

/* Whether each launch of the graph is at the front, or one at the front depends on it, directly or
 * not. */
bool simt_graph_is_joined(const simt_graph *graph, const simt_front *front);

/* The launches in an order that the dependencies allow: the next one is, of those that may come
 * next, the one that was captured last. There are *n_out; the caller frees the array with free().
 * NULL: no memory. */
simt_work *simt_graph_sort(const simt_graph *graph, int *n_out);

#endif
