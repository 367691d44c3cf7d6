/* SPDX-License-Identifier: MIT
 *
 * capture.c: see capture.h.
 */
#include "tests/simt/capture.h"

#include <stdlib.h>

typedef struct node {
    simt_work launch;
    simt_front before;
} node;

struct simt_graph {
    node *nodes;
    int n, room;
};

bool simt_front_join(simt_front *front, const simt_front *other) {
    for (int i = 0; i < other->n; i++) {
        int k = 0;
        while (k < front->n && front->node[k] != other->node[i]) k++;
        if (k < front->n) continue;
        if (k == SIMT_MAX_FRONT) return false;
        front->node[front->n++] = other->node[i];
    }
    return true;
}

simt_graph *simt_graph_create(void) {
    return calloc(1, sizeof(simt_graph));
}

void simt_graph_free(simt_graph *graph) {
    if (graph == NULL) return;
    free(graph->nodes);
    free(graph);
}

bool simt_graph_append(simt_graph *graph, simt_front *front, const simt_work *launch) {
    if (graph->n == graph->room) {
        int room = graph->room > 0 ? 2 * graph->room : 64;
        node *nodes = realloc(graph->nodes, (size_t)room * sizeof *nodes);
        if (nodes == NULL) return false;
        graph->nodes = nodes;
        graph->room = room;
    }
    graph->nodes[graph->n] = (node){.launch = *launch, .before = *front};
    *front = (simt_front){.node = {graph->n++}, .n = 1};
    return true;
}

bool simt_graph_is_joined(const simt_graph *graph, const simt_front *front) {
    bool *is_reached = calloc((size_t)graph->n + 1, sizeof *is_reached), is_joined = true;
    if (is_reached == NULL) return false;
    for (int i = 0; i < front->n; i++) is_reached[front->node[i]] = true;
    for (int i = graph->n - 1; i >= 0; i--) {
        const simt_front *before = &graph->nodes[i].before;
        is_joined = is_joined && is_reached[i];
        for (int k = 0; k < before->n; k++) is_reached[before->node[k]] = true;
    }
    free(is_reached);
    return is_joined;
}

simt_work *simt_graph_sort(const simt_graph *graph, int *n_out) {
    simt_work *sorted = malloc(((size_t)graph->n + 1) * sizeof *sorted);
    bool *is_done = calloc((size_t)graph->n + 1, sizeof *is_done);
    *n_out = graph->n;
    for (int n = 0; sorted != NULL && is_done != NULL && n < graph->n; n++) {
        int next = -1;
        /* A launch depends on earlier ones only, so the first one that is not done may come next.
         * Few others may; they are searched among the 64 after it. */
        for (int i = 0, first = -1; i < graph->n && (first < 0 || i < first + 64); i++) {
            const simt_front *before = &graph->nodes[i].before;
            bool is_ready = !is_done[i];
            if (is_ready && first < 0) first = i;
            for (int k = 0; k < before->n && is_ready; k++) is_ready = is_done[before->node[k]];
            if (is_ready) next = i;
        }
        is_done[next] = true;
        sorted[n] = graph->nodes[next].launch;
    }
    if (is_done == NULL) {
        free(sorted);
        sorted = NULL;
    }
    free(is_done);
    return sorted;
}
