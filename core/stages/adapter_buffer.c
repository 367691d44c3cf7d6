/* SPDX-License-Identifier: MIT
 *
 * adapter_buffer.c: buffers of an adapted device. A buffer whose items all live on the device is
 * the device's own buffer behind a handle. Otherwise each side has a buffer with its own items, and
 * offsets are translated. The gaps between items have no memory: writes there are dropped, reads
 * give zeros.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/params.h"
#include "core/stages/adapter_internal.h"

static tdm_status out_of_memory(const tdm_device *device, tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "device '%s': out of memory for a buffer's handle",
                    tdm_open_device_name(device->main));
}

static tdm_buffer *buffer_make(tdm_device *device, uint64_t size) {
    static atomic_uint_least64_t last_id;
    tdm_buffer *b = calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    b->device = device;
    b->size = size;
    b->id = atomic_fetch_add(&last_id, 1) + 1;
    return b;
}

static void buffer_free(tdm_buffer *b) {
    if (b == NULL) return;
    for (int s = 0; s < ADAPTER_SIDE_COUNT_; s++) tdm_mem_free(&b->mem[s]);
    free(b->items);
    free(b);
}

static adapter_side item_side(tdm_device *device, const tdm_buffer_item *item) {
    if (item->tensor != NULL) return adapter_tensor_side(device, item->tensor);
    return item->kv != NULL ? adapter_kv_side(device, item->kv) : ADAPTER_MAIN;
}

/* Finds the side of each item. b->items stays NULL where all of them live on the device. */
static tdm_status items_place(tdm_buffer *b, const tdm_buffer_params *params, tdm_error *err) {
    bool is_mixed = false;
    uint64_t end = 0;
    adapter_item *items = calloc((size_t)params->n_item + 1, sizeof *items);
    if (items == NULL) return out_of_memory(b->device, err);
    for (int32_t i = 0; i < params->n_item; i++) {
        const tdm_buffer_item *from = &params->items[i];
        if (from->off < end || from->off > params->size || from->size > params->size - from->off) {
            free(items);
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "buffer of %llu bytes: item %d at %llu, %llu bytes, is out of order or "
                            "out of range",
                            (unsigned long long)params->size, (int)i, (unsigned long long)from->off,
                            (unsigned long long)from->size);
        }
        end = from->off + from->size;
        items[i] = (adapter_item){
            .off = from->off, .size = from->size, .side = item_side(b->device, from)};
        is_mixed |= items[i].side != ADAPTER_MAIN;
    }
    if (!is_mixed) {
        free(items);
        return TDM_OK;
    }
    b->items = items;
    b->n_item = params->n_item;
    return TDM_OK;
}

/* Allocates the memory of one side of a buffer with items on both. */
static tdm_status side_alloc(tdm_buffer *b, const tdm_buffer_params *params, adapter_side side,
                             tdm_error *err) {
    const uint64_t align = b->device->align;
    uint64_t end = 0;
    tdm_buffer_params own = {sizeof own, 0, params->purpose, 0, NULL};
    tdm_buffer_item *items = calloc((size_t)b->n_item + 1, sizeof *items);
    if (items == NULL) return out_of_memory(b->device, err);
    for (int32_t i = 0; i < b->n_item; i++) {
        adapter_item *item = &b->items[i];
        if (item->side != side) continue;
        /* Caches keep the alignment of the caller, since reports state their size exactly. */
        uint64_t step = params->items[i].kv != NULL || align > 256 ? align : 256;
        item->local = (end + step - 1) / step * step;
        end = item->local + item->size;
        items[own.n_item] = params->items[i];
        items[own.n_item++].off = item->local;
    }
    own.size = end;
    own.items = items;
    tdm_open_device *dev =
        side == ADAPTER_MAIN ? b->device->main : adapter_fallback(b->device, err);
    tdm_status status = TDM_OK;
    if (own.n_item > 0)
        status = dev != NULL ? tdm_mem_alloc_items(dev, &own, &b->mem[side], err) : TDM_UNAVAILABLE;
    free(items);
    return status;
}

