/* SPDX-License-Identifier: MIT
 *
 * driver.h: the driver API that CUDA and HIP have in common, under neutral names.
 *
 * RT_DRIVER_LIST has a row for each function: the neutral name, the symbols of CUDA and HIP, and
 * the parameters. Both APIs have the same parameters and use the same numbers here. What differs is
 * in rt_vendor, of which each plugin has one. Handles are pointers; device memory is a 64-bit
 * address. A driver is opened with dlopen; nothing is linked.
 */
#ifndef TANDEM_GPU_RT_DRIVER_H
#define TANDEM_GPU_RT_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#include "tandem/status.h"

typedef int rt_result; /* CUresult, hipError_t */

/* Results that both have, with the same numbers, and three of CUDA alone. */
enum {
    RT_SUCCESS = 0,
    RT_INVALID_VALUE = 1,
    RT_OUT_OF_MEMORY = 2,
    RT_NO_DEVICE = 100,
    RT_INVALID_DEVICE = 101,
    RT_NO_BINARY = 209,
    RT_ECC = 214,
    RT_CONTAINED = 226, /* CUDA: some kinds of wrong access to another device's memory */
    RT_NOT_FOUND = 500,
    RT_NOT_READY = 600,
    RT_ILLEGAL_ADDRESS = 700,
    RT_LAUNCH_TIMEOUT = 702,
    RT_PEER_IS_ENABLED = 704,
    /* FIRST_STICKY .. LAUNCH_FAILED are failures of kernels that end the context, except the three
     * results between them here */
    RT_FIRST_STICKY = 709,
    RT_TOO_MANY_PEERS = 711, /* CUDA: a device may access memory of a bounded number of others */
    RT_ALREADY_REGISTERED = 712,
    RT_NOT_REGISTERED = 713,
    RT_LAUNCH_FAILED = 719,
    RT_CLIENT_TERMINATED = 810, /* CUDA: by the server of MPS, which shares a card */
    RT_UNKNOWN = 999
};

/* Flags that both have, with the same numbers. */
enum {
    RT_HOST_PORTABLE = 1, /* of page-locked memory: for every context */
    RT_HOST_MAPPED = 2,
    RT_STREAM_NON_BLOCKING = 1,
    RT_EVENT_BLOCKING = 1, /* event_sync sleeps instead of polling */
    RT_EVENT_NO_TIMING = 2,
    RT_CAPTURE_THREAD_LOCAL = 1,
    RT_FUNCTION_SHARED_SIZE = 8, /* of function_set: most bytes of shared memory of a launch */
    RT_LAUNCH_EARLY = 6,         /* rt_launch_attribute.id; CUDA only */
    RT_JIT_ERROR_LOG = 5,        /* option of module_load: buffer of the compiler's messages */
    RT_JIT_ERROR_LOG_SIZE = 6    /* option of module_load: its bytes */
};

