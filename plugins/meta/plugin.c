/* SPDX-License-Identifier: MIT
 *
 * plugin.c: the entry of the meta plugin and its instances. A group has its state in its device
 * (device.c); an instance only knows the host.
 */
#include "plugins/meta/device.h"

static tdm_status plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    tdm_instance *instance = meta_alloc(host, sizeof *instance);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "meta: no memory");
    instance->host = host;
    *instance_out = instance;
    return TDM_OK;
}

static void plugin_deinit(tdm_instance *instance) {
    if (instance != NULL) meta_free(instance->host, instance, sizeof *instance);
}

static const tdm_plugin meta_plugin = {
    .struct_size = sizeof(tdm_plugin),
    .name = "meta",
    .version = "0.1.0",
    .licence = "MIT",
    .init = plugin_init,
    .deinit = plugin_deinit,
    .device = &meta_device_ops,
    .buffer = &meta_buffer_ops,
    .queue = &meta_queue_ops,
    .split = &meta_split_ops,
};

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    if (host == NULL || !TDM_HAS(host, alloc) || !TDM_HAS(host, free) || !TDM_HAS(host, log))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "meta: the host offers no memory or log (alloc, free, log)");
    *plugin_out = &meta_plugin;
    return TDM_OK;
}
