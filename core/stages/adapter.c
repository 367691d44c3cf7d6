/* SPDX-License-Identifier: MIT
 *
 * adapter.c: acquiring devices, their fallback, and the device and split tables of adapters.
 */
#include "core/stages/adapter.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/params.h"
#include "core/base/view.h"
#include "core/stages/adapter_internal.h"
#include "core/stages/cut.h"

/* The fallback's plugin, and its device's name in messages. No section can have that name. */
#define FALLBACK_PLUGIN "cpu"
#define FALLBACK_NAME   "cpu (fallback)"

/* ---- The fallback ---- */

/* Declares the fallback where its plugin can be loaded; opens nothing. Having no fallback is not a
 * failure. */
static tdm_status fallback_declare(tdm_runtime *rt, tdm_error *err) {
    static const tdm_device_spec spec = {.name = FALLBACK_NAME, .plugin = FALLBACK_PLUGIN};
    tdm_error reason = {0};
    if (rt->fallback != NULL) return TDM_OK;
    tdm_status status = tdm_runtime_load(rt, FALLBACK_PLUGIN, &reason);
    if (status == TDM_RESOURCE_EXHAUSTED) return tdm_fail(err, status, "%s", reason.message);
    if (status != TDM_OK) {
        tdm_runtime_log(rt, TDM_LOG_DEBUG, "acquired devices have no fallback: %s", reason.message);
        return TDM_OK;
    }
    rt->fallback =
        rt->pending_fallback != NULL ? rt->pending_fallback : tdm_open_device_create(rt, &spec);
    rt->pending_fallback = NULL;
    if (rt->fallback == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", FALLBACK_NAME);
    return TDM_OK;
}

tdm_status tdm_runtime_set_fallback(tdm_runtime *rt, const tdm_option *options, int32_t n_option,
                                    tdm_error *err) {
    const tdm_device_spec spec = {
        .name = FALLBACK_NAME, .plugin = FALLBACK_PLUGIN, .options = options, .n_option = n_option};
    tdm_open_device *fallback = rt->fallback == NULL ? tdm_open_device_create(rt, &spec) : NULL;
    if (rt->fallback != NULL)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: a device has been acquired already",
                        FALLBACK_NAME);
    if (fallback == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", FALLBACK_NAME);
    tdm_open_device_free(rt->pending_fallback);
    rt->pending_fallback = fallback;
    return TDM_OK;
}

tdm_open_device *adapter_fallback(tdm_device *device, tdm_error *why) {
    tdm_runtime *rt = device->rt;
    if (rt->fallback == NULL) {
        tdm_fail(why, TDM_UNAVAILABLE, "there is no plugin '%s' to fall back on", FALLBACK_PLUGIN);
        return NULL;
    }
    pthread_mutex_lock(&rt->adapter_mutex);
    tdm_status status =
        rt->fallback->device == NULL ? tdm_open_device_open(rt->fallback, why) : TDM_OK;
    pthread_mutex_unlock(&rt->adapter_mutex);
    return status == TDM_OK ? rt->fallback : NULL;
}

/* ---- The device's table ---- */

static tdm_status device_get_info(tdm_device *device, tdm_device_info *info_out, tdm_error *err) {
    tdm_device_info info;
    tdm_status status = tdm_open_device_get_info(device->main, &info, err);
    if (status != TDM_OK) return status;
    info.buffer_align = device->align;
    tdm_struct_write(info_out, &info, sizeof info);
    return TDM_OK;
}

static tdm_status device_supports_op(tdm_device *device, const tdm_graph *graph, int32_t index,
                                     tdm_error *err) {
    const tdm_node *node = tdm_graph_node(graph, index);
    adapter_needs needs = {0};
    adapter_side side;
    if (tdm_op_is_view(node->op)) return TDM_OK;
    for (int32_t i = 0; i < node->n_src; i++) {
        tdm_view_place place = {.base = node->src[i]};
        if (node->src[i] < 0) continue;
        if (tdm_graph_value(graph, node->src[i])->slot < 0)
            tdm_view_resolve(graph, node->src[i], &place);
        adapter_needs_add(&needs, tdm_graph_value(graph, place.base)->kind,
                          adapter_source_side(device, graph, index, place.base) ==
                              ADAPTER_FALLBACK);
    }
    tdm_error why = {0};
    tdm_status status = adapter_node_side(device, graph, index, &needs, &side, &why);
    return status == TDM_OK ? TDM_OK : tdm_fail(err, status, "%s", why.message);
}

static tdm_status device_graph_supports(tdm_device *device, const tdm_graph *graph,
                                        uint8_t *supported_out, tdm_error *err) {
    (void)err;
    for (int32_t i = 0; i < graph->n_node; i++)
        supported_out[i] = device_supports_op(device, graph, i, NULL) == TDM_OK;
    return TDM_OK;
}

static tdm_status device_measure_limits(tdm_device *device, tdm_device_limits *limits_out,
                                        tdm_error *err) {
    tdm_device_limits limits;
    tdm_status status = tdm_open_device_measure_limits(device->main, &limits, err);
    if (status == TDM_OK) tdm_struct_write(limits_out, &limits, sizeof limits);
    return status;
}

static tdm_status device_split_unit(tdm_device *device, const tdm_graph *graph, int32_t value,
                                    int32_t axis, int64_t *unit_out, tdm_error *err) {
    const tdm_value *v = tdm_graph_value(graph, value);
    tdm_open_device *dev = device->main;
    if (v->kind == TDM_VALUE_WEIGHT) {
        tdm_tensor_desc desc = tdm_weight_desc(v);
        if (adapter_tensor_side(device, &desc) == ADAPTER_FALLBACK)
            dev = adapter_fallback(device, err);
    }
    return tdm_open_device_split_unit(dev, graph, value, axis, unit_out, err);
}

/* For a group that is a member of another: the report covers its own members only. */
static tdm_status device_split_report(tdm_device *device, const tdm_graph *graph,
                                      tdm_split_report *report, tdm_error *err) {
    return tdm_open_device_split_report(device->main, graph, report, err);
}

static const tdm_device_ops device_ops = {
    .struct_size = sizeof device_ops,
    .get_info = device_get_info,
    .supports_op = device_supports_op,
    .graph_supports = device_graph_supports,
    .measure_limits = device_measure_limits,
};

static const tdm_split_ops split_ops = {
    .struct_size = sizeof split_ops,
    .split_unit = device_split_unit,
    .split_report = device_split_report,
};

/* ---- Acquiring ---- */

static bool plugin_is_whole(const tdm_plugin *p) {
    return TDM_HAS(p->device, get_info) && TDM_HAS(p->device, graph_supports) &&
           TDM_HAS(p->buffer, copy) && TDM_HAS(p->buffer, fill) &&
           TDM_HAS(p->buffer, host_pointer) && TDM_HAS(p->buffer, tensor_size) &&
           TDM_HAS(p->buffer, tensor_upload) && TDM_HAS(p->buffer, tensor_download) &&
           TDM_HAS(p->buffer, kv_page_size) && TDM_HAS(p, queue) &&
           TDM_HAS(p->queue, plan_get_info) && TDM_HAS(p, split) && TDM_HAS(p->split, split_unit);
}

/* True where the plugin has every slot, and a fallback would add nothing: the CPU is its own
 * fallback, and a group's members have theirs. Without a fallback the adapter still refuses caches
 * in host memory for a device that cannot read them there. */
static bool needs_no_adapter(const tdm_open_device *dev) {
    const tdm_plugin *p = tdm_open_device_plugin(dev);
    return plugin_is_whole(p) &&
           (strcmp(p->name, FALLBACK_PLUGIN) == 0 || tdm_open_device_is_group(dev) ||
            (dev->rt->fallback == NULL && tdm_open_device_has_host_kv(dev)));
}

static tdm_status adapter_create(tdm_open_device *dev, tdm_device **device_out, tdm_error *err) {
    const tdm_plugin *p = tdm_open_device_plugin(dev);
    tdm_device_info info;
    tdm_status status = tdm_open_device_get_info(dev, &info, err);
    if (status != TDM_OK) return status;
    tdm_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "device '%s': out of memory for its adapter",
                        tdm_open_device_name(dev));
    device->rt = dev->rt;
    device->main = dev;
    device->align = info.buffer_align > 64 ? info.buffer_align : 64;
    device->table = (tdm_plugin){
        .struct_size = sizeof device->table,
        .name = p->name,
        .version = TDM_HAS(p, version) ? p->version : "",
        .licence = TDM_HAS(p, licence) ? p->licence : "",
        .device = &device_ops,
        .buffer = &adapter_buffer_ops,
        .queue = &adapter_queue_ops,
        .split = &split_ops,
    };
    device->next = dev->rt->adapters;
    dev->rt->adapters = device;
    *device_out = device;
    return TDM_OK;
}

