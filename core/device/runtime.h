/* SPDX-License-Identifier: MIT
 *
 * runtime.h: the plugins that are loaded and the devices that are open.
 *
 * A runtime loads plugins from its folders, lists their devices, and opens devices under the names
 * that the configuration gives them. It closes groups before their members and unloads plugins
 * last. Several runtimes may live in one process. Models are in llm/.
 *
 * core/stages is built on this folder. core/runtime.c creates a runtime and gives it what
 * core/stages adds to devices.
 */
#ifndef TANDEM_CORE_RUNTIME_H
#define TANDEM_CORE_RUNTIME_H

#include <stdbool.h>

#include "tandem/plugin.h"

typedef struct tdm_runtime tdm_runtime;

typedef void (*tdm_log_fn)(void *context, int32_t level, const char *line);

#define TDM_WAIT_LIMIT_DEFAULT_NS UINT64_C(3600000000000) /* an hour */

typedef struct tdm_runtime_params {
    size_t struct_size;
    /* Folders, separated by ':', that are searched first; NULL = none. Then those of the
     * environment variable TANDEM_PLUGIN_PATH, then the installed folder. The current directory is
     * never searched: relative and empty entries are refused. So is a folder that cannot be read;
     * for one of TANDEM_PLUGIN_PATH that is a warning. */
    const char *plugin_path;
    tdm_log_fn log; /* NULL: nothing is logged. Called from any thread */
    void *log_context;
    int32_t log_level; /* the highest tdm_log_level passed on */
    /* How long the host waits for one computation of a device before it gives the device up, in
     * nanoseconds; 0 = TDM_WAIT_LIMIT_DEFAULT_NS, TDM_WAIT_FOREVER = no limit. Time during which
     * the process was stopped does not count. */
    uint64_t wait_limit_ns;
    bool reads_only; /* plugins are loaded for their tables alone: entry is called, init is not; the
                        caller must not count, describe or open devices */
} tdm_runtime_params;

/* A runtime is created with tdm_runtime_create (core/runtime.h).
 *
 * Closes every device, groups before their members, then deinits and unloads every plugin. Where a
 * device is stuck or still computes for a group that has closed, a line of the log says so: what it
 * may use stays open and loaded. NULL is a no-op. [setup] */
void tdm_runtime_destroy(tdm_runtime *rt);

/* Loads NAME.so from the first folder that has it. A plugin that is loaded is not loaded again. The
 * error lists the folders that were searched, or says why dlopen, the symbol, the entry or init
 * failed. [setup] */
tdm_status tdm_runtime_load(tdm_runtime *rt, const char *name, tdm_error *err);
/* Loads one file by path (for certify); the plugin may have any name that no loaded plugin has.
 * [setup] */
tdm_status tdm_runtime_load_file(tdm_runtime *rt, const char *path, tdm_error *err);
/* Loads every plugin in every folder, in order of name; of two with the same name the first is
 * loaded. A plugin that fails is logged as a warning, and loading continues. *n_out (nullable) =
 * number of loaded plugins. [setup] */
tdm_status tdm_runtime_load_all(tdm_runtime *rt, int32_t *n_out, tdm_error *err);

/* Plugins and devices, for listing. Pointers live as long as the runtime. */
int32_t tdm_runtime_plugin_count(const tdm_runtime *rt);
const tdm_plugin *tdm_runtime_plugin(const tdm_runtime *rt, int32_t i);
/* Path of its shared object. */
const char *tdm_runtime_plugin_file(const tdm_runtime *rt, int32_t i);
/* Number of devices of plugin i with these options (nullable: none). Where it is 0, err (nullable)
 * receives the reason. */
tdm_status tdm_runtime_device_count(tdm_runtime *rt, int32_t i, const tdm_device_params *params,
                                    int32_t *n_out, tdm_error *err);
tdm_status tdm_runtime_device_describe(tdm_runtime *rt, int32_t i, int32_t index,
                                       const tdm_device_params *params, tdm_device_info *info_out,
                                       tdm_error *err);

/* An open device as the host uses it. Every function below works for a level 0 plugin too, so
 * callers need not test TDM_HAS. */
