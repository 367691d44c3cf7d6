/* SPDX-License-Identifier: MIT
 *
 * memory.c: memory that the host cannot touch. Each buffer is a mapping without access rights.
 * Calls of the device give themselves access while they work. The device behind imports the
 * mapping.
 */
#include <errno.h>
#include <sys/mman.h>

#include "tests/plugins/discretes/discrete.h"

enum { PAGE = 4096 };

static size_t round_up(uint64_t size) {
    return (size_t)((size + PAGE - 1) / PAGE * PAGE);
}

void discrete_buffer_enter(tdm_buffer *b) {
    pthread_mutex_lock(&b->device->mutex);
    if (b->n_inside++ == 0 && b->memory != NULL && !b->is_reachable)
        mprotect(b->memory, round_up(b->size), PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&b->device->mutex);
}

void discrete_buffer_leave(tdm_buffer *b) {
    pthread_mutex_lock(&b->device->mutex);
    if (--b->n_inside == 0 && b->memory != NULL && !b->is_reachable)
        mprotect(b->memory, round_up(b->size), PROT_NONE);
    pthread_mutex_unlock(&b->device->mutex);
}

static void memory_release(tdm_device *d, size_t size) {
    pthread_mutex_lock(&d->mutex);
    d->used -= size;
    pthread_mutex_unlock(&d->mutex);
}

static tdm_status memory_take(tdm_device *d, uint64_t size, tdm_error *err) {
    tdm_status status = TDM_OK;
    if (d->max_buffer != 0 && size > d->max_buffer)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "'%s': a buffer of %llu bytes; it has buffers of up to %llu", d->member,
                        (unsigned long long)size, (unsigned long long)d->max_buffer);
    pthread_mutex_lock(&d->mutex);
    if (size > d->memory - d->used)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "'%s': %llu bytes asked for, %llu free",
                          d->member, (unsigned long long)size,
                          (unsigned long long)(d->memory - d->used));
    else
        d->used += size;
    if (status == TDM_OK && d->largest < size) d->largest = size;
    pthread_mutex_unlock(&d->mutex);
    return status;
}

static void buffer_free(tdm_buffer *b) {
    if (b == NULL) return;
    discrete_behind->buffer->free(b->lent);
    if (b->memory != NULL) {
        munmap(b->memory, round_up(b->size));
        memory_release(b->device, b->size);
    }
    discrete_count_live(-1);
    free(b);
}

/* Maps the memory and has the device behind import it; on failure the caller frees the buffer. */
static tdm_status buffer_map(tdm_buffer *b, tdm_error *err) {
    int access = b->is_reachable ? PROT_READ | PROT_WRITE : PROT_NONE;
    tdm_status status = memory_take(b->device, b->size, err);
    if (status != TDM_OK) return status;
    void *memory = mmap(NULL, round_up(b->size), access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        memory_release(b->device, b->size);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "mmap: %s", strerror(errno));
    }
    b->memory = memory;
    return discrete_behind->buffer->import_host(b->device->lent.device, memory, round_up(b->size),
                                                NULL, &b->lent, err);
}

