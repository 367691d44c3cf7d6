/* SPDX-License-Identifier: MIT
 *
 * fake_plugin.c: a level 0 plugin for the tests of the runtime. Its memory is the host's, but it
 * gives no addresses in it. It runs nine ops.
 *
 * Apart from the null plugin, whose queues and whole tables the conformance suite needs: tests of
 * the runtime need a plugin without them.
 *
 * Copies of the file are plugins of their own, whose name is that of the file. The name selects
 * what is wrong with the plugin as a whole:
 *   fake_entry_fails, fake_no_table, fake_init_fails, fake_no_upload, fake_no_deinit
 *   fake_misnamed     its name is not that of the file
 *   fake_no_device*   no device, and a reason
 *   fake_holds_temps  its devices have memory of their own for temporaries
 *   fake_cards        four devices with addresses: see device_describe
 * -DFAKE_NO_ENTRY is a build of its own, in which the entry has another name. Options of a device
 * select what is wrong with the device: see option_read. The plugin logs what happens to its
 * devices; tests read the log.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tandem/plugin.h"

static char name[20]; /* of the file, without ".so" */

static bool is_variant(const char *variant) {
    return strcmp(name, variant) == 0;
}

static bool has_no_device(void) {
    return strncmp(name, "fake_no_device", strlen("fake_no_device")) == 0;
}

struct tdm_instance {
    const tdm_host *host;
    int32_t n_open;
};

struct tdm_device {
    tdm_instance *instance;
    char name[32];
    char refuse[128]; /* words of ops, separated by commas */
    char member[32];
    int64_t fail_at;  /* which computation fails, counted from 1; 0 = none */
    int64_t delay_us; /* of each computation */
    uint64_t memory;  /* bytes that may be allocated; 0 = no limit */
    _Atomic uint64_t used;
    int64_t n_compute;
    atomic_flag is_busy;
    tdm_acquired_device lent;
};

struct tdm_buffer {
    tdm_device *device;
    uint64_t size;
    uint8_t *bytes;
};

#define SAY(host, ...) (host)->log((host)->context, TDM_LOG_INFO, __VA_ARGS__)

/* ---- devices --------------------------------------------------------------------------------- */

static tdm_status device_count(tdm_instance *instance, const tdm_device_params *params,
                               int32_t *n_out, tdm_error *err) {
    (void)params;
    (void)instance;
    *n_out = has_no_device() ? 0 : is_variant("fake_cards") ? 4 : 2;
    if (has_no_device()) tdm_fail(err, TDM_UNAVAILABLE, "no fake driver is installed");
    return TDM_OK;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    int32_t n = 0;
    device_count(instance, params, &n, NULL);
    if (index < 0 || index >= n)
        return tdm_fail(err, TDM_NOT_FOUND, "no fake device %d, there are %d", index, n);
    snprintf(info_out->name, sizeof info_out->name, "%s%d", name, index);
    /* Without a NUL, as a careless plugin leaves what it cut to fit. */
    memset(info_out->vendor, 'v', sizeof info_out->vendor);
    info_out->buffer_align = 128;
    /* Device 0 has no address. Devices 2 and 3 have the same PCI address and different UUIDs, as
     * one card with two drivers. */
    if (is_variant("fake_cards") && index > 0) {
        const uint8_t bus = (uint8_t)(index == 3 ? 0xa2 : 0xa0 + index);
        snprintf(info_out->pci_address, sizeof info_out->pci_address, "0000:%02x:00.0", bus);
        info_out->uuid[0] = 0xfe;
        info_out->uuid[15] = (uint8_t)index;
        info_out->has_uuid = 1;
    }
    if (is_variant("fake_holds_temps")) info_out->flags = TDM_DEVICE_HOLDS_TEMPS;
    return TDM_OK;
}

