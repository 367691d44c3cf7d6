/* SPDX-License-Identifier: MIT
 *
 * upload.h: the way of weights into memory that the host does not write directly, for all GPU plugins:
 * page-locked memory of the host that a device copies from by itself, and a ring of such memory in
 * which threads convert rows to the layout of plugins/gpu/layout/weight.h. The plugin allocates the
 * memory and makes the copies.
 *
 * Mental model. A thread takes a piece of the ring, converts rows into it and has the device copy
 * them; several threads do so side by side. A tensor of one plane (f32, f16, bf16, and tensors without
 * usage flags) has its canonical bytes on the device, so that where the caller's memory is
 * page-locked the device copies from there.
 */
#ifndef TANDEM_GPU_UPLOAD_H
#define TANDEM_GPU_UPLOAD_H

#include "plugins/gpu/layout/weight.h"
#include "tandem/buffer.h"

enum {
    GPU_N_PIECE = 8,   /* pieces of the ring */
    GPU_MAX_COPY = 512 /* copies that begin together */
};

/* Bytes from offset `src` of page-locked memory to offset `dst` of a buffer. */
typedef struct gpu_copy {
    uint64_t src, dst, size;
} gpu_copy;

/* What a plugin does. Copies are numbered 1, 2, ... and end in this order; so the end of one is the
 * end of those before it. */
typedef struct gpu_upload_calls {
    /* Allocates page-locked memory. *is_cached_out: the host's reads of it are cached. [any-thread] */
    tdm_status (*alloc)(tdm_device *device, uint64_t size, void **memory_out, uint8_t **ptr_out,
                        bool *is_cached_out, tdm_error *err);
    void (*free)(tdm_device *device, void *memory);
    /* Later copies see what the host has written to these bytes. [any-thread] */
    tdm_status (*flush)(tdm_device *device, void *memory, uint64_t off, uint64_t size,
                        tdm_error *err);
    /* Begins n (1 .. GPU_MAX_COPY) copies; *number_out is that of the last. After a failure none is
     * under way. `piece`, 0 .. GPU_N_PIECE - 1: the copies of the call before with the same piece have
     * ended. [one thread at a time] */
    tdm_status (*copy)(tdm_device *device, int piece, tdm_buffer *buffer, void *memory,
                       const gpu_copy *copies, int32_t n, uint64_t *number_out, tdm_error *err);
    /* Waits for the end of copies. Also after a failure they have ended. [any-thread] */
    tdm_status (*wait)(tdm_device *device, uint64_t number, tdm_error *err);
} gpu_upload_calls;

typedef struct gpu_uploads gpu_uploads;

/* `name` (for messages) and `calls` must outlive it. `align`: of page-locked memory for callers, at
 * least; a power of two. Released with gpu_uploads_destroy. */
tdm_status gpu_uploads_create(tdm_device *device, const char *name, uint64_t align,
                              const gpu_upload_calls *calls, gpu_uploads **uploads_out,
                              tdm_error *err);
/* Waits for the copies that are under way. All memory of gpu_host_alloc has been freed. NULL is a
 * no-op. */
void gpu_uploads_destroy(gpu_uploads *uploads);

/* tdm_buffer_ops.host_alloc. Where the plugin has no page-locked memory with cached reads, which the
 * conversion of rows needs, or where `is_plain`, any memory of the host: uploads from it have ended
 * when they return. [any-thread] */
tdm_status gpu_host_alloc(gpu_uploads *uploads, uint64_t size, bool is_plain, void **ptr_out,
                          tdm_error *err);
void gpu_host_free(gpu_uploads *uploads, void *ptr, uint64_t size);
/* tdm_buffer_ops.upload_finish. [any-thread] */
tdm_status gpu_upload_finish(gpu_uploads *uploads, const void *src, tdm_error *err);

/* Copies a part of a tensor, whose rows are at `src`, to buffer[off ..]. Where src is in memory of
 * gpu_host_alloc, copies may be under way afterwards; else they have ended. *number, of the buffer,
 * becomes that of its last copies; only calls of this file use it. [any-thread] */
tdm_status gpu_upload(gpu_uploads *uploads, tdm_buffer *buffer, uint64_t off, uint64_t *number,
                      const gpu_weight_layout *layout, const gpu_weight_part *part, const void *src,
                      uint64_t row_pitch, tdm_error *err);

/* Waits until no copy into a buffer is under way; `number` as in gpu_upload. [any-thread] */
void gpu_upload_settle(gpu_uploads *uploads, const uint64_t *number);

#endif
