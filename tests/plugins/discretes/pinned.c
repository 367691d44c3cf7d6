/* SPDX-License-Identifier: MIT
 *
 * pinned.c: host memory that the device reads at a time of its choice. A tensor_upload from such
 * memory is recorded, and upload_finish reads the bytes. A host that reuses a piece too early, or
 * does not call upload_finish, gets wrong weights.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/plugins/discretes/discrete.h"

struct discrete_pinned {
    discrete_pinned *next;
    uint8_t *memory;
    uint64_t size;
};

struct discrete_late {
    discrete_late *next;
    const discrete_pinned *from;
    tdm_buffer *buffer;
    uint64_t off, row_pitch;
    tdm_tensor_desc desc;
    const void *src;
    int64_t row_first, n_row, col_first, n_col;
};

tdm_status discrete_host_alloc(tdm_device *d, uint64_t size, void **ptr_out, tdm_error *err) {
    discrete_pinned *p = malloc(sizeof *p);
    uint8_t *memory = p != NULL ? aligned_alloc(4096, (size_t)((size + 4095) / 4096 * 4096)) : NULL;
    if (memory == NULL) {
        free(p);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "'%s': no pinned memory", d->member);
    }
    pthread_mutex_lock(&d->mutex);
    *p = (discrete_pinned){d->pinned, memory, size};
    d->pinned = p;
    pthread_mutex_unlock(&d->mutex);
    *ptr_out = memory;
    return TDM_OK;
}

void discrete_host_free(tdm_device *d, void *ptr, uint64_t size) {
    (void)size;
    pthread_mutex_lock(&d->mutex);
    for (discrete_pinned **at = &d->pinned; *at != NULL; at = &(*at)->next) {
        discrete_pinned *p = *at;
        if (p->memory != ptr) continue;
        *at = p->next;
        free(p->memory);
        free(p);
        break;
    }
    pthread_mutex_unlock(&d->mutex);
}

/* Under the mutex. */
static const discrete_pinned *pinned_find(const tdm_device *d, const void *src) {
    const discrete_pinned *p = d->pinned;
    while (p != NULL &&
           !((const uint8_t *)src >= p->memory && (const uint8_t *)src < p->memory + p->size))
        p = p->next;
    return p;
}

bool discrete_upload_later(tdm_buffer *b, uint64_t off, const tdm_tensor_desc *desc,
                           const void *src, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                           int64_t col_first, int64_t n_col) {
    tdm_device *d = b->device;
    pthread_mutex_lock(&d->mutex);
    const discrete_pinned *from = pinned_find(d, src);
    discrete_late *late = from != NULL ? malloc(sizeof *late) : NULL;
    if (late != NULL) {
        *late = (discrete_late){.next = d->late,
                                .from = from,
                                .buffer = b,
                                .off = off,
                                .row_pitch = row_pitch,
                                .desc = *desc,
                                .src = src,
                                .row_first = row_first,
                                .n_row = n_row,
                                .col_first = col_first,
                                .n_col = n_col};
        d->late = late;
    }
    pthread_mutex_unlock(&d->mutex);
    return late != NULL;
}

/* Takes one that reads from `from`, NULL = from anywhere. */
static discrete_late *late_take(tdm_device *d, const discrete_pinned *from) {
    pthread_mutex_lock(&d->mutex);
    discrete_late **at = &d->late;
    while (*at != NULL && from != NULL && (*at)->from != from) at = &(*at)->next;
    discrete_late *late = *at;
    if (late != NULL) *at = late->next;
    pthread_mutex_unlock(&d->mutex);
    return late;
}

tdm_status discrete_upload_finish(tdm_device *d, const void *src, tdm_error *err) {
    tdm_status status = discrete_call(d, err);
    const discrete_pinned *from = NULL;
    if (src != NULL) {
        pthread_mutex_lock(&d->mutex);
        from = pinned_find(d, src);
        pthread_mutex_unlock(&d->mutex);
        if (from == NULL) return status;
    }
    for (discrete_late *late; (late = late_take(d, from)) != NULL; free(late)) {
        if (status != TDM_OK) continue;
        discrete_buffer_enter(late->buffer);
        status = discrete_behind->buffer->tensor_upload(
            late->buffer->lent, late->off, &late->desc, late->src, late->row_pitch, late->row_first,
            late->n_row, late->col_first, late->n_col, err);
        discrete_buffer_leave(late->buffer);
    }
    return status;
}