static tdm_status option_read(tdm_device *d, const tdm_option *option, tdm_error *err) {
    const char *key = option->key, *value = option->value;
    if (strcmp(key, "name") == 0)
        snprintf(d->name, sizeof d->name, "%s", value);
    else if (strcmp(key, "refuse") == 0)
        snprintf(d->refuse, sizeof d->refuse, "%s", value);
    else if (strcmp(key, "member") == 0)
        snprintf(d->member, sizeof d->member, "%s", value);
    else if (strcmp(key, "fail-at") == 0)
        d->fail_at = atoll(value);
    else if (strcmp(key, "delay-us") == 0)
        d->delay_us = atoll(value);
    else if (strcmp(key, "memory") == 0)
        d->memory = strtoull(value, NULL, 10);
    else if (strcmp(key, "broken") == 0)
        return tdm_fail(err, TDM_UNAVAILABLE, "%s", value);
    else
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "unknown key '%s'", key);
    return TDM_OK;
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    int32_t n = 0;
    device_count(instance, params, &n, NULL);
    if (params->index < 0 || params->index >= n)
        return tdm_fail(err, TDM_NOT_FOUND, "no fake device %d, there are %d", params->index, n);
    tdm_device *d = calloc(1, sizeof *d);
    if (d == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    d->instance = instance;
    atomic_flag_clear(&d->is_busy);
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < params->n_option && status == TDM_OK; i++)
        status = option_read(d, &params->options[i], err);
    if (status == TDM_OK && d->member[0] != 0)
        status = instance->host->device_acquire(instance->host->context, d->member, &d->lent, err);
    if (status != TDM_OK) {
        free(d);
        return status;
    }
    instance->n_open++;
    SAY(instance->host, "open %s", d->name);
    *device_out = d;
    return TDM_OK;
}

static void device_close(tdm_device *d) {
    if (d == NULL) return;
    const tdm_host *host = d->instance->host;
    if (d->member[0] != 0) host->device_release(host->context, &d->lent);
    SAY(host, "close %s, %llu bytes left", d->name, (unsigned long long)d->used);
    d->instance->n_open--;
    free(d);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static tdm_status buffer_alloc(tdm_device *d, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    if (TDM_FIELD(params, items) && params->items != NULL)
        SAY(d->instance->host, "%s is told of %d items", d->name, params->n_item);
    if (d->memory > 0 && params->size > d->memory - d->used)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%llu bytes asked for, %llu free",
                        (unsigned long long)params->size,
                        (unsigned long long)(d->memory - d->used));
    tdm_buffer *b = calloc(1, sizeof *b);
    /* New memory is not zero. */
    if (b != NULL) b->bytes = malloc(params->size + 1);
    if (b == NULL || b->bytes == NULL) {
        free(b);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    }
    memset(b->bytes, 0xff, params->size);
    b->device = d;
    b->size = params->size;
    d->used += b->size;
    *buffer_out = b;
    return TDM_OK;
}

static void buffer_free(tdm_buffer *b) {
    if (b == NULL) return;
    b->device->used -= b->size;
    free(b->bytes);
    free(b);
}

static tdm_status range_check(const tdm_buffer *b, uint64_t off, uint64_t size, tdm_error *err) {
    if (off <= b->size && size <= b->size - off) return TDM_OK;
    return tdm_fail(err, TDM_OUT_OF_RANGE, "%llu bytes at %llu of a buffer of %llu",
                    (unsigned long long)size, (unsigned long long)off, (unsigned long long)b->size);
}

static tdm_status buffer_upload(tdm_buffer *b, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    const tdm_status status = range_check(b, off, size, err);
    if (status == TDM_OK && size > 0) memcpy(b->bytes + off, src, size);
    return status;
}

