/* SPDX-License-Identifier: MIT
 *
 * null_plugin.c: entry, devices, buffers and ops of the null plugin. Correct as it stands; each
 * BREAK_… makes it wrong in one way.
 */
#include "tests/conform/null_plugin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 64 };

/* Bytes of `theirs` that both sides know. */
static size_t common_size(size_t theirs, size_t ours) {
    return theirs == 0 || theirs > ours ? ours : theirs;
}

/* ---- Devices ---- */

static tdm_status device_count(tdm_instance *instance, int32_t *n_out, tdm_error *err) {
    (void)instance, (void)err;
#ifdef BREAK_COUNT_REASON
    *n_out = 0;
#else
    *n_out = 1;
#endif
    return TDM_OK;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index, tdm_device_info *info_out,
                                  tdm_error *err) {
    tdm_device_info info = {.name = "null0", .vendor = "Tandem", .buffer_align = 16};
    size_t size = common_size(info_out->struct_size, sizeof info);
    (void)instance;
#ifdef BREAK_COUNT_REASON
    if (index == 0) return tdm_fail(err, TDM_NOT_FOUND, "null: no devices");
#endif
#ifndef BREAK_DESCRIBE_END
    if (index != 0) return tdm_fail(err, TDM_NOT_FOUND, "null: no device %d", (int)index);
#else
    (void)index, (void)err;
#endif
#ifdef BREAK_UNSTABLE
    static int n_call;
    snprintf(info.description, sizeof info.description, "call %d", n_call++);
#endif
#ifdef BREAK_NAME_CONTROL
    snprintf(info.name, sizeof info.name, "null\n0");
#endif
#ifdef BREAK_SIZE_ZERO
    size = info_out->struct_size < size ? info_out->struct_size : size;
#endif
#ifdef BREAK_DESCRIBE_SIZE
    size = sizeof info;
#endif
    info.struct_size = info_out->struct_size;
    memcpy(info_out, &info, size);
    return TDM_OK;
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    const tdm_host *host = instance->host;
    bool has_options = TDM_FIELD(params, options) && params->n_option > 0;
#ifdef BREAK_OPEN_SIZE
    has_options = params->n_option > 0;
#endif
#ifdef BREAK_OPEN_INDEX
    if (params->index < 0)
#else
    if (params->index != 0)
#endif
        return tdm_fail(err, TDM_NOT_FOUND, "null: no device %d", (int)params->index);
#ifdef BREAK_OPTION_IGNORED
    has_options = false;
#endif
#ifdef BREAK_OPTION_NAME
    if (has_options) return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: an unknown option");
#endif
    if (has_options)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: null devices have no options",
                        params->options[0].key);
#ifdef BREAK_PRINT
    printf("null: opened\n");
#endif
#ifdef BREAK_LOG_NEWLINE
    host->log(host->context, TDM_LOG_INFO, "opened\n");
#endif
#ifdef BREAK_HOST_SMALLER
    tdm_acquired_device other = {.struct_size = sizeof other};
    (void)host->device_acquire(host->context, "other", &other, NULL);
#endif
    tdm_device *device = host->alloc(host->context, sizeof *device, 0);
    if (device == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "null: out of memory");
    device->host = host;
    *device_out = device;
    return TDM_OK;
}

static void device_close(tdm_device *device) {
#ifndef BREAK_CLOSE_NULL
    if (device == NULL) return;
#endif
    device->host->free(device->host->context, device, sizeof *device);
}

/* ---- Buffers ---- */

static tdm_status buffer_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    const tdm_host *host = device->host;
    uint64_t size = params->size;
#ifdef BREAK_ZERO
    if (size == 0) return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: a buffer of 0 bytes");
#endif
#ifdef BREAK_PURPOSE
    if (params->purpose < 0) return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: no such purpose");
#endif
#ifdef BREAK_EXIT
    if (size > SIZE_MAX / 2) exit(3);
