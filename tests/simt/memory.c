/* SPDX-License-Identifier: MIT
 *
 * memory.c: memory of the emulated driver's devices, and page-locked memory of the host.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/simt/driver.h"

static uint64_t memory_used[SIMT_MAX_DEVICE]; /* bytes of each device; under simt_mutex */

/* Lies MEMORY_HEAD bytes before each piece of device memory. */
typedef struct memory_head {
    size_t size;
    int device;
} memory_head;
enum { MEMORY_HEAD = 256 };

rt_result simt_memory_info(size_t *free_out, size_t *total_out) {
    CALL(memory_info, true);
    pthread_mutex_lock(&simt_mutex);
    *total_out = (size_t)simt_settings.memory;
    *free_out = (size_t)(simt_settings.memory - memory_used[simt_device_of(simt_current)]);
    pthread_mutex_unlock(&simt_mutex);
    return RT_SUCCESS;
}

static void memory_return(const memory_head *head) {
    pthread_mutex_lock(&simt_mutex);
    memory_used[head->device] -= head->size;
    pthread_mutex_unlock(&simt_mutex);
}

/* Allocates memory of the current device. It is filled with a pattern, since new memory of a real
 * device has any contents. */
static rt_result memory_take(uint64_t *address_out, size_t size, bool is_shared) {
    const memory_head head = {size, simt_device_of(simt_current)};
    uint64_t *used = &memory_used[head.device];
    pthread_mutex_lock(&simt_mutex);
    bool fits = size > 0 && size <= simt_settings.memory - *used;
    if (fits) *used += size;
    pthread_mutex_unlock(&simt_mutex);
    if (!fits) return RT_OUT_OF_MEMORY;
    size_t whole = (size + 2 * MEMORY_HEAD - 1) / MEMORY_HEAD * MEMORY_HEAD;
    char *block = aligned_alloc(MEMORY_HEAD, whole);
    if (block == NULL) {
        memory_return(&head);
        return RT_OUT_OF_MEMORY;
    }
    memcpy(block, &head, sizeof head);
    memset(block + MEMORY_HEAD, 0xcd, size);
    if (!simt_peer_note(head.device, block + MEMORY_HEAD, size, is_shared)) {
        free(block);
        memory_return(&head);
        return RT_OUT_OF_MEMORY;
    }
    *address_out = (uint64_t)(uintptr_t)(block + MEMORY_HEAD);
    simt_live_add(1);
    return RT_SUCCESS;
}

#ifdef SIMT_HIP
EXPORT rt_result simt_shared_alloc(uint64_t *address_out, size_t size,
                                   unsigned flags) __asm__("hipExtMallocWithFlags");

rt_result simt_shared_alloc(uint64_t *address_out, size_t size, unsigned flags) {
    CALL_UNSAFE(shared_alloc);
    return flags == 1 ? memory_take(address_out, size, true) : RT_INVALID_VALUE;
}
enum { PLAIN_IS_SHARED = false };
#else
enum { PLAIN_IS_SHARED = true };
#endif

rt_result simt_memory_alloc(uint64_t *address_out, size_t size) {
    CALL_UNSAFE(memory_alloc);
    return memory_take(address_out, size, PLAIN_IS_SHARED);
}

rt_result simt_memory_free(uint64_t address) {
    RELEASE();
    simt_idle_wait(simt_current);
    char *block = (char *)(uintptr_t)address - MEMORY_HEAD;
    memory_head head;
    simt_peer_forget(block + MEMORY_HEAD);
    memcpy(&head, block, sizeof head);
    memory_return(&head);
    free(block);
    simt_live_add(-1);
    return RT_SUCCESS;
}

rt_result simt_host_alloc(void **pointer_out, size_t size, unsigned flags) {
    CALL_UNSAFE(host_alloc);
#ifdef SIMT_HIP
    /* hipHostMallocCoherent: the plugin depends on coherent memory. */
    if ((flags & 0x40000000) == 0) return RT_INVALID_VALUE;
    flags &= ~0x40000000u;
#endif
    if (flags != (RT_HOST_PORTABLE | RT_HOST_MAPPED)) return RT_INVALID_VALUE;
    /* Sanitizers end the program at an allocation of such a size. */
    if (size > (size_t)1 << 40) return RT_OUT_OF_MEMORY;
    /* Of the exact size, so that a sanitizer finds accesses behind it. */
    if (posix_memalign(pointer_out, 4096, size) != 0) return RT_OUT_OF_MEMORY;
    simt_live_add(1);
    return RT_SUCCESS;
}

rt_result simt_host_free(void *pointer) {
    RELEASE();
    simt_idle_wait(simt_current);
    free(pointer);
    simt_live_add(-1);
    return RT_SUCCESS;
}

/* Page-locked memory of the host, for all devices, until the context ends that locked it. */
typedef struct locked {
    struct locked *next;
    char *pointer;
    size_t size;
    const simt_context *context;
} locked;
static locked *all_locked; /* under simt_mutex */

/* Memory can be locked only once, by whatever device: ranges must not overlap. */
rt_result simt_host_register(void *pointer, size_t size, unsigned flags) {
    CALL_UNSAFE(host_register);
    if (pointer == NULL || size == 0 || (flags & RT_HOST_PORTABLE) == 0) return RT_INVALID_VALUE;
    locked *more = malloc(sizeof *more);
    if (more == NULL) return RT_OUT_OF_MEMORY;
    pthread_mutex_lock(&simt_mutex);
    *more = (locked){.next = all_locked, .pointer = pointer, .size = size, .context = simt_current};
    const locked *other = all_locked;
    while (other != NULL && (other->pointer >= more->pointer + size ||
                             more->pointer >= other->pointer + other->size))
        other = other->next;
    if (other == NULL) all_locked = more;
    pthread_mutex_unlock(&simt_mutex);
    if (other == NULL) {
        simt_live_add(1);
        return RT_SUCCESS;
    }
    free(more);
    return RT_ALREADY_REGISTERED;
}

void simt_locked_end(const simt_context *c) {
    locked **at = &all_locked;
    while (*at != NULL) {
        locked *found = *at;
        if (found->context != c) {
            at = &found->next;
            continue;
        }
        *at = found->next;
        free(found);
    }
}

rt_result simt_host_unregister(void *pointer) {
    RELEASE();
    simt_idle_wait(simt_current);
    pthread_mutex_lock(&simt_mutex);
    locked **at = &all_locked;
    while (*at != NULL && (*at)->pointer != pointer) at = &(*at)->next;
    locked *found = *at;
    if (found != NULL) *at = found->next;
    pthread_mutex_unlock(&simt_mutex);
    if (found == NULL) return RT_NOT_REGISTERED;
    free(found);
    simt_live_add(-1);
    return RT_SUCCESS;
}

rt_result simt_host_address(uint64_t *address_out, void *pointer, unsigned flags) {
    CALL(host_address, true);
    (void)flags;
    *address_out = (uint64_t)(uintptr_t)pointer;
    return RT_SUCCESS;
}
