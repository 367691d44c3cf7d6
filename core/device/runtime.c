/* SPDX-License-Identifier: MIT
 *
 * runtime.c: loads plugins, declares, opens and closes devices. plugin_path.c finds the files of
 * plugins; device.c has the functions on open devices.
 */
#include "core/device/runtime.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/params.h"
#include "core/device/runtime_internal.h"

void tdm_runtime_log(const tdm_runtime *rt, int32_t level, const char *format, ...) {
    if (rt->log == NULL || level > rt->log_level) return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    rt->log(rt->log_context, level, line);
}

/* Logs a warning for each folder of TANDEM_PLUGIN_PATH that cannot be read. */
static void environment_check(const tdm_runtime *rt) {
    for (int32_t i = rt->path.n_configured; i < rt->path.n_asked; i++) {
        tdm_error why = {0};
        if (tdm_plugin_folder_check(rt->path.folders[i], "TANDEM_PLUGIN_PATH", &why) != TDM_OK)
            tdm_runtime_log(rt, TDM_LOG_WARN, "%s", why.message);
    }
}

tdm_status tdm_runtime_create_with(const tdm_runtime_params *params,
                                   const tdm_adapter_ops *adapters, tdm_runtime **runtime_out,
                                   tdm_error *err) {
    tdm_runtime *rt = calloc(1, sizeof *rt);
    if (rt == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "runtime: out of memory");
    pthread_mutex_init(&rt->adapter_mutex, NULL);
    tdm_runtime_params p;
    tdm_struct_read(&p, sizeof p, params);
    rt->log = p.log;
    rt->log_context = p.log_context;
    rt->log_level = p.log_level;
    rt->reads_only = p.reads_only;
    rt->wait_limit_ns = p.wait_limit_ns != 0 ? p.wait_limit_ns : TDM_WAIT_LIMIT_DEFAULT_NS;
    rt->adapter_ops = adapters;
    tdm_status status = tdm_plugin_path_collect(p.plugin_path, &rt->path, err);
    if (status != TDM_OK) {
        pthread_mutex_destroy(&rt->adapter_mutex);
        free(rt);
        return status;
    }
    environment_check(rt);
    *runtime_out = rt;
    return TDM_OK;
}

/* ---- Plugins ---- */

static void plugin_unload(tdm_loaded_plugin *loaded) {
    if (loaded->is_started && loaded->plugin->deinit != NULL)
        loaded->plugin->deinit(loaded->instance);
    if (loaded->object != NULL) dlclose(loaded->object);
    free(loaded->file);
    free(loaded);
}

/* Name of a required slot that is missing; NULL when all are there. */
static const char *plugin_missing_slot(const tdm_plugin *p) {
    if (!TDM_HAS(p, name) || p->name[0] == 0) return "name";
    if (TDM_HAS(p, init) && !TDM_HAS(p, deinit)) return "deinit (init is there)";
    if (!TDM_HAS(p, device)) return "device";
    if (!TDM_HAS(p, buffer)) return "buffer";
    if (!TDM_HAS(p->device, count)) return "device.count";
    if (!TDM_HAS(p->device, describe)) return "device.describe";
    if (!TDM_HAS(p->device, open)) return "device.open";
    if (!TDM_HAS(p->device, close)) return "device.close";
    if (!TDM_HAS(p->device, supports_op)) return "device.supports_op";
    if (!TDM_HAS(p->buffer, alloc)) return "buffer.alloc";
    if (!TDM_HAS(p->buffer, free)) return "buffer.free";
    if (!TDM_HAS(p->buffer, upload)) return "buffer.upload";
    if (!TDM_HAS(p->buffer, download)) return "buffer.download";
    if (TDM_HAS(p, queue)) {
        if (!TDM_HAS(p->queue, create)) return "queue.create";
        if (!TDM_HAS(p->queue, destroy)) return "queue.destroy";
        if (!TDM_HAS(p->queue, graph_prepare)) return "queue.graph_prepare";
        if (!TDM_HAS(p->queue, plan_destroy)) return "queue.plan_destroy";
        if (!TDM_HAS(p->queue, plan_bind)) return "queue.plan_bind";
        if (!TDM_HAS(p->queue, graph_compute)) return "queue.graph_compute";
    } else if (!TDM_HAS(p->device, graph_compute_sync)) {
        return "device.graph_compute_sync (or a queue table)";
    }
    return NULL;
}

