/* SPDX-License-Identifier: MIT
 *
 * rt.h: the runtime of CUDA and HIP: types and functions that its files share.
 *
 * Mental model. The planner (plugins/gpu/plan) turns a graph into steps. plan.c finds a function of
 * the driver for each. When a plan is bound to memory, it captures the launches of all steps as a
 * graph of the driver; each computation launches that graph. A stream runs its commands in order,
 * so that a barrier between steps needs no command.
 *
 * What lies where:
 *   driver.c    the driver's functions, by a table for CUDA and HIP
 *   device.c    enumeration, opening, closing
 *   options.c   options
 *   memory.c    device memory and page-locked memory; copies
 *   card.c      what all devices of a card share: memory that is freed when the card is idle
 *   upload.c    copies of weights that may still run when the call returns
 *   buffer.c buffers as the ABI has them, and weights and pages in the layouts of
 *   plugins/gpu/layout
 *   peer.c      memory of one device that other devices access
 *   measure.c   bandwidth and arithmetic of a device
 *   module.c    images of kernels; functions by name
 *   shared.c    bytes of shared memory that a step's kernel takes
 *   plan.c      plans: captured launches
 *   early.c     launches of kernels that start before the kernel before them has ended
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
    char pci_address[16]; /* in lower case; "" = unknown */
    uint8_t uuid[16];     /* where has_uuid */
    bool has_uuid;
    uint64_t memory;                        /* bytes */
    int32_t attribute[RT_ATTRIBUTE_COUNT_]; /* 0 where the driver has no such attribute */
} rt_facts;

/* Host memory that is page-locked for all devices of a driver. The members of a group import the
 * same memory, but a driver refuses to lock memory twice: hence one entry with a count of users.
 * The lock belongs to the context that it was made in, and ends with it: the entry retains that
 * context until the last user is gone, also when its device is closed before. */
typedef struct rt_import {
    struct rt_import *next;
    void *ptr;
    uint64_t size;
    int32_t n_user; /* rt_memory that refer to it */
    void *context;  /* in which the memory is locked */
    int device;     /* of the context: the driver's handle */
} rt_import;

/* A driver, opened or not, and its devices. It lives as long as the instance. All but the imports
 * is constant once source_get (device.c) has returned it. */
typedef struct rt_source {
    struct rt_source *next;
    pthread_mutex_t import_mutex;
    rt_import *imports; /* under import_mutex */
    char *path;         /* of the library; "" = the system's */
    rt_driver driver;   /* where is_open */
    bool is_open;
    rt_facts facts[RT_MAX_DEVICE];
    int32_t n_facts;
    tdm_error reason; /* why n_facts is 0 */
} rt_source;

struct tdm_instance {
    const tdm_host *host;
    pthread_mutex_t mutex; /* over sources */
    rt_source *sources;
};

/* How a device takes part in exchanges. */
typedef enum rt_exchange {
    RT_EXCHANGE_AUTO = 0, /* PLAN where the device passes the test of wait.h, else PHASES */
    RT_EXCHANGE_PLAN,     /* its kernels wait inside a plan; failing the test is an error */
    RT_EXCHANGE_PHASES    /* the group waits between plans */
} rt_exchange;

/* Options as parsed. */
typedef struct rt_options {
    const char *driver; /* points into the options given; NULL = the system's */
    bool has_fusion;    /* false: every node is planned by itself */
    bool has_graphs;    /* false: steps are launched one by one */
    bool has_matrix;    /* false: no products and no attention on matrix hardware in f16 */
    bool is_early;      /* kernels start early: early.h */
    rt_exchange exchange;
    uint64_t max_buffer; /* bytes of one buffer; 0 = no limit */
} rt_options;

/* A kernel that can be launched. */
typedef struct rt_function {
    void *handle; /* the driver's; NULL = not loaded */
    bool waits;   /* in its image wait_previous of kernels/lang.h is an instruction, so that the
                     kernel may be launched early */
} rt_function;

