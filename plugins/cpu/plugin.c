/* SPDX-License-Identifier: MIT
 *
 * plugin.c: the entry of the CPU plugin and its instances. Everything that has state hangs on an
 * instance or a device, so that several hosts may load the plugin at once and unload it for real.
 */
#include "plugins/cpu/device.h"

static tdm_status plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    tdm_instance *instance = host->alloc(host->context, sizeof *instance, 0);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no memory");
    instance->host = host;
    *instance_out = instance;
    return TDM_OK;
}

static void plugin_deinit(tdm_instance *instance) {
    if (instance == NULL) return;
    const tdm_host *host = instance->host;
    host->free(host->context, instance, sizeof *instance);
}

static const tdm_plugin cpu_plugin = {
    .struct_size = sizeof(tdm_plugin),
    .name = "cpu",
    .version = "0.1.0",
    .licence = "MIT",
    .init = plugin_init,
    .deinit = plugin_deinit,
    .device = &cpu_device_ops,
    .buffer = &cpu_buffer_ops,
    .queue = &cpu_queue_ops,
    .split = &cpu_split_ops,
};

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    if (host == NULL || !TDM_HAS(host, alloc) || !TDM_HAS(host, free))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "cpu: the host offers no memory (alloc, free)");
    *plugin_out = &cpu_plugin;
    return TDM_OK;
}
