/* SPDX-License-Identifier: MIT
 *
 * buffer.c: the buffers of a group: allocates and frees them, and moves bytes and tensors in and
 * out. slice.c decides which slice of a weight a member holds, buffer_state.c which part of a
 * cache.
 *
 * Access. A host buffer is read and written as bytes. In a sharded buffer, weights are read and
 * written as tensors, and items of plain bytes as bytes. Caches are accessed by the cache ops only:
 * the bytes of a page are private to the device that holds it, and no member holds a whole page.
 * All items can be filled, one item at a time.
 */
#include "plugins/meta/buffer.h"

#include <unistd.h>

enum { PAGE_SIZE = 4096 };

const meta_item *meta_buffer_item(const meta_buffer *buffer, uint64_t off) {
    int32_t lo = 0, hi = buffer->n_item; /* all items before lo begin at `off` or earlier */
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (buffer->items[mid].off <= off)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && buffer->items[lo - 1].off == off ? &buffer->items[lo - 1] : NULL;
}

/* ---- Freeing ---- */

static void buffer_free(tdm_buffer *buffer);

static void buffer_release(meta_device *device, int32_t d, void *buffer) {
    (void)device;
    (void)d;
    buffer_free(buffer);
}

static void buffer_free(tdm_buffer *buffer) {
    if (buffer == NULL) return;
    meta_device *device = buffer->device;
    /* A later buffer may get this address. The new generation makes plans derive their bindings
     * again, so that none takes it for this buffer. */
    atomic_fetch_add(&device->generation, 1);
    for (int32_t d = 0; d < device->n_member; d++) {
        if (buffer->members[d] == NULL || !meta_member_is_stuck(device, d)) continue;
        /* A stuck member may still use its buffer. */
        meta_release_later(device, META_ANY_MEMBER, NULL, 0, buffer_release, buffer,
                           &buffer->later);
        return;
    }
    for (int32_t d = 0; d < device->n_member; d++)
        if (buffer->members[d] != NULL)
            meta_member_buffers(&device->members[d])->free(buffer->members[d]);
    meta_free(device->host, buffer->item_sizes,
              (size_t)buffer->n_item * (size_t)device->n_member * 2 * sizeof(uint64_t));
    meta_free(device->host, buffer->items, (size_t)buffer->n_item * sizeof *buffer->items);
    if (!buffer->is_imported && buffer->host != NULL)
        device->host->free(device->host->context, buffer->host, buffer->host_size);
    meta_free(device->host, buffer, sizeof *buffer);
}

/* ---- Host buffers ---- */

/* Imports the memory into every active member that can read it in place. A failed import is no
 * failure of the buffer: the member's inputs are copied instead. */
static void host_share(meta_buffer *buffer, uint64_t size) {
    meta_device *device = buffer->device;
    for (int32_t d = 0; d < device->n_member; d++) {
        const meta_member *member = &device->members[d];
        const tdm_buffer_ops *ops = meta_member_buffers(member);
        tdm_import_info info = {.struct_size = sizeof info};
        tdm_buffer *import = NULL;
        if (!meta_is_active(device, d) || !meta_reads_in_place(member)) continue;
        if (ops->import_host(member->acquired.device, buffer->host, size, &info, &import, NULL) !=
            TDM_OK)
            continue;
        if (info.is_coherent)
            buffer->members[d] = import;
        else
            ops->free(import);
    }
}

