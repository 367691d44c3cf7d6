/* SPDX-License-Identifier: MIT
 *
 * status.h: how a call says that it failed.
 *
 * Every call that can fail returns a tdm_status and takes a `tdm_error *err`. The caller owns the
 * error and may pass NULL. On TDM_OK the error is left untouched; on anything else its message is
 * one line, without a trailing newline, that names the thing that failed and, where there is one,
 * the way out. Nothing in Tandem aborts, exits or prints in place of returning a status.
 */
#ifndef TANDEM_STATUS_H
#define TANDEM_STATUS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the ABI that these headers describe. It is part of the entry symbol's name
 * (plugin.h), so that a mismatch is a symbol that is not found, never a struct misread. */
#define TDM_ABI_VERSION 0

/* True when `table` (a pointer to a struct that begins with `size_t struct_size`, or NULL) is
 * large enough to hold `slot` and the slot is set. Optional slots are tested only with this. */
#define TDM_HAS(table, slot)                                                                       \
    ((table) != NULL &&                                                                            \
     (table)->struct_size >=                                                                       \
         (size_t)((const char *)&(table)->slot - (const char *)(table)) + sizeof((table)->slot) && \
     (table)->slot != NULL)

/* True when `params` (a pointer to a parameter struct that begins with `size_t struct_size`, or
 * NULL) is large enough to hold `field`. The value of the field is not tested: 0 is a valid one. A
 * struct_size of 0 means the struct as version 0 has it. */
#define TDM_FIELD(params, field)                                                                   \
    ((params) != NULL &&                                                                           \
     ((params)->struct_size == 0 ||                                                                \
      (params)->struct_size >= (size_t)((const char *)&(params)->field - (const char *)(params)) + \
                                   sizeof((params)->field)))

typedef enum tdm_status {
    TDM_OK = 0,
    TDM_CANCELLED,          /* the caller, or an earlier failure, stopped the work */
    TDM_INVALID_ARGUMENT,   /* the call itself is wrong, in every state of its objects */
    TDM_NOT_FOUND,          /* a file, device, key, tensor or symbol does not exist */
    TDM_UNSUPPORTED,        /* a well-formed request that this build, device or model does not do */
    TDM_OUT_OF_RANGE,       /* past the end of something: a buffer, a context, a cache */
    TDM_RESOURCE_EXHAUSTED, /* no memory, pages, threads or handles; nothing was half-allocated */
    TDM_FAILED_PRECONDITION, /* right call, wrong time or state */
    TDM_IO,                  /* the operating system could not read or write */
    TDM_DATA_LOSS,           /* a file or a message is truncated or corrupt */
    TDM_DEADLINE_EXCEEDED,   /* a wait ran out of time */
    TDM_UNAVAILABLE,         /* a device or driver went away; trying again later may work */
    TDM_INTERNAL,            /* a broken invariant: a bug in whoever returned it */
    TDM_STATUS_COUNT_
} tdm_status;

#define TDM_ERROR_MESSAGE_SIZE 512

/* Caller-owned; `tdm_error err = {0};` is ready for use. struct_size 0 means this version's size,
 * as everywhere where the caller owns the storage. */
typedef struct tdm_error {
    size_t struct_size;
    tdm_status status;                    /* TDM_OK (0) until something fails */
    char message[TDM_ERROR_MESSAGE_SIZE]; /* NUL-terminated, truncated to fit */
} tdm_error;

#if defined(__GNUC__)
#define TDM_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))
#else
#define TDM_PRINTF(format_index, first_arg)
#endif

/* Canonical lower-case words for a status ("not found"). Never NULL. [any-thread] */
static inline const char *tdm_status_text(tdm_status status) {
    static const char *const text[TDM_STATUS_COUNT_] = {
        "ok",
        "cancelled",
        "invalid argument",
        "not found",
        "unsupported",
        "out of range",
        "resource exhausted",
        "failed precondition",
        "i/o error",
        "data loss",
        "deadline exceeded",
        "unavailable",
        "internal error",
    };
    return (unsigned)status < (unsigned)TDM_STATUS_COUNT_ ? text[status] : "unknown status";
}

/* Records a failure in *err (NULL is allowed) and returns `status`, so that a failing path is one
 * line: `return tdm_fail(err, TDM_IO, "%s: cannot open: %s", path, strerror(errno));`. The
 * arguments may include err->message itself (to put a context before it). The message is one line
 * that a terminal can show: control characters, which names and values may hold, become '?'.
 * [any-thread] */
TDM_PRINTF(3, 4)
static inline tdm_status tdm_fail(tdm_error *err, tdm_status status, const char *format, ...) {
    if (err != NULL) {
        char text[TDM_ERROR_MESSAGE_SIZE];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        for (char *at = text; *at != '\0'; at++)
            if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
        err->status = status;
        snprintf(err->message, sizeof err->message, "%s", text);
    }
    return status;
}

#ifdef __cplusplus
}
#endif

#endif
