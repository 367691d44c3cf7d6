/* SPDX-License-Identifier: MIT
 *
 * example.c: a whole backend. It keeps buffers in the host's memory and runs two ops, ADD and MUL
 * of equal shapes. Its devices have one option, `memory`. Built from Tandem's installed headers
 * alone, see the Makefile; explained in docs/writing-a-backend.md.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/plugin.h"

/* The handles are opaque to the host. */
struct tdm_instance {
    const tdm_host *host;
};
struct tdm_device {
    const tdm_host *host;
    uint64_t memory;       /* bytes that its buffers may take; 0 = no limit */
    _Atomic uint64_t used; /* bytes that they take: buffers are allocated from any thread */
};
struct tdm_buffer {
    tdm_device *device;
    uint8_t *data;
    uint64_t size;
};

/* ---- Devices ---- */

static tdm_status device_count(tdm_instance *instance, const tdm_device_params *params,
                               int32_t *n_out, tdm_error *err) {
    (void)params; /* has the device's options: none of ours decides which devices exist */
    (void)instance;
    (void)err; /* without a device: *n_out = 0, the reason in *err, and still TDM_OK */
    *n_out = 1;
    return TDM_OK;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    (void)params;
    tdm_device_info info = {.name = "example0",
                            .description = "memory of the host, arithmetic of a loop",
                            .buffer_align = 4,
                            .flags = TDM_DEVICE_IS_HOST};
    size_t size = info_out->struct_size; /* the caller's version of the struct may be another */
    (void)instance;
    if (index != 0) return tdm_fail(err, TDM_NOT_FOUND, "example: no device %d", (int)index);
    if (size == 0 || size > sizeof info) size = sizeof info;
    info.struct_size = info_out->struct_size;
    memcpy(info_out, &info, size);
    return TDM_OK;
}

/* Our host has checked the value against the table below; other hosts may not have. */
static tdm_status option_read(const tdm_option *option, tdm_device *device, tdm_error *err) {
    char *end;
    if (strcmp(option->key, "memory") != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: example devices have one option, memory",
                        option->key);
    errno = 0;
    device->memory = strtoull(option->value, &end, 10);
    if (option->value[0] < '0' || option->value[0] > '9' || *end != 0 || errno != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "memory = %s: not a number of bytes",
                        option->value);
    return TDM_OK;
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    const tdm_host *host = instance->host;
    tdm_device *device;
    if (params->index != 0)
        return tdm_fail(err, TDM_NOT_FOUND, "example: no device %d", (int)params->index);
    device = host->alloc(host->context, sizeof *device, 0);
    if (device == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "example: out of memory");
    memset(device, 0, sizeof *device);
    device->host = host;
    for (int32_t i = 0; TDM_FIELD(params, options) && i < params->n_option; i++) {
        tdm_status status = option_read(&params->options[i], device, err);
        if (status == TDM_OK) continue;
        host->free(host->context, device, sizeof *device);
        return status;
    }
    *device_out = device;
    return TDM_OK;
}

static void device_close(tdm_device *device) {
    if (device != NULL) device->host->free(device->host->context, device, sizeof *device);
}

/* ---- Buffers ---- */

static tdm_status buffer_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    const tdm_host *host = device->host;
    uint64_t size = params->size;
    uint64_t used = atomic_fetch_add(&device->used, size);
    bool fits = device->memory == 0 || (used <= device->memory && size <= device->memory - used);
    tdm_buffer *buffer = fits ? host->alloc(host->context, sizeof *buffer, 0) : NULL;
    uint8_t *data =
        buffer != NULL && size < SIZE_MAX / 2 ? host->alloc(host->context, (size_t)size, 0) : NULL;
    if (data == NULL) {
        atomic_fetch_sub(&device->used, size);
        if (buffer != NULL) host->free(host->context, buffer, sizeof *buffer);
        if (!fits)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                            "example: %llu bytes asked for, %llu are taken and memory = %llu",
                            (unsigned long long)size, (unsigned long long)used,
                            (unsigned long long)device->memory);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "example: %llu bytes asked for, fewer are free", (unsigned long long)size);
    }
    buffer->device = device;
    buffer->data = data;
    buffer->size = size;
    *buffer_out = buffer;
    return TDM_OK;
}

static void buffer_free(tdm_buffer *buffer) {
    if (buffer == NULL) return;
    const tdm_host *host = buffer->device->host;
    atomic_fetch_sub(&buffer->device->used, buffer->size);
    host->free(host->context, buffer->data, (size_t)buffer->size);
    host->free(host->context, buffer, sizeof *buffer);
}

