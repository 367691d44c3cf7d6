/* SPDX-License-Identifier: MIT
 *
 * host.h: everything that a plugin may ask of the program that loaded it.
 *
 * A plugin links against no library of Tandem's and needs no symbol from the host: it gets this
 * table at entry. The table lives until after deinit. All functions may be called between init and
 * deinit only (entry is pure), from any thread.
 */
#ifndef TANDEM_HOST_H
#define TANDEM_HOST_H

#include "tandem/device.h"
#include "tandem/semaphore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tdm_plugin tdm_plugin;
typedef struct tdm_host tdm_host;

typedef enum tdm_log_level {
    TDM_LOG_ERROR = 0,
    TDM_LOG_WARN,
    TDM_LOG_INFO,
    TDM_LOG_DEBUG
} tdm_log_level;

/* A device of another plugin, lent by the core under the name it has in the configuration. The
 * tables are those of a device without gaps, whatever its plugin offers: buffer, queue and
 * split.split_unit have every slot but host_pointer's answer and import_host, which may be NULL or
 * refuse; where a node is refused by the device itself, the CPU runs it, inside the same plan, and
 * the log says so once. supports_op says no where neither does. Of the device table get_info,
 * supports_op and graph_supports are there, and measure_limits where the plugin or the core has it:
 * opening and closing are the core's. split_report is TDM_UNSUPPORTED of what is no group.
 *
 * Buffers of weights and caches are allocated with items (buffer.h): what only refused nodes read
 * lives with the CPU, which the core cannot know of bytes. An EXCHANGE is always the device's own:
 * nobody stands in for a member among the others. */
typedef struct tdm_acquired_device {
    size_t struct_size;
    const tdm_plugin *plugin; /* its tables; valid until release */
    tdm_device *device;
} tdm_acquired_device;

/* Graph services, for plugins that make or cut graphs (a group). */
typedef struct tdm_host_graph_ops {
    size_t struct_size;

    /* Checks every index, shape, type and order against the ops' rules. The message names the node
     * and value. [any-thread] */
    tdm_status (*verify)(const tdm_graph *graph, tdm_error *err);

    /* Hash of structure and shapes; equal graphs have equal hashes. [any-thread] */
    uint64_t (*hash)(const tdm_graph *graph);

    /* Places the TEMP values by lifetime in one range of memory: offsets_out[n_slot] gets a byte
     * offset for each temporary's slot (UINT64_MAX for other slots), *size_out the range's
     * size. [any-thread] */
    tdm_status (*plan_memory)(const tdm_graph *graph, uint64_t align, uint64_t *offsets_out,
                              uint64_t *size_out, tdm_error *err);

    /* A new graph of nodes first .. first+count-1. Values that cross the boundary become INPUT
     * (read from outside) or OUTPUT (read later); slot_map_out[new slot] = slot in `graph`, with
     * room for graph->n_slot. The base of a view that crosses in comes along, with the view nodes
     * that lead to it. Released with graph_free. [any-thread] */
    tdm_status (*extract)(const tdm_graph *graph, int32_t first, int32_t count,
                          tdm_graph **graph_out, int32_t *slot_map_out, tdm_error *err);

    /* NULL is a no-op. [any-thread] */
    void (*graph_free)(tdm_graph *graph);
} tdm_host_graph_ops;

struct tdm_host {
    size_t struct_size;
    void *context; /* passed back as first argument */

    /* Logs one line, without newline. */
    TDM_PRINTF(3, 4)
    void (*log)(void *context, int32_t level, const char *format, ...);

    /* Memory that the core counts. `align` is a power of two, 0 = 64. NULL when there is none.
     * Freed with `free` and the same size. */
    void *(*alloc)(void *context, size_t size, size_t align);
    void (*free)(void *context, void *ptr, size_t size);

    const tdm_host_semaphore_ops *semaphore;
    const tdm_host_graph_ops *graph;

    /* Lends the device that the configuration calls `name`; the core keeps it open at least until
     * release, and closes borrowers before lenders. A cycle is TDM_FAILED_PRECONDITION. During
     * open only. [setup] */
    tdm_status (*device_acquire)(void *context, const char *name, tdm_acquired_device *device_out,
                                 tdm_error *err);
    void (*device_release)(void *context, tdm_acquired_device *device);
};

#ifdef __cplusplus
}
#endif

#endif
