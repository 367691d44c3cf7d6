/* SPDX-License-Identifier: MIT
 *
 * crash_driver.c: a Vulkan loader that passes calls on to the real one, and ends the process when a
 * chosen kernel is compiled, as a driver whose compiler crashes does, or when it is run.
 *
 * Environment: CRASH_DRIVER_LOADER is the path of the real loader, CRASH_DRIVER_KERNEL the name of
 * the kernel whose compilation ends the process, CRASH_DRIVER_RUN of the one whose run does,
 * CRASH_DRIVER_SIGNAL the number of the signal; SIGABRT without it. CRASH_DRIVER_LOG is
 * a file to which a line is added when a pipeline is begun, "begin KERNEL/CONSTANTS", and when it
 * is made, "end KERNEL/CONSTANTS".
 */
#define VK_NO_PROTOTYPES
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/vulkan/front_driver.h"
#include "tests/vulkan/module_name.h"

#define REAL_LIST(F)                                                                               \
    F(GetInstanceProcAddr)                                                                         \
    F(GetDeviceProcAddr)                                                                           \
    F(CreateShaderModule)                                                                          \
    F(CreateComputePipelines)                                                                      \
    F(CmdBindPipeline)

static struct {
#define FIELD_(name) PFN_vk##name name;
    REAL_LIST(FIELD_)
#undef FIELD_
} real;

static VkResult VKAPI_CALL my_CreateShaderModule(VkDevice device,
                                                 const VkShaderModuleCreateInfo *info,
                                                 const VkAllocationCallbacks *callbacks,
                                                 VkShaderModule *out) {
    VkResult result = real.CreateShaderModule(device, info, callbacks, out);
    if (result == VK_SUCCESS) module_add(*out, info);
    return result;
}

/* Appends a line with one call, so that lines of several threads do not mix. */
static void log_write(const char *what, const char *kernel,
                      const VkComputePipelineCreateInfo *info) {
    const VkSpecializationInfo *s = info->stage.pSpecializationInfo;
    const char *path = getenv("CRASH_DRIVER_LOG");
    char line[512];
    int n = snprintf(line, sizeof line, "%s %s/", what, kernel);
    for (size_t i = 0; i < s->dataSize / 4 && n < (int)sizeof line - 16; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%d,", ((const int32_t *)s->pData)[i]);
    line[n - 1] = '\n';
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    if (write(fd, line, (size_t)n) != n) perror("CRASH_DRIVER_LOG");
    close(fd);
}

/* Pipelines of the kernel CRASH_DRIVER_RUN. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static VkPipeline fatal[256];
static int n_fatal;

static void crash_on(const char *variable, const char *name) {
    const char *kernel = getenv(variable), *number = getenv("CRASH_DRIVER_SIGNAL");
    if (kernel == NULL || strcmp(kernel, name) != 0) return;
    signal(SIGABRT, SIG_DFL);
    raise(number != NULL ? atoi(number) : SIGABRT);
}

static void pipeline_note(const char *name, VkPipeline pipeline) {
    const char *kernel = getenv("CRASH_DRIVER_RUN");
    if (kernel == NULL || strcmp(kernel, name) != 0) return;
    pthread_mutex_lock(&mutex);
    if (n_fatal < (int)(sizeof fatal / sizeof *fatal)) fatal[n_fatal++] = pipeline;
    pthread_mutex_unlock(&mutex);
}

/* The plugin records commands right before it submits them. */
static void VKAPI_CALL my_CmdBindPipeline(VkCommandBuffer commands, VkPipelineBindPoint point,
                                          VkPipeline pipeline) {
    bool is_fatal = false;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < n_fatal; i++) is_fatal = is_fatal || fatal[i] == pipeline;
    pthread_mutex_unlock(&mutex);
    if (is_fatal) crash_on("CRASH_DRIVER_RUN", getenv("CRASH_DRIVER_RUN"));
    real.CmdBindPipeline(commands, point, pipeline);
}

/* The plugin makes pipelines one by one. */
static VkResult VKAPI_CALL my_CreateComputePipelines(VkDevice device, VkPipelineCache cache,
                                                     uint32_t n,
                                                     const VkComputePipelineCreateInfo *info,
                                                     const VkAllocationCallbacks *callbacks,
                                                     VkPipeline *out) {
    const char *name = module_name(info->stage.module);
    log_write("begin", name, info);
    crash_on("CRASH_DRIVER_KERNEL", name);
    VkResult result = real.CreateComputePipelines(device, cache, n, info, callbacks, out);
    if (result == VK_SUCCESS) pipeline_note(name, *out);
    log_write("end", name, info);
    return result;
}

static PFN_vkVoidFunction VKAPI_CALL my_GetDeviceProcAddr(VkDevice device, const char *name) {
    const PFN_vkVoidFunction found = real.GetDeviceProcAddr(device, name);
    FRONT_WRAP(CreateShaderModule)
    FRONT_WRAP(CreateComputePipelines)
    FRONT_WRAP(CmdBindPipeline)
    return found;
}

EXPORT PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    if (real.GetInstanceProcAddr == NULL)
        real.GetInstanceProcAddr = front_open("CRASH_DRIVER_LOADER");
    if (real.GetInstanceProcAddr == NULL) return NULL;
    const PFN_vkVoidFunction found = real.GetInstanceProcAddr(instance, name);
    FRONT_WRAP(GetDeviceProcAddr)
    return found;
}