static tdm_status buffer_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    tdm_buffer *b = buffer_make(device, params->size);
    if (b == NULL) return out_of_memory(device, err);
    tdm_status status = TDM_OK;
    if (TDM_FIELD(params, items) && params->items != NULL) status = items_place(b, params, err);
    if (status == TDM_OK && b->items == NULL)
        status = tdm_mem_alloc_items(device->main, params, &b->mem[ADAPTER_MAIN], err);
    for (int s = 0; s < ADAPTER_SIDE_COUNT_ && b->items != NULL && status == TDM_OK; s++)
        status = side_alloc(b, params, (adapter_side)s, err);
    if (status != TDM_OK) {
        buffer_free(b);
        return status;
    }
    *buffer_out = b;
    return TDM_OK;
}

/* The last item that begins at or before `off`; -1 where there is none. */
static int32_t item_find(const tdm_buffer *b, uint64_t off) {
    int32_t lo = 0, hi = b->n_item;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (b->items[mid].off <= off)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo - 1;
}

bool adapter_buffer_at(const tdm_buffer *b, uint64_t off, bool is_empty, adapter_side side,
                       adapter_place *out) {
    if (b->items == NULL) {
        *out = (adapter_place){b->mem[ADAPTER_MAIN], off, ADAPTER_MAIN};
        return true;
    }
    int32_t i = item_find(b, off);
    for (int32_t k = i; is_empty && k >= 0 && b->items[k].off == off; k--)
        if (b->items[k].side == side) i = k;
    if (i < 0 || off - b->items[i].off > b->items[i].size) return false;
    const adapter_item *item = &b->items[i];
    *out = (adapter_place){b->mem[item->side], item->local + (off - item->off), item->side};
    return true;
}

/* ---- Bytes ---- */

static tdm_status range_check(const tdm_buffer *b, const char *what, uint64_t off, uint64_t size,
                              tdm_error *err) {
    return tdm_range_check(tdm_open_device_name(b->device->main), what, off, size, b->size, err);
}

/* An upload where src is set, a download where dst is, else a fill. */
typedef struct range_task {
    const uint8_t *src; /* uploads */
    uint8_t *dst;       /* downloads */
    uint8_t fill;       /* with neither of them */
} range_task;

static tdm_status task_do(const tdm_mem *mem, uint64_t off, const range_task *task, uint64_t at,
                          uint64_t size, tdm_error *err) {
    if (task->src != NULL) return tdm_mem_upload(mem, off, task->src + at, size, err);
    if (task->dst != NULL) return tdm_mem_download(mem, off, task->dst + at, size, err);
    return tdm_mem_fill(mem, off, size, task->fill, err);
}

/* For a range of at least one byte inside the buffer. */
static tdm_status range_do(tdm_buffer *b, uint64_t off, uint64_t size, const range_task *task,
                           tdm_error *err) {
    if (task->dst == NULL) atomic_fetch_add(&b->version, 1);
    if (b->items == NULL) return task_do(&b->mem[ADAPTER_MAIN], off, task, 0, size, err);
    tdm_status status = TDM_OK;
    if (task->dst != NULL) memset(task->dst, 0, size);
    int32_t first = item_find(b, off);
    for (int32_t i = first > 0 ? first : 0; i < b->n_item && status == TDM_OK; i++) {
        const adapter_item *item = &b->items[i];
        uint64_t from = item->off > off ? item->off : off;
        uint64_t to = item->off + item->size < off + size ? item->off + item->size : off + size;
        if (item->off >= off + size) break;
        if (from < to)
            status = task_do(&b->mem[item->side], item->local + (from - item->off), task,
                             from - off, to - from, err);
    }
    return status;
}

static tdm_status buffer_upload(tdm_buffer *b, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    range_task task = {.src = src};
    tdm_status status = range_check(b, "upload", off, size, err);
    return size > 0 && status == TDM_OK ? range_do(b, off, size, &task, err) : status;
}

static tdm_status buffer_download(tdm_buffer *b, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    range_task task = {.dst = dst};
    tdm_status status = range_check(b, "download", off, size, err);
    return size > 0 && status == TDM_OK ? range_do(b, off, size, &task, err) : status;
}

