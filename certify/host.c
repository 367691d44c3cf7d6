/* SPDX-License-Identifier: MIT
 *
 * host.c: a host for one plugin instance under test. Semaphores and graph services are the
 * core's own.
 */
#include "certify/host.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/view.h"
#include "core/graph/builder.h"
#include "core/device/runtime.h"

/* Before every allocation; after it come GUARD_SIZE bytes of GUARD_BYTE. */
typedef struct host_block {
    uint64_t magic;
    certify_host *host;
    void *start; /* the pointer from aligned_alloc */
    size_t size;
} host_block;

enum { GUARD_SIZE = 32, GUARD_BYTE = 0xb7 };
/* More than any machine has. Refused here, because a sanitizer's allocator would abort. */
#define SIZE_LIMIT ((size_t)1 << 40)
static const uint64_t block_magic = 0x7464636572746966u;

TDM_PRINTF(2, 3)
static void offence_note(certify_host *host, const char *format, ...) {
    if (atomic_flag_test_and_set(&host->has_offence)) return;
    va_list args;
    va_start(args, format);
    vsnprintf(host->offence, sizeof host->offence, format, args);
    va_end(args);
}

TDM_PRINTF(3, 4)
static void host_log(void *context, int32_t level, const char *format, ...) {
    certify_host *host = context;
    char line[1024];
    va_list args;
    atomic_fetch_add(&host->n_call, 1);
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof line && line[n - 1] == '\n')
        offence_note(host, "logged a line that ends in a newline: \"%.60s\"", line);
    if (level < TDM_LOG_ERROR || level > TDM_LOG_DEBUG)
        offence_note(host, "logged at level %d, which is none", (int)level);
}

static void *host_alloc(void *context, size_t size, size_t align) {
    certify_host *host = context;
    atomic_fetch_add(&host->n_call, 1);
    if (align == 0) align = 64;
    if ((align & (align - 1)) != 0) {
        offence_note(host, "alloc with an alignment of %zu, no power of two", align);
        return NULL;
    }
    if (align < sizeof(void *)) align = sizeof(void *);
    size_t front = (sizeof(host_block) + align - 1) / align * align;
    size_t total;
    if (size >= SIZE_LIMIT) return NULL;
    if (__builtin_add_overflow(size, front + GUARD_SIZE + align, &total)) return NULL;
    uint8_t *start = aligned_alloc(align, total / align * align);
    if (start == NULL) return NULL;
    host_block *block = (host_block *)(void *)(start + front - sizeof *block);
    *block = (host_block){block_magic, host, start, size};
    memset(start + front + size, GUARD_BYTE, GUARD_SIZE);
    atomic_fetch_add(&host->n_alloc, 1);
    atomic_fetch_add(&host->n_live, 1);
    return start + front;
}

static void host_free(void *context, void *ptr, size_t size) {
    certify_host *host = context;
    atomic_fetch_add(&host->n_call, 1);
    if (ptr == NULL) return;
    host_block *block = (host_block *)ptr - 1;
    if (block->magic != block_magic) {
        offence_note(host, "free of memory that alloc did not give, or twice");
        return;
    }
    if (block->host != host) atomic_fetch_add(&host->n_foreign, 1);
    if (block->size != size)
        offence_note(host, "free of %zu bytes, but alloc returned %zu", size, block->size);
    for (size_t i = 0; i < GUARD_SIZE; i++)
        if (((uint8_t *)ptr)[block->size + i] != GUARD_BYTE) {
            offence_note(host, "wrote behind an allocation of %zu bytes", block->size);
            break;
        }
    block->magic = 0;
    atomic_fetch_sub(&block->host->n_live, 1);
    free(block->start);
}

static tdm_status host_device_acquire(void *context, const char *name,
                                      tdm_acquired_device *device_out, tdm_error *err) {
    certify_host *host = context;
    (void)device_out;
    atomic_fetch_add(&host->n_call, 1);
    return tdm_fail(err, TDM_NOT_FOUND, "device '%s': the conformance suite has no other devices",
                    name);
}

static void host_device_release(void *context, tdm_acquired_device *device) {
    certify_host *host = context;
    (void)device;
    atomic_fetch_add(&host->n_call, 1);
}

static const tdm_host_graph_ops graph_ops = {
    .struct_size = sizeof(tdm_host_graph_ops),
    .verify = tdm_graph_verify,
    .hash = tdm_graph_hash,
    .plan_memory = tdm_graph_plan_memory,
    .view_places = tdm_view_resolve_all,
    .uses = tdm_view_uses,
};

void certify_host_init(certify_host *host) {
    memset(host, 0, sizeof *host);
    host->table = (tdm_host){
        .struct_size = sizeof(tdm_host),
        .context = host,
        .log = host_log,
        .alloc = host_alloc,
        .free = host_free,
        .semaphore = &tdm_semaphore_ops,
        .graph = &graph_ops,
        .device_acquire = host_device_acquire,
        .device_release = host_device_release,
    };
    atomic_flag_clear(&host->has_offence);
}
