/* SPDX-License-Identifier: MIT
 *
 * pipeline.c: makes pipelines when a plan first needs them, several at a time, and keeps them until
 * the device is closed.
 */
#include "plugins/vulkan/pipeline.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "plugins/gpu/ops/quantize.h"
#include "plugins/vulkan/shaders.h"
#include "plugins/vulkan/verdict.h"

enum { N_BUCKET = 256, MAX_COMPILER = 16, CACHE_HEADER_SIZE = 32 /* of the driver's bytes */ };

typedef struct pipeline_key {
    int32_t kernel;
    int32_t group_size;
    int32_t spec[GPU_MAX_SPEC];
} pipeline_key;

typedef enum pipeline_state { PIPELINE_WANTED = 0, PIPELINE_READY, PIPELINE_FAILED } pipeline_state;

typedef struct pipeline_entry {
    struct pipeline_entry *next;      /* in its bucket */
    struct pipeline_entry *next_work; /* of the call that compiles it */
    pipeline_key key;
    int32_t state;     /* pipeline_state */
    tdm_status status; /* of the last attempt; TDM_OK unless it failed */
    VkPipeline pipeline;
} pipeline_entry;

struct vk_pipelines {
    pthread_mutex_t mutex; /* over modules and entries; not held while a pipeline is compiled */
    pthread_cond_t changed; /* an entry has become READY or FAILED */
    VkPipelineCache cache;
    size_t cache_size;       /* of the bytes read from disk; 0 = none */
    char cache_path[3400];   /* empty = none */
    VkShaderModule *modules; /* vk_n_shader, as in vk_shaders */
    pipeline_entry *buckets[N_BUCKET];
};

/* ---- Between runs ---------------------------------------------------------------------------- */

void vk_cache_key_get(const vk_facts *facts, vk_cache_key *key_out) {
    *key_out = (vk_cache_key){.vendor_id = facts->properties.vendorID,
                              .device_id = facts->properties.deviceID,
                              .driver_version = facts->properties.driverVersion};
    memcpy(key_out->driver_uuid, facts->driver_uuid, sizeof key_out->driver_uuid);
    memcpy(key_out->cache_uuid, facts->properties.pipelineCacheUUID, sizeof key_out->cache_uuid);
}

static void cache_save(vk_device *device) {
    struct vk_pipelines *p = device->pipelines;
    vk_cache_key key;
    size_t size = 0;
    vk_cache_key_get(device->facts, &key);
    if (p->cache_path[0] == '\0' || atomic_load(&device->is_lost) ||
        device->fn.GetPipelineCacheData(device->device, p->cache, &size, NULL) != VK_SUCCESS ||
        size <= CACHE_HEADER_SIZE || size == p->cache_size)
        return;
    void *data = malloc(size);
    if (data != NULL &&
        device->fn.GetPipelineCacheData(device->device, p->cache, &size, data) == VK_SUCCESS)
        vk_cache_write(p->cache_path, &key, data, size);
    free(data);
}

