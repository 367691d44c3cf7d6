/* SPDX-License-Identifier: MIT
 *
 * errors.h: how the emulated driver names what it exports, and its error numbers besides those of
 * plugins/gpu/rt/driver.h.
 */
#ifndef TANDEM_SIMT_ERRORS_H
#define TANDEM_SIMT_ERRORS_H

#include "plugins/gpu/rt/driver.h"

#ifdef SIMT_HIP
#define SYMBOL(cuda, hip) hip
#else
#define SYMBOL(cuda, hip) cuda
#endif
#define EXPORT __attribute__((visibility("default")))

/* CUDA's numbers; HIP has the same. */
enum {
    INVALID_CONTEXT = 201,
    PEER_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALID = 901,
    STREAM_CAPTURE_UNJOINED = 904
};

#endif
