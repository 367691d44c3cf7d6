/* SPDX-License-Identifier: MIT
 *
 * compile_driver.c: a Vulkan loader that compiles kernels with a real driver and runs nothing. With
 * it the plugin can be tried on drivers of cards that the machine does not have: Mesa's driver for
 * AMD compiles for any processor (RADV_FORCE_FAMILY), but has then no memory, no queue and no
 * timeline semaphores. Here memory is the host's, commands are dropped, and semaphores have the
 * value that the last submission signals. Results are therefore whatever was in memory.
 *
 * Environment: COMPILE_DRIVER_LOADER is the path of the real loader, COMPILE_DRIVER_TABLE a file to
 * which a line is added for each pipeline: kernel, threads, specialisation, then what the driver
 * says of it (VK_KHR_pipeline_executable_properties), name=value; with tabs between them. A kernel
 * that the driver refuses has "refused=RESULT" there.
 */
#define VK_NO_PROTOTYPES
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vulkan/vulkan_core.h>

#include "plugins/gpu/plan/step.h"
#include "tests/vulkan/front_driver.h"
#include "tests/vulkan/module_name.h"

/* Functions of the real driver that are called here. */
#define REAL_LIST(F)                                                                               \
    F(GetInstanceProcAddr)                                                                         \
    F(GetDeviceProcAddr)                                                                           \
    F(CreateDevice)                                                                                \
    F(CreateShaderModule)                                                                          \
    F(CreateComputePipelines)                                                                      \
    F(GetPipelineExecutablePropertiesKHR)                                                          \
    F(GetPipelineExecutableStatisticsKHR)                                                          \
    F(GetPhysicalDeviceMemoryProperties2)

static struct {
#define FIELD_(name) PFN_vk##name name;
    REAL_LIST(FIELD_)
#undef FIELD_
} real;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* over the table */

/* ---- Pipelines ------------------------------------------------------------------------------- */

static VkResult VKAPI_CALL my_CreateShaderModule(VkDevice device,
                                                 const VkShaderModuleCreateInfo *info,
                                                 const VkAllocationCallbacks *callbacks,
                                                 VkShaderModule *out) {
    VkResult result = real.CreateShaderModule(device, info, callbacks, out);
    if (result == VK_SUCCESS) module_add(*out, info);
    return result;
}