tdm_status vk_pipelines_create(vk_device *device, tdm_error *err) {
    vk_cache_key key;
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    struct vk_pipelines *p = calloc(1, sizeof *p);
    if (p == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    device->pipelines = p;
    vk_cache_key_get(device->facts, &key);
    void *data = NULL;
    p->modules = calloc((size_t)vk_n_shader, sizeof *p->modules);
    if (p->modules == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    if (vk_cache_path(&key, p->cache_path, sizeof p->cache_path))
        data = vk_cache_read(p->cache_path, &key, &p->cache_size);
    else
        p->cache_path[0] = '\0';
    info.initialDataSize = p->cache_size;
    info.pInitialData = data;
    VkResult result = device->fn.CreatePipelineCache(device->device, &info, NULL, &p->cache);
    free(data);
    if (result == VK_SUCCESS) return TDM_OK;
    p->cache = VK_NULL_HANDLE;
    return vk_fail(device, err, result, "vkCreatePipelineCache");
}

void vk_pipelines_destroy(vk_device *device) {
    struct vk_pipelines *p = device->pipelines;
    if (p == NULL) return;
    if (p->cache != VK_NULL_HANDLE) cache_save(device);
    for (int i = 0; i < N_BUCKET; i++)
        for (pipeline_entry *entry = p->buckets[i]; entry != NULL;) {
            pipeline_entry *next = entry->next;
            if (entry->state == PIPELINE_READY)
                device->fn.DestroyPipeline(device->device, entry->pipeline, NULL);
            free(entry);
            entry = next;
        }
    for (int i = 0; p->modules != NULL && i < vk_n_shader; i++)
        if (p->modules[i] != VK_NULL_HANDLE)
            device->fn.DestroyShaderModule(device->device, p->modules[i], NULL);
    if (p->cache != VK_NULL_HANDLE) device->fn.DestroyPipelineCache(device->device, p->cache, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    free(p->modules);
    free(p);
    device->pipelines = NULL;
}

/* ---- One pipeline ---------------------------------------------------------------------------- */

static uint32_t key_hash(const pipeline_key *key) {
    uint32_t hash = 2166136261u;
    const uint8_t *bytes = (const uint8_t *)key;
    for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ bytes[i]) * 16777619u;
    return hash % N_BUCKET;
}

/* The number of the shader for a key; -1 = it was not built. */
static int32_t shader_find(const pipeline_key *key) {
    for (int32_t i = 0; i < vk_n_shader; i++)
        if (vk_shaders[i].kernel == key->kernel &&
            (vk_shaders[i].type == -1 || vk_shaders[i].type == key->spec[0]))
            return i;
    return -1;
}

static pthread_once_t code_once = PTHREAD_ONCE_INIT;
static uint64_t code_hashes[GPU_KERNEL_COUNT_ * 64]; /* of vk_shaders */

static void code_hashes_make(void) {
    for (int32_t i = 0; i < vk_n_shader; i++) {
        code_hashes[i] = TDM_HASH_BEGIN;
        for (size_t k = 0; k < vk_shaders[i].size / 4; k++)
            code_hashes[i] = (code_hashes[i] ^ vk_shaders[i].code[k]) * UINT64_C(0x100000001b3);
    }
}

static uint64_t code_hash(int32_t number) {
    pthread_once(&code_once, code_hashes_make);
    return code_hashes[number];
}

static pipeline_key key_of(const gpu_step *step) {
    pipeline_key key = {.kernel = step->kernel, .group_size = step->group_size};
    memcpy(key.spec, step->spec, sizeof key.spec);
    return key;
}

uint64_t vk_shader_hash(const gpu_step *step) {
    const pipeline_key key = key_of(step);
    int32_t number = shader_find(&key);
    return number < 0 ? 0 : code_hash(number);
}

bool vk_shader_hash_is_known(uint64_t hash) {
    for (int32_t i = 0; i < vk_n_shader; i++)
        if (code_hash(i) == hash) return true;
    return false;
}

bool vk_kernel_is_spoilt(const vk_device *device, int32_t kernel) {
    return strcmp(device->options.wrong, gpu_kernel_name(kernel)) == 0;
}

/* test-limits wrong=bytes: the kernel computes bytes wrongly, and the values right. */
static bool has_wrong_bytes(const vk_device *device, const gpu_step *step) {
    return strcmp(device->options.wrong, "bytes") == 0 && gpu_step_stores_bytes(step);
}

/* The size of subgroups that a pipeline names, 0 = none. Kernels whose invocations hold many numbers
 * name device->small_subgroup. They use no function of a subgroup, so that results do not depend on
 * its size. */
static int32_t subgroup_of(const vk_device *device, int32_t kernel, int32_t group_size) {
    const int32_t small = device->small_subgroup;
    const bool holds_many =
        kernel == GPU_KERNEL_ATTENTION_PART || kernel == GPU_KERNEL_ATTENTION_TILE ||
        kernel == GPU_KERNEL_PRODUCT_TILE || kernel == GPU_KERNEL_PRODUCT_TILE_DOT;
    return small != 0 && holds_many && group_size <= small * device->facts->group_subgroups
               ? small
               : device->required_subgroup;
}

uint64_t vk_pipeline_hash(const vk_device *device, const gpu_step *step) {
    const bool is_wrong =
        vk_kernel_is_spoilt(device, step->kernel) || has_wrong_bytes(device, step);
    const int32_t rest[] = {step->group_size, subgroup_of(device, step->kernel, step->group_size),
                            device->target.subgroup_max, is_wrong};
    uint64_t hash = tdm_hash_add(vk_shader_hash(step), rest, sizeof rest);
    return tdm_hash_add(hash, step->spec, sizeof step->spec);
}

/* The module of a key's shader, made at the first call. Takes the mutex. */
static tdm_status module_get(vk_device *device, const pipeline_key *key, VkShaderModule *module_out,
                             tdm_error *err) {
    int32_t number = shader_find(key);
    if (number < 0)
        return tdm_fail(err, TDM_INTERNAL, "%s: kernel %s was not built", device->name,
                        gpu_kernel_name(key->kernel));
    VkShaderModule *module = &device->pipelines->modules[number];
    VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                     .codeSize = vk_shaders[number].size,
                                     .pCode = vk_shaders[number].code};
    VkResult result = VK_SUCCESS;
    pthread_mutex_lock(&device->pipelines->mutex);
    if (*module == VK_NULL_HANDLE) {
        uint32_t *code = vk_float_mode_add(info.pCode, info.codeSize, &device->facts->float_mode,
                                           &info.codeSize);
        info.pCode = code;
        result = code != NULL ? device->fn.CreateShaderModule(device->device, &info, NULL, module)
                              : VK_ERROR_OUT_OF_HOST_MEMORY;
        if (result != VK_SUCCESS) *module = VK_NULL_HANDLE;
        free(code);
    }
    *module_out = *module;
    pthread_mutex_unlock(&device->pipelines->mutex);
    return result == VK_SUCCESS ? TDM_OK : vk_fail(device, err, result, "vkCreateShaderModule");
}

/* Specialisation: constant 0 is the group size, constants 1 to 8 are the step's numbers
 * (args.glsl), constant 9 is 1 where bytes are to be wrong, for tests (bytes_store.glsl). */
static tdm_status pipeline_make(vk_device *device, const pipeline_key *key, const gpu_step *step,
                                VkPipeline *pipeline_out, tdm_error *err) {
    enum { N_CONSTANT = 1 + GPU_MAX_SPEC + 1 };
    int32_t constants[N_CONSTANT];
    VkSpecializationMapEntry entries[N_CONSTANT];
    VkShaderModule module = VK_NULL_HANDLE;
    tdm_status status = module_get(device, key, &module, err);
    if (status != TDM_OK) return status;
    constants[0] = key->group_size;
    memcpy(&constants[1], key->spec, sizeof key->spec);
    constants[1 + GPU_MAX_SPEC] = has_wrong_bytes(device, step);
    for (uint32_t i = 0; i < N_CONSTANT; i++) entries[i] = (VkSpecializationMapEntry){i, i * 4, 4};
    const VkSpecializationInfo specialization = {N_CONSTANT, entries, sizeof constants, constants};
    const int32_t subgroup = subgroup_of(device, key->kernel, key->group_size);
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo required = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = (uint32_t)subgroup};
    /* Full subgroups can be demanded only of groups that are whole subgroups. */
    bool is_full =
        device->facts->has_full_subgroups && key->group_size % device->target.subgroup_max == 0;
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = VK_PIPELINE_CREATE_DISPATCH_BASE_BIT, /* slices: parts.h */
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = subgroup != 0 ? &required : NULL,
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

static tdm_status pipeline_compile(vk_device *device, const pipeline_key *key,
                                   VkPipeline *pipeline_out, tdm_error *err) {
    gpu_step step = {.kernel = key->kernel, .group_size = key->group_size};
    vk_compile_mark mark;
    memcpy(step.spec, key->spec, sizeof key->spec);
    tdm_status status = vk_verdicts_compile_begin(device, &step, &mark, err);
    if (status != TDM_OK) return status;
    status = pipeline_make(device, key, &step, pipeline_out, err);
    vk_verdicts_compile_end(device, &mark);
    return status;
}

/* ---- Several at a time ----------------------------------------------------------------------- */

/* What one call compiles. */
typedef struct pipeline_work {
    vk_device *device;
    pthread_mutex_t mutex;
    pipeline_entry *first;
    tdm_status status; /* the first failure */
    tdm_error err;
} pipeline_work;

static void *compiler_main(void *arg) {
    pipeline_work *work = arg;
    struct vk_pipelines *p = work->device->pipelines;
    for (;;) {
        pthread_mutex_lock(&work->mutex);
        pipeline_entry *entry = work->first;
        if (entry != NULL) work->first = entry->next_work;
        pthread_mutex_unlock(&work->mutex);
        if (entry == NULL) return NULL;
        VkPipeline pipeline = VK_NULL_HANDLE;
        tdm_error err = {0};
        tdm_status status = pipeline_compile(work->device, &entry->key, &pipeline, &err);
        pthread_mutex_lock(&p->mutex);
        entry->pipeline = pipeline;
        entry->status = status;
        entry->state = status == TDM_OK ? PIPELINE_READY : PIPELINE_FAILED;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->mutex);
        if (status == TDM_OK) continue;
        pthread_mutex_lock(&work->mutex);
        if (work->status == TDM_OK) {
            work->status = status;
            work->err = err;
        }
        pthread_mutex_unlock(&work->mutex);
    }
}

