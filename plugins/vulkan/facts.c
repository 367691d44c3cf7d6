/* SPDX-License-Identifier: MIT
 *
 * facts.c: reads properties and features of a physical device, and decides whether it has what the
 * kernels need.
 */
#include "plugins/vulkan/facts.h"

#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/matrix.h"

const char *vk_vendor_name(uint32_t vendor_id) {
    switch (vendor_id) {
    case 0x1002: return "AMD";
    case 0x10de: return "NVIDIA";
    case 0x8086: return "Intel";
    case 0x13b5: return "ARM";
    case 0x5143: return "Qualcomm";
    case 0x106b: return "Apple";
    case VK_VENDOR_ID_MESA: return "Mesa";
    default: return "";
    }
}

/* ---- Extensions ------------------------------------------------------------------------------ */

typedef struct extension_list {
    VkExtensionProperties *all;
    uint32_t n;
} extension_list;

static extension_list extensions_read(const vk_driver *driver, VkPhysicalDevice physical) {
    extension_list list = {NULL, 0};
    if (driver->fn.EnumerateDeviceExtensionProperties(physical, NULL, &list.n, NULL) !=
            VK_SUCCESS ||
        list.n == 0)
        return (extension_list){NULL, 0};
    list.all = calloc(list.n, sizeof *list.all);
    if (list.all == NULL ||
        driver->fn.EnumerateDeviceExtensionProperties(physical, NULL, &list.n, list.all) < 0) {
        free(list.all);
        return (extension_list){NULL, 0};
    }
    return list;
}

static bool has_extension(const extension_list *list, const char *name) {
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->all[i].extensionName, name) == 0) return true;
    return false;
}

/* ---- Features -------------------------------------------------------------------------------- */

/* Sets facts->refusal; the first reason stays. */
static void refuse(vk_facts *facts, const char *what) {
    if (facts->refusal[0] == '\0')
        snprintf(facts->refusal, sizeof facts->refusal, "the driver lacks %s", what);
}

static void features_read(const vk_driver *driver, vk_facts *facts, bool has_1_3) {
    VkPhysicalDeviceVulkan13Features f13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
    VkPhysicalDeviceSubgroupSizeControlFeatures size_control = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
    VkPhysicalDeviceVulkan12Features f12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan11Features f11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f12};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = &f11};
    if (has_1_3) {
        f12.pNext = &f13;
    } else {
        void **next = &f12.pNext;
        if (facts->has_subgroup_control) *next = &size_control, next = &size_control.pNext;
        if (facts->has_dot8_instruction) *next = &dot;
    }
    vk_matrix_features matrix = {.sType = VK_MATRIX_FEATURES_TYPE, .pNext = f.pNext};
    if (facts->has_matrix) f.pNext = &matrix;
    driver->fn.GetPhysicalDeviceFeatures2(facts->physical, &f);
    if (!f12.bufferDeviceAddress) refuse(facts, "bufferDeviceAddress");
    if (!f12.scalarBlockLayout) refuse(facts, "scalarBlockLayout");
    if (!f12.timelineSemaphore) refuse(facts, "timelineSemaphore");
    if (!f12.shaderInt8) refuse(facts, "shaderInt8");
    if (!f12.storageBuffer8BitAccess) refuse(facts, "storageBuffer8BitAccess");
    if (!f11.storageBuffer16BitAccess) refuse(facts, "storageBuffer16BitAccess");
    if (!f.features.shaderInt16) refuse(facts, "shaderInt16");
    if (!f.features.shaderInt64) refuse(facts, "shaderInt64");
    facts->has_f16 = f12.shaderFloat16;
    facts->has_matrix = facts->has_matrix && matrix.cooperativeMatrix && facts->has_f16 &&
                        f12.vulkanMemoryModel && f12.vulkanMemoryModelDeviceScope;
    facts->can_require_subgroup =
        has_1_3 ? f13.subgroupSizeControl : size_control.subgroupSizeControl;
    facts->has_full_subgroups =
        has_1_3 ? f13.computeFullSubgroups : size_control.computeFullSubgroups;
    facts->has_subgroup_control = facts->can_require_subgroup || facts->has_full_subgroups;
    facts->has_dot8_instruction =
        has_1_3 ? f13.shaderIntegerDotProduct : dot.shaderIntegerDotProduct;
}