#endif
    tdm_buffer *buffer = host->alloc(host->context, sizeof *buffer, 0);
    uint8_t *data = size < SIZE_MAX / 2 ? host->alloc(host->context, (size_t)size, 0) : NULL;
    if (buffer == NULL || data == NULL) {
        if (buffer != NULL) host->free(host->context, buffer, sizeof *buffer);
#ifdef BREAK_OVERSIZE
        return tdm_fail(err, TDM_INTERNAL, "null: %llu bytes", (unsigned long long)size);
#else
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "null: %llu bytes asked for, fewer are free",
                        (unsigned long long)size);
#endif
    }
    *buffer = (tdm_buffer){host, data, size};
    *buffer_out = buffer;
    return TDM_OK;
}

static void buffer_free(tdm_buffer *buffer) {
#ifndef BREAK_FREE_NULL
    if (buffer == NULL) return;
#endif
    const tdm_host *host = buffer->host;
#ifdef BREAK_FREE_SIZE
    host->free(host->context, buffer->data, (size_t)buffer->size + 1);
#elif !defined(BREAK_LEAK)
    host->free(host->context, buffer->data, (size_t)buffer->size);
#endif
    host->free(host->context, buffer, sizeof *buffer);
}

static tdm_status range_check(const tdm_buffer *buffer, uint64_t off, uint64_t size,
                              tdm_error *err) {
    if (off <= buffer->size && size <= buffer->size - off) return TDM_OK;
    tdm_status status = tdm_fail(
        err, TDM_OUT_OF_RANGE, "null: %llu bytes at %llu of a buffer of %llu",
        (unsigned long long)size, (unsigned long long)off, (unsigned long long)buffer->size);
#ifdef BREAK_MESSAGE
    /* Past tdm_fail, which would not let it through; plugins may fill the message themselves. */
    if (err != NULL && strlen(err->message) + 1 < sizeof err->message) strcat(err->message, "\n");
#endif
    return status;
}

static tdm_status buffer_upload(tdm_buffer *buffer, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    tdm_status status = range_check(buffer, off, size, err);
#ifdef BREAK_UPLOAD_RANGE
    if (status != TDM_OK && buffer->size > MANY && off < buffer->size)
        buffer->data[off] = *(const uint8_t *)src;
#endif
    if (status == TDM_OK && size > 0) memcpy(buffer->data + off, src, (size_t)size);
    return status;
}

static tdm_status buffer_download(tdm_buffer *buffer, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    tdm_status status = range_check(buffer, off, size, err);
#ifdef BREAK_DOWNLOAD_RANGE
    if (status != TDM_OK) return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: no such range");
#endif
#ifdef BREAK_ERROR_TOUCHED
    if (err != NULL && status == TDM_OK) err->message[0] = 0;
#endif
    if (status == TDM_OK && size > 0) memcpy(dst, buffer->data + off, (size_t)size);
    return status;
}

static tdm_status buffer_copy(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                              uint64_t size, tdm_error *err) {
    tdm_status status = range_check(dst, dst_off, size, err);
    if (status == TDM_OK) status = range_check(src, src_off, size, err);
#ifdef BREAK_COPY_RANGE
    if (status != TDM_OK) return TDM_OK;
#endif
    if (status != TDM_OK || size == 0) return status;
#ifdef BREAK_COPY
    src = dst;
#endif
    memmove(dst->data + dst_off, src->data + src_off, (size_t)size);
    return TDM_OK;
}

static tdm_status buffer_fill(tdm_buffer *buffer, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    tdm_status status = range_check(buffer, off, size, err);
#ifdef BREAK_FILL
    byte &= 0x7f;
#endif
#ifdef BREAK_HANG
    for (volatile bool is_waiting = true; is_waiting;) continue;
#endif
    if (status == TDM_OK && size > 0) memset(buffer->data + off, byte, (size_t)size);
    return status;
}

static void *buffer_host_pointer(tdm_buffer *buffer) {
#ifdef BREAK_HOST_POINTER
    return buffer->data + 1;
#else
    return buffer->data;
#endif
}

/* ---- Graphs ---- */

static const tdm_value *value_get(const tdm_graph *graph, int32_t i) {
#ifdef BREAK_STRIDE
    return &graph->values[i];
#else
    return tdm_graph_value(graph, i);
#endif
}