static void work_run(pipeline_work *work, int32_t n) {
    pthread_t threads[MAX_COMPILER];
    long n_processor = sysconf(_SC_NPROCESSORS_ONLN);
    int32_t n_thread = 0;
    while (n_thread < MAX_COMPILER && n_thread + 1 < n && n_thread + 1 < n_processor &&
           pthread_create(&threads[n_thread], NULL, compiler_main, work) == 0)
        n_thread++;
    compiler_main(work);
    for (int32_t i = 0; i < n_thread; i++) pthread_join(threads[i], NULL);
}

/* The entry of a step. *is_new_out: the caller must compile it, since it does not exist or failed
 * before. NULL without memory. With the mutex held. */
static pipeline_entry *entry_get(struct vk_pipelines *p, const gpu_step *step, bool *is_new_out) {
    const pipeline_key key = key_of(step);
    pipeline_entry **bucket = &p->buckets[key_hash(&key)], *entry = *bucket;
    *is_new_out = false;
    while (entry != NULL && memcmp(&entry->key, &key, sizeof key) != 0) entry = entry->next;
    if (entry != NULL && entry->state != PIPELINE_FAILED) return entry;
    *is_new_out = true;
    if (entry == NULL) {
        if ((entry = calloc(1, sizeof *entry)) == NULL) return NULL;
        entry->key = key;
        entry->next = *bucket;
        *bucket = entry;
    }
    entry->state = PIPELINE_WANTED;
    return entry;
}

