/* SPDX-License-Identifier: MIT
 *
 * shim_pinned.c: see shim_pinned.h.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plugins/shims/shim_pinned.h"

enum { MAX_PART = 64, MAX_MEMORY = 64, ALIGN = 4096 };

/* A part that was given and not yet uploaded. */
typedef struct part {
    tdm_buffer *buffer;
    uint64_t off;
    tdm_tensor_desc desc;
    const uint8_t *src;
    uint64_t row_pitch;
    int64_t row_first, n_row, col_first, n_col;
} part;

static struct {
    pthread_mutex_t mutex;
    const tdm_buffer_ops *inner;
    const char *fault;
    part parts[MAX_PART];
    int n_part;
    struct {
        uint8_t *ptr;
        uint64_t size;
    } memory[MAX_MEMORY];
} pinned = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool has_fault(const char *name) {
    return pinned.fault != NULL && strcmp(pinned.fault, name) == 0;
}

/* The allocation that an address lies in; -1 = none. */
static int memory_find(const void *at) {
    for (int i = 0; i < MAX_MEMORY; i++)
        if (pinned.memory[i].ptr != NULL && (const uint8_t *)at >= pinned.memory[i].ptr &&
            (const uint8_t *)at < pinned.memory[i].ptr + pinned.memory[i].size)
            return i;
    return -1;
}

/* Uploads the parts that lie in allocation `memory`; -1 = all. */
static tdm_status parts_upload(int memory, tdm_error *err) {
    tdm_status status = TDM_OK;
    int n = 0;
    for (int i = 0; i < pinned.n_part; i++) {
        const part *p = &pinned.parts[i];
        if (memory >= 0 && memory_find(p->src) != memory) {
            pinned.parts[n++] = *p;
        } else if (status == TDM_OK) {
            status =
                pinned.inner->tensor_upload(p->buffer, p->off, &p->desc, p->src, p->row_pitch,
                                            p->row_first, p->n_row, p->col_first, p->n_col, err);
        }
    }
    pinned.n_part = n;
    return status;
}

static tdm_status host_alloc(tdm_device *device, uint64_t size, void **ptr_out, tdm_error *err) {
    uint8_t *ptr = NULL;
    (void)device;
    pthread_mutex_lock(&pinned.mutex);
    for (int i = 0; i < MAX_MEMORY && ptr == NULL && size < (uint64_t)1 << 40; i++) {
        if (pinned.memory[i].ptr != NULL) continue;
        ptr = aligned_alloc(ALIGN, (size + 2 * ALIGN - 1) / ALIGN * ALIGN);
        pinned.memory[i].ptr = ptr;
        pinned.memory[i].size = size + ALIGN;
    }
    pthread_mutex_unlock(&pinned.mutex);
    if (ptr == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "shim: %llu bytes", (unsigned long long)size);
    *ptr_out = ptr + (has_fault("pinned-align") ? 64 : 0);
    return TDM_OK;
}

static void host_free(tdm_device *device, void *ptr, uint64_t size) {
    (void)device;
    (void)size;
    if (ptr == NULL) return;
    pthread_mutex_lock(&pinned.mutex);
    int i = memory_find(ptr);
    (void)parts_upload(i, NULL);
    free(pinned.memory[i].ptr);
    pinned.memory[i].ptr = NULL;
    pthread_mutex_unlock(&pinned.mutex);
}

static tdm_status tensor_upload(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                                const void *src, uint64_t row_pitch, int64_t row_first,
                                int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err) {
    tdm_status status = TDM_OK;
    pthread_mutex_lock(&pinned.mutex);
    bool is_late = memory_find(src) >= 0;
    if (is_late && pinned.n_part == MAX_PART) status = parts_upload(-1, err);
    if (is_late && status == TDM_OK)
        pinned.parts[pinned.n_part++] =
            (part){buffer, off, *desc, src, row_pitch, row_first, n_row, col_first, n_col};
    pthread_mutex_unlock(&pinned.mutex);
    if (is_late) return status;
    return pinned.inner->tensor_upload(buffer, off, desc, src, row_pitch, row_first, n_row,
                                       col_first, n_col, err);
}

static tdm_status upload_finish(tdm_device *device, const void *src, tdm_error *err) {
    (void)device;
    if (src != NULL && has_fault("pinned-piece")) return TDM_OK;
    pthread_mutex_lock(&pinned.mutex);
    if (src == NULL && has_fault("pinned-all")) pinned.n_part = 0;
    tdm_status status = parts_upload(src != NULL ? memory_find(src) : -1, err);
    pthread_mutex_unlock(&pinned.mutex);
    return status;
}

void shim_pinned_apply(const tdm_buffer_ops *inner, tdm_buffer_ops *outer, const char *fault) {
    pinned.inner = inner;
    pinned.fault = fault;
    outer->host_alloc = host_alloc;
    outer->host_free = host_free;
    outer->tensor_upload = tensor_upload;
    outer->upload_finish = upload_finish;
}
