/* SPDX-License-Identifier: MIT
 *
 * fault_driver.h: a Vulkan loader for tests that passes calls on to the real one, and fails a
 * chosen call, or keeps an account of memory that a test sets. It counts what is made and not
 * destroyed. One thread sets it up; the calls may come from any thread.
 */
#ifndef TANDEM_TESTS_FAULT_DRIVER_H
#define TANDEM_TESTS_FAULT_DRIVER_H

#include <stdint.h>

/* Calls that can fail. */
#define FAULT_LIST(F)                                                                              \
    F(CreateInstance)                                                                              \
    F(EnumeratePhysicalDevices)                                                                    \
    F(CreateDevice)                                                                                \
    F(QueueSubmit)                                                                                 \
    F(AllocateMemory)                                                                              \
    F(MapMemory)                                                                                   \
    F(CreateBuffer)                                                                                \
    F(BindBufferMemory)                                                                            \
    F(CreateShaderModule)                                                                          \
    F(CreatePipelineLayout)                                                                        \
    F(CreatePipelineCache)                                                                         \
    F(CreateComputePipelines)                                                                      \
    F(CreateCommandPool)                                                                           \
    F(AllocateCommandBuffers)                                                                      \
    F(BeginCommandBuffer)                                                                          \
    F(EndCommandBuffer)                                                                            \
    F(CreateSemaphore)                                                                             \
    F(WaitSemaphores)                                                                              \
    F(GetSemaphoreCounterValue)                                                                    \
    F(GetMemoryHostPointerPropertiesEXT)

typedef enum fault_call {
#define FAULT_ENUM_(name) FAULT_##name,
    FAULT_LIST(FAULT_ENUM_)
#undef FAULT_ENUM_
        FAULT_COUNT_
} fault_call;

/* What a test sets and reads; the loader exports one as `fault_state_now`. */
typedef struct fault_state {
    char real[512];  /* path of the real loader */
    int32_t call;    /* fault_call that fails; FAULT_COUNT_ = none */
    int32_t n_left;  /* calls of it that succeed before; it then fails once */
    int32_t result;  /* VkResult. VK_ERROR_DEVICE_LOST: what follows fails too, until the device is
                        destroyed */
    uint64_t budget; /* of each heap, in bytes, in VK_EXT_memory_budget; 0 = not offered */
    int32_t has_no_int64;    /* shaderInt64 is not offered */
    int32_t has_matrix;      /* VK_KHR_cooperative_matrix is offered, but no shader on it compiles:
                             1 = of 16 rows and columns, 2 = of 8 */
    uint64_t max_buffer;     /* maxBufferSize; 0 = the real one */
    uint32_t max_allocation; /* maxMemoryAllocationCount, which the loader checks too; 0 = the real
                                one */
    int32_t group_subgroups; /* maxComputeWorkgroupSubgroups, with subgroups up to max_subgroup, or
                                twice the real size; 0 = the real ones */
    int32_t max_subgroup;    /* sizes of subgroups up to this one are offered, and a size that a
                                pipeline names counts for nothing; 0 = the real ones */
    int32_t named_subgroup;  /* size that the last pipeline named; 0 = none */
    int32_t subgroup;        /* the real least size of subgroups, once it was asked for */
    int32_t max_group;       /* most threads of a group of the pipelines made */
    int32_t is_incoherent;   /* no type of memory is coherent */
    int32_t is_uncached;     /* no type of memory is cached by the host */
    int32_t has_failed;      /* the call was met */
    int32_t n_object;        /* made and not destroyed */
    int32_t n_submit;        /* VkSubmitInfo given */
    int32_t n_wait;          /* calls of vkWaitSemaphores */
    uint64_t allocated;      /* bytes of memory not freed */
    uint32_t n_allocation;   /* of vkAllocateMemory not freed */
    int32_t n_beyond;        /* calls of vkAllocateMemory beyond max_allocation */
} fault_state;

#endif