/* dlsym returns a data pointer, which ISO C cannot cast to a function pointer. */
static tdm_plugin_entry_fn entry_find(void *object) {
    tdm_plugin_entry_fn entry = NULL;
    void *symbol = dlsym(object, TDM_PLUGIN_ENTRY_NAME);
    memcpy(&entry, &symbol, sizeof entry);
    return entry;
}

/* The plugin's message; the text of its status where it gave none. */
static const char *reason_of(tdm_status status, const tdm_error *said) {
    return said->message[0] != 0 ? said->message : tdm_status_text(status);
}

static tdm_loaded_plugin *plugin_find(const tdm_runtime *rt, const char *name) {
    for (int32_t i = 0; i < rt->n_plugin; i++)
        if (strcmp(rt->plugins[i]->plugin->name, name) == 0) return rt->plugins[i];
    return NULL;
}

/* Checks the plugin's name and that no loaded plugin has it. `name` is the expected name, NULL =
 * any. */
static tdm_status plugin_check(const tdm_loaded_plugin *loaded, const tdm_plugin *plugin,
                               const char *name, tdm_error *err) {
    const char *missing = plugin_missing_slot(plugin);
    if (missing != NULL)
        return tdm_fail(err, TDM_UNSUPPORTED, "plugin %s: required slot %s is missing",
                        loaded->file, missing);
    if (name != NULL && strcmp(plugin->name, name) != 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "plugin %s: calls itself '%s'; the file's name must be the plugin's",
                        loaded->file, plugin->name);
    const tdm_loaded_plugin *other = plugin_find(loaded->rt, plugin->name);
    if (other != NULL)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "plugin %s: '%s' is loaded already, from %s",
                        loaded->file, plugin->name, other->file);
    return TDM_OK;
}

static tdm_status plugin_start(tdm_loaded_plugin *loaded, const char *name, tdm_error *err) {
    tdm_error inner = {0};
    loaded->object = dlopen(loaded->file, RTLD_NOW | RTLD_LOCAL);
    if (loaded->object == NULL) {
        const char *reason = dlerror();
        return tdm_fail(err, TDM_UNAVAILABLE, "plugin %s: cannot be loaded: %s", loaded->file,
                        reason != NULL ? reason : "no reason given");
    }
    tdm_plugin_entry_fn entry = entry_find(loaded->object);
    if (entry == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "plugin %s: no symbol %s: not a Tandem plugin, or built for another "
                        "version of the ABI; rebuild it against these headers",
                        loaded->file, TDM_PLUGIN_ENTRY_NAME);
    const tdm_plugin *plugin = NULL;
    tdm_status status = entry(&loaded->host, &plugin, &inner);
    if (status != TDM_OK || plugin == NULL)
        return tdm_fail(err, status != TDM_OK ? status : TDM_INTERNAL, "plugin %s: entry: %s",
                        loaded->file,
                        status != TDM_OK ? reason_of(status, &inner) : "gave no table");
    status = plugin_check(loaded, plugin, name, err);
    if (status != TDM_OK) return status;
    if (plugin->init != NULL && !loaded->rt->reads_only) {
        status = plugin->init(&loaded->host, &loaded->instance, &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "plugin %s: init: %s", loaded->file,
                            reason_of(status, &inner));
        loaded->is_started = true;
    }
    loaded->plugin = plugin;
    return TDM_OK;
}

static tdm_status file_load(tdm_runtime *rt, const char *path, const char *name, tdm_error *err) {
    if (rt->n_plugin == TDM_MAX_PLUGINS)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plugin %s: %d plugins are loaded already",
                        path, TDM_MAX_PLUGINS);
    tdm_loaded_plugin *loaded = calloc(1, sizeof *loaded);
    if (loaded == NULL || (loaded->file = strdup(path)) == NULL) {
        free(loaded);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plugin %s: out of memory", path);
    }
    loaded->rt = rt;
    tdm_host_table_fill(loaded);
    tdm_status status = plugin_start(loaded, name, err);
    if (status != TDM_OK) {
        plugin_unload(loaded);
        return status;
    }
    rt->plugins[rt->n_plugin++] = loaded;
    return TDM_OK;
}

tdm_status tdm_runtime_load_file(tdm_runtime *rt, const char *path, tdm_error *err) {
    return file_load(rt, path, NULL, err);
}

