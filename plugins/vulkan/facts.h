/* SPDX-License-Identifier: MIT
 *
 * facts.h: what a driver says of a physical device, read without opening it.
 */
#ifndef TANDEM_VULKAN_FACTS_H
#define TANDEM_VULKAN_FACTS_H

#include "plugins/vulkan/float_mode.h"

typedef struct vk_facts {
    VkPhysicalDevice physical;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    char driver[128];     /* "radv, Mesa 22.3.6" */
    char pci_address[16]; /* empty = unknown */
    uint8_t uuid[VK_UUID_SIZE];
    uint8_t driver_uuid[VK_UUID_SIZE];
    uint64_t max_allocation;  /* bytes of one vkAllocateMemory, and of one buffer */
    uint64_t import_align;    /* of VK_EXT_external_memory_host; 0 = no import */
    uint32_t compute_family;  /* queue family: compute, without graphics where there is one */
    int32_t subgroup_default; /* size that the driver chooses by itself */
    int32_t subgroup_min;
    int32_t subgroup_max;
    int32_t group_subgroups; /* most subgroups of a group whose pipeline names their size */
    int32_t matrix_rows, matrix_columns; /* of sums of cooperative matrices (matrix.h); 0 = none */
    vk_float_mode float_mode;            /* that modules of shaders request from this driver */
    bool can_require_subgroup;           /* a pipeline may name its subgroup size */
    bool has_full_subgroups;             /* a pipeline may demand that all subgroups are full */
    bool has_subgroup_control;           /* VK_EXT_subgroup_size_control or Vulkan 1.3 */
    bool is_cpu;                         /* a software driver */
    bool is_integrated;
    bool has_f16;              /* shaderFloat16 */
    bool has_dot8;             /* integer dot products, accelerated for signed 4 x 8 bits */
    bool has_dot8_instruction; /* integer dot products, fast or slow */
    bool has_matrix;           /* VK_KHR_cooperative_matrix, in compute shaders, with f16 */
    bool has_budget;           /* VK_EXT_memory_budget */
    bool has_maintenance_4;    /* VK_KHR_maintenance4 or Vulkan 1.3 */
    bool has_pci;              /* VK_EXT_pci_bus_info */
    char refusal[192];         /* why it cannot be a device; empty = it can */
} vk_facts;

/* Reads the facts of one physical device. [any-thread] */
void vk_facts_read(const vk_driver *driver, VkPhysicalDevice physical, vk_facts *facts_out);

/* Bytes of a heap that this process may still allocate, by VK_EXT_memory_budget. False where the
 * driver lacks the extension. [any-thread] */
bool vk_facts_heap_free(const vk_driver *driver, const vk_facts *facts, uint32_t heap,
                        uint64_t *free_out);

/* Sizes of the memory that the device computes in: *free_out bytes are free of *total_out. Without
 * VK_EXT_memory_budget, free is the total less `allocated`, the bytes that the caller has.
 * [any-thread] */
void vk_facts_memory(const vk_driver *driver, const vk_facts *facts, uint64_t allocated,
                     uint64_t *free_out, uint64_t *total_out);

/* The vendor's name for a PCI vendor id; "" where unknown. */
const char *vk_vendor_name(uint32_t vendor_id);

#endif
