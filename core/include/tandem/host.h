/* SPDX-License-Identifier: MIT
 *
 * host.h: the functions of the program that loaded a plugin, for the plugin.
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

/* A device of another plugin, under the name that it has in the configuration. The core supplies
 * slots that the plugin lacks (an adapter):
 *   device  get_info, supports_op and graph_supports are present, measure_limits may be NULL; the
 *           core opens and closes the device
 *   buffer  every slot is present, except that import_host, import_peer, host_alloc, host_free and
 *           upload_finish may be NULL; host_pointer may return NULL
 *   queue   every slot is present, except that progress may be NULL
 *   split   split_unit is present; split_report, where present, returns TDM_UNSUPPORTED unless the
 *           device is a group
 * A buffer is passed to import_peer of another device only where both have the same table of
 * buffers.
 *
 * Where the device refuses a node, the CPU (the fallback) runs it inside the same plan, and the
 * core logs one line for each op. supports_op refuses only what neither of them runs. Buffers of
 * weights and caches are allocated with items (buffer.h): by these the core places on the CPU what
 * only refused nodes read; a buffer without items lies on the device. An EXCHANGE runs on the
 * device itself or not at all: the fallback never takes part instead of a member. */
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
     * that lead to it. Views that no other node of the new graph reads are left out, and so are
     * weights and states that none reads. Released with graph_free. [any-thread] */
    tdm_status (*extract)(const tdm_graph *graph, int32_t first, int32_t count,
                          tdm_graph **graph_out, int32_t *slot_map_out, tdm_error *err);

    /* NULL is a no-op. [any-thread] */
    void (*graph_free)(tdm_graph *graph);

    /* Where the values of a verified graph lie: places_out[n_value]. A value that is no view is its
     * own base, at offset 0 and contiguous. [any-thread] */
    void (*view_places)(const tdm_graph *graph, tdm_view_place *places_out);

    /* The nodes around each value of a verified graph, whose view_places are `places`.
     * writer_out[n_value]: the node that has the value as a destination; -1 for views and where no
     * node writes it. n_read_out[n_value]: how many sources of nodes, view nodes not counted, lie
     * in the value's memory: the value and its views; 0 for a view itself. A TEMP value with one
     * reader need not exist where that reader is fused with its writer. [any-thread] */
    void (*uses)(const tdm_graph *graph, const tdm_view_place *places, int32_t *writer_out,
                 int32_t *n_read_out);
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

    /* Gives the device that the configuration calls `name`. The core keeps it open at least until
     * release, and closes a device before those that it acquired. A cycle is
     * TDM_FAILED_PRECONDITION. During open only. [setup] */
    tdm_status (*device_acquire)(void *context, const char *name, tdm_acquired_device *device_out,
                                 tdm_error *err);
    void (*device_release)(void *context, tdm_acquired_device *device);
};

#ifdef __cplusplus
}
#endif

#endif