static void statistics_write(FILE *table, VkDevice device, VkPipeline pipeline) {
    enum { MAX_STATISTIC = 64 };
    static VkPipelineExecutableStatisticKHR s[MAX_STATISTIC]; /* under the mutex */
    const VkPipelineInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR,
                                    .pipeline = pipeline};
    const VkPipelineExecutableInfoKHR first = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
    VkPipelineExecutablePropertiesKHR properties = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
    uint32_t n = 1, n_statistic = MAX_STATISTIC;
    for (int i = 0; i < MAX_STATISTIC; i++)
        s[i] = (VkPipelineExecutableStatisticKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    real.GetPipelineExecutablePropertiesKHR(device, &info, &n, &properties);
    real.GetPipelineExecutableStatisticsKHR(device, &first, &n_statistic, s);
    fprintf(table, "\tsubgroup=%u", properties.subgroupSize);
    for (uint32_t i = 0; i < n_statistic; i++) {
        if (s[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR)
            fprintf(table, "\t%s=%llu", s[i].name, (unsigned long long)s[i].value.u64);
        else if (s[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR)
            fprintf(table, "\t%s=%lld", s[i].name, (long long)s[i].value.i64);
    }
}

/* The plugin makes pipelines one by one. Its cache is left out: a pipeline that is read from it has
 * no statistics. */
static VkResult VKAPI_CALL my_CreateComputePipelines(VkDevice device, VkPipelineCache cache,
                                                     uint32_t n,
                                                     const VkComputePipelineCreateInfo *info,
                                                     const VkAllocationCallbacks *callbacks,
                                                     VkPipeline *out) {
    (void)cache;
    (void)n;
    VkComputePipelineCreateInfo captured = *info;
    captured.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
    VkResult result =
        real.CreateComputePipelines(device, VK_NULL_HANDLE, 1, &captured, callbacks, out);
    const char *path = getenv("COMPILE_DRIVER_TABLE");
    const int32_t *spec = info->stage.pSpecializationInfo->pData;
    pthread_mutex_lock(&mutex);
    FILE *table = path != NULL ? fopen(path, "a") : NULL;
    if (table != NULL) {
        fprintf(table, "%s\t%d\t", module_name(info->stage.module), spec[0]);
        for (int i = 1; i <= GPU_MAX_SPEC; i++) fprintf(table, i > 1 ? ",%d" : "%d", spec[i]);
        if (result == VK_SUCCESS)
            statistics_write(table, device, *out);
        else
            fprintf(table, "\trefused=%d", result);
        fputc('\n', table);
        fclose(table);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

/* ---- Memory, which is the host's ------------------------------------------------------------- */

/* Objects of this file behind handles. */
typedef struct memory {
    void *bytes;
    uint64_t size;
} memory;
typedef struct buffer {
    uint64_t size, off; /* off: in its memory */
    const memory *memory;
} buffer;

enum { N_TYPE = 3 }; /* of memory: in the card; written by the host; cached by the host */
static const VkMemoryType types[N_TYPE] = {
    {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
    {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, 1},
    {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
         VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
     1}};

static void VKAPI_CALL my_GetPhysicalDeviceMemoryProperties2(
    VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *out) {
    const VkDeviceSize size = (VkDeviceSize)16 << 30;
    VkPhysicalDeviceMemoryProperties *p = &out->memoryProperties;
    real.GetPhysicalDeviceMemoryProperties2(physical, out);
    p->memoryHeapCount = 2;
    p->memoryHeaps[0] = (VkMemoryHeap){size, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    p->memoryHeaps[1] = (VkMemoryHeap){size, 0};
    p->memoryTypeCount = N_TYPE;
    memcpy(p->memoryTypes, types, sizeof types);
    for (VkBaseOutStructure *s = out->pNext; s != NULL; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) {
            VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)s;
            for (int i = 0; i < 2; i++) budget->heapBudget[i] = size, budget->heapUsage[i] = 0;
        }
}

static VkResult VKAPI_CALL my_AllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                             const VkAllocationCallbacks *callbacks,
                                             VkDeviceMemory *out) {
    (void)device;
    (void)callbacks;
    memory *m = calloc(1, sizeof *m);
    if (m == NULL) return VK_ERROR_OUT_OF_HOST_MEMORY;
    m->size = info->allocationSize;
    m->bytes = mmap(NULL, m->size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->bytes == MAP_FAILED) {
        free(m);
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    *out = (VkDeviceMemory)m;
    return VK_SUCCESS;
}

static void VKAPI_CALL my_FreeMemory(VkDevice device, VkDeviceMemory handle,
                                     const VkAllocationCallbacks *callbacks) {
    (void)device;
    (void)callbacks;
    memory *m = (memory *)handle;
    if (m != NULL) munmap(m->bytes, m->size);
    free(m);
}

static VkResult VKAPI_CALL my_MapMemory(VkDevice device, VkDeviceMemory handle, VkDeviceSize off,
                                        VkDeviceSize size, VkMemoryMapFlags flags, void **out) {
    (void)device;
    (void)size;
    (void)flags;
    *out = (char *)((const memory *)handle)->bytes + off;
    return VK_SUCCESS;
}

static VkResult VKAPI_CALL my_CreateBuffer(VkDevice device, const VkBufferCreateInfo *info,
                                           const VkAllocationCallbacks *callbacks, VkBuffer *out) {
    (void)device;
    (void)callbacks;
    buffer *b = calloc(1, sizeof *b);
    if (b == NULL) return VK_ERROR_OUT_OF_HOST_MEMORY;
    b->size = info->size;
    *out = (VkBuffer)b;
    return VK_SUCCESS;
}

static void VKAPI_CALL my_DestroyBuffer(VkDevice device, VkBuffer handle,
                                        const VkAllocationCallbacks *callbacks) {
    (void)device;
    (void)callbacks;
    free((buffer *)handle);
}

static VkResult VKAPI_CALL my_BindBufferMemory(VkDevice device, VkBuffer handle,
                                               VkDeviceMemory where, VkDeviceSize off) {
    (void)device;
    ((buffer *)handle)->memory = (const memory *)where;
    ((buffer *)handle)->off = off;
    return VK_SUCCESS;
}

static void VKAPI_CALL my_GetBufferMemoryRequirements(VkDevice device, VkBuffer handle,
                                                      VkMemoryRequirements *out) {
    (void)device;
    *out = (VkMemoryRequirements){
        .size = (((const buffer *)handle)->size + 255) / 256 * 256,
        .alignment = 256,
        .memoryTypeBits = (1u << N_TYPE) - 1,
    };
}

static VkDeviceAddress VKAPI_CALL my_GetBufferDeviceAddress(VkDevice device,
                                                            const VkBufferDeviceAddressInfo *info) {
    (void)device;
    const buffer *b = (const buffer *)info->buffer;
    return (VkDeviceAddress)(uintptr_t)b->memory->bytes + b->off;
}

/* ---- Semaphores and submissions -------------------------------------------------------------- */

static VkResult VKAPI_CALL my_CreateSemaphore(VkDevice device, const VkSemaphoreCreateInfo *info,
                                              const VkAllocationCallbacks *callbacks,
                                              VkSemaphore *out) {
    (void)device;
    (void)info;
    (void)callbacks;
    uint64_t *value = calloc(1, sizeof *value);
    *out = (VkSemaphore)value;
    return value != NULL ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static void VKAPI_CALL my_DestroySemaphore(VkDevice device, VkSemaphore handle,
                                           const VkAllocationCallbacks *callbacks) {
    (void)device;
    (void)callbacks;
    free((uint64_t *)handle);
}

static VkResult VKAPI_CALL my_WaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo *info,
                                             uint64_t timeout) {
    (void)device;
    (void)info;
    (void)timeout;
    return VK_SUCCESS;
}

static VkResult VKAPI_CALL my_GetSemaphoreCounterValue(VkDevice device, VkSemaphore handle,
                                                       uint64_t *out) {
    (void)device;
    *out = __atomic_load_n((const uint64_t *)handle, __ATOMIC_SEQ_CST);
    return VK_SUCCESS;
}

static VkResult VKAPI_CALL my_QueueSubmit(VkQueue queue, uint32_t n, const VkSubmitInfo *submits,
                                          VkFence fence) {
    (void)queue;
    (void)fence;
    for (uint32_t i = 0; i < n; i++) {
        const VkTimelineSemaphoreSubmitInfo *values = submits[i].pNext;
        for (uint32_t k = 0; k < submits[i].signalSemaphoreCount; k++)
            __atomic_store_n((uint64_t *)submits[i].pSignalSemaphores[k],
                             values->pSignalSemaphoreValues[k], __ATOMIC_SEQ_CST);
    }
    return VK_SUCCESS;
}

/* ---- Commands, which are dropped ------------------------------------------------------------- */

static VkResult VKAPI_CALL my_AllocateCommandBuffers(VkDevice device,
                                                     const VkCommandBufferAllocateInfo *info,
                                                     VkCommandBuffer *out) {
    static char none;
    (void)device;
    for (uint32_t i = 0; i < info->commandBufferCount; i++) out[i] = (VkCommandBuffer)(void *)&none;
    return VK_SUCCESS;
}

/* Functions whose callers need nothing but success. Their arguments are not read, so that one
 * function of each kind of result can stand for all. */
static VkResult VKAPI_CALL my_success(void) {
    return VK_SUCCESS;
}
static void VKAPI_CALL my_nothing(void) {}

#define SUCCESS_LIST(F)                                                                            \
    F(FlushMappedMemoryRanges)                                                                     \
    F(InvalidateMappedMemoryRanges)                                                                \
    F(BeginCommandBuffer)                                                                          \
    F(EndCommandBuffer)
#define NOTHING_LIST(F)                                                                            \
    F(FreeCommandBuffers)                                                                          \
    F(CmdBindPipeline)                                                                             \
    F(CmdPushConstants)                                                                            \
    F(CmdDispatch)                                                                                 \
    F(CmdDispatchBase)                                                                             \
    F(CmdPipelineBarrier)                                                                          \
    F(CmdCopyBuffer)                                                                               \
    F(CmdFillBuffer)

/* ---- Finding functions ----------------------------------------------------------------------- */

static VkResult VKAPI_CALL my_CreateDevice(VkPhysicalDevice physical,
                                           const VkDeviceCreateInfo *info,
                                           const VkAllocationCallbacks *callbacks, VkDevice *out) {
    enum { MAX_EXTENSION = 64 };
    const char *names[MAX_EXTENSION + 1];
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pNext = (void *)info->pNext,
        .pipelineExecutableInfo = VK_TRUE};
    VkDeviceCreateInfo more = *info;
    more.pNext = &executables;
    more.ppEnabledExtensionNames = names;
    more.enabledExtensionCount = 0;
    for (uint32_t i = 0; i < info->enabledExtensionCount && i < MAX_EXTENSION; i++)
        names[more.enabledExtensionCount++] = info->ppEnabledExtensionNames[i];
    names[more.enabledExtensionCount++] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    VkResult result = real.CreateDevice(physical, &more, callbacks, out);
    if (result != VK_SUCCESS) return result;
#define FIND_(name) real.name = (PFN_vk##name)real.GetDeviceProcAddr(*out, "vk" #name);
    FIND_(GetPipelineExecutablePropertiesKHR)
    FIND_(GetPipelineExecutableStatisticsKHR)
#undef FIND_
    return result;
}

/* Functions of a device that this file has. */
#define OWN_LIST(F)                                                                                \
    F(AllocateMemory)                                                                              \
    F(FreeMemory)                                                                                  \
    F(MapMemory)                                                                                   \
    F(CreateBuffer)                                                                                \
    F(DestroyBuffer)                                                                               \
    F(BindBufferMemory)                                                                            \
    F(GetBufferMemoryRequirements)                                                                 \
    F(GetBufferDeviceAddress)                                                                      \
    F(CreateSemaphore)                                                                             \
    F(DestroySemaphore)                                                                            \
    F(WaitSemaphores)                                                                              \
    F(GetSemaphoreCounterValue)                                                                    \
    F(QueueSubmit)                                                                                 \
    F(AllocateCommandBuffers)

static PFN_vkVoidFunction VKAPI_CALL my_GetDeviceProcAddr(VkDevice device, const char *name) {
    const PFN_vkVoidFunction found = real.GetDeviceProcAddr(device, name);
    FRONT_WRAP(CreateShaderModule)
    FRONT_WRAP(CreateComputePipelines)
#define OWN_(fn)                                                                                   \
    if (strcmp(name, "vk" #fn) == 0) return (PFN_vkVoidFunction)my_##fn;
    OWN_LIST(OWN_)
#undef OWN_
#define SUCCESS_(fn)                                                                               \
    if (strcmp(name, "vk" #fn) == 0) return (PFN_vkVoidFunction)my_success;
    SUCCESS_LIST(SUCCESS_)
#undef SUCCESS_
#define NOTHING_(fn)                                                                               \
    if (strcmp(name, "vk" #fn) == 0) return (PFN_vkVoidFunction)my_nothing;
    NOTHING_LIST(NOTHING_)
#undef NOTHING_
    return found;
}

EXPORT PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    if (real.GetInstanceProcAddr == NULL)
        real.GetInstanceProcAddr = front_open("COMPILE_DRIVER_LOADER");
    if (real.GetInstanceProcAddr == NULL) return NULL;
    const PFN_vkVoidFunction found = real.GetInstanceProcAddr(instance, name);
    FRONT_WRAP(CreateDevice)
    FRONT_WRAP(GetPhysicalDeviceMemoryProperties2)
    FRONT_WRAP(GetDeviceProcAddr)
    return found;
}
