/* SPDX-License-Identifier: MIT
 *
 * module_name.c: see module_name.h.
 */
#define VK_NO_PROTOTYPES
#include "tests/vulkan/module_name.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "plugins/gpu/plan/step.h"
#include "plugins/vulkan/shaders.h"

enum { MAX_MODULE = 4096 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* over what follows */
static struct {
    VkShaderModule module;
    int32_t kernel; /* gpu_kernel; -1 = none of the plugin's */
} modules[MAX_MODULE];
static int32_t n_module;

/* A hash of what the plugin does not change in a module: it adds capabilities, extensions and
 * execution modes (plugins/vulkan/float_mode.c). */
static uint64_t code_hash(const uint32_t *code, size_t n_word) {
    enum { EXTENSION = 10, EXECUTION_MODE = 16, CAPABILITY = 17 };
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t at = 5, len; at < n_word; at += len) {
        const uint32_t op = code[at] & 0xffff;
        len = code[at] >> 16 > 0 ? code[at] >> 16 : 1;
        if (op == EXTENSION || op == EXECUTION_MODE || op == CAPABILITY) continue;
        for (size_t i = at; i < at + len && i < n_word; i++)
            hash = (hash ^ code[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static pthread_once_t shaders_once = PTHREAD_ONCE_INIT;
static uint64_t shader_hashes[MAX_MODULE]; /* of vk_shaders */

static void shaders_hash(void) {
    for (int32_t i = 0; i < vk_n_shader && i < MAX_MODULE; i++)
        shader_hashes[i] = code_hash(vk_shaders[i].code, vk_shaders[i].size / 4);
}

/* The kernel of a module; -1 = none of the plugin's. */
static int32_t kernel_find(uint64_t hash) {
    pthread_once(&shaders_once, shaders_hash);
    for (int32_t i = 0; i < vk_n_shader && i < MAX_MODULE; i++)
        if (shader_hashes[i] == hash) return vk_shaders[i].kernel;
    return -1;
}

void module_add(VkShaderModule module, const VkShaderModuleCreateInfo *info) {
    const int32_t kernel = kernel_find(code_hash(info->pCode, info->codeSize / 4));
    pthread_mutex_lock(&mutex);
    if (n_module < MAX_MODULE) {
        modules[n_module].module = module;
        modules[n_module++].kernel = kernel;
    }
    pthread_mutex_unlock(&mutex);
}

const char *module_name(VkShaderModule module) {
    const char *name = "unknown";
    pthread_mutex_lock(&mutex);
    for (int32_t i = n_module - 1; i >= 0; i--) {
        if (modules[i].module != module || modules[i].kernel < 0) continue;
        name = gpu_kernel_name(modules[i].kernel);
        break;
    }
    pthread_mutex_unlock(&mutex);
    return name;
}
