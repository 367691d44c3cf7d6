/* SPDX-License-Identifier: MIT
 *
 * null_plugin.c: entry, devices, buffers and ops of the null plugin. Without a fault it is correct.
 *
 * Built once more with -DNULL_EXPORT, which exports a second symbol: no switch can do that at run
 * time.
 */
#include "tests/plugins/nulls/null_plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MANY = 64 };

static char fault[32]; /* TANDEM_TEST_FAULT when the entry ran; "" = none */

bool null_has_fault(const char *name) {
    return strcmp(fault, name) == 0;
}

void null_pause(long ns) {
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Bytes of a struct that both sides have. */
static size_t common_size(size_t theirs, size_t ours) {
    return theirs == 0 || theirs > ours ? ours : theirs;
}

/* ---- Devices ---- */

/* For the fault eager: every call of count starts a thread, until the last instance ends. */
enum { MAX_THREAD = 64 };
static pthread_t threads[MAX_THREAD];
static int n_thread, n_instance;
static pthread_mutex_t thread_gate = PTHREAD_MUTEX_INITIALIZER;

static void *thread_main(void *arg) {
    pthread_mutex_lock(&thread_gate);
    pthread_mutex_unlock(&thread_gate);
    return arg;
}

static void thread_add(void) {
    if (n_thread == MAX_THREAD) return;
    if (n_thread == 0) pthread_mutex_lock(&thread_gate);
    pthread_create(&threads[n_thread++], NULL, thread_main, NULL);
}

static tdm_status device_count(tdm_instance *instance, const tdm_device_params *params,
                               int32_t *n_out, tdm_error *err) {
    (void)instance, (void)params, (void)err;
    if (null_has_fault("eager")) thread_add();
    *n_out = null_has_fault("count-reason") ? 0 : 1;
    return TDM_OK;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    (void)params;
    tdm_device_info info = {.name = "null0", .vendor = "Tandem", .buffer_align = 16};
    size_t size = common_size(info_out->struct_size, sizeof info);
    static int n_call;
    (void)instance;
    if (null_has_fault("count-reason") && index == 0)
        return tdm_fail(err, TDM_NOT_FOUND, "null: no devices");
    if (!null_has_fault("describe-end") && index != 0)
        return tdm_fail(err, TDM_NOT_FOUND, "null: no device %d", (int)index);
    if (null_has_fault("unstable"))
        snprintf(info.description, sizeof info.description, "call %d", n_call++);
    if (null_has_fault("name-control")) snprintf(info.name, sizeof info.name, "null\n0");
    if (null_has_fault("size-zero"))
        size = info_out->struct_size < size ? info_out->struct_size : size;
    if (null_has_fault("describe-size")) size = sizeof info;
    info.struct_size = info_out->struct_size;
    memcpy(info_out, &info, size);
    return TDM_OK;
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    const tdm_host *host = instance->host;
    static int n_opened; /* for the fault close-wipes */
    bool has_options = TDM_FIELD(params, options) && params->n_option > 0;
    if (null_has_fault("open-size")) has_options = params->n_option > 0;
    if (null_has_fault("open")) return tdm_fail(err, TDM_INTERNAL, "null: no memory for a device");
    if (null_has_fault("open-index") ? params->index < 0 : params->index != 0)
        return tdm_fail(err, TDM_NOT_FOUND, "null: no device %d", (int)params->index);
    if (null_has_fault("option-ignored") ||
        (has_options && strcmp(params->options[0].key, "level") == 0))
        has_options = false;
    if (null_has_fault("option-name") && has_options)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: an unknown option");
    if (has_options)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: null devices have one option, level",
                        params->options[0].key);
    if (null_has_fault("print")) printf("null: opened\n");
    if (null_has_fault("log-newline")) host->log(host->context, TDM_LOG_INFO, "opened\n");
    if (null_has_fault("host-smaller")) {
        tdm_acquired_device other = {.struct_size = sizeof other};
        (void)host->device_acquire(host->context, "other", &other, NULL);
    }
    tdm_device *device = host->alloc(host->context, sizeof *device, 0);
    if (device == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "null: out of memory");
    *device = (tdm_device){.host = host};
    if (null_has_fault("close-wipes")) device->is_first = n_opened++ == 0;
    *device_out = device;
    return TDM_OK;
}

/* For the fault close-wipes: the buffer that was allocated last; NULL = none, or it is freed. */
static tdm_buffer *last_buffer;

static void device_close(tdm_device *device) {
    if (device == NULL && !null_has_fault("close-null")) return;
    if (null_has_fault("close-wipes") && !device->is_first && last_buffer != NULL)
        memset(last_buffer->data, 0, (size_t)last_buffer->size);
    device->host->free(device->host->context, device, sizeof *device);
}