static tdm_status host_make(meta_buffer *buffer, tdm_error *err) {
    const tdm_host *host = buffer->device->host;
    if (buffer->size == 0) return TDM_OK;
    /* Checked first, because the system may grant addresses for more memory than it has. */
    const uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (buffer->size <= most && buffer->size <= SIZE_MAX / 2) {
        /* Whole pages, so that members can map them. */
        buffer->host_size = ((size_t)buffer->size + PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE;
        buffer->host = host->alloc(host->context, buffer->host_size, PAGE_SIZE);
    }
    if (buffer->host == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "not enough memory of the host: asked for %llu bytes of %llu",
                        (unsigned long long)buffer->size, (unsigned long long)most);
    host_share(buffer, buffer->host_size);
    return TDM_OK;
}

static tdm_status buffer_import_host(tdm_device *device, void *ptr, uint64_t size,
                                     tdm_import_info *info_out, tdm_buffer **buffer_out,
                                     tdm_error *err) {
    if (ptr == NULL && size > 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "import: no memory to import");
    meta_buffer *buffer = meta_alloc(device->host, sizeof *buffer);
    if (buffer == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "import: no memory");
    *buffer = (meta_buffer){.device = device, .size = size, .host = ptr, .is_imported = true};
    if (size > 0) host_share(buffer, size);
    if (info_out != NULL) {
        /* Runs copy the inputs to members that cannot read this memory, so the caller needs no call
         * after it has written. Words that a member polls during a run are not copied. */
        tdm_import_info info = {.struct_size = sizeof info, .is_coherent = true};
        tdm_struct_write(info_out, &info, sizeof info);
    }
    *buffer_out = buffer;
    return TDM_OK;
}

/* ---- Sharded buffers ---- */

/* The items as a member's device allocates them; arrays of n_item for the current member. */
typedef struct member_items {
    tdm_buffer_item *items;
    tdm_tensor_desc *tensors;
    tdm_kv_desc *kvs;
} member_items;

static tdm_status items_read(meta_buffer *buffer, const tdm_buffer_params *params, tdm_error *err) {
    const tdm_host *host = buffer->device->host;
    const size_t n = (size_t)params->n_item, n_member = (size_t)buffer->device->n_member;
    uint64_t end = 0;
    buffer->items = meta_alloc(host, n * sizeof *buffer->items);
    buffer->item_sizes = meta_alloc(host, n * n_member * 2 * sizeof(uint64_t));
    buffer->n_item = params->n_item; /* from here on both arrays are freed with this length */
    if (buffer->items == NULL || buffer->item_sizes == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no memory for %d items",
                        (int)params->n_item);
    for (size_t i = 0; i < n; i++) {
        const tdm_buffer_item *from = &params->items[i];
        meta_item *item = &buffer->items[i];
        if (from->off < end || from->off > params->size || from->size > params->size - from->off)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "item %zu: %llu bytes at offset %llu overlap the one before or are not "
                            "inside a buffer of %llu",
                            i, (unsigned long long)from->size, (unsigned long long)from->off,
                            (unsigned long long)params->size);
        end = from->off + from->size;
        item->off = from->off;
        item->size = from->size;
        item->member_off = buffer->item_sizes + 2 * i * n_member;
        item->member_size = item->member_off + n_member;
        if (from->tensor != NULL) tdm_struct_read(&item->tensor, sizeof item->tensor, from->tensor);
        if (from->kv == NULL) continue;
        item->is_state = true;
        tdm_struct_read(&item->kv, sizeof item->kv, from->kv);
        item->n_page = from->n_page;
        item->partition = from->partition;
    }
    return TDM_OK;
}

static bool item_is_tensor(const meta_item *item) {
    return item->tensor.struct_size != 0;
}
static bool item_is_bytes(const meta_item *item) {
    return !item_is_tensor(item) && !item->is_state;
}

