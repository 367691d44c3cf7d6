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
 *   device.c     enumeration, opening, closing
 *   limits.c     options, and limits lowered for tests
 *   memory.c     device memory: allocation, import
 *   transfer.c   copies between host and device
 *   buffer.c     buffers and tensors as the ABI has them
 *   pipeline.c   pipelines, made when a plan first needs them
 *   queue.c      plans and their submission
 *   shaders/     the kernels
 */
#ifndef TANDEM_VULKAN_VK_H
#define TANDEM_VULKAN_VK_H

#include <pthread.h>
#include <stdatomic.h>

#include "plugins/gpu/plan/plan.h"
#include "plugins/vulkan/facts.h"
#include "tandem/plugin.h"

enum {
    VK_MAX_DEVICE = 16,
    VK_BUFFER_ALIGN = 256 /* of bindings: operands are loaded in up to 16 bytes; lines are 128 */
};

struct tdm_instance {
    const tdm_host *host;
    pthread_mutex_t mutex; /* over what follows */
    bool has_looked;       /* the driver was opened, or could not be */
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
    bool has_f16, has_dot8;
    bool has_fusion; /* false: every node is planned by itself */
    uint32_t shared_size; /* 0 = the device's */
    int32_t group_size;   /* 0 = the device's */
    int32_t subgroup;     /* 0 = chosen */
    uint32_t grid;        /* 0 = the device's */
    uint64_t allocation;  /* bytes of one allocation; 0 = the device's */
} vk_options;

struct tdm_device {
    tdm_instance *instance;
    const vk_facts *facts;
    vk_options options;
    char name[32];
    gpu_target target;
    VkDevice device;
    vk_device_fn fn;
    VkQueue queue;
    pthread_mutex_t queue_mutex; /* over vkQueueSubmit */
    VkPipelineLayout layout;
    int32_t required_subgroup; /* size that pipelines name; 0 = none */
    struct vk_transfer *transfer;
    struct vk_pipelines *pipelines;
    atomic_bool is_lost;
};
typedef tdm_device vk_device;

/* Device memory with a buffer over it. */
typedef struct vk_memory {
    VkDeviceMemory memory;
    VkBuffer buffer;
    uint64_t address; /* the device's */
    uint64_t size;    /* bytes */
    uint8_t *mapped;  /* the host's address; NULL where the host cannot or should not write it */
    bool is_coherent;
    bool is_cached; /* the host reads it at full speed */
} vk_memory;

struct tdm_buffer {
    vk_device *device;
    vk_memory memory;
    uint64_t size;
};

/* Fails with a message that names the device, the call and the driver's reason; remembers a lost
 * device. */
tdm_status vk_fail(vk_device *device, tdm_error *err, VkResult result, const char *what);

/* Copies between structs of different versions: as far as both go; the rest of dst is 0. The
 * written struct keeps its own struct_size. */
void vk_struct_read(void *dst, size_t dst_size, const void *src);
void vk_struct_write(void *dst, const void *src, size_t src_size);

/* ---- memory.c ---- */

/* Allocates. TDM_RESOURCE_EXHAUSTED where there is not enough; the device stays usable. */
tdm_status vk_memory_alloc(vk_device *device, uint64_t size, int32_t purpose, vk_memory *memory_out,
                           tdm_error *err);
void vk_memory_free(vk_device *device, vk_memory *memory);

/* ---- transfer.c: synchronous copies ---- */

tdm_status vk_transfer_create(vk_device *device, tdm_error *err);
void vk_transfer_destroy(vk_device *device);
tdm_status vk_upload(vk_device *device, const vk_memory *memory, uint64_t off, const void *src,
                     uint64_t size, tdm_error *err);
tdm_status vk_download(vk_device *device, const vk_memory *memory, uint64_t off, void *dst,
                       uint64_t size, tdm_error *err);
tdm_status vk_copy(vk_device *device, const vk_memory *dst, uint64_t dst_off, const vk_memory *src,
                   uint64_t src_off, uint64_t size, tdm_error *err);
tdm_status vk_fill(vk_device *device, const vk_memory *memory, uint64_t off, uint64_t size,
                   uint8_t byte, tdm_error *err);

/* ---- pipeline.c ---- */

tdm_status vk_pipelines_create(vk_device *device, tdm_error *err);
void vk_pipelines_destroy(vk_device *device);

/* The pipeline of a step's kernel, group size and specialisation; made at the first request and
 * kept until the device is closed. [any-thread] */
tdm_status vk_pipeline_get(vk_device *device, const gpu_step *step, VkPipeline *pipeline_out,
                           tdm_error *err);

/* ---- tables ---- */

extern const tdm_device_ops vk_device_ops;
extern const tdm_buffer_ops vk_buffer_ops;
extern const tdm_queue_ops vk_queue_ops;
extern const tdm_split_ops vk_split_ops;

tdm_status vk_options_parse(const tdm_option *options, int32_t n_option, vk_options *options_out,
                            tdm_error *err);
extern const tdm_option_table vk_option_table;

#endif
