/* SPDX-License-Identifier: MIT
 *
 * plugin.c: instances of the CUDA or HIP plugin. A driver is opened when devices are first counted
 * (device.c). The entry is the plugin's own.
 */
#include <stdlib.h>

#include "plugins/gpu/rt/rt.h"

tdm_status rt_plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    tdm_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", rt_vendor_this.plugin);
    instance->host = host;
    pthread_mutex_init(&instance->mutex, NULL);
    *instance_out = instance;
    return TDM_OK;
}

void rt_plugin_deinit(tdm_instance *instance) {
    if (instance == NULL) return;
    while (instance->sources != NULL) {
        rt_source *source = instance->sources;
        instance->sources = source->next;
        if (source->is_open) rt_driver_close(&source->driver);
        pthread_mutex_destroy(&source->import_mutex);
        free(source->path);
        free(source);
    }
    pthread_mutex_destroy(&instance->mutex);
    free(instance);
}