/* Bytes of an item on member d, and its description for the member's device. */
static tdm_status item_size(const meta_device *device, const meta_item *item, int32_t d,
                            tdm_buffer_item *local, tdm_tensor_desc *tensor, tdm_kv_desc *kv,
                            uint64_t *size_out, tdm_error *err) {
    const meta_member *member = &device->members[d];
    tdm_status status;
    *size_out = 0;
    if (item_is_tensor(item)) {
        meta_slice slice;
        status = meta_slice_find(device, &item->tensor, d, &slice, err);
        if (status == TDM_OK) status = meta_slice_size(device, d, &slice, size_out, err);
        if (status != TDM_OK || slice.is_empty) return status;
        *tensor = slice.desc;
        local->tensor = tensor;
    } else if (item->is_state) {
        int64_t n_page;
        uint64_t page_size = 0;
        bool is_held;
        tdm_error inner = {0};
        status = meta_state_local(device, &item->kv, item->n_page, &item->partition, d, kv, &n_page,
                                  &is_held, err);
        if (status != TDM_OK || !is_held) return status;
        status = meta_member_buffers(member)->kv_page_size(member->acquired.device, kv, &page_size,
                                                           &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "member '%s': %s", member->name, inner.message);
        if (n_page < 0 || __builtin_mul_overflow(page_size, (uint64_t)n_page, size_out))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "a cache of %lld pages of %llu bytes",
                            (long long)n_page, (unsigned long long)page_size);
        local->kv = kv;
        local->n_page = n_page;
    } else {
        *size_out = item->size;
    }
    return TDM_OK;
}

/* Places the items of member d one after another. *own_out receives the bytes that they take of the
 * member's own memory. */
static tdm_status member_layout(const meta_buffer *buffer, int32_t d, member_items *local,
                                int32_t *n_local, uint64_t *total_out, uint64_t *own_out,
                                tdm_error *err) {
    const meta_device *device = buffer->device;
    const uint64_t align = device->members[d].align;
    uint64_t total = 0, in_host = 0;
    *n_local = 0;
    for (int32_t i = 0; i < buffer->n_item; i++) {
        meta_item *item = &buffer->items[i];
        tdm_buffer_item *t = &local->items[*n_local];
        uint64_t size;
        *t = (tdm_buffer_item){0};
        tdm_status status = item_size(device, item, d, t, &local->tensors[*n_local],
                                      &local->kvs[*n_local], &size, err);
        if (status != TDM_OK) return status;
        if (size == 0) continue;
        uint64_t end;
        total = meta_round_up(total, align);
        if (total == UINT64_MAX || __builtin_add_overflow(total, size, &end))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "a buffer larger than any memory");
        item->member_off[d] = t->off = total;
        item->member_size[d] = t->size = size;
        total = end;
        if (item->is_state && meta_is_cache_in_host(&device->members[d], &item->kv))
            in_host += size;
        ++*n_local;
    }
    *total_out = total;
    *own_out = total - in_host;
    return TDM_OK;
}

static const char *purpose_text(int32_t purpose) {
    switch (purpose) {
    case TDM_BUFFER_WEIGHT: return "weights";
    case TDM_BUFFER_STATE: return "cache";
    default: return "memory";
    }
}

/* The reserve of the options: an allocation that would leave less memory free than that is refused,
 * as if the reserved memory did not exist. */
static tdm_status reserve_check(const meta_device *device, int32_t d, uint64_t size,
                                tdm_error *err) {
    const meta_member *member = &device->members[d];
    const uint64_t reserve = device->options.reserve[d];
    const tdm_device_ops *ops = member->acquired.plugin->device;
    tdm_device_info info = {.struct_size = sizeof info};
    if (reserve == 0 || !TDM_HAS(ops, get_info)) return TDM_OK;
    tdm_status status = ops->get_info(member->acquired.device, &info, err);
    if (status != TDM_OK || info.memory_free == 0) return status;
    if (size <= info.memory_free && reserve <= info.memory_free - size) return TDM_OK;
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                    "asked for %llu bytes, %llu are free and %llu of them reserved",
                    (unsigned long long)size, (unsigned long long)info.memory_free,
                    (unsigned long long)reserve);
}

static tdm_status member_make(meta_buffer *buffer, int32_t d, int32_t purpose, member_items *local,
                              tdm_error *err) {
    const meta_device *device = buffer->device;
    const meta_member *member = &device->members[d];
    tdm_buffer_params params = {
        .struct_size = sizeof params, .purpose = purpose, .items = local->items};
    uint64_t own = 0;
    tdm_error inner = {0};
    tdm_status status = member_layout(buffer, d, local, &params.n_item, &params.size, &own, err);
    if (status != TDM_OK || params.size == 0) return status;
    if (own > 0) status = reserve_check(device, d, own, &inner);
    if (status == TDM_OK)
        status = meta_member_buffers(member)->alloc(member->acquired.device, &params,
                                                    &buffer->members[d], &inner);
    if (status == TDM_OK) return TDM_OK;
    buffer->members[d] = NULL;
    return tdm_fail(err, status, "member '%s', %llu bytes of %s (share %.3g): %s", member->name,
                    (unsigned long long)params.size, purpose_text(purpose), member->share,
                    inner.message);
}