static tdm_status buffer_alloc(tdm_device *d, const tdm_buffer_params *params, tdm_buffer **out,
                               tdm_error *err) {
    tdm_status status = discrete_call(d, err);
    if (status != TDM_OK) return status;
    tdm_buffer *b = calloc(1, sizeof *b);
    if (b == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    discrete_count_live(1);
    b->device = d;
    b->size = (size_t)params->size;
    b->purpose = params->purpose;
    /* An idle card computes nothing, so its memory need not be protected. */
    b->is_reachable = d->is_idle || params->purpose == TDM_BUFFER_INPUT ||
                      params->purpose == TDM_BUFFER_OUTPUT || params->purpose == TDM_BUFFER_ARENA;
    if (b->size > 0)
        status = buffer_map(b, err);
    else
        status = discrete_behind->buffer->alloc(d->lent.device, params, &b->lent, err);
    if (status != TDM_OK) {
        buffer_free(b);
        return status;
    }
    *out = b;
    return TDM_OK;
}

static tdm_status range_check(const tdm_buffer *b, uint64_t off, uint64_t size, tdm_error *err) {
    if (off <= b->size && size <= b->size - off) return TDM_OK;
    return tdm_fail(err, TDM_OUT_OF_RANGE, "'%s': bytes %llu and %llu more of a buffer of %zu",
                    b->device->member, (unsigned long long)off, (unsigned long long)size, b->size);
}

static tdm_status buffer_upload(tdm_buffer *b, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    tdm_status status = discrete_call(b->device, err);
    atomic_fetch_add(&b->device->counts.uploads, 1);
    if (status == TDM_OK) status = range_check(b, off, size, err);
    if (status != TDM_OK) return status;
    discrete_buffer_enter(b);
    status = discrete_behind->buffer->upload(b->lent, off, src, size, err);
    discrete_buffer_leave(b);
    return status;
}

static tdm_status buffer_download(tdm_buffer *b, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    tdm_status status = discrete_call(b->device, err);
    atomic_fetch_add(&b->device->counts.downloads, 1);
    if (status == TDM_OK) status = range_check(b, off, size, err);
    if (status != TDM_OK) return status;
    discrete_buffer_enter(b);
    status = discrete_behind->buffer->download(b->lent, off, dst, size, err);
    discrete_buffer_leave(b);
    return status;
}

static tdm_status buffer_copy(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                              uint64_t size, tdm_error *err) {
    tdm_status status = discrete_call(dst->device, err);
    if (status == TDM_OK) status = range_check(dst, dst_off, size, err);
    if (status == TDM_OK) status = range_check(src, src_off, size, err);
    if (status != TDM_OK) return status;
    discrete_buffer_enter(dst);
    discrete_buffer_enter(src);
    status = discrete_behind->buffer->copy(dst->lent, dst_off, src->lent, src_off, size, err);
    discrete_buffer_leave(src);
    discrete_buffer_leave(dst);
    return status;
}

static tdm_status buffer_fill(tdm_buffer *b, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    tdm_status status = discrete_call(b->device, err);
    if (status == TDM_OK) status = range_check(b, off, size, err);
    if (status != TDM_OK) return status;
    discrete_buffer_enter(b);
    status = discrete_behind->buffer->fill(b->lent, off, size, byte, err);
    discrete_buffer_leave(b);
    return status;
}

/* Inputs are written and outputs are read by the host; the other way round is slow on a bus. */
static void *buffer_host_pointer(tdm_buffer *b, uint32_t access) {
    uint32_t given = b->purpose == TDM_BUFFER_INPUT    ? TDM_ACCESS_WRITE
                     : b->purpose == TDM_BUFFER_OUTPUT ? TDM_ACCESS_READ
                     : b->is_reachable                 ? TDM_ACCESS_READ | TDM_ACCESS_WRITE
                                                       : 0u;
    return (access & ~given) == 0 ? b->memory : NULL;
}

static tdm_status buffer_import(tdm_device *d, void *ptr, uint64_t size, tdm_import_info *info_out,
                                tdm_buffer **out, tdm_error *err) {
    tdm_status status = discrete_call(d, err);
    if (status != TDM_OK) return status;
    if (!d->imports) return tdm_fail(err, TDM_UNSUPPORTED, "'%s' imports nothing", d->member);
    if ((uintptr_t)ptr % d->import_align != 0 || size % d->import_align != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'%s': imports whole multiples of %llu bytes, not %llu at %p", d->member,
                        (unsigned long long)d->import_align, (unsigned long long)size, ptr);
    tdm_buffer *b = calloc(1, sizeof *b);
    if (b == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    discrete_count_live(1);
    b->device = d;
    b->size = (size_t)size;
    b->is_reachable = true;
    status =
        discrete_behind->buffer->import_host(d->lent.device, ptr, size, info_out, &b->lent, err);
    if (status != TDM_OK) {
        discrete_count_live(-1);
        free(b);
        return status;
    }
    *out = b;
    return TDM_OK;
}

static tdm_status tensor_size(tdm_device *d, const tdm_tensor_desc *desc, uint64_t *size_out,
                              tdm_error *err) {
    return discrete_behind->buffer->tensor_size(d->lent.device, desc, size_out, err);
}

static tdm_status tensor_upload(tdm_buffer *b, uint64_t off, const tdm_tensor_desc *desc,
                                const void *src, uint64_t row_pitch, int64_t row_first,
                                int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err) {
    tdm_status status = discrete_call(b->device, err);
    if (status != TDM_OK) return status;
    if (discrete_upload_later(b, off, desc, src, row_pitch, row_first, n_row, col_first, n_col))
        return TDM_OK;
    discrete_buffer_enter(b);
    status = discrete_behind->buffer->tensor_upload(b->lent, off, desc, src, row_pitch, row_first,
                                                    n_row, col_first, n_col, err);
    discrete_buffer_leave(b);
    return status;
}

static tdm_status tensor_download(tdm_buffer *b, uint64_t off, const tdm_tensor_desc *desc,
                                  void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                  int64_t col_first, int64_t n_col, tdm_error *err) {
    tdm_status status = discrete_call(b->device, err);
    if (status != TDM_OK) return status;
    discrete_buffer_enter(b);
    status = discrete_behind->buffer->tensor_download(b->lent, off, desc, dst, row_pitch, row_first,
                                                      n_row, col_first, n_col, err);
    discrete_buffer_leave(b);
    return status;
}

static tdm_status kv_page_size(tdm_device *d, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err) {
    return discrete_behind->buffer->kv_page_size(d->lent.device, desc, size_out, err);
}

const tdm_buffer_ops discrete_buffer_ops = {
    .struct_size = sizeof discrete_buffer_ops,
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = buffer_upload,
    .download = buffer_download,
    .copy = buffer_copy,
    .fill = buffer_fill,
    .host_pointer = buffer_host_pointer,
    .import_host = buffer_import,
    .tensor_size = tensor_size,
    .tensor_upload = tensor_upload,
    .tensor_download = tensor_download,
    .kv_page_size = kv_page_size,
    .host_alloc = discrete_host_alloc,
    .host_free = discrete_host_free,
    .upload_finish = discrete_upload_finish,
};