/* ---- Buffers ---- */

/* For faults: the memory of all buffers, and the staging area of all uploads. */
static uint8_t common[1 << 16];

static tdm_status buffer_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    const tdm_host *host = device->host;
    uint64_t size = params->size;
    if (null_has_fault("zero") && size == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: a buffer of 0 bytes");
    if (null_has_fault("purpose") && params->purpose < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: no such purpose");
    if (null_has_fault("exit") && size > SIZE_MAX / 2) exit(3);
    tdm_buffer *buffer = host->alloc(host->context, sizeof *buffer, 0);
    uint8_t *data = size < SIZE_MAX / 2 ? host->alloc(host->context, (size_t)size, 0) : NULL;
    if (null_has_fault("apart") && data != NULL && size <= sizeof common) {
        host->free(host->context, data, (size_t)size);
        data = common;
    }
    if (buffer == NULL || data == NULL) {
        if (buffer != NULL) host->free(host->context, buffer, sizeof *buffer);
        if (null_has_fault("oversize"))
            return tdm_fail(err, TDM_INTERNAL, "null: %llu bytes", (unsigned long long)size);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "null: cannot allocate %llu bytes",
                        (unsigned long long)size);
    }
    *buffer = (tdm_buffer){host, data, size};
    if (null_has_fault("close-wipes")) last_buffer = buffer;
    *buffer_out = buffer;
    return TDM_OK;
}

static void buffer_free(tdm_buffer *buffer) {
    if (buffer == NULL && !null_has_fault("free-null")) return;
    const tdm_host *host = buffer->host;
    const size_t size = (size_t)buffer->size + (null_has_fault("free-size") ? 1 : 0);
    if (null_has_fault("close-wipes") && last_buffer == buffer) last_buffer = NULL;
    if (!null_has_fault("leak") && buffer->data != common)
        host->free(host->context, buffer->data, size);
    host->free(host->context, buffer, sizeof *buffer);
}

static tdm_status range_check(const tdm_buffer *buffer, uint64_t off, uint64_t size,
                              tdm_error *err) {
    if (off <= buffer->size && size <= buffer->size - off) return TDM_OK;
    tdm_status status = tdm_fail(
        err, TDM_OUT_OF_RANGE, "null: %llu bytes at %llu of a buffer of %llu",
        (unsigned long long)size, (unsigned long long)off, (unsigned long long)buffer->size);
    /* Without tdm_fail, which removes a newline: plugins may fill the message themselves. */
    if (null_has_fault("message") && err != NULL && strlen(err->message) + 1 < sizeof err->message)
        strcat(err->message, "\n");
    return status;
}

static tdm_status buffer_upload(tdm_buffer *buffer, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    tdm_status status = range_check(buffer, off, size, err);
    if (null_has_fault("upload-range") && status != TDM_OK && buffer->size > MANY &&
        off < buffer->size)
        buffer->data[off] = *(const uint8_t *)src;
    if (null_has_fault("upload-odd")) off -= off % 2;
    if (null_has_fault("upload-staging") && status == TDM_OK && size <= sizeof common) {
        memcpy(common, src, (size_t)size);
        null_pause(10000);
        src = common;
    }
    if (status == TDM_OK && size > 0) memcpy(buffer->data + off, src, (size_t)size);
    return status;
}

static tdm_status buffer_download(tdm_buffer *buffer, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    tdm_status status = range_check(buffer, off, size, err);
    if (null_has_fault("download-range") && status != TDM_OK)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: no such range");
    if (null_has_fault("error-touched") && err != NULL && status == TDM_OK) err->message[0] = 0;
    if (status == TDM_OK && size > 0) memcpy(dst, buffer->data + off, (size_t)size);
    return status;
}

static tdm_status buffer_copy(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                              uint64_t size, tdm_error *err) {
    tdm_status status = range_check(dst, dst_off, size, err);
    if (status == TDM_OK) status = range_check(src, src_off, size, err);
    if (null_has_fault("copy-range") && status != TDM_OK) return TDM_OK;
    if (status != TDM_OK || size == 0) return status;
    if (null_has_fault("copy")) src = dst;
    memmove(dst->data + dst_off, src->data + src_off, (size_t)size);
    return TDM_OK;
}

static tdm_status buffer_fill(tdm_buffer *buffer, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    tdm_status status = range_check(buffer, off, size, err);
    if (null_has_fault("fill")) byte &= 0x7f;
    for (volatile bool is_waiting = null_has_fault("hang"); is_waiting;) continue;
    if (status == TDM_OK && size > 0) memset(buffer->data + off, byte, (size_t)size);
    return status;
}

