/* SPDX-License-Identifier: MIT
 *
 * rt.h: what the files of the runtime of CUDA and HIP share: the instance, the device, their parts.
 *
 * Mental model. The planner (plugins/gpu/plan) turns a graph into steps. plan.c finds a function
 * for each, and when a plan is bound to memory captures the launches as a graph of the driver,
 * which each computation launches. A stream runs its commands in order, so that barriers
 * between steps need no command.
 *
 * What lies where:
 *   driver.c    the driver's functions, by a table for CUDA and HIP
 *   device.c    enumeration, opening, closing
 *   options.c   options
 *   memory.c    device memory and page-locked memory; copies
 *   upload.c    copies of weights that go on after the call
 *   buffer.c    buffers as the ABI has them, and weights and pages in the layouts of plugins/gpu/layout
 *   peer.c      memory of one device that others reach
 *   measure.c   bandwidth of a device's memory
 *   module.c    images of kernels; functions by name
 *   shared.c    bytes of shared memory that a step's kernel takes
 *   plan.c      plans: captured launches
 *   early.c     kernels that start before the one before has ended
 *   queue.c     streams behind plugins/gpu/queue
 *   watch.c     waits for events with a timeout
 *   wait.c      kernels that wait for other members of a group
 *   plugin.c    instances
 *
 * plugins/cuda and plugins/hip define rt_vendor_this and the entry.
 */
#ifndef TANDEM_GPU_RT_RT_H
#define TANDEM_GPU_RT_RT_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/params.h"
#include "plugins/gpu/mem/tensor.h"
#include "plugins/gpu/mem/upload.h"
#include "plugins/gpu/plan/plan.h"
#include "plugins/gpu/rt/driver.h"
#include "tandem/plugin.h"

enum { RT_MAX_DEVICE = 16 };

/* A device as its driver describes it. */
typedef struct rt_facts {
    int device; /* the driver's handle */
    char name[64];
    char pci_address[16];
    uint8_t uuid[16];
    bool has_uuid;
    uint64_t memory;
    int32_t attribute[RT_ATTRIBUTE_COUNT_]; /* 0 = the driver gives none */
} rt_facts;

/* Host memory that is page-locked for all devices of a driver: a driver refuses to lock the same
 * memory twice, and the members of a group import the same. */
typedef struct rt_import {
    struct rt_import *next;
    void *ptr;
    uint64_t size;
    int32_t n_user; /* rt_memory that refer to it */
} rt_import;

/* A driver that has been opened, with its devices. Kept until the instance ends. */
typedef struct rt_source {
    struct rt_source *next;
    pthread_mutex_t import_mutex;
    rt_import *imports; /* under import_mutex */
    char *path;         /* "" = the system's */
    rt_driver driver;
    bool is_open;
    rt_facts facts[RT_MAX_DEVICE];
    int32_t n_facts;
    tdm_error reason; /* why there is no device */
} rt_source;

struct tdm_instance {
    const tdm_host *host;
    pthread_mutex_t mutex; /* over sources */
    rt_source *sources;
};

/* How a device takes part in exchanges. */
typedef enum rt_exchange {
    RT_EXCHANGE_AUTO = 0, /* in its plans where it passes the test of wait.h */
    RT_EXCHANGE_PLAN,     /* the same, but a device that does not pass is an error */
    RT_EXCHANGE_PHASES
} rt_exchange;

/* Options as parsed. */
typedef struct rt_options {
    const char *driver; /* read while the options live; NULL = the system's */
    bool has_fusion;    /* false: every node is planned by itself */
    bool has_graphs;    /* false: steps are launched one by one */
    bool has_matrix;    /* false: no products on matrix hardware in f16 */
    bool is_early;      /* kernels start early: early.h */
    rt_exchange exchange;
    uint64_t max_buffer; /* bytes of one buffer; 0 = no limit */
} rt_options;

/* A kernel that can be launched. */
typedef struct rt_function {
    void *handle; /* the driver's; NULL = not loaded */
    bool waits;   /* its image has wait_previous of kernels/lang.h as an instruction */
} rt_function;

/* A piece of device memory, or of page-locked host memory that the device reaches. */
typedef struct rt_memory {
    uint64_t address; /* the device's; 0 = no memory */
    uint8_t *host;    /* the host's; NULL = device memory */
    uint64_t size;
    bool is_imported; /* of the host: by rt_memory_import */
    bool is_shared;   /* device memory that other devices may import */
    bool is_peer;     /* device memory of another device, which frees it */
} rt_memory;

struct tdm_device {
    tdm_instance *instance;
    rt_source *source;
    const rt_driver *fn;
    const rt_facts *facts;
    int32_t index;
    atomic_bool has_graphs; /* plans are captured when they are bound */
    bool launches_early;    /* early.h; constant once the device is open */
    atomic_bool has_warned_graphs; /* that the driver has no memory for a graph */
    uint64_t max_buffer;    /* bytes of one buffer; 0 = no limit */
    char name[32];
    gpu_target target;
    void *context;
    void *copy_stream; /* of transfers; NULL = not made */
    pthread_mutex_t copy_mutex;
    struct rt_upload_events *upload_events;
    gpu_uploads *uploads;
    struct rt_modules *modules;
    _Atomic uint64_t allocated; /* bytes of device memory */
    atomic_bool is_lost;
};
typedef tdm_device rt_device;

