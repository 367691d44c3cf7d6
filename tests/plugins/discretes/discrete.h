/* SPDX-License-Identifier: MIT
 *
 * discrete.h: a device for tests that behaves like a card on a bus. It acquires another device (the
 * CPU) for its arithmetic, and has what a card has and the CPU has not: memory of its own that the
 * host cannot touch, a queue with a thread of its own that completes late, scratch that its plans
 * share, limits, and loss. device.c has options and limits, memory.c the memory, pinned.c
 * page-locked memory, queue.c the plans and the queue, clock.c the virtual clock.
 *
 *   member = NAME           the device behind it; required
 *   memory = N              bytes of its memory; default 1 TiB
 *   max-buffer = N          largest buffer; default no limit
 *   import-align = N        what import_host demands of address and size; default 4096
 *   import = no             imports no host memory
 *   exchange = yes          exchanges in its plans, as the device behind it does
 *            = phases       its kernels may not wait: PUBLISH and COLLECT only
 *   latency-us = N          a submission takes effect so much later
 *   completion-us = N       completion is reported so much later
 *   launch-bound = N        graph_compute blocks while so many computations are under way, as
 *                           drivers with a bounded queue do; 0 = it never blocks
 *   refuse = NAME           refuses the op in a graph of several nodes: what a probe of one node
 *                           finds supported, and a model's graph not
 *   idle = yes              computations end at once and compute nothing: a card that is too fast
 *                           to be measured
 *   attach = no             signals from its thread; by default waits are attached
 *   uuid = N                the last byte of a UUID; by default it has none
 *   bandwidth = N           bytes per second; gives the device a virtual clock (clock.c)
 *   arithmetic = N          multiply-adds per second, for the clock; default 1e15
 *   launch-ns = N           of a node, for the clock
 *   submission-us = N       of a submission, for the clock
 *   crossing-us = N         of an exchange, for the clock
 * discrete_set(NAME, key, n) changes a device while it is open, found by the name of its member:
 *   "lose-in"      the n-th call from now on finds the device lost; so do all after it
 *   "latency-us", "completion-us" as above
 *   "block-in"     the n-th graph_compute from now on does not return until "release"
 *   "hang-in"      the n-th computation from now on does not end until "release"
 *   "release"      ends both
 *   "clock"        1: the virtual clock runs from now on
 * discrete_get(NAME, key): "submissions", "uploads", "downloads", "binds", "plans", "memory",
 *   "largest" (bytes of its largest buffer so far), "lost", "clock" (ns of the virtual clock)
 * discrete_live(): devices, buffers, queues and plans that exist
 */
#ifndef TANDEM_TESTS_DISCRETE_H
#define TANDEM_TESTS_DISCRETE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/plugin.h"

typedef struct discrete_counts {
    _Atomic int64_t submissions, uploads, downloads, binds, plans;
} discrete_counts;

typedef struct discrete_pinned discrete_pinned;
typedef struct discrete_late discrete_late;

struct tdm_device {
    const tdm_host *host;
    tdm_acquired_device lent;
    char member[64];
    uint64_t memory, max_buffer, import_align;
    int64_t launch_bound;
    int32_t refused_op; /* TDM_OP_NONE = none */
    bool is_idle;
    bool imports, exchanges, has_phases, attaches, has_uuid;
    uint8_t uuid;
    _Atomic int64_t latency_us, completion_us;
    _Atomic int64_t lose_in; /* 0 = never; also of the next two */
    _Atomic int64_t block_in, hang_in;
    _Atomic int64_t n_release;
    atomic_bool is_lost;
    discrete_counts counts;
    double bandwidth, arithmetic; /* of the virtual clock; bandwidth 0 = none */
    int64_t launch_ns, submission_ns, crossing_ns;
    _Atomic int64_t clock_ns;
    atomic_bool is_clock_on;
    pthread_mutex_t mutex; /* of what follows */
    uint64_t used;         /* bytes of its memory in use */
    uint64_t largest;      /* bytes of its largest buffer so far */
    discrete_pinned *pinned;
    discrete_late *late; /* uploads from pinned memory that are not done yet */
};

struct tdm_buffer {
    tdm_device *device;
    uint8_t *memory; /* NULL: imported, or empty */
    size_t size;
    bool is_reachable; /* the host may touch it: of INPUT, OUTPUT, ARENA, and of an idle card */
    int32_t purpose;   /* tdm_buffer_purpose */
    int32_t n_inside;  /* calls that have it open; device->mutex */
    tdm_buffer *lent;
};

/* Counts a call towards "lose-in"; TDM_UNAVAILABLE with the device's name where it is lost. */
tdm_status discrete_call(tdm_device *d, tdm_error *err);

/* Adds n to what discrete_live returns. */
void discrete_count_live(int n);

/* Counts down; true for the call that brings the counter to 0. */
bool discrete_is_due(_Atomic int64_t *countdown);
/* Returns after the next "release". */
void discrete_await_release(tdm_device *d);

/* Makes a buffer's memory accessible for the device's own work, and inaccessible again. Calls may
 * overlap. */
void discrete_buffer_enter(tdm_buffer *b);
void discrete_buffer_leave(tdm_buffer *b);

/* Slots of buffers: pinned.c. discrete_upload_later returns true where the part lies in memory of
 * host_alloc; it is then uploaded by upload_finish. */
tdm_status discrete_host_alloc(tdm_device *d, uint64_t size, void **ptr_out, tdm_error *err);
void discrete_host_free(tdm_device *d, void *ptr, uint64_t size);
tdm_status discrete_upload_finish(tdm_device *d, const void *src, tdm_error *err);
bool discrete_upload_later(tdm_buffer *b, uint64_t off, const tdm_tensor_desc *desc,
                           const void *src, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                           int64_t col_first, int64_t n_col);

/* The tables of the device behind, which are the same for all. */
extern const tdm_plugin *discrete_behind;

extern const tdm_buffer_ops discrete_buffer_ops;
extern const tdm_queue_ops discrete_queue_ops;

#endif
