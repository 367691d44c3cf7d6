/* SPDX-License-Identifier: MIT
 *
 * op_host.c: see op_host.h.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/runtime.h"
#include "tests/kernels/op_host.h"

enum {
    TAIL_SIZE = 64,      /* guard bytes behind every allocation */
    FILL_LIMIT = 1 << 26 /* larger allocations stay untouched, so that they cost no memory */
};
#define TAIL_BYTE 0xa7
#define FILL_BYTE 0xff /* reads as NaN */

struct op_host {
    tdm_host table;
    _Atomic int64_t n_alloc;
    _Atomic int64_t live_size;
    _Atomic int64_t n_left; /* allocations before failure; negative: no failure */
    _Atomic int n_damaged;
};

static void *host_alloc(void *context, size_t size, size_t align) {
    op_host *host = context;
    if (align < TAIL_SIZE) align = TAIL_SIZE;
    if (atomic_load(&host->n_left) >= 0 && atomic_fetch_sub(&host->n_left, 1) <= 0) {
        atomic_store(&host->n_left, 0);
        return NULL;
    }
    if (size > SIZE_MAX / 2) return NULL;
    size_t whole = (size + TAIL_SIZE + align - 1) / align * align;
    uint8_t *ptr = aligned_alloc(align, whole);
    if (ptr == NULL) return NULL;
    if (size <= FILL_LIMIT) memset(ptr, FILL_BYTE, size);
    memset(ptr + size, TAIL_BYTE, TAIL_SIZE);
    atomic_fetch_add(&host->n_alloc, 1);
    atomic_fetch_add(&host->live_size, (int64_t)size);
    return ptr;
}

static void host_free(void *context, void *ptr, size_t size) {
    op_host *host = context;
    if (ptr == NULL) return;
    for (int i = 0; i < TAIL_SIZE; i++)
        if (((uint8_t *)ptr)[size + (size_t)i] != TAIL_BYTE) atomic_store(&host->n_damaged, 1);
    atomic_fetch_sub(&host->live_size, (int64_t)size);
    free(ptr);
}

TDM_PRINTF(3, 4)
static void host_log(void *context, int32_t level, const char *format, ...) {
    (void)context;
    if (level > TDM_LOG_WARN) return;
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

/* ---- The table ------------------------------------------------------------------------------- */

op_host *op_host_create(void) {
    op_host *host = calloc(1, sizeof *host);
    if (host == NULL) abort();
    atomic_init(&host->n_left, -1);
    host->table = (tdm_host){
        .struct_size = sizeof host->table,
        .context = host,
        .log = host_log,
        .alloc = host_alloc,
        .free = host_free,
        .semaphore = &tdm_semaphore_ops,
    };
    return host;
}

bool op_host_destroy(op_host *host) {
    bool is_clean = atomic_load(&host->live_size) == 0 && atomic_load(&host->n_damaged) == 0;
    free(host);
    return is_clean;
}

const tdm_host *op_host_table(const op_host *host) {
    return &host->table;
}

int64_t op_host_n_alloc(const op_host *host) {
    return atomic_load(&host->n_alloc);
}

int64_t op_host_live_size(const op_host *host) {
    return atomic_load(&host->live_size);
}

void op_host_fail_after(op_host *host, int64_t n) {
    atomic_store(&host->n_left, n);
}