tdm_status tdm_adapter_acquire(tdm_runtime *rt, const char *name, tdm_acquired_device *device_out,
                               tdm_error *err) {
    tdm_open_device *dev = NULL;
    tdm_device *device = NULL;
    tdm_status status = tdm_runtime_open(rt, name, &dev, err);
    if (status != TDM_OK) return status;
    if (strcmp(tdm_open_device_plugin(dev)->name, FALLBACK_PLUGIN) != 0)
        status = fallback_declare(rt, err);
    if (status != TDM_OK) return status;
    if (needs_no_adapter(dev)) {
        device_out->plugin = tdm_open_device_plugin(dev);
        device_out->device = tdm_open_device_handle(dev);
        return TDM_OK;
    }
    status = adapter_create(dev, &device, err);
    if (status != TDM_OK) return status;
    device_out->plugin = &device->table;
    device_out->device = device;
    return TDM_OK;
}

tdm_open_device *tdm_adapter_release(tdm_runtime *rt, tdm_acquired_device *acquired) {
    tdm_open_device *dev = NULL;
    for (tdm_device **at = &rt->adapters; *at != NULL; at = &(*at)->next) {
        tdm_device *device = *at;
        if (acquired->plugin != &device->table) continue;
        dev = device->main;
        *at = device->next;
        free(device);
        break;
    }
    /* One without an adapter. */
    for (int32_t i = 0; i < rt->n_dev && dev == NULL && acquired->device != NULL; i++)
        if (rt->devs[i]->device == acquired->device &&
            rt->devs[i]->from->plugin == acquired->plugin)
            dev = rt->devs[i];
    acquired->plugin = NULL;
    acquired->device = NULL;
    return dev;
}

void tdm_adapter_end(tdm_runtime *rt) {
    while (rt->adapters != NULL) {
        tdm_device *next = rt->adapters->next;
        free(rt->adapters);
        rt->adapters = next;
    }
}
