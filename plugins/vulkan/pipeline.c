/* SPDX-License-Identifier: MIT
 *
 * pipeline.c: the pipelines of a device: a kernel with its group size and specialisation. They are
 * made when a plan first needs them and kept until the device is closed.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/shaders.h"
#include "plugins/vulkan/vk.h"

typedef struct pipeline_key {
    int32_t kernel;
    int32_t group_size;
    int32_t spec[GPU_MAX_SPEC];
} pipeline_key;

typedef struct pipeline_entry {
    struct pipeline_entry *next; /* in its bucket */
    pipeline_key key;
    VkPipeline pipeline;
} pipeline_entry;

enum { N_BUCKET = 256 };

struct vk_pipelines {
    pthread_mutex_t mutex;
    VkPipelineCache cache;
    VkShaderModule modules[GPU_KERNEL_COUNT_];
    pipeline_entry *buckets[N_BUCKET];
};

tdm_status vk_pipelines_create(vk_device *device, tdm_error *err) {
    const VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    struct vk_pipelines *p = calloc(1, sizeof *p);
    if (p == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    pthread_mutex_init(&p->mutex, NULL);
    device->pipelines = p;
    VkResult result = device->fn.CreatePipelineCache(device->device, &info, NULL, &p->cache);
    return result == VK_SUCCESS ? TDM_OK : vk_fail(device, err, result, "vkCreatePipelineCache");
}

void vk_pipelines_destroy(vk_device *device) {
    struct vk_pipelines *p = device->pipelines;
    if (p == NULL) return;
    for (int i = 0; i < N_BUCKET; i++)
        for (pipeline_entry *entry = p->buckets[i]; entry != NULL;) {
            pipeline_entry *next = entry->next;
            device->fn.DestroyPipeline(device->device, entry->pipeline, NULL);
            free(entry);
            entry = next;
        }
    for (int i = 0; i < GPU_KERNEL_COUNT_; i++)
        if (p->modules[i] != VK_NULL_HANDLE)
            device->fn.DestroyShaderModule(device->device, p->modules[i], NULL);
    if (p->cache != VK_NULL_HANDLE) device->fn.DestroyPipelineCache(device->device, p->cache, NULL);
    pthread_mutex_destroy(&p->mutex);
    free(p);
    device->pipelines = NULL;
}

static uint32_t key_hash(const pipeline_key *key) {
    uint32_t hash = 2166136261u;
    const uint8_t *bytes = (const uint8_t *)key;
    for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ bytes[i]) * 16777619u;
    return hash % N_BUCKET;
}

static tdm_status module_get(vk_device *device, int32_t kernel, VkShaderModule *module_out,
                             tdm_error *err) {
    VkShaderModule *module = &device->pipelines->modules[kernel];
    const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                           .codeSize = vk_shaders[kernel].size,
                                           .pCode = vk_shaders[kernel].code};
    if (info.pCode == NULL)
        return tdm_fail(err, TDM_INTERNAL, "%s: kernel %s was not built", device->name,
                        gpu_kernel_name(kernel));
    if (*module == VK_NULL_HANDLE) {
        VkResult result = device->fn.CreateShaderModule(device->device, &info, NULL, module);
        if (result != VK_SUCCESS) {
            *module = VK_NULL_HANDLE;
            return vk_fail(device, err, result, "vkCreateShaderModule");
        }
    }
    *module_out = *module;
    return TDM_OK;
}

/* Constant 0 is the group size, constants 1 to 8 the specialisation numbers (args.glsl). */
static tdm_status pipeline_make(vk_device *device, const pipeline_key *key,
                                VkPipeline *pipeline_out, tdm_error *err) {
    int32_t constants[1 + GPU_MAX_SPEC];
    VkSpecializationMapEntry entries[1 + GPU_MAX_SPEC];
    VkShaderModule module = VK_NULL_HANDLE;
    tdm_status status = module_get(device, key->kernel, &module, err);
    if (status != TDM_OK) return status;
    constants[0] = key->group_size;
    memcpy(&constants[1], key->spec, sizeof key->spec);
    for (uint32_t i = 0; i < 1 + GPU_MAX_SPEC; i++)
        entries[i] = (VkSpecializationMapEntry){i, i * 4, 4};
    const VkSpecializationInfo specialization = {1 + GPU_MAX_SPEC, entries, sizeof constants,
                                                 constants};
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo required = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = (uint32_t)device->required_subgroup};
    /* Full subgroups can be demanded only of groups that are whole subgroups. */
    bool is_full =
        device->facts->has_full_subgroups && key->group_size % device->target.subgroup_max == 0;
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = device->required_subgroup != 0 ? &required : NULL,
                  .flags = is_full ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &specialization},
        .layout = device->layout};
    VkResult result = device->fn.CreateComputePipelines(device->device, device->pipelines->cache, 1,
                                                        &info, NULL, pipeline_out);
    if (result == VK_SUCCESS) return TDM_OK;
    char what[96];
    snprintf(what, sizeof what, "vkCreateComputePipelines of kernel %s",
             gpu_kernel_name(key->kernel));
    return vk_fail(device, err, result, what);
}

tdm_status vk_pipeline_get(vk_device *device, const gpu_step *step, VkPipeline *pipeline_out,
                           tdm_error *err) {
    struct vk_pipelines *p = device->pipelines;
    pipeline_key key = {.kernel = step->kernel, .group_size = step->group_size};
    memcpy(key.spec, step->spec, sizeof key.spec);
    pipeline_entry **bucket = &p->buckets[key_hash(&key)], *entry;
    tdm_status status = TDM_OK;
    pthread_mutex_lock(&p->mutex);
    for (entry = *bucket; entry != NULL; entry = entry->next)
        if (memcmp(&entry->key, &key, sizeof key) == 0) break;
    if (entry == NULL) {
        entry = calloc(1, sizeof *entry);
        status = entry != NULL
                     ? pipeline_make(device, &key, &entry->pipeline, err)
                     : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
        if (status == TDM_OK) {
            entry->key = key;
            entry->next = *bucket;
            *bucket = entry;
        } else {
            free(entry);
        }
    }
    if (status == TDM_OK) *pipeline_out = entry->pipeline;
    pthread_mutex_unlock(&p->mutex);
    return status;
}
