/* SPDX-License-Identifier: MIT
 *
 * buffer.h: device memory, and the private layouts in which a device may keep weights.
 *
 * A buffer is a range of bytes on one device. The plugin that allocated it frees it; neither side
 * frees the other's memory. Offsets and sizes are bytes. Upload, download, copy and fill are
 * synchronous: on return the bytes are there. They may be called from any thread for ranges that no
 * queue is using.
 *
 * A buffer has a purpose, by which the device chooses its memory. INPUT and OUTPUT hold what the
 * host passes to the device in every step and what it gets back. A device that gives a host pointer
 * for them needs no upload and no download in a step: the host writes the inputs, submits, waits,
 * reads the outputs.
 *
 * Rationale for tensor_upload: a device multiplies fastest from its own arrangement of a matrix.
 * The caller uploads canonical bytes range by range. So the device converts them while the file is
 * read, with staging memory of bounded size, and the caller can drop the pages of the file that it
 * has uploaded.
 */
#ifndef TANDEM_BUFFER_H
#define TANDEM_BUFFER_H

#include "tandem/kv.h"
#include "tandem/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tdm_device tdm_device; /* the plugin's; opened by tdm_device_ops.open */
typedef struct tdm_buffer tdm_buffer; /* the plugin's */

typedef enum tdm_buffer_purpose {
    TDM_BUFFER_ANY = 0,
    TDM_BUFFER_WEIGHT,  /* written once, read by every step */
    TDM_BUFFER_STATE,   /* caches */
    TDM_BUFFER_COMPUTE, /* values that the device makes and reads */
    TDM_BUFFER_INPUT,   /* the host writes before each step, the device reads */
    TDM_BUFFER_OUTPUT,  /* the device writes, the host reads after each step: memory in which the
                           host's reads are cached */
    TDM_BUFFER_ARENA    /* read and written by this and other devices while kernels run. A device
                           with import_peer keeps it in its own memory */
} tdm_buffer_purpose;

/* What the host may do at an address: a set of flags. */
enum {
    TDM_ACCESS_READ = 1u << 0,
    TDM_ACCESS_WRITE = 1u << 1 /* in order of address, without reading back: write-combining memory
                                  is fast for this, and very slow to read */
};

/* One thing that will lie in a buffer. A weight (`tensor` set), the cache of a layer (`kv` set), or
 * bytes (neither). Pointers are read during the call only. */
typedef struct tdm_buffer_item {
    uint64_t off;  /* bytes from the buffer's start */
    uint64_t size; /* bytes: as tensor_size gives, or n_page * kv_page_size */
    const tdm_tensor_desc *tensor;
    const tdm_kv_desc *kv;
    int64_t n_page;          /* of a cache */
    tdm_partition partition; /* of a cache; a weight has it in its description */
} tdm_buffer_item;

typedef struct tdm_buffer_params {
    size_t struct_size;
    uint64_t size;   /* bytes; 0 is allowed and gives a buffer that holds nothing */
    int32_t purpose; /* tdm_buffer_purpose */
    int32_t n_item;
    const tdm_buffer_item *items; /* in order of off, not overlapping; NULL = not known. A group
                                     needs them for weights and states, since its members hold a
                                     part of each; other devices ignore them */
} tdm_buffer_params;

/* What import_host found out about the memory by trying. */
typedef struct tdm_import_info {
    size_t struct_size;
    bool is_coherent;  /* device and host see each other's writes without a call */
    bool has_atomic32; /* 32-bit atomics work across both */
    bool has_atomic64;
    bool is_pollable; /* host writes reach a running kernel: it may wait on a word */
} tdm_import_info;

