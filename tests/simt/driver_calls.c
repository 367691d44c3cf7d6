/* SPDX-License-Identifier: MIT
 *
 * driver_calls.c: see driver_calls.h.
 */
#include "tests/simt/driver_calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void (*simt_hold)(bool hold);
void (*simt_fail)(const char *name, long in, int result);
bool (*simt_has_failed)(void);
long (*simt_live)(void);
uint64_t (*simt_submissions)(void);
long (*simt_waits)(void);
driver_cu cu;

/* ISO C has no conversion from an object's pointer to a function's. */
bool driver_symbol_get(void *library, const char *name, void *function_out) {
    void *found = library != NULL ? dlsym(library, name) : NULL;
    memcpy(function_out, &found, sizeof found);
    if (found == NULL) printf("%s: %s\n", name, dlerror());
    return found != NULL;
}

bool driver_calls_get(void *driver) {
    return driver_symbol_get(driver, "tandem_simt_hold", &simt_hold) &&
           driver_symbol_get(driver, "tandem_simt_fail", &simt_fail) &&
           driver_symbol_get(driver, "tandem_simt_has_failed", &simt_has_failed) &&
           driver_symbol_get(driver, "tandem_simt_live", &simt_live) &&
           driver_symbol_get(driver, "tandem_simt_submissions", &simt_submissions) &&
           driver_symbol_get(driver, "tandem_simt_waits", &simt_waits) &&
           driver_symbol_get(driver, "cuDevicePrimaryCtxRetain", &cu.context_retain) &&
           driver_symbol_get(driver, "cuDevicePrimaryCtxRelease_v2", &cu.context_release) &&
           driver_symbol_get(driver, "cuCtxSetCurrent", &cu.context_set) &&
           driver_symbol_get(driver, "cuMemAlloc_v2", &cu.memory_alloc) &&
           driver_symbol_get(driver, "cuMemFree_v2", &cu.memory_free) &&
           driver_symbol_get(driver, "cuMemHostRegister_v2", &cu.host_register) &&
           driver_symbol_get(driver, "cuMemHostUnregister", &cu.host_unregister) &&
           driver_symbol_get(driver, "cuStreamCreate", &cu.stream_create) &&
           driver_symbol_get(driver, "cuStreamDestroy_v2", &cu.stream_destroy) &&
           driver_symbol_get(driver, "cuStreamBeginCapture_v2", &cu.capture_begin) &&
           driver_symbol_get(driver, "cuStreamEndCapture", &cu.capture_end) &&
           driver_symbol_get(driver, "cuGraphDestroy", &cu.graph_destroy);
}
