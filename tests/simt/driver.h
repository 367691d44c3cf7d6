/* SPDX-License-Identifier: MIT
 *
 * driver.h: what the files of the emulated driver share: its settings, the contexts of its devices,
 * and what each of its functions begins with.
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

/* What the environment says (README.md). */
extern struct simt_settings {
    int n_device;
    uint32_t wave_size;
    simt_order order;
    uint64_t memory;
    uint32_t grid_x;
    int ends_kernels; /* what the driver says; it ends none */
    /* The call that fails; under simt_mutex. */
    char fail_name[32]; /* "" = none */
    long fail_at;
    int fail_result;
} simt_settings;

/* Reads the environment at the first call. simt_call_begin does so too. */
void simt_settings_read(void);

/* ---- State ----------------------------------------------------------------------------------- */

/* Guards the state of all files but peer.c. simt_changed: a command was given or done, or
 * streams are held no longer. */
extern pthread_mutex_t simt_mutex;
extern pthread_cond_t simt_changed;

/* Of a device. Under simt_mutex. */
typedef struct simt_context {
    int n_retain;
    rt_result sticky;   /* the failure of a lost device; RT_SUCCESS = it is not lost */
    uint64_t n_pending; /* commands given to streams and not done */
} simt_context;
extern simt_context simt_contexts[SIMT_MAX_DEVICE];

static inline int simt_device_of(const simt_context *c) {
    return (int)(c - simt_contexts);
}

/* The failure of a lost device, when nothing runs on it any more. With simt_mutex held. */
rt_result simt_loss_of(const simt_context *c);

/* The calling thread's context, and its captures (cuThreadExchangeStreamCaptureMode: a thread-local
 * one). */
extern __thread simt_context *simt_current;
extern __thread int simt_n_capture;
extern __thread bool simt_is_capture_broken; /* by a call that is not allowed meanwhile */

/* Counts what was made (1) or released (-1): contexts, streams, events, memory, modules, graphs. */
void simt_live_add(int n);

/* ---- How a function begins ------------------------------------------------------------------- */

/* The result that the test injects at this call, or the failure of the lost device. */
rt_result simt_call_begin(const char *name, bool needs_context);

#define CALL(name, needs_context)                                                                  \
    do {                                                                                           \
        rt_result begun_ = simt_call_begin(#name, needs_context);                                  \
        if (begun_ != RT_SUCCESS) return begun_;                                                   \
    } while (0)

/* As CALL, for what the documentation calls potentially unsafe while this thread captures: it may
 * wait for what the device runs. */
#define CALL_UNSAFE(name)                                                                          \
    do {                                                                                           \
        CALL(name, true);                                                                          \
        if (simt_n_capture == 0) break;                                                            \
        simt_is_capture_broken = true;                                                             \
        return STREAM_CAPTURE_UNSUPPORTED;                                                         \
    } while (0)

/* Calls that release something work on a lost device too, but not without a context. */
#define RELEASE()                                                                                  \
    do {                                                                                           \
        if (simt_current == NULL) return INVALID_CONTEXT;                                          \
        if (simt_n_capture == 0) break;                                                            \
        simt_is_capture_broken = true;                                                             \
        return STREAM_CAPTURE_UNSUPPORTED;                                                         \
    } while (0)

#endif