static tdm_status buffer_download(tdm_buffer *b, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    const tdm_status status = range_check(b, off, size, err);
    if (status == TDM_OK && size > 0) memcpy(dst, b->bytes + off, size);
    return status;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static const char *op_word(int32_t op) {
    switch (op) {
    case TDM_OP_RESHAPE: return "reshape";
    case TDM_OP_PERMUTE: return "permute";
    case TDM_OP_SLICE: return "slice";
    case TDM_OP_CONCAT: return "concat";
    case TDM_OP_ADD: return "add";
    case TDM_OP_MUL: return "mul";
    case TDM_OP_SCALE: return "scale";
    case TDM_OP_GET_ROWS: return "get_rows";
    case TDM_OP_MATMUL: return "matmul";
    default: return NULL;
    }
}

static bool has_word(const char *list, const char *word) {
    for (const char *at = list; *at != 0; at += strcspn(at, ",")) {
        at += strspn(at, ",");
        const size_t len = strcspn(at, ",");
        if (len == strlen(word) && strncmp(at, word, len) == 0) return true;
    }
    return false;
}

static tdm_status device_supports_op(tdm_device *d, const tdm_graph *graph, int32_t index,
                                     tdm_error *err) {
    const tdm_node *node = tdm_graph_node(graph, index);
    const char *word = op_word(node->op);
    if (word == NULL) return tdm_fail(err, TDM_UNSUPPORTED, "op %d is too hard", node->op);
    if (has_word(d->refuse, word))
        return tdm_fail(err, TDM_UNSUPPORTED, "%s does not like %s", d->name, word);
    for (int32_t i = 0; i < node->n_src; i++) {
        if (node->src[i] < 0) continue;
        const tdm_type type = (tdm_type)tdm_graph_value(graph, node->src[i])->type;
        if (type != TDM_TYPE_F32 && type != TDM_TYPE_I32)
            return tdm_fail(err, TDM_UNSUPPORTED, "%s of a type other than f32", word);
    }
    return TDM_OK;
}

typedef struct array {
    const int64_t *ne;
    int64_t nb[TDM_MAX_DIMS];
    uint8_t *bytes;
} array;

/* A graph under way, with what the host's table says of its values: this plugin links nothing of
 * Tandem's. */
typedef struct run {
    const tdm_graph *graph;
    const tdm_binding *bindings;
    tdm_view_place *places; /* [n_value] */
    int32_t *writer;        /* [n_value] */
    int32_t *n_read;        /* [n_value] */
} run;

static array array_of(const run *r, int32_t value) {
    const tdm_view_place *place = &r->places[value];
    const tdm_binding *b = &r->bindings[tdm_graph_value(r->graph, place->base)->slot];
    array a = {.ne = tdm_graph_value(r->graph, value)->ne, .bytes = b->buffer->bytes + b->off};
    a.bytes += place->off;
    memcpy(a.nb, place->nb, sizeof a.nb);
    return a;
}

static void *at(const array *a, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return a->bytes + i0 * a->nb[0] + i1 * a->nb[1] + i2 * a->nb[2] + i3 * a->nb[3];
}

static float get(const array *a, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    float x;
    memcpy(&x, at(a, i0, i1, i2, i3), sizeof x);
    return x;
}

static float rows_get(const array *table, const array *id, int64_t first, int64_t i0, int64_t i1) {
    int32_t row;
    memcpy(&row, at(id, i1, 0, 0, 0), sizeof row);
    return row < first || row >= first + table->ne[1] ? 0 : get(table, i0, row - first, 0, 0);
}

static float element(const tdm_node *node, const array *a, const array *b, const int64_t i[4]) {
    float x = 0;
    int64_t from[TDM_MAX_DIMS];
    int32_t axis;
    switch (node->op) {
    case TDM_OP_SCALE:
        return get(a, i[0], i[1], i[2], i[3]) * node->params.scale.scale + node->params.scale.bias;
    case TDM_OP_GET_ROWS: return rows_get(a, b, node->params.rows.first_row, i[0], i[1]);
    case TDM_OP_MATMUL:
        for (int64_t k = 0; k < a->ne[0]; k++) /* a matrix for each head where it has three axes */
            x += get(a, k, i[0], a->ne[2] > 1 ? i[1] : 0, 0) * get(b, k, i[1], i[2], i[3]);
        return x;
    case TDM_OP_CONCAT:
        memcpy(from, i, sizeof from);
        axis = node->params.concat.axis;
        if (i[axis] < a->ne[axis]) return get(a, i[0], i[1], i[2], i[3]);
        from[axis] -= a->ne[axis];
        return get(b, from[0], from[1], from[2], from[3]);
    default:
        x = get(b, i[0] % b->ne[0], i[1] % b->ne[1], i[2] % b->ne[2], i[3] % b->ne[3]);
        return node->op == TDM_OP_ADD ? get(a, i[0], i[1], i[2], i[3]) + x
                                      : get(a, i[0], i[1], i[2], i[3]) * x;
    }
}

static void node_run(const run *r, const tdm_node *node) {
    const array y = array_of(r, node->dst[0]);
    const array a = array_of(r, node->src[0]);
    const array b = node->n_src > 1 ? array_of(r, node->src[1]) : a;
    for (int64_t i3 = 0; i3 < y.ne[3]; i3++)
        for (int64_t i2 = 0; i2 < y.ne[2]; i2++)
            for (int64_t i1 = 0; i1 < y.ne[1]; i1++)
                for (int64_t i0 = 0; i0 < y.ne[0]; i0++) {
                    const float x = element(node, &a, &b, (const int64_t[]){i0, i1, i2, i3});
                    memcpy(at(&y, i0, i1, i2, i3), &x, sizeof x);
                }
}

/* Every slot must be bound to memory of the device that is large enough. */
static tdm_status bindings_check(const tdm_device *d, const tdm_graph *graph,
                                 const tdm_binding *bindings, int32_t n_binding, tdm_error *err) {
    if (n_binding != graph->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%d bindings for %d slots", n_binding,
                        graph->n_slot);
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->slot < 0) continue;
        const tdm_binding *b = &bindings[v->slot];
        const uint64_t size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
        if (b->buffer == NULL || b->buffer->device != d || b->off % 128 != 0 || b->size < size ||
            b->off > b->buffer->size || size > b->buffer->size - b->off)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' is bound wrongly",
                            tdm_graph_value_name(graph, i));
    }
    return TDM_OK;
}