static void *buffer_host_pointer(tdm_buffer *buffer, uint32_t access) {
    (void)access;
    return buffer->data + (null_has_fault("host-pointer") ? 1 : 0);
}

/* ---- Graphs ---- */

static const tdm_value *value_get(const tdm_graph *graph, int32_t i) {
    return null_has_fault("stride") ? &graph->values[i] : tdm_graph_value(graph, i);
}

/* ADD and MUL of equal shapes, SCALE; no views. */
static tdm_status node_check(const tdm_graph *graph, int32_t node, tdm_error *err) {
    const tdm_node *n = tdm_graph_node(graph, node);
    bool is_pair = n->op == TDM_OP_ADD || n->op == TDM_OP_MUL;
    bool is_known = is_pair || n->op == TDM_OP_SCALE;
    if (tdm_op_is_view(n->op) && !null_has_fault("views")) return TDM_OK;
    if (null_has_fault("null-error") && !is_known) err->message[0] = 0;
    if (null_has_fault("reason") && !is_known && n->op < TDM_OP_COUNT_) return TDM_UNSUPPORTED;
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
    const int32_t op = tdm_graph_node(graph, node)->op;
    if (null_has_fault("pure"))
        device->host->free(device->host->context,
                           device->host->alloc(device->host->context, MANY, 0), MANY);
    if (null_has_fault("supports-busy")) {
        static atomic_int n_call;
        static atomic_bool is_busy;
        if (atomic_exchange(&is_busy, true)) /* called by another thread at the same time */
            return tdm_fail(err, TDM_UNSUPPORTED, "null: busy");
        if (atomic_fetch_add(&n_call, 1) % MANY == 0) null_pause(1000000);
        atomic_store(&is_busy, false);
    }
    if (null_has_fault("claims-any") && op > TDM_OP_COUNT_) return TDM_OK;
    if (null_has_fault("claims-act") && op == TDM_OP_ACT) return TDM_OK;
    if (null_has_fault("denies-scale") && op == TDM_OP_SCALE)
        return tdm_fail(err, TDM_UNSUPPORTED, "null: SCALE is not run");
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
    if (null_has_fault("scale-bias")) bias = 0;
    if (null_has_fault("empty") && count == 0) abort();
    for (int64_t k = 0; k < count; k++) {
        if (n->op == TDM_OP_ADD) y[k] = a[k] + b[k];
        if (n->op == TDM_OP_MUL) y[k] = a[k] * b[k];
        if (n->op == TDM_OP_SCALE) y[k] = a[k] * scale + bias;
    }
    if (null_has_fault("guard") && n->op == TDM_OP_MUL && count > 0) y[count] = 0;
    if (null_has_fault("input") && n->op == TDM_OP_SCALE && count > 0) a[count - 1] = 0;
    if (null_has_fault("last-element") && n->op == TDM_OP_SCALE && count > MANY) y[count - 1] = 0;
}

/* For the fault temp-clear, after node i has run: clears the temporary that node i - 1 read first,
 * which may share its memory with the result of node i. */
static void temp_clear(const tdm_graph *graph, const tdm_binding *bindings, int32_t i) {
    const tdm_node *before = i > 0 ? tdm_graph_node(graph, i - 1) : NULL;
    if (before == NULL || tdm_op_is_view(before->op)) return;
    const tdm_value *v = value_get(graph, before->src[0]);
    if (v->kind == TDM_VALUE_TEMP)
        memset(data_of(graph, bindings, before->src[0]), 0,
               (size_t)tdm_shape_count(v->ne) * sizeof(float));
}

tdm_status null_compute(tdm_device *device, const tdm_graph *graph, const tdm_binding *bindings,
                        int32_t n_binding, tdm_error *err) {
    (void)device;
    if (n_binding != graph->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: %d bindings for %d slots", (int)n_binding,
                        (int)graph->n_slot);
    for (int32_t k = 0; k < n_binding && null_has_fault("unused-slot"); k++)
        if (bindings[k].buffer == NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: slot %d is not bound", (int)k);
    for (int32_t i = 0; i < graph->n_node; i++) {
        tdm_status status = node_check(graph, i, err);
        if (status != TDM_OK) return status;
        if (!tdm_op_is_view(tdm_graph_node(graph, i)->op))
            node_run(graph, bindings, tdm_graph_node(graph, i));
        if (null_has_fault("temp-clear")) temp_clear(graph, bindings, i);
    }
    return TDM_OK;
}

static tdm_status device_compute(tdm_device *device, const tdm_graph *graph,
                                 const tdm_binding *bindings, int32_t n_binding, tdm_error *err) {
    static int32_t n_first; /* nodes of the first graph; for the fault first-graph */
    tdm_graph shorter;
    if (null_has_fault("first-graph") && n_first == 0) n_first = graph->n_node;
    if (null_has_fault("first-graph") && graph->n_node > n_first) {
        shorter = *graph;
        shorter.n_node = n_first;
        graph = &shorter;
    }
    tdm_status status = null_compute(device, graph, bindings, n_binding, err);
    if (!null_has_fault("sync-bits") || status != TDM_OK || graph->n_node == 0) return status;
    const int32_t y = tdm_graph_node(graph, graph->n_node - 1)->dst[0];
    uint32_t *bits = (uint32_t *)(void *)data_of(graph, bindings, y);
    for (int64_t i = 0; i < tdm_shape_count(value_get(graph, y)->ne); i++) bits[i] ^= 1;
    return TDM_OK;
}

/* ---- The plugin ---- */

static const tdm_host *last_host; /* for the fault static-host */

static void option_move(void);

static tdm_status plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    if (null_has_fault("option-moves")) option_move();
    tdm_instance *instance = host->alloc(host->context, sizeof *instance, 0);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "null: out of memory");
    instance->host = host;
    n_instance++;
    *instance_out = instance;
    return TDM_OK;
}