static tdm_status sharded_make(meta_buffer *buffer, const tdm_buffer_params *params,
                               tdm_error *err) {
    const tdm_host *host = buffer->device->host;
    const size_t n = (size_t)params->n_item;
    member_items local = {0};
    tdm_status status = items_read(buffer, params, err);
    if (status != TDM_OK) return status;
    local.items = meta_alloc(host, n * sizeof *local.items);
    local.tensors = meta_alloc(host, n * sizeof *local.tensors);
    local.kvs = meta_alloc(host, n * sizeof *local.kvs);
    if (local.items == NULL || local.tensors == NULL || local.kvs == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no memory for %zu items", n);
    for (int32_t d = 0; d < buffer->device->n_member && status == TDM_OK; d++)
        if (meta_is_active(buffer->device, d))
            status = member_make(buffer, d, params->purpose, &local, err);
    meta_free(host, local.items, n * sizeof *local.items);
    meta_free(host, local.tensors, n * sizeof *local.tensors);
    meta_free(host, local.kvs, n * sizeof *local.kvs);
    return status;
}

static tdm_status buffer_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    tdm_buffer_params p;
    tdm_struct_read(&p, sizeof p, params);
    meta_buffer *buffer = meta_alloc(device->host, sizeof *buffer);
    if (buffer == NULL) return meta_no_memory("for a buffer", err);
    buffer->device = device;
    buffer->size = p.size;
    buffer->purpose = p.purpose;
    tdm_status status =
        p.n_item > 0 && p.items != NULL ? sharded_make(buffer, &p, err) : host_make(buffer, err);
    if (status != TDM_OK) {
        buffer_free(buffer);
        return status;
    }
    *buffer_out = buffer;
    return TDM_OK;
}

/* ---- Bytes ---- */

static bool is_sharded(const meta_buffer *buffer) {
    return buffer->n_item > 0;
}

static tdm_status range_check(const meta_buffer *buffer, const char *what, uint64_t off,
                              uint64_t size, tdm_error *err) {
    return tdm_range_check("group", what, off, size, buffer->size, err);
}

/* The item of plain bytes that contains a range of a sharded buffer. */
static tdm_status bytes_find(const meta_buffer *buffer, const char *what, uint64_t off,
                             uint64_t size, const meta_item **item_out, tdm_error *err) {
    for (int32_t i = 0; i < buffer->n_item; i++) {
        const meta_item *item = &buffer->items[i];
        if (item->size == 0 || off < item->off || off - item->off >= item->size) continue;
        if (!item_is_bytes(item) || size > item->size - (off - item->off)) break;
        *item_out = item;
        return TDM_OK;
    }
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s: bytes at offset %llu: what a group shares out lies in slices on its "
                    "members; weights go in and out as tensors, caches by the cache ops",
                    what, (unsigned long long)off);
}

static tdm_status member_result(const meta_buffer *buffer, int32_t d, tdm_status status,
                                const tdm_error *inner, tdm_error *err) {
    if (status == TDM_OK) return TDM_OK;
    return tdm_fail(err, status, "member '%s': %s", buffer->device->members[d].name,
                    inner->message);
}