struct tdm_buffer {
    rt_device *device;
    rt_memory memory;
    rt_memory copy; /* of a buffer that the host writes (purpose INPUT), in device memory: each plan
                       first copies what its kernels read to it. Other buffers have none */
    uint64_t size;
    uint64_t uploads; /* of plugins/gpu/mem/upload.h */
};

/* Fails with a message that names the device, the call and the driver's reason; remembers a lost
 * device. `fn` is an RT_FN_ number. */
tdm_status rt_fail(rt_device *device, tdm_error *err, rt_result result, int fn);
/* The same for a call that is not in RT_DRIVER_LIST, by its symbol. */
tdm_status rt_fail_symbol(rt_device *device, tdm_error *err, rt_result result, const char *symbol);

/* Makes the device's context this thread's. Every function that calls the driver begins with it.
 * Fails where the device is lost. */
tdm_status rt_enter(rt_device *device, tdm_error *err);

/* Waits for the commands of the stream. The caller may free their memory afterwards, also after a
 * failure: a wait that fails is tried once more. On a lost device it fails again, and nothing runs
 * there. Returns the first result. After rt_enter. */
rt_result rt_stream_end(const rt_device *device, void *stream);

/* ---- memory.c ---- */

/* Allocates device memory, or page-locked memory of the host. The contents are undefined. Size 0
 * gives no memory. TDM_RESOURCE_EXHAUSTED where there is not enough. [any-thread] */
tdm_status rt_memory_alloc(rt_device *device, uint64_t size, bool is_host, rt_memory *memory_out,
                           tdm_error *err);
/* Page-locks memory of the caller, which must outlive memory_out. Several devices of a driver
 * may import the same memory. Memory that other code has locked is refused with TDM_UNSUPPORTED.
 * [any-thread] */
tdm_status rt_memory_import(rt_device *device, void *ptr, uint64_t size, rt_memory *memory_out,
                            tdm_error *err);
void rt_memory_free(rt_device *device, rt_memory *memory);

/* Each returns when the bytes are there. The caller has checked the ranges. [any-thread] */
tdm_status rt_upload(rt_device *device, const rt_memory *memory, uint64_t off, const void *src,
                     uint64_t size, tdm_error *err);
tdm_status rt_download(rt_device *device, const rt_memory *memory, const gpu_runs *runs, void *dst,
                       tdm_error *err);
tdm_status rt_copy(rt_device *device, const rt_memory *dst, uint64_t dst_off, const rt_memory *src,
                   uint64_t src_off, uint64_t size, tdm_error *err);
tdm_status rt_fill(rt_device *device, const rt_memory *memory, uint64_t off, uint64_t size,
                   uint8_t byte, tdm_error *err);

/* ---- upload.c ---- */

/* What the copies of device->uploads need. On failure the caller destroys what is there. */
tdm_status rt_uploads_create(rt_device *device, tdm_error *err);
/* Before the copy stream is destroyed. */
void rt_uploads_destroy(rt_device *device);

/* Of tdm_buffer_ops. */
tdm_status rt_host_alloc(tdm_device *device, uint64_t size, void **ptr_out, tdm_error *err);
void rt_host_free(tdm_device *device, void *ptr, uint64_t size);
tdm_status rt_upload_finish(tdm_device *device, const void *src, tdm_error *err);

/* ---- peer.c ---- */

/* Allocates device memory that other devices may import: is_shared, unless the device has no such
 * memory. As rt_memory_alloc otherwise. [any-thread] */
tdm_status rt_memory_alloc_shared(rt_device *device, uint64_t size, rt_memory *memory_out,
                                  tdm_error *err);

/* tdm_buffer_ops.import_peer. */
tdm_status rt_import_peer(tdm_device *device, tdm_buffer *home, tdm_buffer **buffer_out,
                          tdm_error *err);

/* ---- measure.c ---- */

/* tdm_device_ops.measure_limits. */
tdm_status rt_limits_measure(tdm_device *device, tdm_device_limits *limits_out, tdm_error *err);

/* ---- module.c, shared.c ---- */

tdm_status rt_modules_create(rt_device *device, tdm_error *err);
void rt_modules_destroy(rt_device *device);

/* Whether the driver loads the plugin's kernels: tries the smallest. TDM_UNSUPPORTED names what they were
 * compiled for. */
tdm_status rt_modules_check(rt_device *device, tdm_error *err);

/* Whether CUDA and HIP have the kernel of a row of GPU_KERNEL_LIST. The planner refuses the others. */
extern const bool rt_has_kernel[GPU_KERNEL_COUNT_];

/* The function of a step's kernel, loaded when it is first needed. [any-thread] */
tdm_status rt_function_get(rt_device *device, const gpu_step *step, rt_function *function_out,
                           tdm_error *err);

/* Bytes of shared memory that the step's kernel takes (Kernel::shared_take of kernels/lang.h). */
uint32_t rt_shared_size(const gpu_step *step);

/* ---- plugin.c ---- */

tdm_status rt_plugin_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err);
void rt_plugin_deinit(tdm_instance *instance);

/* ---- tables ---- */

extern const tdm_device_ops rt_device_ops;
extern const tdm_buffer_ops rt_buffer_ops;
extern const tdm_queue_ops rt_queue_ops;
extern const tdm_split_ops rt_split_ops;
extern const tdm_option_table rt_option_table;

tdm_status rt_options_parse(const tdm_option *options, int32_t n_option, rt_options *options_out,
                            tdm_error *err);

/* The value of the option `driver`; NULL = it is not given. Other options are not checked, since
 * enumeration does not fail for them. */
const char *rt_options_driver(const tdm_option *options, int32_t n_option);

#endif