static void plugin_deinit(tdm_instance *instance) {
    const tdm_host *host = null_has_fault("static-host") ? last_host : instance->host;
    if (--n_instance == 0 && n_thread > 0) {
        pthread_mutex_unlock(&thread_gate);
        while (n_thread > 0) pthread_join(threads[--n_thread], NULL);
    }
    host->free(host->context, instance, sizeof *instance);
}

/* Measures nothing: every limit is unknown. */
static tdm_status device_measure_limits(tdm_device *device, tdm_device_limits *limits_out,
                                        tdm_error *err) {
    tdm_device_limits limits = {0};
    size_t size = common_size(limits_out->struct_size, sizeof limits);
    (void)device, (void)err;
    if (null_has_fault("limits")) limits.read_bandwidth = -1;
    if (null_has_fault("limits-size")) size = sizeof limits;
    limits.struct_size = limits_out->struct_size;
    memcpy(limits_out, &limits, size);
    return TDM_OK;
}

/* The first is always there; a fault adds the one of its name. */
static tdm_option_desc options[2] = {
    {.name = "level",
     .help = "a number without effect",
     .default_value = "3",
     .min = 1,
     .max = 5,
     .kind = TDM_OPTION_INT},
};
static const tdm_option_desc faulty_options[] = {
    {.name = "level", .help = "the same name again", .kind = TDM_OPTION_INT},
    {.name = "level-text", .help = "a default that is no word of it", .kind = TDM_OPTION_WORD},
    {.name = "refused", .help = "open refuses it", .default_value = "yes", .kind = TDM_OPTION_BOOL},
};
static tdm_option_table option_table = {
    .struct_size = sizeof(tdm_option_table),
    .desc_size = sizeof(tdm_option_desc),
    .descs = options,
};

static void option_move(void) {
    options[0].max = 4;
}

static void options_fill(void) {
    static const char *const faults[] = {"option-twice", "option-words", "option-default"};
    option_table.n_desc = 1;
    options[0].max = null_has_fault("option-range") ? 2 : 5;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (null_has_fault(faults[i])) options[option_table.n_desc++] = faulty_options[i];
}

static const tdm_device_ops device_ops = {
    .struct_size = sizeof(tdm_device_ops),
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .supports_op = null_supports_op,
    .graph_compute_sync = device_compute,
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

static tdm_plugin plugin = {
    .struct_size = sizeof(tdm_plugin),
    .name = "null",
    .version = "1.0",
    .licence = "MIT",
    .init = plugin_init,
    .deinit = plugin_deinit,
    .device = &device_ops,
    .buffer = &buffer_ops,
    .queue = &null_queue_ops,
    .options = &option_table,
};

#ifdef NULL_EXPORT
TDM_EXPORT int null_extra(void);
int null_extra(void) {
    return 1;
}
#endif

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    const char *name = getenv("TANDEM_TEST_FAULT");
    Dl_info object;
    snprintf(fault, sizeof fault, "%s", name != NULL ? name : "");
    if (null_has_fault("entry")) host->log(host->context, TDM_LOG_INFO, "entered");
    if (null_has_fault("host-larger") && host->struct_size > sizeof *host)
        return tdm_fail(err, TDM_UNSUPPORTED, "null: too new");
    if (null_has_fault("no-delete") && dladdr(fault, &object) != 0)
        (void)dlopen(object.dli_fname, RTLD_NOW | RTLD_NODELETE);
    last_host = host;
    options_fill();
    plugin.name = null_has_fault("name") ? "null plugin" : "null";
    *plugin_out = &plugin;
    return TDM_OK;
}
