/* SPDX-License-Identifier: MIT
 *
 * peer.c: memory of one device, the home, that kernels of another read and write: buffers of
 * purpose ARENA, and their import (import_peer of buffer.h).
 *
 * With CUDA and HIP memory has the same address for all devices of the process. So an import maps
 * nothing: it makes the home's memory accessible from the importing device's context, and uses the
 * home's address. The memory stays accessible until the context is released: others may use the
 * same primary context, so that a buffer that is freed must not end the access.
 */
#include <stdio.h>
#include <stdlib.h>

#include "plugins/gpu/rt/card.h"

tdm_status rt_memory_alloc_shared(rt_device *device, uint64_t size, rt_memory *memory_out,
                                  tdm_error *err) {
    const rt_driver *fn = device->fn;
    rt_memory memory = {.size = size, .is_shared = true};
    *memory_out = (rt_memory){0};
    if (size == 0) return TDM_OK;
    if (rt_vendor_this.shared_alloc == NULL) {
        tdm_status status = rt_memory_alloc(device, size, false, memory_out, err);
        memory_out->is_shared = status == TDM_OK;
        return status;
    }
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    rt_result result = RT_INVALID_VALUE;
    (void)rt_card_settle(device, false);
    do {
        if (fn->shared_alloc == NULL || size > SIZE_MAX / 2) break;
        result = fn->shared_alloc(&memory.address, (size_t)size, rt_vendor_this.shared_flags);
    } while (result == RT_OUT_OF_MEMORY && rt_card_settle(device, true));
    if (rt_result_is_loss(result))
        return rt_fail_symbol(device, err, result, rt_vendor_this.shared_alloc);
    /* Not every card has such memory. Other devices refuse to import what it gets instead. */
    if (result != RT_SUCCESS) return rt_memory_alloc(device, size, false, memory_out, err);
    *memory_out = memory;
    return TDM_OK;
}

static tdm_status peer_refuse(const rt_device *device, const rt_device *home, tdm_error *err,
                              const char *why) {
    return tdm_fail(err, TDM_UNSUPPORTED, "%s (%s) does not reach the memory of %s (%s): %s",
                    device->name, device->facts->name, home->name, home->facts->name, why);
}

/* The reason that rules out an import before the driver is called; NULL = there is none. */
static const char *fact_against(const rt_device *device, const tdm_buffer *home) {
    if (home->device->source != device->source) return "its driver is another";
    if (home->memory.host != NULL || home->memory.is_peer || home->copy.address != 0)
        return "the buffer lies elsewhere";
    if (!home->memory.is_shared) return "it has no memory that others see while kernels run";
    if (device->fn->peer_by_context == NULL && device->fn->peer_by_device == NULL)
        return "the driver has no function for it";
    return NULL;
}

static rt_result peer_enable(const rt_device *device, const rt_device *home) {
    const rt_driver *fn = device->fn;
    rt_result result = fn->peer_by_context != NULL ? fn->peer_by_context(home->context, 0)
                                                   : fn->peer_by_device(home->facts->device, 0);
    return result == RT_PEER_IS_ENABLED ? RT_SUCCESS : result;
}

static tdm_status peer_open(rt_device *device, const rt_device *home, tdm_error *err) {
    char number[32], text[96];
    int can = 0;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK || device->facts->device == home->facts->device) return status;
    const char *symbol = rt_symbol(RT_FN_peer_query);
    rt_result result = device->fn->peer_query(&can, device->facts->device, home->facts->device);
    if (result == RT_SUCCESS && can == 0)
        return peer_refuse(device, home, err, "the driver says that it cannot");
    if (result == RT_SUCCESS) {
        symbol = device->fn->peer_by_context != NULL ? rt_vendor_this.peer_by_context
                                                     : rt_vendor_this.peer_by_device;
        result = peer_enable(device, home);
    }
    if (result == RT_SUCCESS) return TDM_OK;
    if (rt_result_is_loss(result)) return rt_fail_symbol(device, err, result, symbol);
    snprintf(text, sizeof text, "%.40s failed: %.40s", symbol,
             rt_result_name(device->fn, result, number));
    return peer_refuse(device, home, err, text);
}

tdm_status rt_import_peer(tdm_device *device, tdm_buffer *home, tdm_buffer **buffer_out,
                          tdm_error *err) {
    const char *why = fact_against(device, home);
    tdm_status status = why != NULL ? peer_refuse(device, home->device, err, why)
                                    : peer_open(device, home->device, err);
    if (status != TDM_OK) return status;
    tdm_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: import: no memory", device->name);
    buffer->device = device;
    buffer->size = home->size;
    buffer->memory = home->memory;
    buffer->memory.is_peer = true;
    *buffer_out = buffer;
    return TDM_OK;
}