/* ADD and MUL of equal shapes, SCALE; no views. */
static tdm_status node_check(const tdm_graph *graph, int32_t node, tdm_error *err) {
    const tdm_node *n = tdm_graph_node(graph, node);
    bool is_pair = n->op == TDM_OP_ADD || n->op == TDM_OP_MUL;
    bool is_known = is_pair || n->op == TDM_OP_SCALE;
#ifndef BREAK_VIEWS
    if (tdm_op_is_view(n->op)) return TDM_OK;
#endif
#ifdef BREAK_NULL_ERROR
    if (!is_known) err->message[0] = 0;
#endif
#ifdef BREAK_REASON
    if (!is_known && n->op < TDM_OP_COUNT_) return TDM_UNSUPPORTED;
#endif
    if (!is_known)
        return tdm_fail(err, TDM_UNSUPPORTED, "null: node %d: op %d is not run", (int)node,
                        (int)n->op);
    const tdm_value *a = value_get(graph, n->src[0]);
    const tdm_value *b = value_get(graph, n->src[is_pair ? 1 : 0]);
    if (a->slot < 0 || b->slot < 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "null: node %d: a source is a view", (int)node);
    if (memcmp(a->ne, b->ne, sizeof a->ne) != 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "null: node %d: the shapes differ", (int)node);
    return TDM_OK;
}

tdm_status null_supports_op(tdm_device *device, const tdm_graph *graph, int32_t node,
                            tdm_error *err) {
    (void)device;
#ifdef BREAK_PURE
    tdm_device *again = device->host->alloc(device->host->context, MANY, 0);
    device->host->free(device->host->context, again, MANY);
#endif
#ifdef BREAK_CLAIMS_ANY
    if (tdm_graph_node(graph, node)->op > TDM_OP_COUNT_) return TDM_OK;
#endif
#ifdef BREAK_CLAIMS_ACT
    if (tdm_graph_node(graph, node)->op == TDM_OP_ACT) return TDM_OK;
#endif
#ifdef BREAK_DENIES_SCALE
    if (tdm_graph_node(graph, node)->op == TDM_OP_SCALE)
        return tdm_fail(err, TDM_UNSUPPORTED, "null: no SCALE, says the null plugin");
#endif
    return node_check(graph, node, err);
}

static float *data_of(const tdm_graph *graph, const tdm_binding *bindings, int32_t value) {
    const tdm_binding *at = &bindings[value_get(graph, value)->slot];
    return (float *)(void *)(at->buffer->data + at->off);
}

static void node_run(const tdm_graph *graph, const tdm_binding *bindings, const tdm_node *n) {
    float *a = data_of(graph, bindings, n->src[0]), *y = data_of(graph, bindings, n->dst[0]);
    const float *b = n->op == TDM_OP_SCALE ? a : data_of(graph, bindings, n->src[1]);
    int64_t count = tdm_shape_count(value_get(graph, n->dst[0])->ne);
    float scale = n->params.scale.scale, bias = n->params.scale.bias;
#ifdef BREAK_SCALE_BIAS
    bias = 0;
#endif
    for (int64_t k = 0; k < count; k++) {
        if (n->op == TDM_OP_ADD) y[k] = a[k] + b[k];
        if (n->op == TDM_OP_MUL) y[k] = a[k] * b[k];
        if (n->op == TDM_OP_SCALE) y[k] = a[k] * scale + bias;
    }
#ifdef BREAK_GUARD
    if (n->op == TDM_OP_MUL && count > 0) y[count] = 0;
#endif
#ifdef BREAK_INPUT
    if (n->op == TDM_OP_SCALE && count > 0) a[count - 1] = 0;
#endif
#ifdef BREAK_LAST_ELEMENT
    if (n->op == TDM_OP_SCALE && count > MANY) y[count - 1] = 0;
#endif
}

