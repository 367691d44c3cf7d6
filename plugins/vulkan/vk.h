/* SPDX-License-Identifier: MIT
 *
 * vk.h: what the files of the Vulkan plugin share: the instance, the device, and their parts.
 *
 * Mental model. The planner (plugins/gpu/plan) turns a graph into steps. queue.c records a command
 * buffer from them once, when a plan is bound to memory, and submits it for each computation.
 * Kernels get device addresses in push constants; there are no descriptors.
 *
 * What lies where:
 *   plugin.c     the entry, the table of options
 *   driver.c     the loader and the functions
 *   facts.c      what a driver says of a device
 *   float_mode.c the float modes that shaders request: denormals, rounding, infinities
 *   device.c     enumeration, opening, closing
 *   denormal.c   whether denormal f16 numbers are read as what they are
 *   limits.c     options, and limits lowered for tests
 *   measure.c    bandwidth and arithmetic of a device, measured
 *   memory.c     device memory: types, blocks, pieces
 *   transfer.c   copies between host and device
 *   buffer.c     buffers as the ABI has them
 *   upload.c     page-locked memory of the host, and weights that are copied from it
 *   tensor.c     weights and cache pages in the layouts of plugins/gpu/layout
 *   import.c     memory that the host allocated
 *   matrix.c     shapes of cooperative matrices
 *   pipeline.c   pipelines, made when a plan first needs them
 *   cache_file.c compiled pipelines on disk
 *   verdict.c    which pipelines compute what the CPU computes
 *   verdict_file.c  these verdicts on disk, merged from several processes
 *   compile_mark.c  which pipelines are being compiled or tried, for the start after a crash
 *   trial.c      finds a verdict: runs a small graph on the device and on the CPU
 *   trial_cache.c  trials of kernels that work on a cache
 *   trial_arena.c  trials of the kernels of exchanges
 *   oracle.c     the CPU plugin, which computes the expected results of trials
 *   plan.c       plans
 *   parts.c      how a long plan is cut
 *   queue.c      submission
 *   shaders/     the kernels
 */
#ifndef TANDEM_VULKAN_VK_H
#define TANDEM_VULKAN_VK_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/params.h"
#include "plugins/gpu/plan/plan.h"
#include "plugins/vulkan/facts.h"
#include "tandem/plugin.h"

enum { VK_MAX_DEVICE = 16 };

struct tdm_instance {
    const tdm_host *host;
    pthread_mutex_t mutex; /* over what follows */
    bool has_looked;       /* opening the driver was tried; it is tried once */
    vk_driver driver;
    vk_facts *facts; /* n_facts: GPUs in the driver's order, then software drivers */
    int32_t n_facts;
    tdm_error reason; /* why there is no device */
};

/* Options as parsed. */
typedef struct vk_options {
    bool allow_cpu;
    bool has_map; /* the host writes device memory directly where it can */
    bool has_import;
    bool has_f16, has_dot8, has_matrix;
    bool has_slow_dot8;   /* integer dot products are used even where they are not accelerated */
    bool has_few_registers; /* kernels hold few numbers in registers, as on Intel's GPUs */
    bool is_matrix_plain; /* the kernel of matrix hardware is used without such hardware */
    bool has_fusion;      /* false: every node is planned by itself */
    bool has_denormals;   /* false: denormal.c finds that denormal f16 numbers are taken for 0 */
    bool has_lanes;       /* false: products and attention as with large subgroups */
    uint32_t shared_size; /* 0 = the device's */
    int32_t group_size;   /* 0 = the device's */
    int32_t subgroup;     /* 0 = chosen */
    uint32_t grid;        /* 0 = the device's */
    uint64_t allocation;  /* bytes of one allocation; 0 = the device's */
    int32_t trips;        /* loop iterations of an invocation; 0 = the device's */
    int32_t part_us;      /* estimated microseconds of a part of a plan; 0 = default */
    /* Name of a kernel whose last workgroups are not launched, so that its results are wrong; or
     * "bytes": the bytes that steps store beside their values are wrong. Empty = none */
    char wrong[32];
    char lost[32]; /* name of a kernel: at its check the device counts as lost; empty = none */
} vk_options;

/* The speed with which the time of a step is estimated (parts.h). */
typedef struct vk_rates {
    _Atomic double bytes; /* read and written per second */
    _Atomic double ops;   /* multiply-adds per second */
} vk_rates;

struct tdm_device {
    tdm_instance *instance;
    const vk_facts *facts;
    int32_t index; /* as enumerated with its options */
    vk_options options;
    char name[32];
    gpu_target target; /* as opened; a plan is made for vk_verdicts_target */
    VkDevice device;
    vk_device_fn fn;
    VkQueue queue;
    pthread_mutex_t queue_mutex; /* over vkQueueSubmit */
    VkPipelineLayout layout;
    int32_t required_subgroup; /* size that pipelines name; 0 = none */
    int32_t small_subgroup;    /* of kernels that need many registers; 0 = as the others */
    struct vk_blocks *blocks;
    struct vk_transfer *transfer;
    struct vk_upload_commands *upload_commands;
    struct gpu_uploads *uploads;
    struct vk_pipelines *pipelines;
    struct vk_verdicts *verdicts;
    vk_rates rates;
    atomic_bool is_lost;
    pthread_mutex_t import_mutex;
    int32_t import_state; /* of import.c, under import_mutex */
};
typedef tdm_device vk_device;

/* A piece of device memory (memory.h). */
typedef struct vk_memory {
    struct vk_block *block; /* that it is a piece of; NULL = no memory */
    VkBuffer buffer;        /* the block's */
    uint64_t off;           /* in the block and its buffer */
    uint64_t address;       /* the device's */
    uint64_t size;          /* bytes */
    uint8_t *mapped;        /* the host's address; NULL where the host does not write it directly */
    bool is_coherent;       /* vk_memory_flush and vk_memory_invalidate are not needed */
    bool is_cached;         /* the host reads it at full speed */
} vk_memory;

struct tdm_buffer {
    vk_device *device;
    vk_memory memory;
    uint64_t size;    /* bytes */
    uint64_t uploads; /* number of the last copies into it (gpu_upload); 0 = none */
};

/* Fails for a driver's call `what`: fills the message with the device, the call and `result`, and
 * returns the status. VK_ERROR_DEVICE_LOST also sets device->is_lost. [any-thread] */
tdm_status vk_fail(vk_device *device, tdm_error *err, VkResult result, const char *what);

/* ---- tensor.c, import.c: slots of the table of buffers ---- */

tdm_status vk_tensor_size(tdm_device *device, const tdm_tensor_desc *desc, uint64_t *size_out,
                          tdm_error *err);
tdm_status vk_tensor_upload(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                            const void *src, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                            int64_t col_first, int64_t n_col, tdm_error *err);
tdm_status vk_tensor_download(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                              void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                              int64_t col_first, int64_t n_col, tdm_error *err);
tdm_status vk_kv_page_size(tdm_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                           tdm_error *err);
tdm_status vk_import_host(tdm_device *device, void *ptr, uint64_t size, tdm_import_info *info_out,
                          tdm_buffer **buffer_out, tdm_error *err);

/* ---- tables ---- */

extern const tdm_device_ops vk_device_ops;
extern const tdm_buffer_ops vk_buffer_ops;
extern const tdm_queue_ops vk_queue_ops;
extern const tdm_split_ops vk_split_ops;

tdm_status vk_options_parse(const tdm_option *options, int32_t n_option, vk_options *options_out,
                            tdm_error *err);
extern const tdm_option_table vk_option_table;

#endif