static tdm_status buffer_upload(tdm_buffer *buffer, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    const meta_item *item = NULL;
    tdm_status status = range_check(buffer, "upload", off, size, err);
    if (status != TDM_OK || size == 0) return status;
    if (!is_sharded(buffer)) {
        memcpy(buffer->host + off, src, (size_t)size);
        return TDM_OK;
    }
    status = bytes_find(buffer, "upload", off, size, &item, err);
    for (int32_t d = 0; d < buffer->device->n_member && status == TDM_OK; d++) {
        tdm_error inner = {0};
        if (buffer->members[d] == NULL) continue;
        status = meta_member_buffers(&buffer->device->members[d])
                     ->upload(buffer->members[d], item->member_off[d] + off - item->off, src, size,
                              &inner);
        status = member_result(buffer, d, status, &inner, err);
    }
    return status;
}

static tdm_status buffer_download(tdm_buffer *buffer, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    const meta_item *item = NULL;
    const int32_t d = buffer->device->owner;
    tdm_error inner = {0};
    tdm_status status = range_check(buffer, "download", off, size, err);
    if (status != TDM_OK || size == 0) return status;
    if (!is_sharded(buffer)) {
        memcpy(dst, buffer->host + off, (size_t)size);
        return TDM_OK;
    }
    status = bytes_find(buffer, "download", off, size, &item, err);
    if (status != TDM_OK) return status;
    status = meta_member_buffers(&buffer->device->members[d])
                 ->download(buffer->members[d], item->member_off[d] + off - item->off, dst, size,
                            &inner);
    return member_result(buffer, d, status, &inner, err);
}

static tdm_status buffer_copy(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                              uint64_t size, tdm_error *err) {
    const meta_item *from = NULL, *to = NULL;
    const bool is_one = dst == src || (dst->host != NULL && dst->host == src->host);
    tdm_status status =
        tdm_copy_check("group", is_one, dst_off, dst->size, src_off, src->size, size, err);
    if (status != TDM_OK || size == 0) return status;
    if (!is_sharded(src)) return buffer_upload(dst, dst_off, src->host + src_off, size, err);
    if (!is_sharded(dst)) return buffer_download(src, src_off, dst->host + dst_off, size, err);
    status = bytes_find(src, "copy, source", src_off, size, &from, err);
    if (status == TDM_OK) status = bytes_find(dst, "copy, destination", dst_off, size, &to, err);
    for (int32_t d = 0; d < dst->device->n_member && status == TDM_OK; d++) {
        tdm_error inner = {0};
        if (dst->members[d] == NULL) continue;
        status = meta_member_buffers(&dst->device->members[d])
                     ->copy(dst->members[d], to->member_off[d] + dst_off - to->off, src->members[d],
                            from->member_off[d] + src_off - from->off, size, &inner);
        status = member_result(dst, d, status, &inner, err);
    }
    return status;
}

/* Fills bytes first .. end-1 of an item on every member. An item that is not plain bytes is filled
 * as a whole. */
static tdm_status item_fill(meta_buffer *buffer, const meta_item *item, uint64_t first,
                            uint64_t end, uint8_t byte, tdm_error *err) {
    for (int32_t d = 0; d < buffer->device->n_member; d++) {
        tdm_error inner = {0};
        if (buffer->members[d] == NULL || item->member_size[d] == 0) continue;
        const uint64_t size = item_is_bytes(item) ? end - first : item->member_size[d];
        tdm_status status =
            meta_member_buffers(&buffer->device->members[d])
                ->fill(buffer->members[d], item->member_off[d] + first, size, byte, &inner);
        if (status != TDM_OK) return member_result(buffer, d, status, &inner, err);
    }
    return TDM_OK;
}

