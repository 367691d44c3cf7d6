/* SPDX-License-Identifier: MIT
 *
 * runtime_internal.h: what runtime.c, device.c and host_table.c share of a runtime, and core/stages
 * uses of it. Not for others.
 */
#ifndef TANDEM_CORE_RUNTIME_INTERNAL_H
#define TANDEM_CORE_RUNTIME_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/device/plugin_path.h"
#include "core/device/runtime.h"

#define TDM_MAX_PLUGINS 32

/* How plugins acquire devices. core/stages/adapter.h has the functions and their contract; a
 * runtime receives them at creation, since core/device does not include core/stages. */
typedef struct tdm_adapter_ops {
    tdm_status (*acquire)(tdm_runtime *rt, const char *name, tdm_acquired_device *device_out,
                          tdm_error *err);
    /* Returns the device that it was; NULL for a cleared one. */
    tdm_open_device *(*release)(tdm_runtime *rt, tdm_acquired_device *device);
    /* Frees the adapters that were not released. The plugins that acquired them have closed. */
    void (*end)(tdm_runtime *rt);
} tdm_adapter_ops;

typedef struct tdm_loaded_plugin {
    tdm_runtime *rt;
    void *object; /* of dlopen */
    char *file;
    const tdm_plugin *plugin;
    tdm_instance *instance;
    bool is_started; /* init has succeeded: deinit is due */
    tdm_host host;   /* the table this plugin was given; host.context is this struct */
} tdm_loaded_plugin;

struct tdm_open_device {
    tdm_runtime *rt;
    char *name;
    char *plugin_name;
    int32_t index;
    bool has_index;      /* the index was given: an address must agree with it */
    char *pci, *uuid;    /* what names the device instead; NULL = index does */
    tdm_option *options; /* strings owned */
    int32_t n_option;
    tdm_loaded_plugin *from;     /* NULL until open */
    tdm_device *device;          /* NULL until open */
    int32_t n_holder;            /* acquisitions by plugins that were not released */
    bool is_opening;             /* between the call of open and its return: finds cycles */
    int32_t open_rank;           /* order in which opens finished; closing runs backwards */
    pthread_mutex_t sync_mutex;  /* held during graph_compute_sync, which takes one call at a time
                                   for a device, however many queues it has */
    bool refused[TDM_OP_COUNT_]; /* a refusal of this op has been logged */
    bool has_host_kv;            /* see tdm_open_device_has_host_kv; valid once open */
    atomic_bool is_stuck;        /* see tdm_open_device_is_stuck */
};

struct tdm_runtime {
    tdm_plugin_path path;
    tdm_log_fn log;
    void *log_context;
    int32_t log_level;
    uint64_t wait_limit_ns; /* see tdm_runtime_params; not 0 */
    bool reads_only;        /* likewise */
    tdm_loaded_plugin *plugins[TDM_MAX_PLUGINS];
    int32_t n_plugin;
    tdm_open_device **devs;
    int32_t n_dev;
    int32_t n_opened; /* ever: the next open_rank */
    const tdm_adapter_ops *adapter_ops;
    tdm_device *adapters; /* of acquired devices, a list that adapter_ops keeps */
    /* The CPU that runs what acquired devices refuse; no section can have its name. NULL = there is
     * none, or no device was acquired yet. Closed last. */
    tdm_open_device *fallback;
    /* set by tdm_runtime_set_fallback, becomes `fallback` with the first acquired device; NULL =
     * no options were set */
    tdm_open_device *pending_fallback;
    pthread_mutex_t adapter_mutex; /* guards opening the fallback, and `refused` of devices */
};

/* tdm_runtime_create with the functions that give adapters to acquired devices. [setup] */
tdm_status tdm_runtime_create_with(const tdm_runtime_params *params,
                                   const tdm_adapter_ops *adapters, tdm_runtime **runtime_out,
                                   tdm_error *err);
/* A device of the runtime, not open. NULL when out of memory. Freed with tdm_open_device_free, once
 * closed. */
tdm_open_device *tdm_open_device_create(tdm_runtime *rt, const tdm_device_spec *spec);
void tdm_open_device_free(tdm_open_device *dev);
/* Whether the addresses of a specification are well-formed. */
tdm_status tdm_device_spec_check(const tdm_device_spec *spec, tdm_error *err);
/* Sets dev->index where an address names the device of plugin `from`. */
tdm_status tdm_open_device_find(tdm_open_device *dev, const tdm_loaded_plugin *from,
                                tdm_error *err);
/* The device of that name; NULL where none is declared. */
tdm_open_device *tdm_runtime_find_device(const tdm_runtime *rt, const char *name);
/* Opens a device whose plugin is loaded. */
tdm_status tdm_open_device_open(tdm_open_device *dev, tdm_error *err);
/* TDM_OK, or TDM_UNAVAILABLE with the device's name where it is stuck. [any-thread] */
tdm_status tdm_open_device_check(const tdm_open_device *dev, tdm_error *err);
/* Gives the device up. [any-thread] */
void tdm_open_device_set_stuck(tdm_open_device *dev);
/* Ends every text of *info with a NUL, in case the plugin did not. */
void tdm_device_info_end_texts(tdm_device_info *info);
/* Fills the table through which `loaded` reaches the host. */
void tdm_host_table_fill(tdm_loaded_plugin *loaded);
/* tdm_mem_copy with staging memory of the caller, so that it allocates nothing; staging_size >
 * 0. */
tdm_status tdm_mem_copy_staged(const tdm_mem *dst, uint64_t dst_off, const tdm_mem *src,
                               uint64_t src_off, uint64_t size, void *staging,
                               uint64_t staging_size, tdm_error *err);
/* Bytes that a copy or fill through the host moves at a time. */
#define TDM_STAGING_SIZE ((uint64_t)1 << 20)
/* Logs one line through the runtime's own log. [any-thread] */
TDM_PRINTF(3, 4)
void tdm_runtime_log(const tdm_runtime *rt, int32_t level, const char *format, ...);

#endif
