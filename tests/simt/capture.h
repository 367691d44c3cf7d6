/* SPDX-License-Identifier: MIT
 *
 * capture.h: graphs of captured launches. A launch depends on the launches at the front of its
 * stream; an event carries a front from one stream to another, which joins the capture so. What is
 * launched runs in an order that the dependencies allow and that differs from the captured one, so
 * that a test fails where a dependency is missing.
 */
#ifndef TANDEM_SIMT_CAPTURE_H
#define TANDEM_SIMT_CAPTURE_H

#include <stdbool.h>

#include "tests/simt/block.h"

enum { SIMT_MAX_FRONT = 16 };

/* Launches that the next one depends on. */
typedef struct simt_front {
    int node[SIMT_MAX_FRONT];
    int n;
} simt_front;

/* Adds the nodes of another front; false where there is no room. */
bool simt_front_join(simt_front *front, const simt_front *other);

typedef struct simt_graph simt_graph;

simt_graph *simt_graph_create(void); /* NULL where there is no memory */
void simt_graph_free(simt_graph *graph);

/* Appends a launch behind the front, which becomes the launch alone. False: no memory. */
bool simt_graph_append(simt_graph *graph, simt_front *front, const simt_work *launch);

/* Whether each launch is at the front or before it. */
bool simt_graph_is_joined(const simt_graph *graph, const simt_front *front);

/* The launches in an order that the dependencies allow: of those that may come next, the one that
 * was captured last. n_out of them, released with free(). NULL where there is no memory. */
simt_work *simt_graph_sort(const simt_graph *graph, int *n_out);

#endif