typedef struct tdm_open_device tdm_open_device;

/* A device of the configuration, which tdm_runtime_open can open. */
typedef struct tdm_device_spec {
    const char *name;   /* in the configuration; unique */
    const char *plugin; /* "cpu" */
    int32_t index;      /* which of the plugin's devices */
    const tdm_option *options;
    int32_t n_option;
    /* A device may be named by its PCI address ("0000:01:00.0", the domain may be left out), its
     * UUID (32 hexadecimal digits, with dashes or without; "GPU-" in front is ignored), or both.
     * Opening finds it among the plugin's devices; `index` then counts only where has_index says
     * that it was given, and must agree. NULL = by index. */
    const char *pci, *uuid;
    bool has_index;
} tdm_device_spec;

/* Declares a device; copies all strings. A second device of the same name is an error, and so is an
 * address that is none. [setup] */
tdm_status tdm_runtime_declare(tdm_runtime *rt, const tdm_device_spec *spec, tdm_error *err);
/* Describes a declared device without opening it; loads its plugin where necessary. *index_out is
 * its place among the plugin's devices. Fails as tdm_runtime_open does. [setup] */
tdm_status tdm_runtime_describe(tdm_runtime *rt, const char *name, int32_t *index_out,
                                tdm_device_info *info_out, tdm_error *err);
/* A UUID as text: 8-4-4-4-12 hexadecimal digits. [any-thread] */
#define TDM_UUID_TEXT_SIZE 37
void tdm_uuid_format(const uint8_t uuid[16], char text[TDM_UUID_TEXT_SIZE]);
/* Sets the options of the fallback, the CPU that runs what an acquired device refuses
 * (tandem/host.h, device_acquire). Without this call it has the plugin's defaults. Copies all
 * strings. A second call replaces the options of the first. TDM_FAILED_PRECONDITION once a device
 * has been acquired. [setup] */
tdm_status tdm_runtime_set_fallback(tdm_runtime *rt, const tdm_option *options, int32_t n_option,
                                    tdm_error *err);
/* Opens a declared device, or returns it where it is open; loads its plugin where necessary. The
 * runtime owns the device. For an unknown name the error lists the known ones; for an address that
 * no device has, the plugin's devices with theirs. [setup] */
tdm_status tdm_runtime_open(tdm_runtime *rt, const char *name, tdm_open_device **dev_out,
                            tdm_error *err);

/* ---- Using an open device ---- */

const char *tdm_open_device_name(const tdm_open_device *dev);
const tdm_plugin *tdm_open_device_plugin(const tdm_open_device *dev);
tdm_device *tdm_open_device_handle(const tdm_open_device *dev);
tdm_status tdm_open_device_get_info(tdm_open_device *dev, tdm_device_info *info_out,
                                    tdm_error *err);
/* As tdm_device_ops.measure_limits; all limits are unknown for a device without it. [setup] */
tdm_status tdm_open_device_measure_limits(tdm_open_device *dev, tdm_device_limits *limits_out,
                                          tdm_error *err);
/* As tdm_device_ops.supports_op. Refuses an op on a cache in host memory (TDM_KV_IN_HOST) where
 * tdm_open_device_has_host_kv is false; tdm_open_device_kv_page_size does the same. [any-thread] */
tdm_status tdm_open_device_supports_op(tdm_open_device *dev, const tdm_graph *graph, int32_t node,
                                       tdm_error *err);
/* Whether the device was given up (is stuck): a computation did not end within wait_limit_ns. From
 * then on allocations, transfers, plans and computations for it return TDM_UNAVAILABLE. What it may
 * still use is neither freed nor closed: the plugin may be inside a driver that never returns.
 * [any-thread] */
bool tdm_open_device_is_stuck(const tdm_open_device *dev);
/* Whether the device works on caches with TDM_KV_IN_HOST: its memory is the host's, it has
 * TDM_DEVICE_HAS_HOST_KV, or it is a group, whose members decide. [any-thread] */
bool tdm_open_device_has_host_kv(const tdm_open_device *dev);

