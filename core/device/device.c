/* SPDX-License-Identifier: MIT
 *
 * device.c: an open device as the rest of the host uses it: calls the plugin's slots, and
 * implements those that the plugin lacks, so that callers treat all plugins alike.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/op_state.h"
#include "core/base/params.h"
#include "core/base/tensor_part.h"
#include "core/counters.h"
#include "core/device/runtime_internal.h"

const char *tdm_open_device_name(const tdm_open_device *dev) {
    return dev->name;
}
const tdm_plugin *tdm_open_device_plugin(const tdm_open_device *dev) {
    return dev->from->plugin;
}
tdm_device *tdm_open_device_handle(const tdm_open_device *dev) {
    return dev->device;
}

static const tdm_buffer_ops *buffer_ops(const tdm_open_device *dev) {
    return dev->from->plugin->buffer;
}

void tdm_device_info_end_texts(tdm_device_info *info) {
    info->name[sizeof info->name - 1] = 0;
    info->description[sizeof info->description - 1] = 0;
    info->vendor[sizeof info->vendor - 1] = 0;
    info->pci_address[sizeof info->pci_address - 1] = 0;
}

tdm_status tdm_open_device_get_info(tdm_open_device *dev, tdm_device_info *info_out,
                                    tdm_error *err) {
    const tdm_device_ops *ops = dev->from->plugin->device;
    const tdm_device_params params = {sizeof params, dev->index, dev->n_option, dev->options};
    memset(info_out, 0, sizeof *info_out);
    info_out->struct_size = sizeof *info_out;
    tdm_status status = TDM_HAS(ops, get_info) ? ops->get_info(dev->device, info_out, err)
                                               : ops->describe(dev->from->instance, dev->index,
                                                               &params, info_out, err);
    tdm_device_info_end_texts(info_out);
    return status;
}

tdm_status tdm_open_device_measure_limits(tdm_open_device *dev, tdm_device_limits *limits_out,
                                          tdm_error *err) {
    const tdm_device_ops *ops = dev->from->plugin->device;
    tdm_device_limits limits = {.struct_size = sizeof limits};
    tdm_error inner = {0};
    if (TDM_HAS(ops, measure_limits)) {
        tdm_status status = ops->measure_limits(dev->device, &limits, &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "device '%s': %.400s", dev->name, inner.message);
    }
    limits.arithmetic[sizeof limits.arithmetic - 1] = 0;
    *limits_out = limits;
    return TDM_OK;
}

bool tdm_open_device_is_stuck(const tdm_open_device *dev) {
    return atomic_load(&dev->is_stuck);
}

tdm_status tdm_open_device_check(const tdm_open_device *dev, tdm_error *err) {
    if (!tdm_open_device_is_stuck(dev)) return TDM_OK;
    return tdm_fail(err, TDM_UNAVAILABLE,
                    "device '%s': does not answer since a computation took too long", dev->name);
}

void tdm_open_device_set_stuck(tdm_open_device *dev) {
    atomic_store(&dev->is_stuck, true);
}

bool tdm_open_device_has_host_kv(const tdm_open_device *dev) {
    return dev->has_host_kv;
}

/* Refuses a cache in host memory for a device that does not work there; the plugin is not
 * called. */
static tdm_status cache_check(const tdm_open_device *dev, const tdm_kv_desc *desc, tdm_error *err) {
    if ((desc->flags & TDM_KV_IN_HOST) == 0 || dev->has_host_kv) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "the cache is in the host's memory, which the device does not use");
}

tdm_status tdm_open_device_supports_op(tdm_open_device *dev, const tdm_graph *graph, int32_t node,
                                       tdm_error *err) {
    const tdm_node *n = tdm_graph_node(graph, node);
    tdm_status status = TDM_OK;
    if (tdm_op_uses_kv(n->op)) status = cache_check(dev, tdm_graph_kv(graph, n->params.kv.kv), err);
    if (status != TDM_OK) return status;
    return dev->from->plugin->device->supports_op(dev->device, graph, node, err);
}

tdm_status tdm_mem_alloc(tdm_open_device *dev, uint64_t size, tdm_buffer_purpose purpose,
                         tdm_mem *mem_out, tdm_error *err) {
    tdm_buffer_params params = {sizeof params, size, purpose, 0, NULL};
    return tdm_mem_alloc_items(dev, &params, mem_out, err);
}

