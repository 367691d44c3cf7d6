/* SPDX-License-Identifier: MIT
 *
 * device.c: finds the devices of the driver, opens and closes them.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/denormal.h"
#include "plugins/vulkan/matrix.h"
#include "plugins/vulkan/measure.h"
#include "plugins/vulkan/parts.h"
#include "plugins/vulkan/pipeline.h"
#include "plugins/vulkan/transfer.h"
#include "plugins/vulkan/upload.h"
#include "plugins/vulkan/verdict.h"

/* ---- Failures -------------------------------------------------------------------------------- */

tdm_status vk_fail(vk_device *device, tdm_error *err, VkResult result, const char *what) {
    char text[32];
    if (result == VK_ERROR_DEVICE_LOST) {
        atomic_store(&device->is_lost, true);
        return tdm_fail(err, TDM_UNAVAILABLE,
                        "%s (%s): the device is lost: %s failed; the driver may have reset it. "
                        "Close it and open it again",
                        device->name, device->facts->properties.deviceName, what);
    }
    return tdm_fail(err, vk_result_status(result), "%s (%s): %s failed: %s", device->name,
                    device->facts->properties.deviceName, what, vk_result_name(result, text));
}

/* ---- Enumeration ----------------------------------------------------------------------------- */

/* GPUs in the driver's order, then software drivers. */
static void facts_sort(vk_facts *facts, int32_t n) {
    for (int32_t i = 1; i < n; i++)
        for (int32_t k = i; k > 0 && facts[k - 1].is_cpu && !facts[k].is_cpu; k--) {
            vk_facts swap = facts[k];
            facts[k] = facts[k - 1];
            facts[k - 1] = swap;
        }
}

static tdm_status facts_collect(tdm_instance *instance, tdm_error *err) {
    VkPhysicalDevice physical[VK_MAX_DEVICE];
    uint32_t n = VK_MAX_DEVICE;
    char text[32];
    VkResult result =
        instance->driver.fn.EnumeratePhysicalDevices(instance->driver.instance, &n, physical);
    if (result < 0)
        return tdm_fail(err, TDM_UNAVAILABLE, "vulkan: vkEnumeratePhysicalDevices failed: %s",
                        vk_result_name(result, text));
    instance->facts = calloc(n + 1, sizeof *instance->facts);
    if (instance->facts == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "vulkan: no memory");
    for (uint32_t i = 0; i < n; i++)
        vk_facts_read(&instance->driver, physical[i], &instance->facts[i]);
    instance->n_facts = (int32_t)n;
    facts_sort(instance->facts, instance->n_facts);
    for (int32_t i = 0; i < instance->n_facts; i++)
        if (instance->facts[i].refusal[0] != '\0' && TDM_HAS(instance->host, log))
            instance->host->log(instance->host->context, TDM_LOG_DEBUG, "vulkan: no device: %s: %s",
                                instance->facts[i].properties.deviceName,
                                instance->facts[i].refusal);
    return TDM_OK;
}

/* Opens the driver at the first call. */
static void instance_look(tdm_instance *instance) {
    pthread_mutex_lock(&instance->mutex);
    if (!instance->has_looked) {
        instance->has_looked = true;
        tdm_status status = vk_driver_open(&instance->driver, &instance->reason);
        if (status == TDM_OK) facts_collect(instance, &instance->reason);
    }
    pthread_mutex_unlock(&instance->mutex);
}

static bool is_device(const vk_facts *facts) {
    return facts->refusal[0] == '\0';
}

/* Whether the options of a section make software drivers devices. */
static bool allows_cpu(const tdm_device_params *params) {
    tdm_device_params p;
    bool allow = false;
    tdm_struct_read(&p, sizeof p, params);
    for (int32_t i = 0; i < p.n_option; i++)
        if (strcmp(p.options[i].key, "allow-cpu") == 0 && p.options[i].value != NULL)
            allow = strcmp(p.options[i].value, "yes") == 0;
    return allow;
}

/* The facts of device `index`; NULL past the end. GPUs come first, so that their numbers do not
 * depend on options. */
