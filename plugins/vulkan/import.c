/* SPDX-License-Identifier: MIT
 *
 * import.c: host memory as a buffer of the device. Before the first import a page of our own is
 * imported and copied from and to: some drivers import memory that the device then does not reach.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/transfer.h"

enum { UNKNOWN = 0, WORKS, FAILS }; /* vk_device.import_state */

enum { PROBE_SIZE = 4096 };

/* Copies a pattern from imported memory to memory of the device, and another one back. */
static tdm_status pattern_cross(vk_device *device, uint8_t *page, const vk_memory *imported,
                                tdm_error *err) {
    vk_memory other;
    uint8_t seen[PROBE_SIZE];
    tdm_status status = vk_memory_alloc(device, PROBE_SIZE, VK_USE_OUTPUT, &other, err);
    if (status != TDM_OK) return status;
    for (int i = 0; i < PROBE_SIZE; i++) page[i] = (uint8_t)(i * 7 + 3);
    status = vk_copy(device, &other, 0, imported, 0, PROBE_SIZE, err);
    if (status == TDM_OK) status = vk_download(device, &other, 0, seen, PROBE_SIZE, err);
    if (status == TDM_OK && memcmp(seen, page, PROBE_SIZE) != 0)
        status = tdm_fail(err, TDM_UNSUPPORTED, "%s: the device does not read imported host memory",
                          device->name);
    for (int i = 0; i < PROBE_SIZE; i++) seen[i] = (uint8_t)(i * 5 + 11);
    if (status == TDM_OK) status = vk_upload(device, &other, 0, seen, PROBE_SIZE, err);
    if (status == TDM_OK) status = vk_copy(device, imported, 0, &other, 0, PROBE_SIZE, err);
    if (status == TDM_OK && memcmp(seen, page, PROBE_SIZE) != 0)
        status = tdm_fail(err, TDM_UNSUPPORTED,
                          "%s: the device does not write imported host memory", device->name);
    vk_memory_free(device, &other);
    return status;
}

static tdm_status probe(vk_device *device, tdm_error *err) {
    uint64_t align = device->facts->import_align;
    uint64_t size = (PROBE_SIZE + align - 1) / align * align;
    vk_memory imported;
    uint8_t *page = aligned_alloc((size_t)align, (size_t)size);
    if (page == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    tdm_status status = vk_memory_import(device, page, size, &imported, err);
    if (status == TDM_OK && !imported.is_coherent)
        status = tdm_fail(err, TDM_UNSUPPORTED, "%s: imported host memory is not coherent",
                          device->name);
    if (status == TDM_OK) status = pattern_cross(device, page, &imported, err);
    vk_memory_free(device, &imported);
    free(page);
    return status;
}

static tdm_status import_check(vk_device *device, tdm_error *err) {
    tdm_status status = TDM_OK;
    pthread_mutex_lock(&device->import_mutex);
    if (device->import_state == UNKNOWN) {
        status = probe(device, err);
        /* Another failure, as a lack of memory, may be temporary: the next import tests again. */
        if (status == TDM_OK) device->import_state = WORKS;
        if (status == TDM_UNSUPPORTED) device->import_state = FAILS;
    } else if (device->import_state == FAILS) {
        status = tdm_fail(err, TDM_UNSUPPORTED, "%s: host memory cannot be imported: a test failed",
                          device->name);
    }
    pthread_mutex_unlock(&device->import_mutex);
    return status;
}

tdm_status vk_import_host(tdm_device *device, void *ptr, uint64_t size, tdm_import_info *info_out,
                          tdm_buffer **buffer_out, tdm_error *err) {
    uint64_t align = device->facts->import_align;
    if (ptr == NULL || size == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: import: no memory", device->name);
    if (align == 0 || !device->options.has_import)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: the driver has no VK_EXT_external_memory_host: host memory is not "
                        "imported",
                        device->name);
    if ((uintptr_t)ptr % align != 0 || size % align != 0)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: import: address and size must be multiples of %llu", device->name,
                        (unsigned long long)align);
    if (size > device->facts->max_allocation)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: import: %llu bytes; the driver has up to %llu in one buffer",
                        device->name, (unsigned long long)size,
                        (unsigned long long)device->facts->max_allocation);
    tdm_status status = import_check(device, err);
    if (status != TDM_OK) return status;
    tdm_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: import: no memory", device->name);
    buffer->device = device;
    buffer->size = size;
    status = vk_memory_import(device, ptr, size, &buffer->memory, err);
    if (status != TDM_OK) {
        free(buffer);
        return status;
    }
    if (info_out != NULL) {
        /* Only coherence is promised: the specification has no atomics between device and host, and
         * kernels do not wait for the host. */
        const tdm_import_info info = {.struct_size = sizeof info, .is_coherent = true};
        tdm_struct_write(info_out, &info, sizeof info);
    }
    *buffer_out = buffer;
    return TDM_OK;
}
