/* SPDX-License-Identifier: MIT
 *
 * event.c: events of the emulated driver.
 */
#include <stdlib.h>

#include "tests/simt/stream.h"

rt_result simt_event_create(void **event_out, unsigned flags) {
    CALL(event_create, true);
#ifdef SIMT_HIP
    /* hipEventReleaseToSystem: the plugin depends on it where the host waits. */
    if ((flags & RT_EVENT_BLOCKING) != 0 && (flags & 0x80000000) == 0) return RT_INVALID_VALUE;
    flags &= ~0x80000000u;
#endif
    if ((flags & ~(unsigned)(RT_EVENT_BLOCKING | RT_EVENT_NO_TIMING)) != 0) return RT_INVALID_VALUE;
    *event_out = calloc(1, sizeof(simt_event));
    if (*event_out == NULL) return RT_OUT_OF_MEMORY;
    simt_live_add(1);
    return RT_SUCCESS;
}

rt_result simt_event_destroy(void *handle) {
    RELEASE();
    free(handle);
    simt_live_add(-1);
    return RT_SUCCESS;
}

rt_result simt_event_record(void *handle, void *stream_handle) {
    simt_event *e = handle;
    simt_stream *s = stream_handle;
    CALL(event_record, true);
    e->capture = s != NULL ? s->capture : NULL;
    if (e->capture != NULL) {
        e->front = s->front;
        return RT_SUCCESS;
    }
    pthread_mutex_lock(&simt_mutex);
    const simt_command c = {.kind = COMMAND_EVENT, .event = e, .event_number = ++e->n_recorded};
    pthread_mutex_unlock(&simt_mutex);
    return simt_command_give(stream_handle, &c);
}

/* Emulated only for events that were recorded in a capture: the stream joins the capture. */
rt_result simt_stream_wait(void *stream_handle, void *handle, unsigned flags) {
    simt_stream *s = stream_handle;
    const simt_event *e = handle;
    CALL(stream_wait, true);
    if (s == NULL || e == NULL) return INVALID_HANDLE;
    if (flags != 0) return RT_INVALID_VALUE;
    simt_stream_capture *c = e->capture;
    if (c == NULL || (s->capture != NULL && s->capture != c)) return NOT_SUPPORTED;
    if (s->capture == NULL) {
        if (c->n_stream == MAX_CAPTURE_STREAM) return RT_OUT_OF_MEMORY;
        c->streams[c->n_stream++] = s;
        s->capture = c;
        s->front.n = 0;
    }
    return simt_front_join(&s->front, &e->front) ? RT_SUCCESS : RT_OUT_OF_MEMORY;
}

static rt_result event_state(const simt_event *e) {
    rt_result lost = simt_loss_of(simt_current);
    return lost != RT_SUCCESS ? lost : e->n_done >= e->n_recorded ? RT_SUCCESS : RT_NOT_READY;
}

rt_result simt_event_query(void *handle) {
    CALL_UNSAFE(event_query);
    pthread_mutex_lock(&simt_mutex);
    rt_result result = event_state(handle);
    pthread_mutex_unlock(&simt_mutex);
    return result;
}

rt_result simt_event_sync(void *handle) {
    const simt_event *e = handle;
    CALL_UNSAFE(event_sync);
    pthread_mutex_lock(&simt_mutex);
    uint64_t number = e->n_recorded;
    while (e->n_done < number && simt_current->sticky == RT_SUCCESS)
        pthread_cond_wait(&simt_changed, &simt_mutex);
    rt_result result = simt_loss_of(simt_current);
    pthread_mutex_unlock(&simt_mutex);
    return result;
}