static const vk_facts *facts_at(tdm_instance *instance, int32_t index, bool allow_cpu) {
    instance_look(instance);
    for (int32_t i = 0; i < instance->n_facts && index >= 0; i++) {
        const vk_facts *facts = &instance->facts[i];
        if (is_device(facts) && (!facts->is_cpu || allow_cpu) && index-- == 0) return facts;
    }
    return NULL;
}

/* Writes why there is no device: a reason for each physical device, or for there being none. */
static void reason_give(const tdm_instance *instance, tdm_error *err) {
    if (instance->n_facts == 0 && instance->reason.message[0] != '\0') {
        tdm_fail(err, TDM_UNAVAILABLE, "%s", instance->reason.message);
        return;
    }
    if (instance->n_facts == 0) {
        tdm_fail(err, TDM_UNAVAILABLE, "the Vulkan drivers found no device");
        return;
    }
    char text[TDM_ERROR_MESSAGE_SIZE / 2];
    size_t used = 0;
    for (int32_t i = 0; i < instance->n_facts && used < sizeof text; i++) {
        const vk_facts *facts = &instance->facts[i];
        int n = is_device(facts)
                    ? snprintf(text + used, sizeof text - used,
                               "; %.60s is a software driver, a device only with allow-cpu = yes",
                               facts->properties.deviceName)
                    : snprintf(text + used, sizeof text - used, "; %.60s is left out: %s",
                               facts->properties.deviceName, facts->refusal);
        if (n > 0) used += (size_t)n;
    }
    tdm_fail(err, TDM_UNAVAILABLE, "no GPU%s", text);
}

static tdm_status device_count(tdm_instance *instance, const tdm_device_params *params,
                               int32_t *n_out, tdm_error *err) {
    bool allow_cpu = allows_cpu(params);
    int32_t n = 0;
    while (facts_at(instance, n, allow_cpu) != NULL) n++;
    *n_out = n;
    if (n == 0 && err != NULL) reason_give(instance, err);
    return TDM_OK;
}

/* Writes the optional features of a device, ", f16, int8 dots", behind the names of kernels that
 * are not used because they were found wrong. options: NULL = none. */
static void features_format(const vk_facts *facts, const vk_options *options, char *text,
                            size_t size) {
    char wrong[48];
    int32_t n_wrong =
        vk_verdicts_wrong(facts, options != NULL ? options->wrong : "", wrong, sizeof wrong);
    snprintf(text, size, "%s%s%s%s%s%s", n_wrong > 0 ? ", wrong: " : "", wrong,
             facts->has_f16 ? ", f16" : "", facts->has_dot8 ? ", int8 dots" : "",
             facts->has_matrix ? ", matrices" : "", facts->import_align != 0 ? ", import" : "");
}

