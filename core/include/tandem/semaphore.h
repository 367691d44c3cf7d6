/* SPDX-License-Identifier: MIT
 *
 * semaphore.h: timelines, the only way in which work on different queues is put in order.
 *
 * A semaphore is a 64-bit word in host memory that only grows, owned by the core, with an optional
 * native handle. A point is a semaphore and a value: it is reached when the word is at least the
 * value. Waiting for a point before anything has promised to signal it is legal.
 *
 * Failure poisons: after tdm_host_semaphore_ops.fail every wait, present and future, returns that
 * status at once, work behind it is skipped and fails its own signals with the same error. The
 * first failure wins. A poisoned semaphore stays so; make a new one to go on.
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

/* The host's functions on semaphores, for plugins; part of tdm_host. */
typedef struct tdm_host_semaphore_ops {
    size_t struct_size;

    /* Creates a semaphore whose word is `value`; the caller releases it with destroy.
     * [any-thread] */
    tdm_status (*create)(uint64_t value, tdm_semaphore **semaphore_out, tdm_error *err);

    /* Destroys; NULL is a no-op. No thread may be waiting. [any-thread] */
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
} tdm_host_semaphore_ops;

#ifdef __cplusplus
}
#endif

#endif