static tdm_status range_check(const tdm_buffer *buffer, uint64_t off, uint64_t size,
                              tdm_error *err) {
    if (off <= buffer->size && size <= buffer->size - off) return TDM_OK;
    return tdm_fail(err, TDM_OUT_OF_RANGE, "example: %llu bytes at %llu of a buffer of %llu",
                    (unsigned long long)size, (unsigned long long)off,
                    (unsigned long long)buffer->size);
}

static tdm_status buffer_upload(tdm_buffer *buffer, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    tdm_status status = range_check(buffer, off, size, err);
    if (status == TDM_OK && size > 0) memcpy(buffer->data + off, src, (size_t)size);
    return status;
}

static tdm_status buffer_download(tdm_buffer *buffer, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    tdm_status status = range_check(buffer, off, size, err);
    if (status == TDM_OK && size > 0) memcpy(dst, buffer->data + off, (size_t)size);
    return status;
}

/* ---- Graphs ---- */

/* TDM_OK for ADD and MUL of two values of equal shapes that are not views (a verified graph has f32
 * without a private layout there), and for view nodes, which need no work. Everything else is
 * refused with the reason: the host then runs the node on another device, and logs that once for
 * each op. */
static tdm_status supports_op(tdm_device *device, const tdm_graph *graph, int32_t node,
                              tdm_error *err) {
    const tdm_node *n = tdm_graph_node(graph, node);
    const tdm_value *a, *b;
    (void)device;
    if (tdm_op_is_view(n->op)) return TDM_OK;
    if (n->op != TDM_OP_ADD && n->op != TDM_OP_MUL)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "example: node %d: only ADD and MUL are run, not op %d", (int)node,
                        (int)n->op);
    a = tdm_graph_value(graph, n->src[0]);
    b = tdm_graph_value(graph, n->src[1]);
    if (a->slot < 0 || b->slot < 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "example: node %d: a source is a view", (int)node);
    if (memcmp(a->ne, b->ne, sizeof a->ne) != 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "example: node %d: the shapes differ", (int)node);
    return TDM_OK;
}

static float *data_of(const tdm_graph *graph, const tdm_binding *bindings, int32_t value) {
    const tdm_binding *at = &bindings[tdm_graph_value(graph, value)->slot];
    return (float *)(void *)(at->buffer->data + at->off);
}

static tdm_status compute_sync(tdm_device *device, const tdm_graph *graph,
                               const tdm_binding *bindings, int32_t n_binding, tdm_error *err) {
    if (n_binding != graph->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "example: %d bindings for %d slots",
                        (int)n_binding, (int)graph->n_slot);
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *n = tdm_graph_node(graph, i);
        tdm_status status = supports_op(device, graph, i, err);
        if (status != TDM_OK) return status;
        if (tdm_op_is_view(n->op)) continue;
        const float *a = data_of(graph, bindings, n->src[0]);
        const float *b = data_of(graph, bindings, n->src[1]);
        float *y = data_of(graph, bindings, n->dst[0]);
        int64_t count = tdm_shape_count(tdm_graph_value(graph, n->dst[0])->ne);
        for (int64_t k = 0; k < count; k++) y[k] = n->op == TDM_OP_ADD ? a[k] + b[k] : a[k] * b[k];
    }
    return TDM_OK;
}

/* ---- The plugin ---- */

static tdm_status plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    tdm_instance *instance = host->alloc(host->context, sizeof *instance, 0);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "example: out of memory");
    instance->host = host;
    *instance_out = instance;
    return TDM_OK;
}

static void plugin_deinit(tdm_instance *instance) {
    if (instance != NULL) instance->host->free(instance->host->context, instance, sizeof *instance);
}

static const tdm_device_ops device_ops = {
    .struct_size = sizeof(tdm_device_ops),
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .supports_op = supports_op,
    .graph_compute_sync = compute_sync,
};

static const tdm_buffer_ops buffer_ops = {
    .struct_size = sizeof(tdm_buffer_ops),
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = buffer_upload,
    .download = buffer_download,
};

/* What `memory = 512M` in a [device NAME], or `--memory 512M`, may be. */
static const tdm_option_desc options[] = {
    {.name = "memory",
     .help = "bytes that the device's buffers may take together; 0 = no limit",
     .default_value = "0",
     .max = 1024.0 * 1024 * 1024 * 1024 * 1024,
     .kind = TDM_OPTION_SIZE},
};

static const tdm_option_table option_table = {
    .struct_size = sizeof(tdm_option_table),
    .desc_size = sizeof(tdm_option_desc),
    .descs = options,
    .n_desc = 1,
};

static const tdm_plugin plugin = {
    .struct_size = sizeof(tdm_plugin),
    .name = "example",
    .version = "1.0",
    .licence = "MIT",
    .init = plugin_init,
    .deinit = plugin_deinit,
    .device = &device_ops,
    .buffer = &buffer_ops,
    .options = &option_table,
};

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    (void)host;
    (void)err;
    *plugin_out = &plugin;
    return TDM_OK;
}
