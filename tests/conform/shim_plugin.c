/* SPDX-License-Identifier: MIT
 *
 * shim_plugin.c: another plugin (TANDEM_SHIM_TARGET) with one slot replaced by a wrong one. It
 * breaks what the null plugin does not have: private tensors, caches, and ops whose checks must be
 * shown to see a plausible mistake, such as RoPE with its pairs in the other order.
 *
 * SHIM_OP and SHIM_PATCH, where given, change every node of one op before the graph is run.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/plugin.h"

static void *target;
static const tdm_plugin *inner;
static tdm_plugin outer;
static tdm_device_ops device_ops;
static tdm_buffer_ops buffer_ops;
static tdm_split_ops split_ops;

#ifdef SHIM_OP
static tdm_status compute_sync(tdm_device *device, const tdm_graph *graph,
                               const tdm_binding *bindings, int32_t n_binding, tdm_error *err) {
    tdm_graph changed = *graph;
    tdm_node *nodes = malloc(((size_t)graph->n_node + 1) * sizeof *nodes);
    int32_t n = 0;
    if (nodes == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "shim: out of memory");
    for (int32_t i = 0; i < graph->n_node; i++) {
        tdm_node node = *tdm_graph_node(graph, i);
        bool is_kept = true;
        if (node.op == SHIM_OP) {
            SHIM_PATCH;
        }
        if (is_kept) nodes[n++] = node;
    }
    changed.nodes = nodes;
    changed.node_size = sizeof *nodes;
    changed.n_node = n;
    changed.hash = 0;
    tdm_status status =
        inner->device->graph_compute_sync(device, &changed, bindings, n_binding, err);
    free(nodes);
    return status;
}
#endif

#ifdef BREAK_EXCHANGE_ABORT
/* An abort is no failure of the plan. */
static tdm_status compute_sync(tdm_device *device, const tdm_graph *graph,
                               const tdm_binding *bindings, int32_t n_binding, tdm_error *err) {
    tdm_status status = inner->device->graph_compute_sync(device, graph, bindings, n_binding, err);
    return status == TDM_CANCELLED ? TDM_OK : status;
}
#endif

#ifdef BREAK_GRAPH_SUPPORTS
static tdm_status graph_supports(tdm_device *device, const tdm_graph *graph, uint8_t *supported_out,
                                 tdm_error *err) {
    tdm_status status = inner->device->graph_supports(device, graph, supported_out, err);
    if (status == TDM_OK && graph->n_node > 2) supported_out[2] ^= 1;
    return status;
}
#endif

#ifdef BREAK_TENSOR_PIECES
/* Every part is taken to begin in the first column. */
static tdm_status tensor_upload(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                                const void *src, uint64_t row_pitch, int64_t row_first,
                                int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err) {
    (void)col_first;
    return inner->buffer->tensor_upload(buffer, off, desc, src, row_pitch, row_first, n_row, 0,
                                        n_col, err);
}
#endif

#ifdef BREAK_TENSOR_SIZE
static tdm_status tensor_size(tdm_device *device, const tdm_tensor_desc *desc, uint64_t *size_out,
                              tdm_error *err) {
    tdm_status status = inner->buffer->tensor_size(device, desc, size_out, err);
    if (status == TDM_OK && desc->usage == 0) *size_out += 64;
    return status;
}
#endif

#ifdef BREAK_IMPORT_INFO
static tdm_status import_host(tdm_device *device, void *ptr, uint64_t size,
                              tdm_import_info *info_out, tdm_buffer **buffer_out, tdm_error *err) {
    tdm_status status = inner->buffer->import_host(device, ptr, size, info_out, buffer_out, err);
    if (status == TDM_OK && info_out != NULL) info_out[1].has_atomic32 = true;
    return status;
}
#endif

#ifdef BREAK_PAGE_SIZE
static tdm_status kv_page_size(tdm_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err) {
    tdm_kv_desc known = *desc;
    if (known.type_k == TDM_TYPE_Q6_K) known.type_k = TDM_TYPE_F32;
    return inner->buffer->kv_page_size(device, &known, size_out, err);
}
#endif

#ifdef BREAK_IN_HOST
static tdm_status kv_page_size(tdm_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err) {
    tdm_status status = inner->buffer->kv_page_size(device, desc, size_out, err);
    if (status == TDM_OK && (desc->flags & TDM_KV_IN_HOST) != 0) *size_out *= 2;
    return status;
}
#endif

#ifdef BREAK_SPLIT_UNIT
static tdm_status split_unit(tdm_device *device, const tdm_graph *graph, int32_t value,
                             int32_t axis, int64_t *unit_out, tdm_error *err) {
    tdm_status status = inner->split->split_unit(device, graph, value, axis, unit_out, err);
    if (status == TDM_OK && axis == 3) *unit_out = 0;
    return status;
}
#endif

static void tables_patch(void) {
#if defined(SHIM_OP) || defined(BREAK_EXCHANGE_ABORT)
    device_ops.graph_compute_sync = compute_sync;
#endif
#ifdef BREAK_GRAPH_SUPPORTS
    device_ops.graph_supports = graph_supports;
#endif
#ifdef BREAK_TENSOR_PIECES
    buffer_ops.tensor_upload = tensor_upload;
#endif
#ifdef BREAK_TENSOR_SIZE
    buffer_ops.tensor_size = tensor_size;
#endif
#ifdef BREAK_TENSOR_PAIR
    buffer_ops.tensor_download = NULL;
#endif
#ifdef BREAK_IMPORT_INFO
    buffer_ops.import_host = import_host;
#endif
#if defined(BREAK_PAGE_SIZE) || defined(BREAK_IN_HOST)
    buffer_ops.kv_page_size = kv_page_size;
#endif
#ifdef BREAK_PAGE_SLOT
    buffer_ops.kv_page_size = NULL;
#endif
#ifdef BREAK_SPLIT_UNIT
    split_ops.split_unit = split_unit;
#endif
}

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    tdm_plugin_entry_fn entry;
    const char *file = getenv("TANDEM_SHIM_TARGET");
    if (target == NULL && file != NULL) target = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *symbol = target != NULL ? dlsym(target, TDM_PLUGIN_ENTRY_NAME) : NULL;
    if (symbol == NULL) return tdm_fail(err, TDM_NOT_FOUND, "shim: no plugin to stand before");
    memcpy(&entry, &symbol, sizeof entry);
    tdm_status status = entry(host, &inner, err);
    if (status != TDM_OK) return status;
    outer = *inner;
    device_ops = *inner->device;
    buffer_ops = *inner->buffer;
    split_ops = *inner->split;
    outer.device = &device_ops;
    outer.buffer = &buffer_ops;
    outer.split = &split_ops;
    tables_patch();
    *plugin_out = &outer;
    return TDM_OK;
}

/* The target leaves with the shim. */
__attribute__((destructor)) static void target_close(void) {
    if (target != NULL) dlclose(target);
}