static tdm_status buffer_fill(tdm_buffer *buffer, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    tdm_status status = range_check(buffer, "fill", off, size, err);
    if (status != TDM_OK || size == 0) return status;
    if (!is_sharded(buffer)) {
        memset(buffer->host + off, byte, (size_t)size);
        return TDM_OK;
    }
    /* The first pass only checks, so that a call that is refused writes nothing. */
    for (int turn = 0; turn < 2 && status == TDM_OK; turn++) {
        for (int32_t i = 0; i < buffer->n_item && status == TDM_OK; i++) {
            const meta_item *item = &buffer->items[i];
            const uint64_t end = item->off + item->size;
            const uint64_t first_in = off > item->off ? off : item->off;
            const uint64_t end_in = off + size < end ? off + size : end;
            if (first_in >= end_in) continue;
            if (turn == 1)
                status =
                    item_fill(buffer, item, first_in - item->off, end_in - item->off, byte, err);
            else if (!item_is_bytes(item) && end_in - first_in < item->size)
                status = tdm_fail(err, TDM_UNSUPPORTED,
                                  "fill: %llu bytes at offset %llu: a part of a weight or cache, "
                                  "which lies in slices on the members; fill all of it",
                                  (unsigned long long)size, (unsigned long long)off);
        }
    }
    return status;
}

static void *buffer_host_pointer(tdm_buffer *buffer, uint32_t access) {
    (void)access; /* host memory */
    return buffer->host;
}

/* ---- Tensors ---- */

static tdm_status desc_check(const tdm_tensor_desc *desc, tdm_error *err) {
    const tdm_type_info type = tdm_type_get_info(desc->type);
    uint64_t size = (uint64_t)type.block_size;
    if (type.name == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED, "tensor: type %d is unknown", (int)desc->type);
    for (int i = 0; i < TDM_MAX_DIMS; i++) {
        const int64_t n = desc->ne[i];
        if (n < 0 || (i == 0 && n % type.block_len != 0))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "tensor: %lld is no length of axis %d in type %s", (long long)n, i,
                            type.name);
        if (n > 0 && (__builtin_mul_overflow(size, (uint64_t)n, &size) || size > INT64_MAX))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "tensor: larger than any memory");
    }
    if (desc->partition.id != 0 && (desc->axis < 0 || desc->axis >= TDM_MAX_DIMS))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "tensor: no axis %d to cut", (int)desc->axis);
    return TDM_OK;
}

/* The sum of the bytes that the members hold; rows that several members hold count several times.
 * The caller derives the group's offsets from it. These offsets only name items. */
static tdm_status buffer_tensor_size(tdm_device *device, const tdm_tensor_desc *theirs,
                                     uint64_t *size_out, tdm_error *err) {
    tdm_tensor_desc desc;
    uint64_t total = 0;
    tdm_struct_read(&desc, sizeof desc, theirs);
    tdm_status status = desc_check(&desc, err);
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++) {
        meta_slice slice;
        uint64_t size = 0;
        if (!meta_is_active(device, d)) continue;
        status = meta_slice_find(device, &desc, d, &slice, err);
        if (status == TDM_OK) status = meta_slice_size(device, d, &slice, &size, err);
        if (status == TDM_OK && __builtin_add_overflow(total, size, &total))
            status = tdm_fail(err, TDM_INVALID_ARGUMENT, "tensor: larger than any memory");
    }
    if (status == TDM_OK) *size_out = total;
    return status;
}

static bool desc_is_same(const tdm_tensor_desc *a, const tdm_tensor_desc *b) {
    return a->type == b->type && a->usage == b->usage && memcmp(a->ne, b->ne, sizeof a->ne) == 0 &&
           a->partition.id == b->partition.id &&
           (a->partition.id == 0 ||
            (a->axis == b->axis && memcmp(&a->partition, &b->partition, sizeof a->partition) == 0));
}