static tdm_status buffer_fill(tdm_buffer *b, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    range_task task = {.fill = byte};
    tdm_status status = range_check(b, "fill", off, size, err);
    return size > 0 && status == TDM_OK ? range_do(b, off, size, &task, err) : status;
}

static tdm_status buffer_copy(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                              uint64_t size, tdm_error *err) {
    tdm_status status = range_check(dst, "copy, destination", dst_off, size, err);
    if (status == TDM_OK) status = range_check(src, "copy, source", src_off, size, err);
    if (status != TDM_OK || size == 0) return status;
    if (dst->items == NULL && src->items == NULL) {
        atomic_fetch_add(&dst->version, 1);
        return tdm_mem_copy(&dst->mem[ADAPTER_MAIN], dst_off, &src->mem[ADAPTER_MAIN], src_off,
                            size, err);
    }
    uint64_t chunk = size < TDM_STAGING_SIZE ? size : TDM_STAGING_SIZE;
    void *staging = malloc(chunk);
    if (staging == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "copy: out of memory");
    for (uint64_t at = 0; at < size && status == TDM_OK; at += chunk) {
        uint64_t n = size - at < chunk ? size - at : chunk;
        status = buffer_download(src, src_off + at, staging, n, err);
        if (status == TDM_OK) status = buffer_upload(dst, dst_off + at, staging, n, err);
    }
    free(staging);
    return status;
}

static void *buffer_host_pointer(tdm_buffer *b, uint32_t access) {
    return b->items == NULL ? tdm_mem_host_pointer(&b->mem[ADAPTER_MAIN], access) : NULL;
}

static tdm_status buffer_import_host(tdm_device *device, void *ptr, uint64_t size,
                                     tdm_import_info *info_out, tdm_buffer **buffer_out,
                                     tdm_error *err) {
    const tdm_buffer_ops *ops = tdm_open_device_plugin(device->main)->buffer;
    if (!TDM_HAS(ops, import_host))
        return tdm_fail(err, TDM_UNSUPPORTED, "device '%s': imports no memory of the host's",
                        tdm_open_device_name(device->main));
    tdm_buffer *b = buffer_make(device, size);
    if (b == NULL) return out_of_memory(device, err);
    tdm_buffer *imported = NULL;
    tdm_status status =
        ops->import_host(tdm_open_device_handle(device->main), ptr, size, info_out, &imported, err);
    if (status != TDM_OK) {
        free(b);
        return status;
    }
    b->mem[ADAPTER_MAIN] = (tdm_mem){device->main, imported, size};
    *buffer_out = b;
    return TDM_OK;
}

/* Buffers that the group passes here are the adapters' own, of any plugin's devices. */
static tdm_status buffer_import_peer(tdm_device *device, tdm_buffer *home, tdm_buffer **buffer_out,
                                     tdm_error *err) {
    const tdm_plugin *plugin = tdm_open_device_plugin(device->main);
    const tdm_plugin *other = tdm_open_device_plugin(home->device->main);
    if (plugin != other)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "device '%s' (%s) cannot reach memory of '%s': that is a device of %s",
                        tdm_open_device_name(device->main), plugin->name,
                        tdm_open_device_name(home->device->main), other->name);
    if (!TDM_HAS(plugin->buffer, import_peer) || home->items != NULL)
        return tdm_fail(err, TDM_UNSUPPORTED, "device '%s': %s", tdm_open_device_name(device->main),
                        home->items != NULL ? "a buffer with items is not reached from others"
                                            : "its plugin reaches no memory of other devices");
    tdm_buffer *b = buffer_make(device, home->size);
    if (b == NULL) return out_of_memory(device, err);
    tdm_buffer *imported = NULL;
    tdm_status status = plugin->buffer->import_peer(tdm_open_device_handle(device->main),
                                                    home->mem[ADAPTER_MAIN].buffer, &imported, err);
    if (status != TDM_OK) {
        free(b);
        return status;
    }
    b->mem[ADAPTER_MAIN] = (tdm_mem){device->main, imported, home->size};
    *buffer_out = b;
    return TDM_OK;
}

/* ---- Tensors and caches ---- */

