/* SPDX-License-Identifier: MIT
 *
 * plugin.c: the entry of the Vulkan plugin and its instances. The driver is opened when devices are
 * first counted (device.c).
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/vk.h"

static tdm_status plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    tdm_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "vulkan: no memory");
    instance->host = host;
    pthread_mutex_init(&instance->mutex, NULL);
    *instance_out = instance;
    return TDM_OK;
}

static void plugin_deinit(tdm_instance *instance) {
    if (instance == NULL) return;
    vk_driver_close(&instance->driver);
    pthread_mutex_destroy(&instance->mutex);
    free(instance->facts);
    free(instance);
}

static const tdm_plugin vulkan_plugin = {
    .struct_size = sizeof(tdm_plugin),
    .name = "vulkan",
    .version = "0.1.0",
    .licence = "MIT",
    .init = plugin_init,
    .deinit = plugin_deinit,
    .device = &vk_device_ops,
    .buffer = &vk_buffer_ops,
    .queue = &vk_queue_ops,
    .split = &vk_split_ops,
    .options = &vk_option_table,
};

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    if (host == NULL || !TDM_HAS(host, semaphore))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "vulkan: the host offers no semaphores");
    *plugin_out = &vulkan_plugin;
    return TDM_OK;
}