tdm_status null_compute(tdm_device *device, const tdm_graph *graph, const tdm_binding *bindings,
                        int32_t n_binding, tdm_error *err) {
    (void)device;
    if (n_binding != graph->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: %d bindings for %d slots", (int)n_binding,
                        (int)graph->n_slot);
#ifdef BREAK_UNUSED_SLOT
    for (int32_t k = 0; k < n_binding; k++)
        if (bindings[k].buffer == NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: slot %d is not bound", (int)k);
#endif
    for (int32_t i = 0; i < graph->n_node; i++) {
        tdm_status status = node_check(graph, i, err);
        if (status != TDM_OK) return status;
        if (!tdm_op_is_view(tdm_graph_node(graph, i)->op))
            node_run(graph, bindings, tdm_graph_node(graph, i));
    }
    return TDM_OK;
}

/* ---- The plugin ---- */

#ifdef BREAK_STATIC_HOST
static const tdm_host *last_host;
#endif

#ifdef BREAK_EAGER
static pthread_t thread; /* of the first instance; ends with the last */
static int n_instance;
static pthread_mutex_t thread_gate = PTHREAD_MUTEX_INITIALIZER;

static void *thread_main(void *arg) {
    pthread_mutex_lock(&thread_gate);
    pthread_mutex_unlock(&thread_gate);
    return arg;
}
#endif

static tdm_status plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    tdm_instance *instance = host->alloc(host->context, sizeof *instance, 0);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "null: out of memory");
    instance->host = host;
#ifdef BREAK_EAGER
    if (n_instance++ == 0) {
        pthread_mutex_lock(&thread_gate);
        pthread_create(&thread, NULL, thread_main, NULL);
    }
#endif
    *instance_out = instance;
    return TDM_OK;
}

static void plugin_deinit(tdm_instance *instance) {
    const tdm_host *host = instance->host;
#ifdef BREAK_STATIC_HOST
    host = last_host;
#endif
#ifdef BREAK_EAGER
    if (--n_instance == 0) {
        pthread_mutex_unlock(&thread_gate);
        pthread_join(thread, NULL);
    }
#endif
    host->free(host->context, instance, sizeof *instance);
}

/* Nobody has measured anything: all is unknown. */
static tdm_status device_measure_limits(tdm_device *device, tdm_device_limits *limits_out,
                                        tdm_error *err) {
    tdm_device_limits limits = {0};
    size_t size = common_size(limits_out->struct_size, sizeof limits);
    (void)device, (void)err;
#ifdef BREAK_LIMITS
    limits.read_bandwidth = -1;
#endif
#ifdef BREAK_LIMITS_SIZE
    size = sizeof limits;
#endif
    limits.struct_size = limits_out->struct_size;
    memcpy(limits_out, &limits, size);
    return TDM_OK;
}

static const tdm_device_ops device_ops = {
    .struct_size = sizeof(tdm_device_ops),
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .supports_op = null_supports_op,
    .graph_compute_sync = null_compute,
    .measure_limits = device_measure_limits,
};

static const tdm_buffer_ops buffer_ops = {
    .struct_size = sizeof(tdm_buffer_ops),
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = buffer_upload,
    .download = buffer_download,
    .copy = buffer_copy,
    .fill = buffer_fill,
    .host_pointer = buffer_host_pointer,
};

static const tdm_plugin plugin = {
    .struct_size = sizeof(tdm_plugin),
#ifdef BREAK_NAME
    .name = "null plugin",
#else
    .name = "null",
#endif
    .version = "1.0",
    .licence = "MIT",
    .init = plugin_init,
    .deinit = plugin_deinit,
    .device = &device_ops,
    .buffer = &buffer_ops,
    .queue = &null_queue_ops,
};

#ifdef BREAK_EXPORT
TDM_EXPORT int null_extra(void);
int null_extra(void) {
    return 1;
}
#endif

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    (void)host, (void)err;
#ifdef BREAK_ENTRY
    host->log(host->context, TDM_LOG_INFO, "entered");
#endif
#ifdef BREAK_HOST_LARGER
    if (host->struct_size > sizeof *host) return tdm_fail(err, TDM_UNSUPPORTED, "null: too new");
#endif
#ifdef BREAK_STATIC_HOST
    last_host = host;
#endif
    *plugin_out = &plugin;
    return TDM_OK;
}