/* Temporaries in a buffer of the device's own, each at its own place; they must come unbound. */
static tdm_status temps_bind(tdm_device *d, const tdm_graph *graph, tdm_binding *bindings,
                             tdm_buffer **buffer_out, tdm_error *err) {
    tdm_buffer_params params = {.struct_size = sizeof params};
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->slot < 0 || v->kind != TDM_VALUE_TEMP) continue;
        if (bindings[v->slot].buffer != NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' needs no memory",
                            tdm_graph_value_name(graph, i));
        bindings[v->slot].off = params.size;
        bindings[v->slot].size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
        params.size += (bindings[v->slot].size + 127) / 128 * 128;
    }
    const tdm_status status = buffer_alloc(d, &params, buffer_out, err);
    for (int32_t i = 0; i < graph->n_value && status == TDM_OK; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->slot >= 0 && v->kind == TDM_VALUE_TEMP) bindings[v->slot].buffer = *buffer_out;
    }
    return status;
}

/* Every temporary has a writer, and every source of a node counts once. */
static tdm_status uses_check(const run *r, tdm_error *err) {
    int64_t n_read = 0;
    for (int32_t i = 0; i < r->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(r->graph, i);
        n_read += r->n_read[i];
        if (v->slot >= 0 && v->kind == TDM_VALUE_TEMP &&
            (r->writer[i] < 0 || r->writer[i] >= r->graph->n_node))
            return tdm_fail(err, TDM_INTERNAL, "'%s' has no writer",
                            tdm_graph_value_name(r->graph, i));
    }
    for (int32_t i = 0; i < r->graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(r->graph, i);
        for (int32_t k = 0; k < node->n_src && !tdm_op_is_view(node->op); k++)
            n_read -= node->src[k] >= 0;
    }
    return n_read == 0 ? TDM_OK : tdm_fail(err, TDM_INTERNAL, "sources were miscounted");
}