tdm_status tdm_runtime_load(tdm_runtime *rt, const char *name, tdm_error *err) {
    if (plugin_find(rt, name) != NULL) return TDM_OK;
    char *file = NULL;
    tdm_status status = tdm_plugin_path_find(&rt->path, name, &file, err);
    if (status == TDM_OK) status = file_load(rt, file, name, err);
    free(file);
    return status;
}

/* Loads FOLDER/NAME.so or, as in a build folder, FOLDER/NAME/NAME.so, whichever exists. */
static void folder_entry_load(tdm_runtime *rt, const char *folder, const char *entry) {
    char name[256], file[8192];
    size_t len = strlen(entry);
    if (entry[0] == '.' || len >= sizeof name) return;
    bool is_file = len > 3 && strcmp(entry + len - 3, ".so") == 0;
    if (is_file) len -= 3;
    memcpy(name, entry, len);
    name[len] = 0;
    int n = is_file ? snprintf(file, sizeof file, "%s/%s.so", folder, name)
                    : snprintf(file, sizeof file, "%s/%s/%s.so", folder, name, name);
    if (n < 0 || (size_t)n >= sizeof file || access(file, R_OK) != 0) return;
    tdm_error reason = {0};
    if (plugin_find(rt, name) == NULL && file_load(rt, file, name, &reason) != TDM_OK)
        tdm_runtime_log(rt, TDM_LOG_WARN, "%s", reason.message);
}

/* A folder that cannot be read is skipped: tdm_runtime_create has warned of it, or it is
 * optional. */
