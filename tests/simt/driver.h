/* SPDX-License-Identifier: MIT
 *
 * driver.h: what the files of the emulated driver share: its settings, the contexts of its devices,
 * and the checks that each of its functions begins with.
 */
#ifndef TANDEM_SIMT_DRIVER_H
#define TANDEM_SIMT_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "plugins/gpu/rt/driver.h"
#include "tests/simt/block.h"
#include "tests/simt/errors.h"
#include "tests/simt/peer.h"

/* The driver's functions, under the names that it exports. Each file defines those of its
 * subject. */
#define SIMT_DECLARE_(name, cuda, hip, params)                                                     \
    EXPORT rt_result simt_##name params __asm__(SYMBOL(cuda, hip));
RT_DRIVER_LIST(SIMT_DECLARE_)

EXPORT extern const int tandem_simt_version;

enum { MAX_GRID_Y = 65535 };

/* ---- Settings -------------------------------------------------------------------------------- */

/* Read from the environment (README.md) once; some change later by the library's own functions. */
extern struct simt_settings {
    int n_device;
    uint32_t wave_size;
    simt_order order;
    uint64_t memory;
    uint32_t grid_x;
    int ends_kernels; /* 1: the driver says that it ends kernels that run long; it ends none */
    /* The call that is to fail; under simt_mutex. */
    char fail_name[32]; /* "" = none */
    long fail_at;       /* the value of n_call (driver.c) at that call */
    int fail_result;    /* what it returns */
} simt_settings;

/* Reads the environment at the first call. simt_call_begin does so too. */
void simt_settings_read(void);

/* ---- State ----------------------------------------------------------------------------------- */

/* simt_mutex guards the state of all files but peer.c. simt_changed is signalled when a command was
 * given or done, and when streams are held or no longer held. */
extern pthread_mutex_t simt_mutex;
extern pthread_cond_t simt_changed;

/* The primary context of a device. Under simt_mutex. */
typedef struct simt_context {
    int n_retain;       /* retained so often; 0 = there is no context */
    rt_result sticky;   /* the failure of a lost device; RT_SUCCESS = it is not lost */
    uint64_t n_pending; /* commands given to streams and not done */
} simt_context;
extern simt_context simt_contexts[SIMT_MAX_DEVICE];

static inline int simt_device_of(const simt_context *c) {
    return (int)(c - simt_contexts);
}

/* RT_SUCCESS where the device is not lost. Else its failure, after all commands of the device have
 * ended: the function waits for that. The caller holds simt_mutex. */
rt_result simt_loss_of(const simt_context *c);

/* Waits until no command of the device is left, as drivers do before they release memory, and may
 * do before they load a function. Returns
 * at once while the device is held, since the test that holds it would wait for ever: the count of
 * waits (tandem_simt_waits) shows the call. */
void simt_idle_wait(const simt_context *c);

/* The calling thread's current context, and how many captures it has begun and not ended (captures
 * are thread-local: cuThreadExchangeStreamCaptureMode). */
extern __thread simt_context *simt_current;
extern __thread int simt_n_capture;
extern __thread bool simt_is_capture_broken; /* by a call that is not allowed meanwhile */

/* Unlocks the memory that the context has locked, when it ends. Under simt_mutex. memory.c */
void simt_locked_end(const simt_context *c);

/* Counts what was made (1) or released (-1): contexts, streams, events, memory, modules, graphs. */
void simt_live_add(int n);

/* ---- How a function begins ------------------------------------------------------------------- */

/* RT_SUCCESS where the function `name` may go on. Else what it returns: the result that the test
 * injects at this call, the failure of a lost device, or INVALID_CONTEXT where it needs a context
 * and the thread has none. */
rt_result simt_call_begin(const char *name, bool needs_context);

#define CALL(name, needs_context)                                                                  \
    do {                                                                                           \
        rt_result begun_ = simt_call_begin(#name, needs_context);                                  \
        if (begun_ != RT_SUCCESS) return begun_;                                                   \
    } while (0)

/* As CALL, for functions that CUDA's documentation calls potentially unsafe during a capture, since
 * they may wait for the device: while this thread captures, the call fails and breaks the
 * capture. */
#define CALL_UNSAFE(name)                                                                          \
    do {                                                                                           \
        CALL(name, true);                                                                          \
        if (simt_n_capture == 0) break;                                                            \
        simt_is_capture_broken = true;                                                             \
        return STREAM_CAPTURE_UNSUPPORTED;                                                         \
    } while (0)

/* For functions that release something: they work on a lost device too, but not without a context.
 * During a capture they are as unsafe as those of CALL_UNSAFE. */
#define RELEASE()                                                                                  \
    do {                                                                                           \
        if (simt_current == NULL) return INVALID_CONTEXT;                                          \
        if (simt_n_capture == 0) break;                                                            \
        simt_is_capture_broken = true;                                                             \
        return STREAM_CAPTURE_UNSUPPORTED;                                                         \
    } while (0)

#endif