static tdm_status run_begin(const tdm_device *d, const tdm_graph *graph,
                            const tdm_binding *bindings, run *r, tdm_error *err) {
    const tdm_host_graph_ops *ops = d->instance->host->graph;
    const size_t n = (size_t)graph->n_value + 1;
    *r = (run){graph, bindings, malloc(n * sizeof *r->places), malloc(n * sizeof *r->writer),
               malloc(n * sizeof *r->n_read)};
    if (r->places == NULL || r->writer == NULL || r->n_read == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    ops->view_places(graph, r->places);
    ops->uses(graph, r->places, r->writer, r->n_read);
    return uses_check(r, err);
}

static void run_end(run *r) {
    free(r->places);
    free(r->writer);
    free(r->n_read);
}

static tdm_status graph_run(tdm_device *d, const tdm_graph *graph, const tdm_binding *bindings,
                            int32_t n_binding, tdm_error *err) {
    run r = {0};
    tdm_status status = bindings_check(d, graph, bindings, n_binding, err);
    if (status == TDM_OK) status = run_begin(d, graph, bindings, &r, err);
    if (d->delay_us > 0)
        nanosleep(&(struct timespec){d->delay_us / 1000000, d->delay_us % 1000000 * 1000}, NULL);
    if (++d->n_compute == d->fail_at)
        status = tdm_fail(err, TDM_UNAVAILABLE, "%s fell off the bus", d->name);
    for (int32_t i = 0; i < graph->n_node && status == TDM_OK; i++) {
        status = device_supports_op(d, graph, i, err);
        if (status == TDM_OK && !tdm_op_is_view(tdm_graph_node(graph, i)->op))
            node_run(&r, tdm_graph_node(graph, i));
    }
    run_end(&r);
    return status;
}

/* With temporaries in memory of the device's own. */
static tdm_status graph_run_holding(tdm_device *d, const tdm_graph *graph,
                                    const tdm_binding *bindings, int32_t n_binding,
                                    tdm_error *err) {
    tdm_buffer *temps = NULL;
    tdm_binding *own = malloc(((size_t)n_binding + 1) * sizeof *own);
    if (own == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    memcpy(own, bindings, (size_t)n_binding * sizeof *own);
    tdm_status status = temps_bind(d, graph, own, &temps, err);
    if (status == TDM_OK) status = graph_run(d, graph, own, n_binding, err);
    buffer_free(temps);
    free(own);
    return status;
}

static tdm_status device_graph_compute_sync(tdm_device *d, const tdm_graph *graph,
                                            const tdm_binding *bindings, int32_t n_binding,
                                            tdm_error *err) {
    if (atomic_flag_test_and_set(&d->is_busy))
        return tdm_fail(err, TDM_INTERNAL, "%s: two computations at once", d->name);
    const tdm_status status = is_variant("fake_holds_temps")
                                  ? graph_run_holding(d, graph, bindings, n_binding, err)
                                  : graph_run(d, graph, bindings, n_binding, err);
    atomic_flag_clear(&d->is_busy);
    return status;
}

/* ---- the plugin ------------------------------------------------------------------------------ */

static tdm_status instance_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    if (is_variant("fake_init_fails"))
        return tdm_fail(err, TDM_UNAVAILABLE, "the fake licence has run out");
    tdm_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    instance->host = host;
    *instance_out = instance;
    return TDM_OK;
}

static void instance_deinit(tdm_instance *instance) {
    SAY(instance->host, "deinit, %d open", instance->n_open);
    free(instance);
}

static const tdm_device_ops device_ops = {
    .struct_size = sizeof device_ops,
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .supports_op = device_supports_op,
    .graph_compute_sync = device_graph_compute_sync,
};

static tdm_buffer_ops buffer_ops = {
    .struct_size = offsetof(tdm_buffer_ops, copy), /* as if built before the rest was added */
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = buffer_upload,
    .download = buffer_download,
};

static tdm_plugin plugin = {
    .struct_size = sizeof plugin,
    .name = name,
    .version = "1",
    .licence = "MIT",
    .init = instance_init,
    .deinit = instance_deinit,
    .device = &device_ops,
    .buffer = &buffer_ops,
};

#ifdef FAKE_NO_ENTRY
#define tdm_plugin_entry_v0 tdm_plugin_entry_v7
TDM_EXPORT tdm_status tdm_plugin_entry_v7(const tdm_host *host, const tdm_plugin **plugin_out,
                                          tdm_error *err);
#endif

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    Dl_info object;
    (void)host;
    const char *slash = dladdr(&plugin, &object) != 0 ? strrchr(object.dli_fname, '/') : NULL;
    if (slash != NULL) snprintf(name, sizeof name, "%.*s", (int)strcspn(slash + 1, "."), slash + 1);
    if (is_variant("fake_entry_fails"))
        return tdm_fail(err, TDM_UNSUPPORTED, "the host is too old");
    if (is_variant("fake_misnamed")) plugin.name = "someone_else";
    if (is_variant("fake_no_upload")) buffer_ops.upload = NULL;
    if (is_variant("fake_no_deinit")) plugin.deinit = NULL;
    *plugin_out = is_variant("fake_no_table") ? NULL : &plugin;
    return TDM_OK;
}