typedef struct tdm_buffer_ops {
    size_t struct_size;

    /* Allocates. The memory's contents are undefined. Not enough memory gives
     * TDM_RESOURCE_EXHAUSTED with the sizes requested and free, and leaves the device usable.
     * *buffer_out is set on TDM_OK only; the caller releases it with free. Required.
     * [any-thread] */
    tdm_status (*alloc)(tdm_device *device, const tdm_buffer_params *params,
                        tdm_buffer **buffer_out, tdm_error *err);

    /* Frees; NULL is a no-op. No work that uses the buffer may be under way. Required.
     * [any-thread] */
    void (*free)(tdm_buffer *buffer);

    /* Copies `size` bytes from host memory to buffer[off ..]. A range that is not inside the
     * buffer gives TDM_OUT_OF_RANGE and changes nothing. Required. [any-thread] */
    tdm_status (*upload)(tdm_buffer *buffer, uint64_t off, const void *src, uint64_t size,
                         tdm_error *err);

    /* Copies buffer[off .. off+size] to host memory; as upload. Required. [any-thread] */
    tdm_status (*download)(tdm_buffer *buffer, uint64_t off, void *dst, uint64_t size,
                           tdm_error *err);

    /* Optional from here on. */

    /* Copies inside one device; the ranges must not overlap. Absent: the core goes through the
     * host. [any-thread] */
    tdm_status (*copy)(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                       uint64_t size, tdm_error *err);

    /* Sets every byte of a range. Absent: the core uploads. [any-thread] */
    tdm_status (*fill)(tdm_buffer *buffer, uint64_t off, uint64_t size, uint8_t byte,
                       tdm_error *err);

    /* The address at which the host may do `access` (TDM_ACCESS_*, one or both) to the buffer while
     * no queue uses it, valid until free. Given only where that access is about as fast as to the
     * host's own memory: NULL where there is no address or where it is slow (reads through a
     * write-combining window), and the host then uploads or downloads. What the host wrote is there
     * for a computation submitted later; what a computation wrote is there once its signal was
     * waited for. The same answer on every call. [any-thread] */
    void *(*host_pointer)(tdm_buffer *buffer, uint32_t access);

    /* Makes `size` bytes of host memory at `ptr` visible to the device as a buffer. Both are
     * multiples of the device's import_align (device.h). The memory stays the caller's and must
     * outlive the buffer. *info_out (nullable) reports what was probed. TDM_UNSUPPORTED where the
     * device cannot. [any-thread] */
    tdm_status (*import_host)(tdm_device *device, void *ptr, uint64_t size,
                              tdm_import_info *info_out, tdm_buffer **buffer_out, tdm_error *err);

    /* Bytes that a tensor takes on this device. Absent: canonical size. A tensor whose type, shape
     * or usage the device refuses gives TDM_UNSUPPORTED with the reason. [any-thread] */
    tdm_status (*tensor_size)(tdm_device *device, const tdm_tensor_desc *desc, uint64_t *size_out,
                              tdm_error *err);

    /* Converts part of a tensor, given as canonical bytes, into the layout that this device keeps
     * for `desc` at buffer[off ..]: rows row_first .. row_first+n_row-1, in each of them columns
     * col_first .. col_first+n_col-1 (whole blocks). `src` points at the first of those columns of
     * the first row, row_pitch is the distance between rows of src in bytes. The parts may come in
     * any order; bytes of parts never uploaded are undefined. Absent: canonical bytes.
     * [any-thread], for parts that do not overlap */
    tdm_status (*tensor_upload)(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                                const void *src, uint64_t row_pitch, int64_t row_first,
                                int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err);

    /* The inverse: gives back the canonical bytes that were uploaded. Present exactly where
     * tensor_upload is. [any-thread] */
    tdm_status (*tensor_download)(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                                  void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                  int64_t col_first, int64_t n_col, tdm_error *err);

    /* Bytes of one page of a cache like `desc`; TDM_UNSUPPORTED with the reason where the device
     * has no cache of that kind. Required of a device that claims any cache op. [any-thread] */
    tdm_status (*kv_page_size)(tdm_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err);

    /* Allocates host memory that this device reads and writes fastest: page-locked, and known to
     * the driver. The start is a multiple of 4096 and of import_align. For weights on their way to
     * tensor_upload. *ptr_out is set on TDM_OK only; released with host_free. Absent: any host
     * memory serves. [any-thread] */
    tdm_status (*host_alloc)(tdm_device *device, uint64_t size, void **ptr_out, tdm_error *err);

    /* Frees memory of host_alloc; `size` is that of the allocation; NULL is a no-op. Present
     * exactly where host_alloc is. [any-thread] */
    void (*host_free)(tdm_device *device, void *ptr, uint64_t size);

    /* Where present, tensor_upload may return before it has read a `src` that lies in memory of
     * host_alloc: the caller leaves those bytes unchanged until upload_finish returned. This call
     * waits until the device has read all that it was given from the allocation that `src` lies in;
     * src NULL: until all parts of all tensors have arrived in their buffers. A failure of an
     * earlier tensor_upload may be reported here. The host calls it with NULL before the first
     * computation that reads the weights. Absent: tensor_upload has finished when it returns.
     * [any-thread] */
    tdm_status (*upload_finish)(tdm_device *device, const void *src, tdm_error *err);

    /* Makes a buffer of purpose ARENA of another device of the same plugin (its home) visible to
     * `device` as a buffer of the same size: both then name the same bytes, without a copy between
     * them. Uploads and downloads through either reach them, and a running computation of one
     * device sees what one of the other writes with a release at system scope. The imported buffer
     * is released with free, before the home's; both devices stay open as long as it exists.
     * *buffer_out is set on TDM_OK only. TDM_UNSUPPORTED with the reason where `device` cannot
     * reach the home's memory. The caller tests that what one device writes arrives at the other
     * before it relies on it. Absent: no device of the plugin reaches another's memory.
     * [any-thread] */
    tdm_status (*import_peer)(tdm_device *device, tdm_buffer *home, tdm_buffer **buffer_out,
                              tdm_error *err);
} tdm_buffer_ops;

#ifdef __cplusplus
}
#endif

#endif
