/* SPDX-License-Identifier: MIT
 *
 * cpu_loaded.h: the CPU plugin loaded for a host of the test's own; for test_cpu_*.c, which include
 * cmocka before it.
 */
#ifndef TANDEM_TESTS_CPU_LOADED_H
#define TANDEM_TESTS_CPU_LOADED_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/op_host.h"

/* The plugin as loaded for one host. */
typedef struct loaded {
    void *object;
    op_host *host;
    const tdm_plugin *plugin;
    tdm_instance *instance;
} loaded;

static inline const char *plugin_file(void) {
    static char file[4096];
    const char *dir = getenv("TANDEM_PLUGIN_DIR");
    snprintf(file, sizeof file, "%s/cpu.so", dir != NULL ? dir : ".");
    return file;
}

static inline tdm_plugin_entry_fn entry_find(void *object) {
    tdm_plugin_entry_fn entry;
    void *symbol = dlsym(object, TDM_PLUGIN_ENTRY_NAME);
    assert_non_null(symbol);
    memcpy(&entry, &symbol, sizeof entry);
    return entry;
}

static inline loaded load(void) {
    loaded l = {.object = dlopen(plugin_file(), RTLD_NOW | RTLD_LOCAL)};
    tdm_error err = {0};
    if (l.object == NULL) fail_msg("%s", dlerror());
    l.host = op_host_create();
    const tdm_host *table = op_host_table(l.host);
    assert_int_equal(entry_find(l.object)(table, &l.plugin, &err), TDM_OK);
    assert_int_equal(l.plugin->init(table, &l.instance, &err), TDM_OK);
    return l;
}

static inline void unload(loaded *l) {
    l->plugin->deinit(l->instance);
    assert_true(op_host_destroy(l->host));
    assert_int_equal(dlclose(l->object), 0);
}

static inline tdm_status open_with(const loaded *l, const char *key, const char *value,
                                   tdm_device **device_out, tdm_error *err) {
    const tdm_option option = {key, value};
    tdm_device_params params = {
        .struct_size = sizeof params, .n_option = key != NULL, .options = &option};
    return l->plugin->device->open(l->instance, &params, device_out, err);
}

static inline tdm_device *open_threads(const loaded *l, const char *n_thread) {
    tdm_device *device = NULL;
    tdm_error err = {0};
    tdm_status status = open_with(l, "threads", n_thread, &device, &err);
    if (status != TDM_OK) fail_msg("%s", err.message);
    return device;
}

static inline tdm_buffer *alloc_bytes(const loaded *l, tdm_device *device, uint64_t size) {
    tdm_buffer_params params = {.struct_size = sizeof params, .size = size};
    tdm_buffer *buffer = NULL;
    tdm_error err = {0};
    if (l->plugin->buffer->alloc(device, &params, &buffer, &err) != TDM_OK)
        fail_msg("%s", err.message);
    return buffer;
}

#endif