static void folder_load(tdm_runtime *rt, const char *folder) {
    struct dirent **entries = NULL;
    /* Sorted by name, so that lists of devices are the same on every machine. */
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        folder_entry_load(rt, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

tdm_status tdm_runtime_load_all(tdm_runtime *rt, int32_t *n_out, tdm_error *err) {
    (void)err;
    for (int32_t i = 0; i < rt->path.n_folder; i++) folder_load(rt, rt->path.folders[i]);
    if (n_out != NULL) *n_out = rt->n_plugin;
    return TDM_OK;
}

int32_t tdm_runtime_plugin_count(const tdm_runtime *rt) {
    return rt->n_plugin;
}

const tdm_plugin *tdm_runtime_plugin(const tdm_runtime *rt, int32_t i) {
    return rt->plugins[i]->plugin;
}

const char *tdm_runtime_plugin_file(const tdm_runtime *rt, int32_t i) {
    return rt->plugins[i]->file;
}

tdm_status tdm_runtime_device_count(tdm_runtime *rt, int32_t i, const tdm_device_params *params,
                                    int32_t *n_out, tdm_error *err) {
    return rt->plugins[i]->plugin->device->count(rt->plugins[i]->instance, params, n_out, err);
}

tdm_status tdm_runtime_device_describe(tdm_runtime *rt, int32_t i, int32_t index,
                                       const tdm_device_params *params, tdm_device_info *info_out,
                                       tdm_error *err) {
    memset(info_out, 0, sizeof *info_out);
    info_out->struct_size = sizeof *info_out;
    tdm_status status = rt->plugins[i]->plugin->device->describe(rt->plugins[i]->instance, index,
                                                                 params, info_out, err);
    tdm_device_info_end_texts(info_out);
    return status;
}

/* ---- Devices ---- */

void tdm_open_device_free(tdm_open_device *dev) {
    if (dev == NULL) return;
    for (int32_t i = 0; i < dev->n_option; i++) {
        free((char *)dev->options[i].key);
        free((char *)dev->options[i].value);
    }
    free(dev->options);
    free(dev->name);
    free(dev->plugin_name);
    free(dev->pci);
    free(dev->uuid);
    pthread_mutex_destroy(&dev->sync_mutex);
    free(dev);
}

tdm_open_device *tdm_runtime_find_device(const tdm_runtime *rt, const char *name) {
    for (int32_t i = 0; i < rt->n_dev; i++)
        if (strcmp(rt->devs[i]->name, name) == 0) return rt->devs[i];
    return NULL;
}

tdm_open_device *tdm_open_device_create(tdm_runtime *rt, const tdm_device_spec *spec) {
    tdm_open_device *dev = calloc(1, sizeof *dev);
    if (dev == NULL) return NULL;
    if (pthread_mutex_init(&dev->sync_mutex, NULL) != 0) {
        free(dev);
        return NULL;
    }
    dev->rt = rt;
    dev->index = spec->index;
    dev->has_index = spec->has_index;
    dev->name = strdup(spec->name);
    dev->plugin_name = strdup(spec->plugin);
    dev->options = calloc((size_t)spec->n_option + 1, sizeof *dev->options);
    if (spec->pci != NULL) dev->pci = strdup(spec->pci);
    if (spec->uuid != NULL) dev->uuid = strdup(spec->uuid);
    bool is_whole = dev->name != NULL && dev->plugin_name != NULL && dev->options != NULL &&
                    (dev->pci != NULL) == (spec->pci != NULL) &&
                    (dev->uuid != NULL) == (spec->uuid != NULL);
    for (int32_t i = 0; is_whole && i < spec->n_option; i++) {
        dev->options[i].key = strdup(spec->options[i].key);
        dev->options[i].value = strdup(spec->options[i].value);
        dev->n_option = i + 1;
        is_whole = dev->options[i].key != NULL && dev->options[i].value != NULL;
    }
    if (is_whole) return dev;
    tdm_open_device_free(dev);
    return NULL;
}

tdm_status tdm_runtime_declare(tdm_runtime *rt, const tdm_device_spec *spec, tdm_error *err) {
    if (tdm_runtime_find_device(rt, spec->name) != NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "device '%s': declared twice", spec->name);
    tdm_status status = tdm_device_spec_check(spec, err);
    if (status != TDM_OK) return status;
    tdm_open_device **grown = realloc(rt->devs, (size_t)(rt->n_dev + 1) * sizeof *grown);
    if (grown != NULL) rt->devs = grown;
    tdm_open_device *dev = grown != NULL ? tdm_open_device_create(rt, spec) : NULL;
    if (dev == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "device '%s': out of memory", spec->name);
    rt->devs[rt->n_dev++] = dev;
    return TDM_OK;
}

static tdm_status unknown_device(const tdm_runtime *rt, const char *name, tdm_error *err) {
    char known[256] = "";
    size_t used = 0;
    for (int32_t i = 0; i < rt->n_dev && used < sizeof known; i++) {
        int n = snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                         rt->devs[i]->name);
        used += n > 0 ? (size_t)n : 0;
    }
    return tdm_fail(err, TDM_NOT_FOUND, "device '%s': not declared; known: %s", name,
                    rt->n_dev > 0 ? known : "none");
}

tdm_status tdm_open_device_open(tdm_open_device *dev, tdm_error *err) {
    tdm_loaded_plugin *from = plugin_find(dev->rt, dev->plugin_name);
    tdm_error inner = {0};
    tdm_status status = tdm_open_device_find(dev, from, err);
    if (status != TDM_OK) return status;
    tdm_device_params params = {sizeof params, dev->index, dev->n_option, dev->options};
    dev->is_opening = true;
    status = from->plugin->device->open(from->instance, &params, &dev->device, &inner);
    dev->is_opening = false;
    if (status != TDM_OK || dev->device == NULL) {
        dev->device = NULL;
        if (status == TDM_OK)
            return tdm_fail(err, TDM_INTERNAL, "device '%s': plugin %s opened nothing", dev->name,
                            dev->plugin_name);
        return tdm_fail(err, status, "device '%s': %s", dev->name, reason_of(status, &inner));
    }
    dev->from = from;
    tdm_device_info info;
    const uint32_t host = TDM_DEVICE_IS_HOST | TDM_DEVICE_IS_INTEGRATED | TDM_DEVICE_HAS_HOST_KV;
    dev->has_host_kv =
        tdm_open_device_is_group(dev) ||
        (tdm_open_device_get_info(dev, &info, NULL) == TDM_OK && (info.flags & host) != 0);
    return TDM_OK;
}

tdm_status tdm_runtime_open(tdm_runtime *rt, const char *name, tdm_open_device **dev_out,
                            tdm_error *err) {
    tdm_open_device *dev = tdm_runtime_find_device(rt, name);
    if (dev == NULL) return unknown_device(rt, name, err);
    if (dev->is_opening)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "device '%s': is a member of itself, through its members", name);
    if (dev->device == NULL) {
        tdm_status status = tdm_runtime_load(rt, dev->plugin_name, err);
        if (status == TDM_OK) status = tdm_open_device_open(dev, err);
        if (status != TDM_OK) return status;
        dev->open_rank = rt->n_opened++;
    }
    *dev_out = dev;
    return TDM_OK;
}

