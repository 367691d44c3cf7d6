/* SPDX-License-Identifier: MIT
 *
 * host_table.c: the functions that plugins reach through tdm_host. Each plugin has a table of its
 * own, so that the host can tell which plugin logs a line or acquires a device.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/view.h"
#include "core/graph/builder.h"
#include "core/counters.h"
#include "core/device/runtime_internal.h"

TDM_PRINTF(3, 4)
static void host_log(void *context, int32_t level, const char *format, ...) {
    const tdm_loaded_plugin *loaded = context;
    const tdm_runtime *rt = loaded->rt;
    if (rt->log == NULL || level > rt->log_level) return;
    char line[1024];
    int n = snprintf(line, sizeof line,
                     "%s: ", loaded->plugin != NULL ? loaded->plugin->name : loaded->file);
    va_list args;
    va_start(args, format);
    if (n >= 0 && (size_t)n < sizeof line)
        vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    rt->log(rt->log_context, level, line);
}

static void *host_alloc(void *context, size_t size, size_t align) {
    (void)context;
    if (align == 0) align = 64;
    if (size > SIZE_MAX - align) return NULL;
    size_t rounded = (size + align - 1) / align * align;
    void *ptr = aligned_alloc(align, rounded > 0 ? rounded : align);
    if (ptr != NULL) {
        tdm_counter_add(TDM_COUNTER_ALLOCATIONS, 1);
        tdm_counter_add(TDM_COUNTER_BYTES_ALLOCATED, size);
    }
    return ptr;
}

static void host_free(void *context, void *ptr, size_t size) {
    (void)context;
    (void)size;
    free(ptr);
}

static tdm_status host_device_acquire(void *context, const char *name,
                                      tdm_acquired_device *device_out, tdm_error *err) {
    tdm_loaded_plugin *loaded = context;
    tdm_status status = loaded->rt->adapter_ops->acquire(loaded->rt, name, device_out, err);
    if (status == TDM_OK) tdm_runtime_find_device(loaded->rt, name)->n_holder++;
    return status;
}

static void host_device_release(void *context, tdm_acquired_device *device) {
    tdm_loaded_plugin *loaded = context;
    tdm_open_device *dev = loaded->rt->adapter_ops->release(loaded->rt, device);
    if (dev != NULL) dev->n_holder--;
}

static const tdm_host_graph_ops graph_ops = {
    .struct_size = sizeof(tdm_host_graph_ops),
    .verify = tdm_graph_verify,
    .hash = tdm_graph_hash,
    .plan_memory = tdm_graph_plan_memory,
    .extract = tdm_graph_extract,
    .graph_free = tdm_graph_free,
    .view_places = tdm_view_resolve_all,
    .uses = tdm_view_uses,
};

void tdm_host_table_fill(tdm_loaded_plugin *loaded) {
    loaded->host = (tdm_host){
        .struct_size = sizeof(tdm_host),
        .context = loaded,
        .log = host_log,
        .alloc = host_alloc,
        .free = host_free,
        .semaphore = &tdm_semaphore_ops,
        .graph = &graph_ops,
        .device_acquire = host_device_acquire,
        .device_release = host_device_release,
    };
}
