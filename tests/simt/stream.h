/* SPDX-License-Identifier: MIT
 *
 * stream.h: streams, events and captures. A stream is a thread that runs commands in order. It
 * holds up to MAX_COMMAND commands; a caller that gives one more waits, as with real drivers.
 */
#ifndef TANDEM_SIMT_STREAM_H
#define TANDEM_SIMT_STREAM_H

#include "tests/simt/capture.h"
#include "tests/simt/driver.h"

enum { MAX_COMMAND = 64, MAX_CAPTURE_STREAM = 8 };

typedef enum simt_command_kind {
    COMMAND_LAUNCH,
    COMMAND_GRAPH,
    COMMAND_COPY,
    COMMAND_FILL,
    COMMAND_EVENT
} simt_command_kind;

/* An executable graph: launches in the order in which they run. */
typedef struct simt_exec {
    simt_work *launches;
    int n;
} simt_exec;

struct simt_stream;

/* A capture that a stream has begun, with all streams that have joined it. */
typedef struct simt_stream_capture {
    simt_graph *graph;
    struct simt_stream *streams[MAX_CAPTURE_STREAM]; /* the first began it */
    int n_stream;
} simt_stream_capture;

typedef struct simt_event {
    uint64_t n_recorded, n_done;  /* records given, and executed; under simt_mutex */
    simt_stream_capture *capture; /* in which it was recorded last; NULL = in none */
    simt_front front;             /* in a capture: the stream's front when it was recorded */
} simt_event;

typedef struct simt_command {
    simt_command_kind kind;
    simt_work launch;
    simt_exec *exec;
    void *dst;
    const void *src;
    size_t size;
    unsigned char byte;
    simt_event *event;
    uint64_t event_number;
} simt_command;

typedef struct simt_stream {
    simt_context *context;
    pthread_t thread;
    simt_command commands[MAX_COMMAND]; /* a ring: number i is at i % MAX_COMMAND */
    uint64_t n_given, n_done;           /* commands; under simt_mutex, as is_ending */
    bool is_ending;
    simt_stream_capture *capture; /* NULL = it does not capture */
    simt_front front;
} simt_stream;

/* Appends a copy of the command; waits while the stream has MAX_COMMAND of them. */
rt_result simt_command_give(simt_stream *s, const simt_command *c);

/* Takes the stream out of its capture. Where it has begun the capture, takes all streams out and
 * frees the capture, but not its graph. */
void simt_capture_leave(simt_stream *s);

#endif