tdm_status tdm_mem_alloc_items(tdm_open_device *dev, const tdm_buffer_params *params,
                               tdm_mem *mem_out, tdm_error *err) {
    tdm_error inner = {0};
    tdm_buffer *buffer = NULL;
    if (tdm_open_device_is_stuck(dev)) return tdm_open_device_check(dev, err);
    tdm_status status = buffer_ops(dev)->alloc(dev->device, params, &buffer, &inner);
    if (status != TDM_OK) return tdm_fail(err, status, "device '%s': %s", dev->name, inner.message);
    tdm_counter_add(TDM_COUNTER_ALLOCATIONS, 1);
    tdm_counter_add(TDM_COUNTER_BYTES_ALLOCATED, params->size);
    *mem_out = (tdm_mem){dev, buffer, params->size};
    return TDM_OK;
}

void tdm_mem_free(tdm_mem *mem) {
    if (mem == NULL || mem->dev == NULL) return;
    if (!tdm_open_device_is_stuck(mem->dev)) buffer_ops(mem->dev)->free(mem->buffer);
    memset(mem, 0, sizeof *mem);
}

tdm_status tdm_mem_upload(const tdm_mem *mem, uint64_t off, const void *src, uint64_t size,
                          tdm_error *err) {
    tdm_counter_add(TDM_COUNTER_UPLOADS, 1);
    if (tdm_open_device_is_stuck(mem->dev)) return tdm_open_device_check(mem->dev, err);
    return buffer_ops(mem->dev)->upload(mem->buffer, off, src, size, err);
}

tdm_status tdm_mem_download(const tdm_mem *mem, uint64_t off, void *dst, uint64_t size,
                            tdm_error *err) {
    tdm_counter_add(TDM_COUNTER_DOWNLOADS, 1);
    if (tdm_open_device_is_stuck(mem->dev)) return tdm_open_device_check(mem->dev, err);
    return buffer_ops(mem->dev)->download(mem->buffer, off, dst, size, err);
}

void *tdm_mem_host_pointer(const tdm_mem *mem, uint32_t access) {
    const tdm_buffer_ops *ops = buffer_ops(mem->dev);
    return TDM_HAS(ops, host_pointer) ? ops->host_pointer(mem->buffer, access) : NULL;
}

tdm_status tdm_mem_fill(const tdm_mem *mem, uint64_t off, uint64_t size, uint8_t byte,
                        tdm_error *err) {
    const tdm_buffer_ops *ops = buffer_ops(mem->dev);
    tdm_status status = tdm_open_device_check(mem->dev, err);
    if (status != TDM_OK) return status;
    if (TDM_HAS(ops, fill)) return ops->fill(mem->buffer, off, size, byte, err);
    uint64_t chunk = size < TDM_STAGING_SIZE ? size : TDM_STAGING_SIZE;
    void *staging = malloc(chunk > 0 ? chunk : 1);
    if (staging == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "fill: out of memory");
    memset(staging, byte, chunk);
    for (uint64_t at = 0; at < size && status == TDM_OK; at += chunk)
        status =
            ops->upload(mem->buffer, off + at, staging, size - at < chunk ? size - at : chunk, err);
    free(staging);
    return status;
}

/* Host address of a range. NULL where there is none, and where the range leaves the buffer: the
 * plugin's upload or download then refuses the range. */
static uint8_t *host_range(const tdm_mem *mem, uint64_t off, uint64_t size, uint32_t access) {
    uint8_t *host = tdm_mem_host_pointer(mem, access);
    return host != NULL && off <= mem->size && size <= mem->size - off ? host + off : NULL;
}

/* Copies without staging memory where that is possible, and refuses devices that were given up.
 * True: *status is the result. */
