/* SPDX-License-Identifier: MIT
 *
 * driver_calls.h: functions of the emulated driver of CUDA that tests call themselves: those that
 * control it, and some of the driver's own.
 */
#ifndef TANDEM_TESTS_SIMT_DRIVER_CALLS_H
#define TANDEM_TESTS_SIMT_DRIVER_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* driver.h says what they do. */
extern void (*simt_hold)(bool hold);
extern void (*simt_fail)(const char *name, long in, int result);
extern bool (*simt_has_failed)(void);
extern long (*simt_live)(void);
extern uint64_t (*simt_submissions)(void);
extern long (*simt_waits)(void);

typedef struct driver_cu {
    int (*context_retain)(void **context_out, int device);
    int (*context_release)(int device);
    int (*context_set)(void *context);
    int (*memory_alloc)(uint64_t *address_out, size_t size);
    int (*memory_free)(uint64_t address);
    int (*host_register)(void *pointer, size_t size, unsigned flags);
    int (*host_unregister)(void *pointer);
    int (*stream_create)(void **stream_out, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph_out);
    int (*graph_destroy)(void *graph);
} driver_cu;
extern driver_cu cu;

/* Gets the function of that name of an open library, which may be NULL. Prints what is missing. */
bool driver_symbol_get(void *library, const char *name, void *function_out);
/* Gets all functions above. */
bool driver_calls_get(void *driver);

#endif