tdm_status tdm_runtime_describe(tdm_runtime *rt, const char *name, int32_t *index_out,
                                tdm_device_info *info_out, tdm_error *err) {
    tdm_open_device *dev = tdm_runtime_find_device(rt, name);
    if (dev == NULL) return unknown_device(rt, name, err);
    tdm_status status = tdm_runtime_load(rt, dev->plugin_name, err);
    if (status != TDM_OK) return status;
    tdm_loaded_plugin *from = plugin_find(rt, dev->plugin_name);
    status = tdm_open_device_find(dev, from, err);
    if (status != TDM_OK) return status;
    const tdm_device_params params = {sizeof params, dev->index, dev->n_option, dev->options};
    tdm_error why = {0};
    int32_t n = 0;
    status = from->plugin->device->count(from->instance, &params, &n, &why);
    if (status != TDM_OK || dev->index >= n)
        return tdm_fail(err, status != TDM_OK ? status : TDM_NOT_FOUND,
                        "device '%s': plugin %s has no device %d%s%.400s", name, dev->plugin_name,
                        (int)dev->index, why.message[0] != '\0' ? ": " : "", why.message);
    memset(info_out, 0, sizeof *info_out);
    info_out->struct_size = sizeof *info_out;
    status = from->plugin->device->describe(from->instance, dev->index, &params, info_out, &why);
    tdm_device_info_end_texts(info_out);
    *index_out = dev->index;
    return status == TDM_OK
               ? TDM_OK
               : tdm_fail(err, status, "device '%s': %s", name, reason_of(status, &why));
}

/* Closes the devices, but those that a closed group has not released. A group finishes opening
 * after its members, so closing in reverse order closes it first. Returns one that stays open;
 * NULL = none. */
static const tdm_open_device *devices_close(tdm_runtime *rt) {
    const tdm_open_device *held = NULL;
    for (int32_t rank = rt->n_opened - 1; rank >= 0; rank--)
        for (int32_t i = 0; i < rt->n_dev; i++) {
            tdm_open_device *dev = rt->devs[i];
            if (dev->device == NULL || dev->open_rank != rank) continue;
            if (dev->n_holder > 0)
                held = dev;
            else
                dev->from->plugin->device->close(dev->device);
        }
    return held;
}

static void devices_free(tdm_runtime *rt) {
    for (int32_t i = 0; i < rt->n_dev; i++) tdm_open_device_free(rt->devs[i]);
    free(rt->devs);
    rt->adapter_ops->end(rt);
    if (rt->fallback != NULL && rt->fallback->device != NULL)
        rt->fallback->from->plugin->device->close(rt->fallback->device);
    tdm_open_device_free(rt->fallback);
    tdm_open_device_free(rt->pending_fallback);
}

/* A device that was given up, the fallback included; NULL = none. */
static const tdm_open_device *stuck_find(const tdm_runtime *rt) {
    for (int32_t i = 0; i < rt->n_dev; i++)
        if (tdm_open_device_is_stuck(rt->devs[i])) return rt->devs[i];
    return rt->fallback != NULL && tdm_open_device_is_stuck(rt->fallback) ? rt->fallback : NULL;
}

void tdm_runtime_destroy(tdm_runtime *rt) {
    if (rt == NULL) return;
    const tdm_open_device *stuck = stuck_find(rt);
    if (stuck != NULL) {
        /* Its work may use any device, and threads of its plugin run in the shared object. */
        tdm_runtime_log(rt, TDM_LOG_WARN,
                        "device '%s' does not answer: devices and plugins are not closed",
                        stuck->name);
        return;
    }
    const tdm_open_device *held = devices_close(rt);
    if (held != NULL) {
        /* The same for the work of a member that a group has abandoned. */
        tdm_runtime_log(
            rt, TDM_LOG_WARN,
            "device '%s' still computes for its group: it and the plugins are not closed",
            held->name);
        return;
    }
    devices_free(rt);
    for (int32_t i = rt->n_plugin - 1; i >= 0; i--) plugin_unload(rt->plugins[i]);
    tdm_plugin_path_free(&rt->path);
    pthread_mutex_destroy(&rt->adapter_mutex);
    free(rt);
}