static bool copy_direct(const tdm_mem *dst, uint64_t dst_off, const tdm_mem *src, uint64_t src_off,
                        uint64_t size, tdm_status *status, tdm_error *err) {
    const tdm_buffer_ops *ops = buffer_ops(dst->dev);
    uint8_t *host, *to;
    *status = tdm_open_device_check(dst->dev, err);
    if (*status == TDM_OK) *status = tdm_open_device_check(src->dev, err);
    if (*status != TDM_OK) return true;
    if (dst->dev == src->dev && TDM_HAS(ops, copy))
        *status = ops->copy(dst->buffer, dst_off, src->buffer, src_off, size, err);
    else if ((host = host_range(src, src_off, size, TDM_ACCESS_READ)) != NULL &&
             (to = host_range(dst, dst_off, size, TDM_ACCESS_WRITE)) != NULL)
        memcpy(to, host, (size_t)size);
    else if ((host = host_range(src, src_off, size, TDM_ACCESS_READ)) != NULL)
        *status = tdm_mem_upload(dst, dst_off, host, size, err);
    else if ((host = host_range(dst, dst_off, size, TDM_ACCESS_WRITE)) != NULL)
        *status = tdm_mem_download(src, src_off, host, size, err);
    else
        return false;
    return true;
}

tdm_status tdm_mem_copy_staged(const tdm_mem *dst, uint64_t dst_off, const tdm_mem *src,
                               uint64_t src_off, uint64_t size, void *staging,
                               uint64_t staging_size, tdm_error *err) {
    tdm_status status = TDM_OK;
    if (copy_direct(dst, dst_off, src, src_off, size, &status, err)) return status;
    for (uint64_t at = 0; at < size && status == TDM_OK; at += staging_size) {
        uint64_t n = size - at < staging_size ? size - at : staging_size;
        status = tdm_mem_download(src, src_off + at, staging, n, err);
        if (status == TDM_OK) status = tdm_mem_upload(dst, dst_off + at, staging, n, err);
    }
    return status;
}

tdm_status tdm_mem_copy(const tdm_mem *dst, uint64_t dst_off, const tdm_mem *src, uint64_t src_off,
                        uint64_t size, tdm_error *err) {
    tdm_status status = TDM_OK;
    if (size == 0 || copy_direct(dst, dst_off, src, src_off, size, &status, err)) return status;
    uint64_t chunk = size < TDM_STAGING_SIZE ? size : TDM_STAGING_SIZE;
    void *staging = malloc(chunk);
    if (staging == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "copy: out of memory");
    status = tdm_mem_copy_staged(dst, dst_off, src, src_off, size, staging, chunk, err);
    free(staging);
    return status;
}

tdm_status tdm_open_device_tensor_size(tdm_open_device *dev, const tdm_tensor_desc *desc,
                                       uint64_t *size_out, tdm_error *err) {
    const tdm_buffer_ops *ops = buffer_ops(dev);
    if (TDM_HAS(ops, tensor_size)) return ops->tensor_size(dev->device, desc, size_out, err);
    *size_out = tdm_tensor_canonical_size(desc->type, desc->ne);
    return TDM_OK;
}

/* Bytes of a row, of the n_col columns, and of the columns before them. False for a bad range. */
static bool canonical_range(const tdm_tensor_desc *desc, int64_t row_first, int64_t n_row,
                            int64_t col_first, int64_t n_col, uint64_t *col_off, size_t *row_size,
                            size_t *part_size) {
    if (tdm_tensor_part_check(desc, row_first, n_row, col_first, n_col, NULL) != TDM_OK)
        return false;
    *row_size = tdm_type_row_size(desc->type, desc->ne[0]);
    *part_size = tdm_type_row_size(desc->type, n_col);
    *col_off = tdm_type_row_size(desc->type, col_first);
    return true;
}

tdm_status tdm_mem_tensor_upload(const tdm_mem *mem, uint64_t off, const tdm_tensor_desc *desc,
                                 const void *src, uint64_t row_pitch, int64_t row_first,
                                 int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err) {
    const tdm_buffer_ops *ops = buffer_ops(mem->dev);
    tdm_status status = tdm_open_device_check(mem->dev, err);
    if (status != TDM_OK) return status;
    if (TDM_HAS(ops, tensor_upload))
        return ops->tensor_upload(mem->buffer, off, desc, src, row_pitch, row_first, n_row,
                                  col_first, n_col, err);
    uint64_t col_off;
    size_t row_size, part_size;
    if (!canonical_range(desc, row_first, n_row, col_first, n_col, &col_off, &row_size, &part_size))
        return tdm_fail(err, TDM_OUT_OF_RANGE, "tensor upload: rows or columns out of range");
    if (part_size == row_size && row_pitch == row_size)
        return ops->upload(mem->buffer, off + (uint64_t)row_first * row_size, src,
                           (uint64_t)n_row * row_size, err);
    for (int64_t r = 0; r < n_row && status == TDM_OK; r++)
        status = ops->upload(mem->buffer, off + (uint64_t)(row_first + r) * row_size + col_off,
                             (const uint8_t *)src + (uint64_t)r * row_pitch, part_size, err);
    return status;
}