/* A piece of device memory, or of page-locked host memory that the device accesses. */
typedef struct rt_memory {
    uint64_t address; /* the device's; 0 = no memory */
    uint8_t *host;    /* the host's; NULL = device memory */
    uint64_t size;    /* bytes */
    bool is_imported; /* host memory of the caller, from rt_memory_import */
    bool is_shared;   /* device memory that other devices may import */
    bool is_peer;     /* imported device memory of another device, which frees it */
} rt_memory;

struct tdm_device {
    tdm_instance *instance;
    rt_source *source;
    const rt_driver *fn;    /* source->driver */
    const rt_facts *facts;  /* one of source->facts */
    int32_t index;          /* as enumerated */
    atomic_bool has_graphs; /* plans are captured when they are bound */
    bool launches_early;    /* early.h; constant once the device is open */
    atomic_bool has_warned_graphs; /* the log says that the driver had no memory for a graph */
    uint64_t max_buffer;    /* bytes of one buffer; 0 = no limit */
    char name[32];
    gpu_target target;
    void *context;              /* the driver's primary context; NULL = not retained */
    struct rt_card *card;       /* NULL = not opened */
    void *copy_stream;          /* of all copies of memory.c and upload.c; NULL = not made */
    pthread_mutex_t copy_mutex; /* held while commands are put into copy_stream */
    struct rt_upload_events *upload_events;
    gpu_uploads *uploads;
    struct rt_modules *modules;
    atomic_bool is_lost; /* a call has failed so that none can succeed any more: rt_enter fails */
};
typedef tdm_device rt_device;
typedef struct rt_card rt_card;

struct tdm_buffer {
    rt_device *device;
    rt_memory memory;
    /* Of a buffer that the host writes (purpose INPUT) on a device with memory of its own: device
     * memory of the same size. Kernels read this copy: each run of a plan first copies there what
     * its kernels read (rt_fetch). Other buffers have none: address 0 */
    rt_memory copy;
    uint64_t size;    /* bytes, as the caller requested */
    uint64_t uploads; /* the number of gpu_upload (plugins/gpu/mem/upload.h) */
};

/* Returns the status of a failed call of the driver, with a message that names the device, the call
 * and the driver's reason. Sets is_lost where the result is a loss. `fn` is an RT_FN_ number.
 * [any-thread] */
tdm_status rt_fail(rt_device *device, tdm_error *err, rt_result result, int fn);
/* The same for a call that is not in RT_DRIVER_LIST, by its symbol. [any-thread] */
tdm_status rt_fail_symbol(rt_device *device, tdm_error *err, rt_result result, const char *symbol);

/* Makes the device's context that of this thread. A function that calls the driver for a device
 * calls it first. Fails where the device is lost. [any-thread] */
tdm_status rt_enter(rt_device *device, tdm_error *err);

/* Waits for all commands of the stream. Afterwards, after a failure too, nothing of them runs and
 * the caller may free their memory: a wait that fails is tried once more, and where that fails too
 * the device is lost, on which nothing runs. Returns the first result. After rt_enter.
 * [any-thread] */
rt_result rt_stream_end(const rt_device *device, void *stream);

/* ---- memory.c ---- */

/* Allocates device memory, or page-locked memory of the host. The contents are undefined. Size 0
 * gives TDM_OK and no memory (address 0). TDM_RESOURCE_EXHAUSTED where there is not enough; then
 * *memory_out has no memory. Released with rt_memory_free. [any-thread] */
tdm_status rt_memory_alloc(rt_device *device, uint64_t size, bool is_host, rt_memory *memory_out,
                           tdm_error *err);
/* Page-locks memory of the caller, which must outlive *memory_out. Several devices of a driver may
 * import the same memory. TDM_UNSUPPORTED where the driver does not lock or map it, as for memory
 * that other code has locked. After a failure *memory_out is as before. [any-thread] */
tdm_status rt_memory_import(rt_device *device, void *ptr, uint64_t size, rt_memory *memory_out,
                            tdm_error *err);