/* Checks a part of a tensor and finds its item; NULL where the part is empty. */
static tdm_status part_find(const meta_buffer *buffer, uint64_t off, const tdm_tensor_desc *theirs,
                            int64_t row_first, int64_t n_row, int64_t col_first, int64_t n_col,
                            const meta_item **item_out, tdm_error *err) {
    tdm_tensor_desc desc;
    tdm_struct_read(&desc, sizeof desc, theirs);
    *item_out = NULL;
    tdm_status status = desc_check(&desc, err);
    if (status != TDM_OK) return status;
    const int64_t n_row_all = tdm_shape_rows(desc.ne), len = tdm_type_get_info(desc.type).block_len;
    if (row_first < 0 || n_row < 0 || row_first > n_row_all || n_row > n_row_all - row_first)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "tensor: rows %lld and %lld more, of %lld",
                        (long long)row_first, (long long)n_row, (long long)n_row_all);
    if (col_first < 0 || n_col < 0 || col_first > desc.ne[0] || n_col > desc.ne[0] - col_first)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "tensor: columns %lld and %lld more, of %lld",
                        (long long)col_first, (long long)n_col, (long long)desc.ne[0]);
    if (col_first % len != 0 || n_col % len != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "tensor: columns %lld and %lld more are not whole blocks of %s",
                        (long long)col_first, (long long)n_col, tdm_type_name(desc.type));
    if (n_row == 0 || n_col == 0) return TDM_OK;
    if (!is_sharded(buffer))
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "tensor: the buffer was allocated without items, so that the group could "
                        "not give its members their slices");
    const meta_item *item = meta_buffer_item(buffer, off);
    if (item == NULL || !item_is_tensor(item) || !desc_is_same(&item->tensor, &desc))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "tensor: the item at offset %llu is not the %s tensor of %lld x %lld that "
                        "the call describes",
                        (unsigned long long)off, tdm_type_name(desc.type), (long long)desc.ne[0],
                        (long long)n_row_all);
    *item_out = item;
    return TDM_OK;
}

/* From src or, where it is NULL, to dst. */
static tdm_status tensor_move(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                              const void *src, void *dst, uint64_t row_pitch, int64_t row_first,
                              int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err) {
    const meta_device *device = buffer->device;
    const meta_item *item;
    tdm_status status =
        part_find(buffer, off, desc, row_first, n_row, col_first, n_col, &item, err);
    for (int32_t d = 0; d < device->n_member && status == TDM_OK && item != NULL; d++) {
        meta_slice slice;
        if (item->member_size[d] == 0) continue;
        status = meta_slice_find(device, &item->tensor, d, &slice, err);
        if (status == TDM_OK)
            status = meta_slice_move(device, d, buffer->members[d], item->member_off[d],
                                     &item->tensor, &slice, src, dst, row_pitch, row_first, n_row,
                                     col_first, n_col, err);
    }
    return status;
}

static tdm_status buffer_tensor_upload(tdm_buffer *buffer, uint64_t off,
                                       const tdm_tensor_desc *desc, const void *src,
                                       uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                       int64_t col_first, int64_t n_col, tdm_error *err) {
    return tensor_move(buffer, off, desc, src, NULL, row_pitch, row_first, n_row, col_first, n_col,
                       err);
}

static tdm_status buffer_tensor_download(tdm_buffer *buffer, uint64_t off,
                                         const tdm_tensor_desc *desc, void *dst, uint64_t row_pitch,
                                         int64_t row_first, int64_t n_row, int64_t col_first,
                                         int64_t n_col, tdm_error *err) {
    return tensor_move(buffer, off, desc, NULL, dst, row_pitch, row_first, n_row, col_first, n_col,
                       err);
}

/* ---- Caches ---- */

/* Bytes of a page of the whole cache on the owner's device. Heads on several members take together
 * what they take on one, so this is the sum of the members' parts, except that heads that several
 * members hold count once. Like tensor_size it only serves to number bytes; members allocate what
 * their own parts take. */
static tdm_status buffer_kv_page_size(tdm_device *device, const tdm_kv_desc *desc,
                                      uint64_t *size_out, tdm_error *err) {
    const meta_member *member = &device->members[device->owner];
    tdm_error inner = {0};
    tdm_kv_desc d;
    tdm_struct_read(&d, sizeof d, desc);
    tdm_status status =
        meta_member_buffers(member)->kv_page_size(member->acquired.device, &d, size_out, &inner);
    if (status != TDM_OK)
        return tdm_fail(err, status, "member '%s': %s", member->name, inner.message);
    return TDM_OK;
}

const tdm_buffer_ops meta_buffer_ops = {
    .struct_size = sizeof(tdm_buffer_ops),
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
};