/* ---- Properties ------------------------------------------------------------------------------ */

enum {
    SUBGROUP_NEEDED = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_VOTE_BIT |
                      VK_SUBGROUP_FEATURE_ARITHMETIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT
};

static void properties_read(const vk_driver *driver, vk_facts *facts) {
    VkPhysicalDeviceDriverProperties driver_info = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES,
                                       .pNext = &driver_info};
    VkPhysicalDeviceMaintenance3Properties maintenance = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, .pNext = &id};
    VkPhysicalDeviceFloatControlsProperties floats = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES,
        .pNext = &maintenance};
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, .pNext = &floats};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &subgroup};
    VkPhysicalDeviceSubgroupSizeControlProperties size_control = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceShaderIntegerDotProductProperties dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES};
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT import = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT};
    VkPhysicalDeviceMaintenance4Properties sizes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    void **next = &driver_info.pNext;
    if (facts->has_maintenance_4) *next = &sizes, next = &sizes.pNext;
    if (facts->has_subgroup_control) *next = &size_control, next = &size_control.pNext;
    if (facts->has_dot8_instruction) *next = &dot, next = &dot.pNext;
    if (facts->import_align != 0) *next = &import, next = &import.pNext;
    vk_matrix_stages matrix = {.sType = VK_MATRIX_STAGES_TYPE};
    if (facts->has_pci) *next = &pci, next = &pci.pNext;
    if (facts->has_matrix) *next = &matrix;
    driver->fn.GetPhysicalDeviceProperties2(facts->physical, &p);
    facts->properties = p.properties;
    snprintf(facts->driver, sizeof facts->driver, "%.40s%s%.80s", driver_info.driverName,
             driver_info.driverInfo[0] != '\0' ? ", " : "", driver_info.driverInfo);
    memcpy(facts->uuid, id.deviceUUID, VK_UUID_SIZE);
    memcpy(facts->driver_uuid, id.driverUUID, VK_UUID_SIZE);
    facts->max_allocation = maintenance.maxMemoryAllocationSize;
    if (sizes.maxBufferSize != 0 && sizes.maxBufferSize < facts->max_allocation)
        facts->max_allocation = sizes.maxBufferSize;
    facts->float_mode = vk_float_mode_of(&floats);
    facts->subgroup_default = (int32_t)subgroup.subgroupSize;
    facts->subgroup_min = facts->subgroup_max = facts->subgroup_default;
    if (facts->has_subgroup_control) {
        facts->subgroup_min = (int32_t)size_control.minSubgroupSize;
        facts->subgroup_max = (int32_t)size_control.maxSubgroupSize;
        facts->group_subgroups = (int32_t)size_control.maxComputeWorkgroupSubgroups;
    }
    if ((size_control.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0)
        facts->can_require_subgroup = false;
    if ((matrix.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0)
        facts->has_matrix = false;
    facts->has_dot8 = dot.integerDotProduct4x8BitPackedSignedAccelerated;
    if (facts->import_align != 0) facts->import_align = import.minImportedHostPointerAlignment;
    if (facts->has_pci)
        snprintf(facts->pci_address, sizeof facts->pci_address, "%04x:%02x:%02x.%x",
                 pci.pciDomain & 0xffff, pci.pciBus & 0xff, pci.pciDevice & 0xff,
                 pci.pciFunction & 0xf);
    if ((subgroup.supportedOperations & SUBGROUP_NEEDED) != SUBGROUP_NEEDED ||
        (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0)
        refuse(facts, "subgroup operations (basic, vote, arithmetic, shuffle) in compute shaders");
}

/* A family with compute; one without graphics is preferred. */
static void family_choose(const vk_driver *driver, vk_facts *facts) {
    VkQueueFamilyProperties families[32];
    uint32_t n = 32;
    int best = -1;
    driver->fn.GetPhysicalDeviceQueueFamilyProperties(facts->physical, &n, families);
    for (uint32_t i = 0; i < n; i++) {
        if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
        bool has_graphics = (families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0;
        int score = has_graphics ? 0 : 1;
        if (score <= best) continue;
        best = score;
        facts->compute_family = i;
    }
    if (best < 0) refuse(facts, "a queue for compute");
}

void vk_facts_read(const vk_driver *driver, VkPhysicalDevice physical, vk_facts *facts_out) {
    vk_facts *facts = facts_out;
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    memset(facts, 0, sizeof *facts);
    facts->physical = physical;
    driver->fn.GetPhysicalDeviceProperties2(physical, &p);
    facts->properties = p.properties;
    facts->is_cpu = p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    facts->is_integrated = p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    driver->fn.GetPhysicalDeviceMemoryProperties2(physical, &memory);
    facts->memory = memory.memoryProperties;
    if (p.properties.apiVersion < VK_API_VERSION_1_2) {
        snprintf(facts->refusal, sizeof facts->refusal,
                 "the driver offers Vulkan %u.%u; 1.2 is needed",
                 VK_API_VERSION_MAJOR(p.properties.apiVersion),
                 VK_API_VERSION_MINOR(p.properties.apiVersion));
        return;
    }
    bool has_1_3 =
        driver->api_version >= VK_API_VERSION_1_3 && p.properties.apiVersion >= VK_API_VERSION_1_3;
    extension_list list = extensions_read(driver, physical);
    facts->has_subgroup_control =
        has_1_3 || has_extension(&list, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    facts->has_dot8_instruction =
        has_1_3 || has_extension(&list, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
    facts->import_align = has_extension(&list, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME) ? 1 : 0;
    facts->has_budget = has_extension(&list, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    facts->has_pci = has_extension(&list, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME);
    facts->has_maintenance_4 = has_1_3 || has_extension(&list, VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
    facts->has_matrix = has_extension(&list, VK_MATRIX_EXTENSION);
    free(list.all);
    features_read(driver, facts, has_1_3);
    properties_read(driver, facts);
    if (facts->has_matrix) vk_matrix_shape_read(driver, facts);
    facts->has_matrix = facts->matrix_rows > 0;
    family_choose(driver, facts);
}

/* ---- Memory in use --------------------------------------------------------------------------- */

static void budget_read(const vk_driver *driver, const vk_facts *facts,
                        VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget_out) {
    *budget_out = (VkPhysicalDeviceMemoryBudgetPropertiesEXT){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = budget_out};
    driver->fn.GetPhysicalDeviceMemoryProperties2(facts->physical, &memory);
}

/* Budget less usage. Drivers report budgets above the heap's size and usages above the budget:
 * these count as the whole heap, and as nothing free. */
static uint64_t heap_free(const vk_facts *facts, uint32_t heap,
                          const VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget) {
    uint64_t size = facts->memory.memoryHeaps[heap].size;
    uint64_t room = budget->heapBudget[heap] < size ? budget->heapBudget[heap] : size;
    return room > budget->heapUsage[heap] ? room - budget->heapUsage[heap] : 0;
}

bool vk_facts_heap_free(const vk_driver *driver, const vk_facts *facts, uint32_t heap,
                        uint64_t *free_out) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget;
    if (!facts->has_budget) return false;
    budget_read(driver, facts, &budget);
    *free_out = heap_free(facts, heap, &budget);
    return true;
}

/* A card computes in its device-local heaps, an integrated GPU in all: drivers differ in which of
 * its heaps are device-local. */
void vk_facts_memory(const vk_driver *driver, const vk_facts *facts, uint64_t allocated,
                     uint64_t *free_out, uint64_t *total_out) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget;
    if (facts->has_budget) budget_read(driver, facts, &budget);
    *free_out = *total_out = 0;
    for (uint32_t i = 0; i < facts->memory.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &facts->memory.memoryHeaps[i];
        if ((heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0 && !facts->is_integrated) continue;
        *total_out += heap->size;
        if (facts->has_budget) *free_out += heap_free(facts, i, &budget);
    }
    if (!facts->has_budget) *free_out = *total_out > allocated ? *total_out - allocated : 0;
}
