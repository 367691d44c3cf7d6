/* SPDX-License-Identifier: MIT
 *
 * upload.c: memory and copies for plugins/gpu/mem/upload.h. The copies are put into the copy
 * stream, with an event behind those of a piece. The host waits for them (upload_finish) before it
 * submits a computation that reads the weights.
 */
#include <stdlib.h>

#include "plugins/gpu/rt/rt.h"

/* The events of the pieces. Numbers are under copy_mutex; the handles of events are constant. */
struct rt_upload_events {
    uint64_t n_copy; /* number of the last copies of all pieces */
    struct {
        void *event;     /* recorded behind the last copies of the piece */
        uint64_t number; /* of these copies; 0 = none yet */
    } pieces[GPU_N_PIECE];
};

static tdm_status memory_alloc(tdm_device *device, uint64_t size, void **memory_out,
                               uint8_t **ptr_out, bool *is_cached_out, tdm_error *err) {
    rt_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    tdm_status status = rt_memory_alloc(device, size, true, memory, err);
    if (status != TDM_OK) {
        free(memory);
        return status;
    }
    *memory_out = memory;
    *ptr_out = memory->host;
    *is_cached_out = true;
    return TDM_OK;
}

static void memory_free(tdm_device *device, void *memory) {
    rt_memory_free(device, memory);
    free(memory);
}

/* Nothing to do: later copies see what the host wrote to page-locked memory. */
static tdm_status memory_flush(tdm_device *device, void *memory, uint64_t off, uint64_t size,
                               tdm_error *err) {
    (void)device, (void)memory, (void)off, (void)size, (void)err;
    return TDM_OK;
}

static tdm_status copies_begin(tdm_device *device, int piece, tdm_buffer *buffer, void *memory,
                               const gpu_copy *copies, int32_t n, uint64_t *number_out,
                               tdm_error *err) {
    struct rt_upload_events *e = device->upload_events;
    const rt_memory *from = memory;
    int fn = RT_FN_copy_in;
    rt_result result = RT_SUCCESS;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&device->copy_mutex);
    for (int32_t i = 0; i < n && result == RT_SUCCESS; i++)
        result =
            device->fn->copy_in(buffer->memory.address + copies[i].dst, from->host + copies[i].src,
                                (size_t)copies[i].size, device->copy_stream);
    if (result == RT_SUCCESS) {
        fn = RT_FN_event_record;
        result = device->fn->event_record(e->pieces[piece].event, device->copy_stream);
    }
    if (result == RT_SUCCESS)
        *number_out = e->pieces[piece].number = ++e->n_copy;
    else
        (void)rt_stream_end(device, device->copy_stream);
    pthread_mutex_unlock(&device->copy_mutex);
    return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, fn);
}

/* The event with the lowest number from `number` on: when it is reached, the copies of `number`
 * have ended. NULL where no piece has such a number: nothing to wait for. The event may be recorded
 * again before the caller waits for it: the wait then ends later, which does no harm. */
static void *event_find(rt_device *device, uint64_t number) {
    struct rt_upload_events *e = device->upload_events;
    int best = -1;
    pthread_mutex_lock(&device->copy_mutex);
    for (int i = 0; i < GPU_N_PIECE; i++)
        if (e->pieces[i].number >= number &&
            (best < 0 || e->pieces[i].number < e->pieces[best].number))
            best = i;
    pthread_mutex_unlock(&device->copy_mutex);
    return best < 0 ? NULL : e->pieces[best].event;
}

static tdm_status copies_wait(tdm_device *device, uint64_t number, tdm_error *err) {
    void *event = event_find(device, number);
    if (event == NULL) return TDM_OK;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    rt_result result = device->fn->event_sync(event);
    if (result == RT_SUCCESS) return TDM_OK;
    (void)rt_stream_end(device, device->copy_stream);
    return rt_fail(device, err, result, RT_FN_event_sync);
}

static const gpu_upload_calls calls = {.alloc = memory_alloc,
                                       .free = memory_free,
                                       .flush = memory_flush,
                                       .copy = copies_begin,
                                       .wait = copies_wait};

tdm_status rt_uploads_create(rt_device *device, tdm_error *err) {
    struct rt_upload_events *e = calloc(1, sizeof *e);
    if (e == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    device->upload_events = e;
    for (int i = 0; i < GPU_N_PIECE; i++) {
        rt_result result =
            device->fn->event_create(&e->pieces[i].event, RT_EVENT_NO_TIMING | RT_EVENT_BLOCKING |
                                                              rt_vendor_this.event_flags);
        if (result == RT_SUCCESS) continue;
        e->pieces[i].event = NULL;
        return rt_fail(device, err, result, RT_FN_event_create);
    }
    return gpu_uploads_create(device, device->name, 0, &calls, &device->uploads, err);
}

void rt_uploads_destroy(rt_device *device) {
    struct rt_upload_events *e = device->upload_events;
    gpu_uploads_destroy(device->uploads);
    device->uploads = NULL;
    if (e == NULL) return;
    for (int i = 0; i < GPU_N_PIECE; i++)
        if (e->pieces[i].event != NULL) device->fn->event_destroy(e->pieces[i].event);
    free(e);
    device->upload_events = NULL;
}

tdm_status rt_host_alloc(tdm_device *device, uint64_t size, void **ptr_out, tdm_error *err) {
    return gpu_host_alloc(device->uploads, size, false, ptr_out, err);
}

void rt_host_free(tdm_device *device, void *ptr, uint64_t size) {
    gpu_host_free(device->uploads, ptr, size);
}

tdm_status rt_upload_finish(tdm_device *device, const void *src, tdm_error *err) {
    return gpu_upload_finish(device->uploads, src, err);
}