tdm_status tdm_mem_tensor_download(const tdm_mem *mem, uint64_t off, const tdm_tensor_desc *desc,
                                   void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                   int64_t col_first, int64_t n_col, tdm_error *err) {
    const tdm_buffer_ops *ops = buffer_ops(mem->dev);
    tdm_status status = tdm_open_device_check(mem->dev, err);
    if (status != TDM_OK) return status;
    if (TDM_HAS(ops, tensor_download))
        return ops->tensor_download(mem->buffer, off, desc, dst, row_pitch, row_first, n_row,
                                    col_first, n_col, err);
    uint64_t col_off;
    size_t row_size, part_size;
    if (!canonical_range(desc, row_first, n_row, col_first, n_col, &col_off, &row_size, &part_size))
        return tdm_fail(err, TDM_OUT_OF_RANGE, "tensor download: rows or columns out of range");
    for (int64_t r = 0; r < n_row && status == TDM_OK; r++)
        status = ops->download(mem->buffer, off + (uint64_t)(row_first + r) * row_size + col_off,
                               (uint8_t *)dst + (uint64_t)r * row_pitch, part_size, err);
    return status;
}

tdm_status tdm_open_device_kv_page_size(tdm_open_device *dev, const tdm_kv_desc *desc,
                                        uint64_t *size_out, tdm_error *err) {
    const tdm_buffer_ops *ops = buffer_ops(dev);
    if (!TDM_HAS(ops, kv_page_size))
        return tdm_fail(err, TDM_UNSUPPORTED, "device '%s': has no key/value cache", dev->name);
    tdm_error inner = {0};
    tdm_status status = cache_check(dev, desc, &inner);
    if (status == TDM_OK) status = ops->kv_page_size(dev->device, desc, size_out, &inner);
    if (status != TDM_OK) return tdm_fail(err, status, "device '%s': %s", dev->name, inner.message);
    return TDM_OK;
}

/* ---- Groups ---- */

static const tdm_split_ops *split_ops(const tdm_open_device *dev) {
    const tdm_plugin *plugin = dev->from->plugin;
    return TDM_HAS(plugin, split) ? plugin->split : NULL;
}

tdm_status tdm_open_device_split_unit(tdm_open_device *dev, const tdm_graph *graph, int32_t value,
                                      int32_t axis, int64_t *unit_out, tdm_error *err) {
    const tdm_split_ops *ops = split_ops(dev);
    if (TDM_HAS(ops, split_unit))
        return ops->split_unit(dev->device, graph, value, axis, unit_out, err);
    return tdm_split_unit_block(dev->name, graph, value, axis, unit_out, err);
}

bool tdm_open_device_is_group(const tdm_open_device *dev) {
    const tdm_split_ops *ops = split_ops(dev);
    return ops != NULL && TDM_HAS(ops, split_prepare);
}

tdm_status tdm_open_device_split_prepare(tdm_open_device *dev, const tdm_graph *graph,
                                         tdm_error *err) {
    if (!tdm_open_device_is_group(dev)) return TDM_OK;
    tdm_error inner = {0};
    tdm_status status = split_ops(dev)->split_prepare(dev->device, graph, &inner);
    if (status != TDM_OK) return tdm_fail(err, status, "device '%s': %s", dev->name, inner.message);
    return TDM_OK;
}

tdm_status tdm_open_device_split_report(tdm_open_device *dev, const tdm_graph *graph,
                                        tdm_split_report *report, tdm_error *err) {
    const tdm_split_ops *ops = split_ops(dev);
    if (!tdm_open_device_is_group(dev) || !TDM_HAS(ops, split_report))
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "device '%s': is not a group that reports its members", dev->name);
    tdm_error inner = {0};
    tdm_status status = ops->split_report(dev->device, graph, report, &inner);
    if (status != TDM_OK) return tdm_fail(err, status, "device '%s': %s", dev->name, inner.message);
    return TDM_OK;
}
