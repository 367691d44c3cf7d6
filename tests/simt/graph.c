/* SPDX-License-Identifier: MIT
 *
 * graph.c: captures of streams, and the graphs that they become.
 */
#include <stdlib.h>

#include "tests/simt/stream.h"

void simt_capture_leave(simt_stream *s) {
    simt_stream_capture *c = s->capture;
    if (c == NULL) return;
    if (c->streams[0] != s) {
        int i = 1;
        while (c->streams[i] != s) i++;
        c->streams[i] = c->streams[--c->n_stream];
        s->capture = NULL;
        return;
    }
    for (int i = 0; i < c->n_stream; i++) c->streams[i]->capture = NULL;
    free(c);
}

rt_result simt_capture_begin(void *stream_handle, int mode) {
    simt_stream *s = stream_handle;
    CALL(capture_begin, true);
    if (mode != RT_CAPTURE_THREAD_LOCAL || s->capture != NULL) return RT_INVALID_VALUE;
    simt_stream_capture *c = calloc(1, sizeof *c);
    simt_graph *graph = c != NULL ? simt_graph_create() : NULL;
    if (graph == NULL) {
        free(c);
        return RT_OUT_OF_MEMORY;
    }
    *c = (simt_stream_capture){.graph = graph, .streams = {s}, .n_stream = 1};
    s->capture = c;
    s->front.n = 0;
    if (simt_n_capture++ == 0) simt_is_capture_broken = false;
    return RT_SUCCESS;
}

rt_result simt_capture_end(void *stream_handle, void **graph_out) {
    simt_stream *s = stream_handle;
    simt_graph *graph = NULL;
    rt_result result = simt_call_begin("capture_end", true);
    if (s->capture == NULL || s->capture->streams[0] != s)
        return result != RT_SUCCESS ? result : STREAM_CAPTURE_INVALID;
    graph = s->capture->graph;
    simt_capture_leave(s);
    simt_n_capture--;
    if (result == RT_SUCCESS && simt_is_capture_broken) result = STREAM_CAPTURE_INVALID;
    if (result == RT_SUCCESS && !simt_graph_is_joined(graph, &s->front))
        result = STREAM_CAPTURE_UNJOINED;
    if (result != RT_SUCCESS) {
        simt_graph_free(graph);
        return result;
    }
    *graph_out = graph;
    simt_live_add(1);
    return RT_SUCCESS;
}

rt_result simt_graph_instantiate(void **exec_out, void *graph, unsigned long long flags) {
    CALL(graph_instantiate, true);
    simt_exec *e = calloc(1, sizeof *e);
    if (e != NULL && flags == 0) e->launches = simt_graph_sort(graph, &e->n);
    if (e == NULL || e->launches == NULL) {
        free(e);
        return RT_OUT_OF_MEMORY;
    }
    *exec_out = e;
    simt_live_add(1);
    return RT_SUCCESS;
}

rt_result simt_graph_destroy(void *graph) {
    simt_graph_free(graph);
    simt_live_add(-1);
    return RT_SUCCESS;
}

rt_result simt_graph_launch(void *handle, void *stream_handle) {
    CALL(graph_launch, true);
    const simt_command c = {.kind = COMMAND_GRAPH, .exec = handle};
    return simt_command_give(stream_handle, &c);
}

rt_result simt_exec_destroy(void *handle) {
    simt_exec *e = handle;
    if (e != NULL) free(e->launches);
    free(e);
    simt_live_add(-1);
    return RT_SUCCESS;
}
