/* SPDX-License-Identifier: MIT
 *
 * plugin.h: the one symbol of a plugin, and the table behind it. Start reading here.
 *
 * A plugin is a shared object that exports exactly one symbol, tdm_plugin_entry_v0. The core
 * loads it, calls the entry, then init; it lists devices (device.h), opens some, gives them
 * memory (buffer.h) and graphs to run (graph.h, op.h, queue.h), closes them, and calls deinit
 * before unloading.
 *
 * A small backend is a whole backend. Ten slots make one: the entry; init (with deinit);
 * count and describe; open (with close); alloc (with free); upload; download; supports_op;
 * graph_compute_sync. All else is optional: callers test with TDM_HAS, or a flag. The example
 * in docs/writing-a-backend.md is complete.
 *
 * Rules for both sides:
 *   - Every table and parameter struct begins with struct_size, filled by whoever owns the storage;
 *     fields are only appended; a reader uses no field beyond it. 0 always means the default.
 *   - A function that fails returns a status and fills *err; nothing aborts, exits or prints.
 *   - Create and destroy come in pairs; destroying NULL does nothing; outputs are set on TDM_OK
 *     only; neither side frees the other's memory.
 *   - Thread tags: [any-thread] at any time, from any thread, also at once; [setup] from one
 *     thread at a time, while no work is under way on the objects concerned; [queue-serial] from
 *     one thread at a time for the same queue (or, for graph_compute_sync, the same device).
 */
#ifndef TANDEM_PLUGIN_H
#define TANDEM_PLUGIN_H

#include "tandem/collective.h"
#include "tandem/device.h"
#include "tandem/host.h"
#include "tandem/option.h"
#include "tandem/queue.h"
#include "tandem/split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A draft: tandem/draft/collective.h. */
typedef struct tdm_collective_ops tdm_collective_ops;

struct tdm_plugin {
    size_t struct_size;
    const char *name;    /* the word for `plugin =` in a configuration: "cpu" */
    const char *version; /* the plugin's own */
    const char *licence; /* SPDX expression */

    /* Makes an instance for this host; several may exist at once. Paired with deinit. No driver
     * is not a failure: the instance then has no devices. NULL: the plugin has no state and
     * `instance` is NULL everywhere. [setup] */
    tdm_status (*init)(const tdm_host *host, tdm_instance **instance_out, tdm_error *err);

    /* Its devices have been closed. Frees everything, joins every thread. [setup] */
    void (*deinit)(tdm_instance *instance);

    const tdm_device_ops *device;
    const tdm_buffer_ops *buffer;
    const tdm_queue_ops *queue;           /* NULL: device->graph_compute_sync is used */
    const tdm_split_ops *split;           /* NULL: defaults */
    const tdm_collective_ops *collective; /* a draft; NULL: none */

    /* The options that its devices take (option.h); NULL: none. Constant for as long as the plugin
     * is loaded, and readable right after entry, without init. [any-thread] */
    const tdm_option_table *options;
};

/* Stores the plugin's table, which lives as long as the shared object is loaded. Pure: no driver
 * call, no thread, no allocation; may be called any number of times. `host` outlives the instance.
 * [setup] */
typedef tdm_status (*tdm_plugin_entry_fn)(const tdm_host *host, const tdm_plugin **plugin_out,
                                          tdm_error *err);

#define TDM_PLUGIN_ENTRY_NAME "tdm_plugin_entry_v0"

#if defined(__GNUC__)
#define TDM_EXPORT __attribute__((visibility("default")))
#else
#define TDM_EXPORT
#endif

/* What every plugin defines; the host finds it with dlsym. */
TDM_EXPORT tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                                          tdm_error *err);

#ifdef __cplusplus
}
#endif

#endif