/* FN(name, cuda, hip, parameters) */
/* clang-format off */
#define RT_DRIVER_LIST(FN) \
    FN(init, "cuInit", "hipInit", (unsigned flags)) \
    FN(version_get, "cuDriverGetVersion", "hipDriverGetVersion", (int *version_out)) \
    FN(device_count, "cuDeviceGetCount", "hipGetDeviceCount", (int *n_out)) \
    FN(device_get, "cuDeviceGet", "hipDeviceGet", (int *device_out, int index)) \
    FN(device_name, "cuDeviceGetName", "hipDeviceGetName", (char *name_out, int size, int device)) \
    FN(device_memory, "cuDeviceTotalMem_v2", "hipDeviceTotalMem", (size_t *size_out, int device)) \
    FN(device_attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute", \
       (int *value_out, int attribute, int device)) \
    FN(device_pci, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId", \
       (char *text_out, int size, int device)) \
    FN(device_uuid, "cuDeviceGetUuid", "hipDeviceGetUuid", (void *bytes_out, int device)) \
    FN(context_retain, "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain", \
       (void **context_out, int device)) \
    FN(context_release, "cuDevicePrimaryCtxRelease_v2", "hipDevicePrimaryCtxRelease", (int device)) \
    FN(context_set, "cuCtxSetCurrent", "hipCtxSetCurrent", (void *context)) \
    FN(memory_info, "cuMemGetInfo_v2", "hipMemGetInfo", (size_t *free_out, size_t *total_out)) \
    FN(memory_alloc, "cuMemAlloc_v2", "hipMalloc", (uint64_t *address_out, size_t size)) \
    FN(memory_free, "cuMemFree_v2", "hipFree", (uint64_t address)) \
    FN(host_alloc, "cuMemHostAlloc", "hipHostMalloc", \
       (void **pointer_out, size_t size, unsigned flags)) \
    FN(host_free, "cuMemFreeHost", "hipHostFree", (void *pointer)) \
    FN(host_register, "cuMemHostRegister_v2", "hipHostRegister", \
       (void *pointer, size_t size, unsigned flags)) \
    FN(host_unregister, "cuMemHostUnregister", "hipHostUnregister", (void *pointer)) \
    FN(host_address, "cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer", \
       (uint64_t *address_out, void *pointer, unsigned flags)) \
    FN(copy_in, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", \
       (uint64_t dst, const void *src, size_t size, void *stream)) \
    FN(copy_out, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", \
       (void *dst, uint64_t src, size_t size, void *stream)) \
    FN(copy_inside, "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync", \
       (uint64_t dst, uint64_t src, size_t size, void *stream)) \
    FN(fill, "cuMemsetD8Async", "hipMemsetD8Async", \
       (uint64_t dst, unsigned char byte, size_t size, void *stream)) \
    FN(stream_create, "cuStreamCreate", "hipStreamCreateWithFlags", \
       (void **stream_out, unsigned flags)) \
    FN(stream_destroy, "cuStreamDestroy_v2", "hipStreamDestroy", (void *stream)) \
    FN(stream_sync, "cuStreamSynchronize", "hipStreamSynchronize", (void *stream)) \
    FN(stream_wait, "cuStreamWaitEvent", "hipStreamWaitEvent", \
       (void *stream, void *event, unsigned flags)) \
    FN(event_create, "cuEventCreate", "hipEventCreateWithFlags", (void **event_out, unsigned flags)) \
    FN(event_destroy, "cuEventDestroy_v2", "hipEventDestroy", (void *event)) \
    FN(event_record, "cuEventRecord", "hipEventRecord", (void *event, void *stream)) \
    FN(event_query, "cuEventQuery", "hipEventQuery", (void *event)) \
    FN(event_sync, "cuEventSynchronize", "hipEventSynchronize", (void *event)) \
    FN(module_load, "cuModuleLoadDataEx", "hipModuleLoadDataEx", \
       (void **module_out, const void *image, unsigned n_option, int *options, void **values)) \
    FN(module_unload, "cuModuleUnload", "hipModuleUnload", (void *module)) \
    FN(module_function, "cuModuleGetFunction", "hipModuleGetFunction", \
       (void **function_out, void *module, const char *name)) \
    FN(function_set, "cuFuncSetAttribute", "hipFuncSetAttribute", \
       (void *function, int attribute, int value)) \
    FN(launch, "cuLaunchKernel", "hipModuleLaunchKernel", \
       (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
        unsigned block_y, unsigned block_z, unsigned shared_size, void *stream, void **params, \
        void **extra)) \
    FN(capture_begin, "cuStreamBeginCapture_v2", "hipStreamBeginCapture", (void *stream, int mode)) \
    FN(capture_end, "cuStreamEndCapture", "hipStreamEndCapture", (void *stream, void **graph_out)) \
    FN(graph_instantiate, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags", \
       (void **exec_out, void *graph, unsigned long long flags)) \
    FN(graph_destroy, "cuGraphDestroy", "hipGraphDestroy", (void *graph)) \
    FN(graph_launch, "cuGraphLaunch", "hipGraphLaunch", (void *exec, void *stream)) \
    FN(exec_destroy, "cuGraphExecDestroy", "hipGraphExecDestroy", (void *exec)) \
    FN(peer_query, "cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer", \
       (int *can_out, int device, int peer))
/* clang-format on */

/* Attributes of devices. CUDA and HIP number them differently: rt_vendor.attribute. */
typedef enum rt_attribute {
    RT_GROUP_SIZE = 0, /* most threads of a workgroup */
    RT_GRID_X,         /* most workgroups along x */
    RT_GRID_Y,
    RT_SHARED_SIZE,     /* bytes of shared memory of a workgroup, without function_set */
    RT_MAX_SHARED_SIZE, /* the same with function_set */
    RT_WAVE_SIZE,       /* threads */
    RT_UNITS,           /* compute units */
    RT_IS_INTEGRATED,   /* 1 where its memory is the host's */
    RT_MAPS_HOST,       /* 1 where it accesses page-locked host memory */
    RT_MAJOR,           /* compute capability; of AMD's devices the processor's generation */
    RT_MINOR,
    RT_KERNEL_TIMEOUT, /* 1 where the driver ends kernels that run long */
    RT_CLOCK_KHZ,      /* of the clock that kernels read, ticks(): see rt_vendor.clock_khz */
    RT_ATTRIBUTE_COUNT_
} rt_attribute;

/* A launch with attributes: CUlaunchConfig and CUlaunchAttribute. HIP's are not used. */
typedef struct rt_launch_attribute {
    int32_t id, reserved;
    union {
        int32_t is_early; /* the kernel itself waits for the kernel before it: early.h */
        uint64_t room[8];
    } value;
} rt_launch_attribute;

typedef struct rt_launch_config {
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_size;
    void *stream;
    rt_launch_attribute *attributes;
    unsigned n_attribute;
} rt_launch_config;

/* Compiled kernels of a module. Of the images of a module the first that the driver loads is
 * used. */
typedef struct rt_image {
    const char *module; /* file of the kernels, without .cu */
    const char *target; /* "sm_75", "gfx1030" */
    const void *bytes;  /* PTX ends with a 0 */
    size_t size;
} rt_image;

/* What differs between CUDA and HIP. Each plugin has one. */
typedef struct rt_vendor {
    const char *plugin;           /* "cuda" */
    const char *api;              /* "CUDA" */
    const char *maker;            /* "NVIDIA" */
    const char *const *libraries; /* names to try, ended by NULL */
    const char *no_device;        /* why a driver may find no device, for messages */
    const char *targets_option;   /* option of the build that chooses for which devices kernels are
                                     compiled, for messages */
    const char *error_name; /* symbol of rt_result (int error, const char **name_out), or NULL */
    const char *error_text; /* symbol of const char *(int error), or NULL */
    /* Symbols of the function that makes the memory of a peer accessible from the present context,
     * by the peer's context or by its device: one of them is not NULL. */
    const char *peer_by_context, *peer_by_device;
    /* Symbol of the function that finishes loading a function; NULL where module_function does. */
    const char *function_load;
    /* Symbol and flags of the function that allocates device memory which other devices may access
     * while kernels run; NULL where memory of memory_alloc is such memory. */
    const char *shared_alloc;
    uint32_t shared_flags;
    /* Symbol of the function that launches with attributes; NULL where launches have none. The
     * least version of the driver whose captures keep RT_LAUNCH_EARLY. */
    const char *launch_ex;
    int32_t early_version;
    /* Least 10 * RT_MAJOR + RT_MINOR of devices with launch_next and wait_previous of
     * kernels/lang.h, and least number in a target ("sm_90") whose images have these instructions;
     * 0 = none. */
    int32_t least_early;
    bool is_hip;
    uint32_t host_flags; /* of host_alloc, besides RT_HOST_*: they make the memory coherent */
    /* Of events that the host waits for, besides RT_EVENT_*: they make stores of kernels to host
     * memory visible when the event is reached. */
    uint32_t event_flags;
    uint64_t max_thread;   /* most threads of a grid along an axis: workgroups times threads of one;
                              0 = no such limit */
    int32_t version_major; /* what a major version counts in the number of version_get */
    int32_t version_minor; /* what a minor version counts there */
    /* True where devices of RT_MAJOR and RT_MINOR multiply matrices of f16 in hardware
     * (PRODUCT_TILE_MATRIX). */
    bool (*has_matrices)(int32_t major, int32_t minor);
    /* True where such devices have several second-level caches, so that device_release() of
     * kernels/lang.h writes one back, which is slow. NULL = none has. */
    bool (*has_split_cache)(int32_t major, int32_t minor);
    /* The target of images with PRODUCT_TILE_BLOCK for such devices; NULL where they cannot run
     * it. */
    const char *(*block_target)(int32_t major, int32_t minor);
    /* Writes the target for which kernels have to be compiled to run on the device at that PCI
     * address, with RT_MAJOR and RT_MINOR: "sm_86". For messages. */
    void (*target_print)(const char *pci_address, int32_t major, int32_t minor, char text[16]);
    /* Makes the UUID of the device at that PCI address; false where there is none. NULL = the UUID
     * of device_uuid is used. */
    bool (*uuid_make)(const char *pci_address, uint8_t uuid_out[16]);
    int32_t block_step; /* tdm_device_info.prompt_step of devices that have a block_target */
    /* Least 10 * RT_MAJOR + RT_MINOR of devices that copy to shared memory while threads do other
     * work (copy_16 of kernels/lang.h); 0 = none does. */
    int32_t least_copying;
    int32_t n_branch;  /* streams that a plan is captured on, 1 .. RT_N_BRANCH (plan.h) */
    int32_t clock_khz; /* 0 = the driver has it as an attribute (RT_CLOCK_KHZ) */
    int32_t attribute[RT_ATTRIBUTE_COUNT_]; /* numbers of rt_attribute */
} rt_vendor;

extern const rt_vendor rt_vendor_this;

/* The plugin's images; the last entry has module NULL. The build generates them (embed.py); there
 * are no images where it has no compiler for them. */
extern const rt_image rt_images[];

typedef struct rt_driver {
#define RT_FN_MEMBER_(name, cuda, hip, params) rt_result(*name) params;
    RT_DRIVER_LIST(RT_FN_MEMBER_)
#undef RT_FN_MEMBER_
    /* Functions whose symbols are in rt_vendor; NULL where the vendor or the driver has none. */
    rt_result (*error_name)(int error, const char **name_out);
    const char *(*error_text)(int error);
    rt_result (*peer_by_context)(void *context, unsigned flags);
    rt_result (*peer_by_device)(int device, unsigned flags);
    rt_result (*shared_alloc)(uint64_t *address_out, size_t size, unsigned flags);
    rt_result (*function_load)(void *function);
    rt_result (*launch_ex)(const rt_launch_config *config, void *function, void **params,
                           void **extra);
    void *library;    /* of dlopen */
    int version;      /* the number of version_get; 0 = unknown */
    bool is_emulated; /* the driver of tests/simt: it has the symbol tandem_simt_version */
} rt_driver;

/* Opens and initialises a driver: the library `path` or, where that is NULL or empty, the system's.
 * TDM_UNAVAILABLE with the reason. Released with rt_driver_close; after a failure there is nothing
 * to release, but a library that is no emulated driver stays loaded, as after rt_driver_close.
 * [setup] */
tdm_status rt_driver_open(const char *path, rt_driver *driver_out, tdm_error *err);
void rt_driver_close(rt_driver *driver);

/* Returns TDM_UNAVAILABLE with the message that the driver found no device. */
tdm_status rt_driver_no_device(tdm_error *err);

/* The name or text of a result ("CUDA_ERROR_INVALID_VALUE"): the driver's, or "error NUMBER" in
 * `text`. */
const char *rt_result_name(const rt_driver *driver, rt_result result, char text[32]);

/* The symbol of a function of RT_DRIVER_LIST, for messages: rt_symbol(RT_FN_launch). */
enum {
#define RT_FN_ENUM_(name, cuda, hip, params) RT_FN_##name,
    RT_DRIVER_LIST(RT_FN_ENUM_)
#undef RT_FN_ENUM_
        RT_FN_COUNT_
};
const char *rt_symbol(int fn);

/* True for failures after which no call on the device succeeds any more. */
bool rt_result_is_loss(rt_result result);
/* The status of a failure: TDM_RESOURCE_EXHAUSTED, TDM_UNAVAILABLE for a loss, else
 * TDM_INTERNAL. */
tdm_status rt_result_status(rt_result result);

#endif