/* Frees or releases the memory, and zeroes *memory. No memory and a peer's memory are a no-op. No
 * command that uses it may be running. While others run on the card it is kept, and freed later
 * (card.h); imported memory is released at once, which may wait for the card. [any-thread] */
void rt_memory_free(rt_device *device, rt_memory *memory);

/* Copy and fill, synchronously: the bytes are there on return. The caller has checked the ranges.
 * [any-thread] */
tdm_status rt_upload(rt_device *device, const rt_memory *memory, uint64_t off, const void *src,
                     uint64_t size, tdm_error *err);
tdm_status rt_download(rt_device *device, const rt_memory *memory, const gpu_runs *runs, void *dst,
                       tdm_error *err);
tdm_status rt_copy(rt_device *device, const rt_memory *dst, uint64_t dst_off, const rt_memory *src,
                   uint64_t src_off, uint64_t size, tdm_error *err);
tdm_status rt_fill(rt_device *device, const rt_memory *memory, uint64_t off, uint64_t size,
                   uint8_t byte, tdm_error *err);

/* ---- upload.c ---- */

/* Makes device->uploads and its events. After a failure rt_uploads_destroy releases what was made.
 * After rt_enter. [setup] */
tdm_status rt_uploads_create(rt_device *device, tdm_error *err);
/* Called before the copy stream is destroyed. [setup] */
void rt_uploads_destroy(rt_device *device);

/* Slots of tdm_buffer_ops. */
tdm_status rt_host_alloc(tdm_device *device, uint64_t size, void **ptr_out, tdm_error *err);
void rt_host_free(tdm_device *device, void *ptr, uint64_t size);
tdm_status rt_upload_finish(tdm_device *device, const void *src, tdm_error *err);

/* ---- peer.c ---- */

/* As rt_memory_alloc of device memory, but of a kind that other devices may import: *memory_out is
 * is_shared. Where the device has no such memory it is ordinary memory. [any-thread] */
tdm_status rt_memory_alloc_shared(rt_device *device, uint64_t size, rt_memory *memory_out,
                                  tdm_error *err);

/* tdm_buffer_ops.import_peer. */
tdm_status rt_import_peer(tdm_device *device, tdm_buffer *home, tdm_buffer **buffer_out,
                          tdm_error *err);

/* ---- measure.c ---- */

/* tdm_device_ops.measure_limits. */
tdm_status rt_limits_measure(tdm_device *device, tdm_device_limits *limits_out, tdm_error *err);

/* ---- module.c, shared.c ---- */

/* Makes device->modules, without modules; unloads all modules. [setup] */
tdm_status rt_modules_create(rt_device *device, tdm_error *err);
void rt_modules_destroy(rt_device *device);

/* Checks that the driver loads the plugin's kernels, by loading the smallest. TDM_UNSUPPORTED where
 * it does not: the message names the targets that the kernels were compiled for. [setup] */
tdm_status rt_modules_check(rt_device *device, tdm_error *err);

/* gpu_target.has_kernel: true for the rows of GPU_KERNEL_LIST that CUDA and HIP have a kernel
 * of. */
extern const bool rt_has_kernel[GPU_KERNEL_COUNT_];

/* The function of a step's kernel; its module is loaded when it is first needed, and kept until
 * rt_modules_destroy. TDM_INTERNAL for a step that no function computes. [any-thread] */
tdm_status rt_function_get(rt_device *device, const gpu_step *step, rt_function *function_out,
                           tdm_error *err);

/* Bytes of shared memory that the step's kernel takes (Kernel::shared_take of kernels/lang.h).
 * [any-thread] */
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

/* Parses the options of a device. TDM_INVALID_ARGUMENT names the first bad one; *options_out is
 * then as before. [any-thread] */
tdm_status rt_options_parse(const tdm_option *options, int32_t n_option, rt_options *options_out,
                            tdm_error *err);

/* The value of the option `driver`; NULL = it is not given. Does not check other options:
 * enumeration ignores bad ones. [any-thread] */
const char *rt_options_driver(const tdm_option *options, int32_t n_option);

#endif