bool vk_pipeline_is_refused(vk_device *device, const gpu_step *step) {
    struct vk_pipelines *p = device->pipelines;
    const pipeline_key key = key_of(step);
    pthread_mutex_lock(&p->mutex);
    const pipeline_entry *entry = p->buckets[key_hash(&key)];
    while (entry != NULL && memcmp(&entry->key, &key, sizeof key) != 0) entry = entry->next;
    bool is_refused =
        entry != NULL && entry->state == PIPELINE_FAILED && entry->status != TDM_RESOURCE_EXHAUSTED;
    pthread_mutex_unlock(&p->mutex);
    return is_refused;
}

tdm_status vk_pipelines_get(vk_device *device, const gpu_step *steps, int32_t n_step,
                            VkPipeline *pipelines_out, tdm_error *err) {
    struct vk_pipelines *p = device->pipelines;
    pipeline_work work = {.device = device};
    int32_t n_new = 0;
    pipeline_entry **entries = calloc((size_t)n_step + 1, sizeof(pipeline_entry *));
    bool has_memory = entries != NULL;
    pthread_mutex_lock(&p->mutex);
    for (int32_t i = 0; i < n_step && has_memory; i++) {
        bool is_new;
        entries[i] = entry_get(p, &steps[i], &is_new);
        if (entries[i] == NULL) {
            has_memory = false;
        } else if (is_new) {
            entries[i]->next_work = work.first;
            work.first = entries[i];
            n_new++;
        }
    }
    pthread_mutex_unlock(&p->mutex);
    pthread_mutex_init(&work.mutex, NULL);
    if (n_new > 0) work_run(&work, n_new); /* also without memory: others may wait for them */
    pthread_mutex_destroy(&work.mutex);
    tdm_status status = TDM_OK;
    if (work.status != TDM_OK)
        status = tdm_fail(err, work.status, "%s", work.err.message);
    else if (!has_memory)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    pthread_mutex_lock(&p->mutex);
    for (int32_t i = 0; i < n_step && status == TDM_OK; i++) {
        while (entries[i]->state == PIPELINE_WANTED) pthread_cond_wait(&p->changed, &p->mutex);
        pipelines_out[i] = entries[i]->pipeline;
        if (entries[i]->state == PIPELINE_FAILED)
            status = tdm_fail(err, entries[i]->status, "%s: kernel %s could not be compiled",
                              device->name, gpu_kernel_name(steps[i].kernel));
    }
    pthread_mutex_unlock(&p->mutex);
    free(entries);
    return status;
}
