/* SPDX-License-Identifier: MIT
 *
 * memory.c: device memory, page-locked host memory, and copies, which return when they are done.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugins/gpu/rt/card.h"

/* ---- Allocation ------------------------------------------------------------------------------ */

static tdm_status host_alloc(rt_device *device, uint64_t size, rt_memory *memory, tdm_error *err) {
    const rt_driver *fn = device->fn;
    void *pointer = NULL;
    rt_result result = RT_OUT_OF_MEMORY;
    (void)rt_card_settle(device, false);
    do {
        if (size > SIZE_MAX / 2) break;
        result = fn->host_alloc(&pointer, (size_t)size,
                                RT_HOST_PORTABLE | RT_HOST_MAPPED | rt_vendor_this.host_flags);
    } while (result == RT_OUT_OF_MEMORY && rt_card_settle(device, true));
    if (result == RT_OUT_OF_MEMORY) {
        const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "%s (%s): %s: %llu bytes of page-locked host memory do not fit: %llu of "
                        "%llu bytes of the machine are free",
                        device->name, device->facts->name, rt_symbol(RT_FN_host_alloc),
                        (unsigned long long)size,
                        (unsigned long long)((uint64_t)sysconf(_SC_AVPHYS_PAGES) * page),
                        (unsigned long long)((uint64_t)sysconf(_SC_PHYS_PAGES) * page));
    }
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_host_alloc);
    result = fn->host_address(&memory->address, pointer, 0);
    if (result != RT_SUCCESS) {
        fn->host_free(pointer);
        memory->address = 0;
        return rt_fail(device, err, result, RT_FN_host_address);
    }
    memory->host = pointer;
    return TDM_OK;
}

tdm_status rt_memory_alloc(rt_device *device, uint64_t size, bool is_host, rt_memory *memory_out,
                           tdm_error *err) {
    rt_memory memory = {.size = size};
    *memory_out = (rt_memory){0};
    if (size == 0) return TDM_OK;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    if (is_host) {
        status = host_alloc(device, size, &memory, err);
        if (status != TDM_OK) return status;
    } else {
        size_t n_free = 0, n_total = 0;
        rt_result result = RT_OUT_OF_MEMORY;
        (void)rt_card_settle(device, false);
        do {
            if (size > SIZE_MAX / 2) break;
            result = device->fn->memory_alloc(&memory.address, (size_t)size);
        } while (result == RT_OUT_OF_MEMORY && rt_card_settle(device, true));
        if (result == RT_OUT_OF_MEMORY) {
            device->fn->memory_info(&n_free, &n_total);
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                            "%s (%s): %llu bytes do not fit: %llu of %llu bytes are free",
                            device->name, device->facts->name, (unsigned long long)size,
                            (unsigned long long)n_free, (unsigned long long)n_total);
        }
        if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_memory_alloc);
    }
    *memory_out = memory;
    return TDM_OK;
}

/* The link to the entry of this memory, or the link at the list's end, which is NULL, where the
 * memory is not locked. With import_mutex held. */
static rt_import **import_find(rt_source *source, const void *ptr, uint64_t size) {
    rt_import **at = &source->imports;
    while (*at != NULL && ((*at)->ptr != ptr || (*at)->size != size)) at = &(*at)->next;
    return at;
}

/* The status of a failed import. Where the driver does not lock or map this memory it is
 * TDM_UNSUPPORTED, which is no failure of the device: the caller copies instead. */
static tdm_status import_fail(rt_device *device, rt_result result, int fn, uint64_t size,
                              tdm_error *err) {
    char number[32];
    if (rt_result_is_loss(result) || result == RT_OUT_OF_MEMORY)
        return rt_fail(device, err, result, fn);
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s (%s): %llu bytes of host memory cannot be imported: %s failed: %s",
                    device->name, device->facts->name, (unsigned long long)size, rt_symbol(fn),
                    rt_result_name(device->fn, result, number));
}

/* Locks memory in the device's context, and retains the context. */
static tdm_status memory_lock(rt_device *device, void *ptr, uint64_t size, rt_import *import,
                              tdm_error *err) {
    *import = (rt_import){.ptr = ptr, .size = size, .n_user = 1, .device = device->facts->device};
    rt_result result = device->fn->context_retain(&import->context, import->device);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_context_retain);
    result = device->fn->host_register(ptr, (size_t)size, RT_HOST_PORTABLE | RT_HOST_MAPPED);
    if (result == RT_SUCCESS) return TDM_OK;
    device->fn->context_release(import->device);
    return import_fail(device, result, RT_FN_host_register, size, err);
}

/* Locks the memory, or counts one more user of it. */
static tdm_status import_take(rt_device *device, void *ptr, uint64_t size, tdm_error *err) {
    rt_source *source = device->source;
    tdm_status status = TDM_OK;
    pthread_mutex_lock(&source->import_mutex);
    rt_import *import = *import_find(source, ptr, size);
    if (import != NULL) {
        import->n_user++;
    } else if ((import = malloc(sizeof *import)) == NULL) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: import: no memory", device->name);
    } else {
        status = memory_lock(device, ptr, size, import, err);
        if (status == TDM_OK) {
            import->next = source->imports;
            source->imports = import;
        } else {
            free(import);
        }
    }
    pthread_mutex_unlock(&source->import_mutex);
    return status;
}

/* Unlocks the memory where this is its last user, while nothing computes on the card that locked it
 * (card.h). Imports of others go on while this thread waits. */