static tdm_status buffer_tensor_size(tdm_device *device, const tdm_tensor_desc *desc,
                                     uint64_t *size_out, tdm_error *err) {
    if (adapter_tensor_side(device, desc) == ADAPTER_FALLBACK)
        return tdm_open_device_tensor_size(adapter_fallback(device, err), desc, size_out, err);
    return tdm_open_device_tensor_size(device->main, desc, size_out, err);
}

/* Where the tensor at `off` lies. A weight in the fallback's own layout cannot lie in the device's
 * memory. */
static tdm_status tensor_at(const tdm_buffer *b, uint64_t off, const tdm_tensor_desc *desc,
                            adapter_place *at, tdm_error *err) {
    /* Not the product of a shape that no device has checked: it may overflow. */
    const bool is_empty =
        desc->ne[0] == 0 || desc->ne[1] == 0 || desc->ne[2] == 0 || desc->ne[3] == 0;
    const adapter_side side = is_empty ? adapter_tensor_side(b->device, desc) : ADAPTER_MAIN;
    if (!adapter_buffer_at(b, off, is_empty, side, at))
        return tdm_fail(err, TDM_OUT_OF_RANGE, "no item lies at %llu of the buffer",
                        (unsigned long long)off);
    if (b->items == NULL && desc->usage != 0 &&
        adapter_tensor_side(b->device, desc) == ADAPTER_FALLBACK)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "device '%s' does not run the ops of this weight: its buffer must be "
                        "allocated with items",
                        tdm_open_device_name(b->device->main));
    return TDM_OK;
}

static tdm_status buffer_tensor_upload(tdm_buffer *b, uint64_t off, const tdm_tensor_desc *desc,
                                       const void *src, uint64_t row_pitch, int64_t row_first,
                                       int64_t n_row, int64_t col_first, int64_t n_col,
                                       tdm_error *err) {
    adapter_place at;
    tdm_status status = tensor_at(b, off, desc, &at, err);
    if (status != TDM_OK) return status;
    atomic_fetch_add(&b->version, 1);
    return tdm_mem_tensor_upload(&at.mem, at.off, desc, src, row_pitch, row_first, n_row, col_first,
                                 n_col, err);
}

static tdm_status buffer_tensor_download(tdm_buffer *b, uint64_t off, const tdm_tensor_desc *desc,
                                         void *dst, uint64_t row_pitch, int64_t row_first,
                                         int64_t n_row, int64_t col_first, int64_t n_col,
                                         tdm_error *err) {
    adapter_place at;
    tdm_status status = tensor_at(b, off, desc, &at, err);
    if (status != TDM_OK) return status;
    return tdm_mem_tensor_download(&at.mem, at.off, desc, dst, row_pitch, row_first, n_row,
                                   col_first, n_col, err);
}

static tdm_status buffer_kv_page_size(tdm_device *device, const tdm_kv_desc *desc,
                                      uint64_t *size_out, tdm_error *err) {
    if (adapter_kv_side(device, desc) == ADAPTER_FALLBACK)
        return tdm_open_device_kv_page_size(adapter_fallback(device, err), desc, size_out, err);
    tdm_error refusal = {0}, why = {0};
    tdm_status status = tdm_open_device_kv_page_size(device->main, desc, size_out, &refusal);
    if (status == TDM_OK) return TDM_OK;
    if (adapter_fallback(device, &why) != NULL) return tdm_fail(err, status, "%s", refusal.message);
    return tdm_fail(err, status, "%.300s; %.200s", refusal.message, why.message);
}

const tdm_buffer_ops adapter_buffer_ops = {
    .struct_size = sizeof adapter_buffer_ops,
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = buffer_upload,
    .download = buffer_download,
    .copy = buffer_copy,
    .fill = buffer_fill,
    .host_pointer = buffer_host_pointer,
    .import_host = buffer_import_host,
    .tensor_size = buffer_tensor_size,
    .tensor_upload = buffer_tensor_upload,
    .tensor_download = buffer_tensor_download,
    .kv_page_size = buffer_kv_page_size,
    .import_peer = buffer_import_peer,
};