static void info_fill(tdm_instance *instance, const vk_facts *facts, int32_t index,
                      const vk_options *options, uint64_t allocated, tdm_device_info *info_out) {
    tdm_device_info info = {.struct_size = sizeof info};
    char features[96];
    snprintf(info.name, sizeof info.name, "vulkan%d", (int)index);
    features_format(facts, options, features, sizeof features);
    /* Names of devices and drivers are shortened where wrong kernels take their place. */
    int room = (int)(sizeof info.description - sizeof " ()" - strlen(features)) / 2;
    if (room > 42) room = 42;
    snprintf(info.description, sizeof info.description, "%.*s (%.*s)%s", room,
             facts->properties.deviceName, room, facts->driver, features);
    snprintf(info.vendor, sizeof info.vendor, "%s", vk_vendor_name(facts->properties.vendorID));
    snprintf(info.pci_address, sizeof info.pci_address, "%s", facts->pci_address);
    vk_facts_memory(&instance->driver, facts, allocated, &info.memory_free, &info.memory_total);
    info.buffer_align = GPU_BUFFER_ALIGN;
    info.max_buffer = facts->max_allocation;
    if (options != NULL && options->allocation != 0 && options->allocation < info.max_buffer)
        info.max_buffer = options->allocation;
    info.flags = TDM_DEVICE_HOLDS_TEMPS;
    info.import_align = facts->import_align;
    /* The uuid is that of a card, which another plugin may show too. Software drivers have none. */
    info.has_uuid = !facts->is_cpu;
    memcpy(info.uuid, facts->uuid, sizeof info.uuid);
    if (facts->is_integrated) info.flags |= TDM_DEVICE_IS_INTEGRATED;
    tdm_struct_write(info_out, &info, sizeof info);
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    const vk_facts *facts = facts_at(instance, index, allows_cpu(params));
    tdm_device_params p;
    vk_options options;
    if (facts == NULL) return tdm_fail(err, TDM_NOT_FOUND, "vulkan: no device %d", (int)index);
    tdm_struct_read(&p, sizeof p, params);
    bool is_good = vk_options_parse(p.options, p.n_option, &options, NULL) == TDM_OK;
    info_fill(instance, facts, index, is_good ? &options : NULL, 0, info_out);
    return TDM_OK;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static uint32_t least(uint32_t limit, uint32_t option) {
    return option != 0 && option < limit ? option : limit;
}

/* Where 32 is the largest size of several, a subgroup of every size has the same registers, 128 for
 * each invocation of the smallest (Intel: 4 KiB up to Xe with subgroups from 8 on, 8 KiB from Xe2 on
 * with 16). */
static bool shares_registers(const vk_facts *facts) {
    return facts->can_require_subgroup && facts->subgroup_min < facts->subgroup_max &&
           facts->subgroup_max <= 32;
}

/* Tuning for few registers: what Mesa's compiler for Intel's GPUs keeps in them. Tiles of attention
 * are computed by subgroups of the smallest size, where there are several (pipeline.c). */
static void registers_fit(vk_device *device) {
    enum { TILE_REGISTERS = 24, PART_SUMS = 32, TILE = 512 };
    gpu_target *t = &device->target;
    const int32_t subgroup =
        device->small_subgroup != 0 ? device->small_subgroup : device->required_subgroup;
    const int32_t most =
        subgroup != 0 ? subgroup * device->facts->group_subgroups : t->max_group_size;
    t->attention.tile_registers = TILE_REGISTERS;
    t->attention.tile_group = most >= TILE ? TILE : TILE / 2;
    t->attention.part_sums = PART_SUMS;
    if (subgroup == 0 || device->required_subgroup > device->facts->subgroup_min)
        t->product.row_rows = 2;
}

/* Fills device->target, which the planner reads. subgroup_choose is called before. */
static void target_fill(vk_device *device) {
    const vk_facts *facts = device->facts;
    const VkPhysicalDeviceLimits *limits = &facts->properties.limits;
    const vk_options *o = &device->options;
    gpu_target *t = &device->target;
    snprintf(t->name, sizeof t->name, "%s", device->name);
    t->subgroup_min = facts->subgroup_min;
    t->subgroup_max = facts->subgroup_max;
    if (device->required_subgroup != 0)
        t->subgroup_min = t->subgroup_max = device->required_subgroup;
    uint32_t group = limits->maxComputeWorkGroupInvocations < limits->maxComputeWorkGroupSize[0]
                         ? limits->maxComputeWorkGroupInvocations
                         : limits->maxComputeWorkGroupSize[0];
    /* A limit of pipelines that name a size, below the others where subgroups are small. */
    if (device->required_subgroup != 0)
        group = least(group, (uint32_t)(device->required_subgroup * facts->group_subgroups));
    t->max_group_size = (int32_t)least(group, (uint32_t)o->group_size);
    for (int i = 0; i < 3; i++)
        t->max_grid[i] = least(limits->maxComputeWorkGroupCount[i], o->grid);
    t->shared_size = least(limits->maxComputeSharedMemorySize, o->shared_size);
    /* Software drivers end a shader's loops after 65,535 iterations, and report no error. */
    t->max_trips = facts->is_cpu ? 65535 : 0;
    if (o->trips != 0 && (t->max_trips == 0 || o->trips < t->max_trips)) t->max_trips = o->trips;
    t->is_host = facts->is_integrated || facts->is_cpu;
    t->is_unfused = !o->has_fusion;
    if (!o->has_lanes) t->product.lane_max_subgroup = -1;
    t->has_f16 = facts->has_f16 && o->has_f16;
    if (o->is_matrix_plain && t->has_f16) {
        t->is_matrix_plain = true;
        t->matrix_rows = t->matrix_columns = 16;
    } else if (o->has_matrix && t->has_f16) {
        t->matrix_rows = facts->matrix_rows;
        t->matrix_columns = facts->matrix_columns;
    }
    t->attention.tile_registers = 112;
    t->attention.tile_group = 256;
    if (shares_registers(facts) || o->has_few_registers) registers_fit(device);
    t->has_dot8 = o->has_slow_dot8 ? facts->has_dot8_instruction : facts->has_dot8 && o->has_dot8;
    /* bytes_store.glsl takes up to 8 KiB of shared memory. Every driver has 16 KiB, but test-limits
     * can lower that. */
    t->product.rows_quantize = t->has_dot8 && t->shared_size >= 16384;
}

/* The size of subgroups where a driver offers several. A size of 32 suits GPUs whose subgroups may
 * be larger. Where they share registers, each of 32 invocations has too few for most kernels here;
 * each of 16 has twice as many, and loads of 16 invocations are long. */
static int32_t subgroup_suitable(const vk_facts *facts) {
    int32_t size = facts->subgroup_max <= 32 ? 16 : 32;
    if (size < facts->subgroup_min) size = facts->subgroup_min;
    return size < facts->subgroup_max ? size : facts->subgroup_max;
}

/* Sets device->required_subgroup, the subgroup size that pipelines name: 0 where the driver has
 * only one, or where pipelines cannot name one; and device->small_subgroup. */
static tdm_status subgroup_choose(vk_device *device, tdm_error *err) {
    const vk_facts *facts = device->facts;
    int32_t size = device->options.subgroup;
    device->required_subgroup = device->small_subgroup = 0;
    if (size != 0 && size != facts->subgroup_default &&
        (!facts->can_require_subgroup || size < facts->subgroup_min || size > facts->subgroup_max ||
         (size & (size - 1)) != 0))
        return tdm_fail(err, TDM_UNSUPPORTED, "%s: no subgroups of %d; the driver has %d to %d",
                        device->name, (int)size, (int)facts->subgroup_min,
                        (int)facts->subgroup_max);
    /* Where none is named, Mesa's driver of Intel cards runs subgroups of another size than
     * gl_SubgroupSize says. */
    if (!facts->can_require_subgroup || facts->subgroup_min == facts->subgroup_max) return TDM_OK;
    device->required_subgroup = size != 0 ? size : subgroup_suitable(facts);
    if (size == 0 && shares_registers(facts) && facts->subgroup_min < device->required_subgroup)
        device->small_subgroup = facts->subgroup_min;
    return TDM_OK;
}

/* What a logical device is created with. The features are structs that point to each other. */
typedef struct device_request {
    VkPhysicalDeviceFeatures2 features; /* the first of them */
    VkPhysicalDeviceVulkan11Features f11;
    VkPhysicalDeviceVulkan12Features f12;
    VkPhysicalDeviceVulkan13Features f13; /* where there is 1.3, else the next two */
    VkPhysicalDeviceSubgroupSizeControlFeatures size_control;
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot;
    vk_matrix_features matrix;
    const char *extensions[8];
    uint32_t n_extension;
} device_request;

static void extension_add(device_request *r, const char *name) {
    r->extensions[r->n_extension++] = name;
}

/* The features of 1.0 to 1.2 that every device has, or that its facts tell. */
static void features_request(device_request *r, const vk_facts *facts) {
    r->f12 = (VkPhysicalDeviceVulkan12Features){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .storageBuffer8BitAccess = VK_TRUE,
        .shaderFloat16 = facts->has_f16,
        .shaderInt8 = VK_TRUE,
        .scalarBlockLayout = VK_TRUE,
        .timelineSemaphore = VK_TRUE,
        .bufferDeviceAddress = VK_TRUE,
        /* Kernels on matrices need the first. With it, atomics across workgroups, which other
         * kernels have, need the second (VUID-RuntimeSpirv-vulkanMemoryModel-06265). */
        .vulkanMemoryModel = facts->has_matrix,
        .vulkanMemoryModelDeviceScope = facts->has_matrix};
    r->f11 = (VkPhysicalDeviceVulkan11Features){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &r->f12,
        .storageBuffer16BitAccess = VK_TRUE};
    r->features =
        (VkPhysicalDeviceFeatures2){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                    .pNext = &r->f11,
                                    .features = {.shaderInt16 = VK_TRUE, .shaderInt64 = VK_TRUE}};
}

/* Features that Vulkan 1.3 has and 1.2 has as extensions. */
static void features_1_3_request(device_request *r, const vk_facts *facts, bool has_1_3) {
    void **next = &r->f12.pNext;
    if (has_1_3) {
        r->f13 = (VkPhysicalDeviceVulkan13Features){
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
            .subgroupSizeControl = facts->can_require_subgroup,
            .computeFullSubgroups = facts->has_full_subgroups,
            .shaderIntegerDotProduct = facts->has_dot8_instruction};
        *next = &r->f13;
        return;
    }
    if (facts->has_subgroup_control) {
        r->size_control = (VkPhysicalDeviceSubgroupSizeControlFeatures){
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
            .subgroupSizeControl = facts->can_require_subgroup,
            .computeFullSubgroups = facts->has_full_subgroups};
        extension_add(r, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
        *next = &r->size_control, next = &r->size_control.pNext;
    }
    if (facts->has_dot8_instruction) {
        r->dot = (VkPhysicalDeviceShaderIntegerDotProductFeatures){
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
            .shaderIntegerDotProduct = VK_TRUE};
        extension_add(r, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
        *next = &r->dot;
    }
}

/* Extensions that no version has. */
static void extensions_request(device_request *r, const vk_facts *facts) {
    if (facts->has_matrix) {
        r->matrix = (vk_matrix_features){.sType = VK_MATRIX_FEATURES_TYPE,
                                         .pNext = r->features.pNext,
                                         .cooperativeMatrix = VK_TRUE};
        extension_add(r, VK_MATRIX_EXTENSION);
        r->features.pNext = &r->matrix;
    }
    if (facts->import_align != 0) extension_add(r, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    if (facts->has_budget) extension_add(r, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
}

static tdm_status logical_create(vk_device *device, tdm_error *err) {
    const vk_driver *driver = &device->instance->driver;
    const vk_facts *facts = device->facts;
    const bool has_1_3 = driver->api_version >= VK_API_VERSION_1_3 &&
                         facts->properties.apiVersion >= VK_API_VERSION_1_3;
    device_request r = {.n_extension = 0};
    features_request(&r, facts);
    features_1_3_request(&r, facts, has_1_3);
    extensions_request(&r, facts);
    const float priority = 1.0f;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = facts->compute_family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &r.features,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = r.n_extension,
                                     .ppEnabledExtensionNames = r.extensions};
    VkResult result = driver->fn.CreateDevice(facts->physical, &info, NULL, &device->device);
    if (result != VK_SUCCESS) {
        device->device = NULL;
        return vk_fail(device, err, result, "vkCreateDevice");
    }
    return vk_device_fn_load(driver, device->device, facts->import_align != 0, &device->fn, err);
}

static tdm_status layout_create(vk_device *device, tdm_error *err) {
    const VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                                       .size = sizeof(gpu_args)};
    const VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &range};
    VkResult result = device->fn.CreatePipelineLayout(device->device, &info, NULL, &device->layout);
    if (result == VK_SUCCESS) return TDM_OK;
    device->layout = VK_NULL_HANDLE;
    return vk_fail(device, err, result, "vkCreatePipelineLayout");
}

static void device_close(tdm_device *device) {
    if (device == NULL) return;
    if (device->device != NULL && device->fn.DestroyDevice != NULL) {
        vk_verdicts_destroy(device);
        vk_pipelines_destroy(device);
        vk_uploads_destroy(device);
        vk_transfer_destroy(device);
        vk_blocks_destroy(device);
        if (device->layout != VK_NULL_HANDLE)
            device->fn.DestroyPipelineLayout(device->device, device->layout, NULL);
        device->fn.DestroyDevice(device->device, NULL);
    }
    pthread_mutex_destroy(&device->import_mutex);
    pthread_mutex_destroy(&device->queue_mutex);
    free(device);
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    tdm_device_params p;
    vk_options options;
    tdm_struct_read(&p, sizeof p, params);
    tdm_status status = vk_options_parse(p.options, p.n_option, &options, err);
    if (status != TDM_OK) return status;
    const vk_facts *facts = facts_at(instance, p.index, options.allow_cpu);
    if (facts == NULL) {
        tdm_error why = {0};
        reason_give(instance, &why);
        return tdm_fail(err, TDM_NOT_FOUND, "vulkan: no device %d: %s", (int)p.index,
                        p.index == 0 ? why.message : "`tandem devices` lists them");
    }
    vk_device *device = calloc(1, sizeof *device);
    if (device == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "vulkan: no memory");
    device->instance = instance;
    device->index = p.index;
    device->facts = facts;
    device->options = options;
    vk_rates_init(&device->rates, facts);
    snprintf(device->name, sizeof device->name, "vulkan%d", (int)p.index);
    pthread_mutex_init(&device->queue_mutex, NULL);
    pthread_mutex_init(&device->import_mutex, NULL);
    status = subgroup_choose(device, err);
    if (status == TDM_OK) status = logical_create(device, err);
    if (status == TDM_OK) {
        device->fn.GetDeviceQueue(device->device, facts->compute_family, 0, &device->queue);
        target_fill(device);
        status = layout_create(device, err);
    }
    if (status == TDM_OK) status = vk_blocks_create(device, err);
    if (status == TDM_OK) status = vk_pipelines_create(device, err);
    if (status == TDM_OK) status = vk_transfer_create(device, err);
    if (status == TDM_OK) status = vk_uploads_create(device, err);
    if (status == TDM_OK) status = vk_verdicts_create(device, err);
    if (status == TDM_OK) status = vk_denormals_check(device, err);
    if (status != TDM_OK) {
        device_close(device);
        return status;
    }
    *device_out = device;
    return TDM_OK;
}

static tdm_status device_get_info(tdm_device *device, tdm_device_info *info_out, tdm_error *err) {
    (void)err;
    info_fill(device->instance, device->facts, device->index, &device->options,
              vk_memory_allocated(device), info_out);
    return TDM_OK;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static tdm_status device_supports_op(tdm_device *device, const tdm_graph *graph, int32_t node,
                                     tdm_error *err) {
    gpu_target target;
    vk_verdicts_target(device, &target);
    return gpu_plan_supports(&target, graph, node, err);
}

static tdm_status device_graph_supports(tdm_device *device, const tdm_graph *graph,
                                        uint8_t *supported_out, tdm_error *err) {
    gpu_target target;
    (void)err;
    vk_verdicts_target(device, &target);
    for (int32_t i = 0; i < graph->n_node; i++)
        supported_out[i] = gpu_plan_supports(&target, graph, i, NULL) == TDM_OK;
    return TDM_OK;
}

static tdm_status device_split_unit(tdm_device *device, const tdm_graph *graph, int32_t value,
                                    int32_t axis, int64_t *unit_out, tdm_error *err) {
    return tdm_split_unit_block(device->name, graph, value, axis, unit_out, err);
}

const tdm_device_ops vk_device_ops = {
    .struct_size = sizeof(tdm_device_ops),
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .get_info = device_get_info,
    .supports_op = device_supports_op,
    .graph_supports = device_graph_supports,
    .measure_limits = vk_limits_measure,
};

const tdm_split_ops vk_split_ops = {
    .struct_size = sizeof(tdm_split_ops),
    .split_unit = device_split_unit,
};