static void import_drop(rt_device *device, void *ptr, uint64_t size) {
    rt_source *source = device->source;
    rt_card_quiet quiet = {.is_own = true};
    pthread_mutex_lock(&source->import_mutex);
    const rt_import *seen = *import_find(source, ptr, size);
    const bool is_last = seen != NULL && seen->n_user == 1;
    pthread_mutex_unlock(&source->import_mutex);
    /* The import stays, since this caller is one of its users. */
    if (is_last) device->fn->context_set(seen->context);
    if (is_last) quiet = rt_card_quiet_begin(device, seen->device);
    pthread_mutex_lock(&source->import_mutex);
    rt_import **at = import_find(source, ptr, size), *import = *at;
    if (import != NULL && --import->n_user == 0) {
        device->fn->context_set(import->context);
        device->fn->host_unregister(ptr);
        device->fn->context_release(import->device);
        *at = import->next;
        free(import);
    }
    pthread_mutex_unlock(&source->import_mutex);
    rt_card_quiet_end(&quiet);
    device->fn->context_set(device->context);
}

tdm_status rt_memory_import(rt_device *device, void *ptr, uint64_t size, rt_memory *memory_out,
                            tdm_error *err) {
    rt_memory memory = {.size = size, .host = ptr, .is_imported = true};
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    status = import_take(device, ptr, size, err);
    if (status != TDM_OK) return status;
    rt_result result = device->fn->host_address(&memory.address, ptr, 0);
    if (result != RT_SUCCESS) {
        import_drop(device, ptr, size);
        return import_fail(device, result, RT_FN_host_address, size, err);
    }
    *memory_out = memory;
    return TDM_OK;
}

/* On a lost device the driver's calls fail, and its memory is released with the process. */
void rt_memory_free(rt_device *device, rt_memory *memory) {
    if (memory->is_peer) *memory = (rt_memory){0};
    if (memory->address == 0) return;
    device->fn->context_set(device->context);
    if (memory->is_imported) {
        import_drop(device, memory->host, memory->size);
    } else {
        rt_card_free(device, memory);
    }
    *memory = (rt_memory){0};
}

/* ---- Copies ---------------------------------------------------------------------------------- */

/* Waits for the copies of the stream, and returns the status of all: `result` is that of call `fn`,
 * which started them. With copy_mutex held. */
static tdm_status copies_end(rt_device *device, rt_result result, int fn, tdm_error *err) {
    rt_result waited = rt_stream_end(device, device->copy_stream);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, fn);
    return waited == RT_SUCCESS ? TDM_OK : rt_fail(device, err, waited, RT_FN_stream_sync);
}

tdm_status rt_upload(rt_device *device, const rt_memory *memory, uint64_t off, const void *src,
                     uint64_t size, tdm_error *err) {
    if (size == 0) return TDM_OK;
    if (memory->host != NULL) {
        memcpy(memory->host + off, src, (size_t)size);
        return TDM_OK;
    }
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&device->copy_mutex);
    rt_result result =
        device->fn->copy_in(memory->address + off, src, (size_t)size, device->copy_stream);
    status = copies_end(device, result, RT_FN_copy_in, err);
    pthread_mutex_unlock(&device->copy_mutex);
    return status;
}

tdm_status rt_download(rt_device *device, const rt_memory *memory, const gpu_runs *runs, void *dst,
                       tdm_error *err) {
    const gpu_runs r = gpu_runs_join(runs);
    uint8_t *to = dst;
    rt_result result = RT_SUCCESS;
    if (r.n_run == 0) return TDM_OK;
    if (memory->host != NULL) {
        for (int64_t i = 0; i < r.n_run; i++, to += r.size)
            memcpy(to, memory->host + r.off + (uint64_t)i * r.stride, (size_t)r.size);
        return TDM_OK;
    }
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&device->copy_mutex);
    for (int64_t i = 0; i < r.n_run && result == RT_SUCCESS; i++, to += r.size)
        result = device->fn->copy_out(to, memory->address + r.off + (uint64_t)i * r.stride,
                                      (size_t)r.size, device->copy_stream);
    status = copies_end(device, result, RT_FN_copy_out, err);
    pthread_mutex_unlock(&device->copy_mutex);
    return status;
}

tdm_status rt_copy(rt_device *device, const rt_memory *dst, uint64_t dst_off, const rt_memory *src,
                   uint64_t src_off, uint64_t size, tdm_error *err) {
    if (size == 0) return TDM_OK;
    if (dst->host != NULL && src->host != NULL) {
        memcpy(dst->host + dst_off, src->host + src_off, (size_t)size);
        return TDM_OK;
    }
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&device->copy_mutex);
    rt_result result = device->fn->copy_inside(dst->address + dst_off, src->address + src_off,
                                               (size_t)size, device->copy_stream);
    status = copies_end(device, result, RT_FN_copy_inside, err);
    pthread_mutex_unlock(&device->copy_mutex);
    return status;
}

tdm_status rt_fill(rt_device *device, const rt_memory *memory, uint64_t off, uint64_t size,
                   uint8_t byte, tdm_error *err) {
    if (size == 0) return TDM_OK;
    if (memory->host != NULL) {
        memset(memory->host + off, byte, (size_t)size);
        return TDM_OK;
    }
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&device->copy_mutex);
    rt_result result =
        device->fn->fill(memory->address + off, byte, (size_t)size, device->copy_stream);
    status = copies_end(device, result, RT_FN_fill, err);
    pthread_mutex_unlock(&device->copy_mutex);
    return status;
}