/* A buffer together with its device. Counted in TDM_COUNTER_ALLOCATIONS. */
typedef struct tdm_mem {
    tdm_open_device *dev; /* NULL: nothing is held */
    tdm_buffer *buffer;
    uint64_t size; /* bytes */
} tdm_mem;

/* Where a value lies inside such a buffer. */
typedef struct tdm_slot_mem {
    tdm_mem mem;   /* mem.dev NULL: not placed */
    uint64_t off;  /* bytes */
    uint64_t size; /* bytes */
} tdm_slot_mem;

/* The functions of tdm_mem and those on tensors and pages behind them have the contracts and thread
 * rules of the slots of tdm_buffer_ops that they are named after; what the plugin lacks is done
 * here. mem->dev is not NULL, but for tdm_mem_free. */
tdm_status tdm_mem_alloc(tdm_open_device *dev, uint64_t size, tdm_buffer_purpose purpose,
                         tdm_mem *mem_out, tdm_error *err);
/* The same with items: params->items says what will lie in the buffer. */
tdm_status tdm_mem_alloc_items(tdm_open_device *dev, const tdm_buffer_params *params,
                               tdm_mem *mem_out, tdm_error *err);
/* Frees and clears *mem; cleared or NULL is a no-op. */
void tdm_mem_free(tdm_mem *mem);
tdm_status tdm_mem_upload(const tdm_mem *mem, uint64_t off, const void *src, uint64_t size,
                          tdm_error *err);
tdm_status tdm_mem_download(const tdm_mem *mem, uint64_t off, void *dst, uint64_t size,
                            tdm_error *err);
tdm_status tdm_mem_fill(const tdm_mem *mem, uint64_t off, uint64_t size, uint8_t byte,
                        tdm_error *err);
/* Between any two devices; through the host where they differ. */
tdm_status tdm_mem_copy(const tdm_mem *dst, uint64_t dst_off, const tdm_mem *src, uint64_t src_off,
                        uint64_t size, tdm_error *err);
/* Host address for this access (TDM_ACCESS_*), or NULL (tdm_buffer_ops.host_pointer). */
void *tdm_mem_host_pointer(const tdm_mem *mem, uint32_t access);
tdm_status tdm_open_device_tensor_size(tdm_open_device *dev, const tdm_tensor_desc *desc,
                                       uint64_t *size_out, tdm_error *err);
tdm_status tdm_mem_tensor_upload(const tdm_mem *mem, uint64_t off, const tdm_tensor_desc *desc,
                                 const void *src, uint64_t row_pitch, int64_t row_first,
                                 int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err);
tdm_status tdm_mem_tensor_download(const tdm_mem *mem, uint64_t off, const tdm_tensor_desc *desc,
                                   void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                   int64_t col_first, int64_t n_col, tdm_error *err);
tdm_status tdm_open_device_kv_page_size(tdm_open_device *dev, const tdm_kv_desc *desc,
                                        uint64_t *size_out, tdm_error *err);

/* As tdm_split_ops.split_unit, with its default for devices without one. [any-thread] */
tdm_status tdm_open_device_split_unit(tdm_open_device *dev, const tdm_graph *graph, int32_t value,
                                      int32_t axis, int64_t *unit_out, tdm_error *err);
/* Whether the device is a group: it divides weights and caches among members. [any-thread] */
bool tdm_open_device_is_group(const tdm_open_device *dev);
/* As tdm_split_ops.split_prepare; a no-op where the device is not a group. [setup] */
tdm_status tdm_open_device_split_prepare(tdm_open_device *dev, const tdm_graph *graph,
                                         tdm_error *err);
/* As tdm_split_ops.split_report. TDM_UNSUPPORTED for a group without it, and for a device that is
 * not a group. [setup] */
tdm_status tdm_open_device_split_report(tdm_open_device *dev, const tdm_graph *graph,
                                        tdm_split_report *report, tdm_error *err);

/* ---- Semaphores (semaphore.h), for callers inside the host ---- */
extern const tdm_host_semaphore_ops tdm_semaphore_ops;

#endif
