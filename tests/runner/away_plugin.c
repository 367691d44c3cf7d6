/* SPDX-License-Identifier: MIT
 *
 * away_plugin.c: the CPU plugin (AWAY_TARGET, a path) as if its device had memory of its own: it does
 * not say that this is the host's, and gives no addresses in it. For what the program does with such
 * devices.
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

static void info_change(tdm_device_info *info) {
    snprintf(info->name, sizeof info->name, "away0");
    info->flags &= ~(uint32_t)TDM_DEVICE_IS_HOST;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index, tdm_device_info *info_out,
                                  tdm_error *err) {
    tdm_status status = inner->device->describe(instance, index, info_out, err);
    if (status == TDM_OK) info_change(info_out);
    return status;
}

static tdm_status device_get_info(tdm_device *device, tdm_device_info *info_out, tdm_error *err) {
    tdm_status status = inner->device->get_info(device, info_out, err);
    if (status == TDM_OK) info_change(info_out);
    return status;
}

static void *buffer_host_pointer(tdm_buffer *buffer) {
    (void)buffer;
    return NULL;
}

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    tdm_plugin_entry_fn entry;
    const char *file = getenv("AWAY_TARGET");
    if (target == NULL && file != NULL) target = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *symbol = target != NULL ? dlsym(target, TDM_PLUGIN_ENTRY_NAME) : NULL;
    if (symbol == NULL) return tdm_fail(err, TDM_NOT_FOUND, "away: AWAY_TARGET is no plugin");
    memcpy(&entry, &symbol, sizeof entry);
    tdm_status status = entry(host, &inner, err);
    if (status != TDM_OK) return status;
    outer = *inner;
    device_ops = *inner->device;
    buffer_ops = *inner->buffer;
    device_ops.describe = device_describe;
    device_ops.get_info = device_get_info;
    buffer_ops.host_pointer = buffer_host_pointer;
    outer.name = "away";
    outer.device = &device_ops;
    outer.buffer = &buffer_ops;
    *plugin_out = &outer;
    return TDM_OK;
}

/* The target leaves with this. */
__attribute__((destructor)) static void target_close(void) {
    if (target != NULL) dlclose(target);
}
