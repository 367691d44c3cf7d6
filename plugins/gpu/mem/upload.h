/* SPDX-License-Identifier: MIT
 *
 * upload.h: uploads of weights to memory that the host does not write directly, for all GPU
 * plugins: page-locked memory of the host for callers, and a ring of such memory in which threads
 * convert rows to the layout of plugins/gpu/layout/weight.h. The plugin allocates the memory and
 * makes the copies.
 *
 * Mental model. A thread takes a piece of the ring, converts rows into it, and starts a copy by the
 * device; several threads do so at the same time. A tensor of one plane (f32, f16, bf16, and
 * tensors without usage flags) has its canonical bytes on the device: where the caller's memory is
 * page-locked, the device copies from there and nothing is converted.
 */
#ifndef TANDEM_GPU_UPLOAD_H
#define TANDEM_GPU_UPLOAD_H

#include "plugins/gpu/layout/weight.h"
#include "tandem/buffer.h"

enum {
    GPU_N_PIECE = 8,   /* pieces of the ring */
    GPU_MAX_COPY = 512 /* copies that one call starts, at most */
};

/* Bytes from offset `src` of page-locked memory to offset `dst` of a buffer. */
typedef struct gpu_copy {
    uint64_t src, dst, size;
} gpu_copy;

/* The plugin's functions. Each successful call of `copy` has a number above 0, larger than that of
 * the call before, and copies end in this order: when the copies of a number have ended, all copies
 * of smaller numbers have ended too. */
typedef struct gpu_upload_calls {
    /* Allocates page-locked memory: a handle and its address on the host. *is_cached_out: the
     * host's reads of it are cached. Released with `free`. [any-thread] */
    tdm_status (*alloc)(tdm_device *device, uint64_t size, void **memory_out, uint8_t **ptr_out,
                        bool *is_cached_out, tdm_error *err);
    void (*free)(tdm_device *device, void *memory);
    /* Makes what the host has written to these bytes visible to later copies. [any-thread] */
    tdm_status (*flush)(tdm_device *device, void *memory, uint64_t off, uint64_t size,
                        tdm_error *err);
    /* Starts n (1 .. GPU_MAX_COPY) copies; *number_out is their number. After a failure none of
     * them is running. `piece`, 0 .. GPU_N_PIECE - 1: what the plugin keeps for each piece
     * (commands, an event) is free, since the copies of the last call with it have ended. [one
     * thread at a time] */
    tdm_status (*copy)(tdm_device *device, int piece, tdm_buffer *buffer, void *memory,
                       const gpu_copy *copies, int32_t n, uint64_t *number_out, tdm_error *err);
    /* Waits until the copies up to `number` have ended. They have ended after a failure, too.
     * [any-thread] */
    tdm_status (*wait)(tdm_device *device, uint64_t number, tdm_error *err);
} gpu_upload_calls;

typedef struct gpu_uploads gpu_uploads;

/* `name` (for messages) and `calls` must outlive it. `align`: least alignment of page-locked memory
 * for callers, in bytes, a power of two; 0 = that of pages. Released with gpu_uploads_destroy. */
tdm_status gpu_uploads_create(tdm_device *device, const char *name, uint64_t align,
                              const gpu_upload_calls *calls, gpu_uploads **uploads_out,
                              tdm_error *err);
/* Waits for the copies that are running, and destroys. All memory of gpu_host_alloc has been freed
 * before. NULL is a no-op. */
void gpu_uploads_destroy(gpu_uploads *uploads);

/* tdm_buffer_ops.host_alloc: page-locked memory with cached reads, which the conversion of rows
 * needs. Where the plugin has no such memory left, or with is_plain, ordinary memory of the host:
 * uploads from it have ended when they return. Released with gpu_host_free, which waits for copies
 * from the memory; `size` is the same. [any-thread] */
tdm_status gpu_host_alloc(gpu_uploads *uploads, uint64_t size, bool is_plain, void **ptr_out,
                          tdm_error *err);
void gpu_host_free(gpu_uploads *uploads, void *ptr, uint64_t size);
/* tdm_buffer_ops.upload_finish. [any-thread] */
tdm_status gpu_upload_finish(gpu_uploads *uploads, const void *src, tdm_error *err);

/* Copies a part of a tensor, whose canonical rows are at `src`, row_pitch bytes apart, to the
 * tensor at offset `off` of the buffer. Where src lies in page-locked memory of gpu_host_alloc,
 * copies may be running when it returns; else they have ended, after a failure too. *number is a
 * field of the buffer, 0 at first, for the functions of this file alone: the number of its last
 * copies. [any-thread] */
tdm_status gpu_upload(gpu_uploads *uploads, tdm_buffer *buffer, uint64_t off, uint64_t *number,
                      const gpu_weight_layout *layout, const gpu_weight_part *part, const void *src,
                      uint64_t row_pitch, tdm_error *err);

/* Waits until no copy into a buffer is running; `number` as in gpu_upload. [any-thread] */
void gpu_upload_settle(gpu_uploads *uploads, const uint64_t *number);

#endif
