/* SPDX-License-Identifier: MIT
 *
 * semaphore.h: timelines, the only way in which work on different queues is put in order.
 *
 * A semaphore is a 64-bit word in host memory that only grows, owned by the core. A point is a
 * semaphore and a value: it is reached when the word is at least the value. Waiting for a point
 * before anything has promised to signal it is legal.
 *
 * Failure poisons: after tdm_host_semaphore_ops.fail every wait, present and future, returns that
 * status at once, work behind it is skipped and fails its own signals with the same error. The
 * first failure wins. A poisoned semaphore stays so; make a new one to go on.
 *
 * A device has three ways to signal a point:
 *   - a thread of the plugin calls signal;
 *   - it attaches its driver's own wait for the work (a fence, an event, a timeline): a thread that
 *     waits for the point then sits in the driver, and no other thread is woken;
 *   - its kernels write the word, whose address `word` gives; since nothing wakes sleeping threads
 *     then, the device also attaches or calls signal.
 */
#ifndef TANDEM_SEMAPHORE_H
#define TANDEM_SEMAPHORE_H

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tdm_semaphore tdm_semaphore; /* the core's */

typedef struct tdm_point {
    tdm_semaphore *semaphore;
    uint64_t value;
} tdm_point;

#define TDM_WAIT_FOREVER UINT64_MAX

/* A driver's own wait for the work that signals a point. */
typedef struct tdm_native_wait {
    size_t struct_size;
    void *context; /* passed to both functions */

    /* Waits at most timeout_ns for the work: 0 only polls. TDM_OK: done, its writes visible to the
     * host. TDM_DEADLINE_EXCEEDED: not yet. Any other status: the work failed, and the semaphore is
     * poisoned with it. Several threads may be inside at once. The core calls it with at most
     * TDM_NATIVE_WAIT_SLICE_NS, again and again, so that poison wakes a thread that is inside.
     * [any-thread] */
    tdm_status (*wait)(void *context, uint64_t timeout_ns, tdm_error *err);

    /* The core will not call `wait` again; no thread is inside. Called exactly once, from any
     * thread; calls no function of this semaphore. NULL: nothing to release. [any-thread] */
    void (*release)(void *context);
} tdm_native_wait;

#define TDM_NATIVE_WAIT_SLICE_NS UINT64_C(10000000) /* 10 ms */

/* Called once when a point is reached (TDM_OK) or its semaphore poisoned (status and message).
 * Short: it waits for nothing. It may signal, fail and query semaphores, but destroys none. */
typedef void (*tdm_reached_fn)(void *user, tdm_status status, const tdm_error *err);

/* The host's functions on semaphores, for plugins; part of tdm_host. */
typedef struct tdm_host_semaphore_ops {
    size_t struct_size;

    /* Creates a semaphore whose word is `value`; the caller releases it with destroy.
     * [any-thread] */
    tdm_status (*create)(uint64_t value, tdm_semaphore **semaphore_out, tdm_error *err);

    /* Destroys; NULL is a no-op. No thread may be waiting and no callback be due. Releases what is
     * attached. [any-thread] */
    void (*destroy)(tdm_semaphore *semaphore);

    /* Reads the word without waiting. Returns the failure of a poisoned one. [any-thread] */
    tdm_status (*query)(tdm_semaphore *semaphore, uint64_t *value_out, tdm_error *err);

    /* Waits for a point for at most timeout_ns (TDM_WAIT_FOREVER: without limit): spins briefly,
     * then sleeps. TDM_DEADLINE_EXCEEDED when time runs out. [any-thread] */
    tdm_status (*wait)(tdm_semaphore *semaphore, uint64_t value, uint64_t timeout_ns,
                       tdm_error *err);

    /* Raises the word to `value` and wakes waiters. A value not above the word changes nothing.
     * [any-thread] */
    void (*signal)(tdm_semaphore *semaphore, uint64_t value);

    /* Poisons. `status` is not TDM_OK; `err` (nullable) gives the message that waiters receive.
     * [any-thread] */
    void (*fail)(tdm_semaphore *semaphore, tdm_status status, const tdm_error *err);

    /* The word, alone in 64 aligned bytes, valid until destroy. Devices may read it and may store
     * larger values with release order (see above). Import those 64 bytes only where import_align
     * allows; else keep a word of the device's own and attach. [any-thread] */
    uint64_t *(*word)(tdm_semaphore *semaphore);

    /* Has `fn` called once when the word reaches `value` or the semaphore is poisoned: during this
     * call where that is so already, else from the thread that signals, fails or notices.
     * [any-thread] */
    tdm_status (*on_reached)(tdm_semaphore *semaphore, uint64_t value, tdm_reached_fn fn,
                             void *user, tdm_error *err);

    /* States that the word reaches `value` when wait->wait returns TDM_OK. *wait is copied. Values
     * are attached in increasing order. Wakes waiters of this and lower values, which then call
     * `wait`. On failure nothing is attached, release is not called, and the device signals by
     * itself. [any-thread] */
    tdm_status (*attach)(tdm_semaphore *semaphore, uint64_t value, const tdm_native_wait *wait,
                         tdm_error *err);
} tdm_host_semaphore_ops;

#ifdef __cplusplus
}
#endif

#endif
