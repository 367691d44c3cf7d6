/* SPDX-License-Identifier: MIT
 *
 * device.c: finds the devices of a driver, opens and closes them, and sets what the planner needs
 * to know about them (gpu_target). Also the failures of driver calls.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/queue/bound.h"
#include "plugins/gpu/rt/card.h"
#include "plugins/gpu/rt/early.h"
#include "plugins/gpu/rt/wait.h"

/* ---- Structs and failures -------------------------------------------------------------------- */

/* After a failure of a kernel the drivers refuse all further work of the process, in contexts made
 * later too (cuda.h: CUDA_ERROR_LAUNCH_FAILED and its neighbours). */
static tdm_status loss_fail(const rt_device *device, tdm_error *err, const char *what) {
    return tdm_fail(err, TDM_UNAVAILABLE,
                    "%s (%s): the device is lost: %s. Start the program again", device->name,
                    device->facts->name, what);
}

tdm_status rt_fail_symbol(rt_device *device, tdm_error *err, rt_result result, const char *symbol) {
    char number[32], text[96];
    snprintf(text, sizeof text, "%.40s failed: %.40s", symbol,
             rt_result_name(device->fn, result, number));
    if (rt_result_is_loss(result)) {
        atomic_store(&device->is_lost, true);
        return loss_fail(device, err, text);
    }
    return tdm_fail(err, rt_result_status(result), "%s (%s): %s", device->name, device->facts->name,
                    text);
}

tdm_status rt_fail(rt_device *device, tdm_error *err, rt_result result, int fn) {
    return rt_fail_symbol(device, err, result, rt_symbol(fn));
}

tdm_status rt_enter(rt_device *device, tdm_error *err) {
    if (atomic_load(&device->is_lost)) return loss_fail(device, err, "an earlier call failed");
    rt_result result = device->fn->context_set(device->context);
    return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_context_set);
}

rt_result rt_stream_end(const rt_device *device, void *stream) {
    rt_result result = device->fn->stream_sync(stream);
    if (result != RT_SUCCESS) (void)device->fn->stream_sync(stream);
    return result;
}

/* ---- Enumeration ----------------------------------------------------------------------------- */

/* Reads what the driver says about a device. False where it does not give name or memory. */
static bool facts_read(const rt_driver *fn, int index, rt_facts *facts) {
    size_t memory = 0;
    memset(facts, 0, sizeof *facts);
    if (fn->device_get(&facts->device, index) != RT_SUCCESS) return false;
    if (fn->device_name(facts->name, sizeof facts->name, facts->device) != RT_SUCCESS) return false;
    if (fn->device_memory(&memory, facts->device) != RT_SUCCESS) return false;
    facts->name[sizeof facts->name - 1] = '\0';
    facts->memory = memory;
    for (int i = 0; i < RT_ATTRIBUTE_COUNT_; i++) {
        int value = 0;
        if (rt_vendor_this.attribute[i] < 0) continue; /* the driver has no such attribute */
        if (fn->device_attribute(&value, rt_vendor_this.attribute[i], facts->device) == RT_SUCCESS)
            facts->attribute[i] = value;
    }
    if (rt_vendor_this.clock_khz != 0) facts->attribute[RT_CLOCK_KHZ] = rt_vendor_this.clock_khz;
    if (fn->device_pci(facts->pci_address, sizeof facts->pci_address, facts->device) != RT_SUCCESS)
        facts->pci_address[0] = '\0';
    for (char *c = facts->pci_address; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
    facts->has_uuid = rt_vendor_this.uuid_make != NULL
                          ? rt_vendor_this.uuid_make(facts->pci_address, facts->uuid)
                          : fn->device_uuid(facts->uuid, facts->device) == RT_SUCCESS;
    return true;
}

static void source_open(rt_source *source) {
    int n = 0;
    char text[32];
    if (rt_driver_open(source->path, &source->driver, &source->reason) != TDM_OK) return;
    source->is_open = true;
    if (rt_images[0].module == NULL && !source->driver.is_emulated) {
        tdm_fail(&source->reason, TDM_UNAVAILABLE,
                 "there is a %s driver, but this plugin was built without compiled kernels "
                 "(-Dgpu_kernels=enabled, after installing clang-19 and lld-19)",
                 rt_vendor_this.api);
        return;
    }
    rt_result result = source->driver.device_count(&n);
    if (result != RT_SUCCESS && result != RT_NO_DEVICE) {
        tdm_fail(&source->reason, TDM_UNAVAILABLE, "%s failed: %s", rt_symbol(RT_FN_device_count),
                 rt_result_name(&source->driver, result, text));
        return;
    }
    for (int i = 0; i < n && source->n_facts < RT_MAX_DEVICE; i++)
        if (facts_read(&source->driver, i, &source->facts[source->n_facts])) source->n_facts++;
    if (source->n_facts == 0) rt_driver_no_device(&source->reason);
}

/* The driver of a path, which is opened at the first call; is_open is false where that failed. NULL
 * without memory. */
static rt_source *source_get(tdm_instance *instance, const char *path) {
    if (path == NULL) path = "";
    pthread_mutex_lock(&instance->mutex);
    rt_source *source = instance->sources;
    while (source != NULL && strcmp(source->path, path) != 0) source = source->next;
    if (source == NULL) {
        source = calloc(1, sizeof *source);
        if (source != NULL) source->path = strdup(path);
        if (source != NULL && source->path != NULL) {
            pthread_mutex_init(&source->import_mutex, NULL);
            source_open(source);
            source->next = instance->sources;
            instance->sources = source;
        } else {
            free(source);
            source = NULL;
        }
    }
    pthread_mutex_unlock(&instance->mutex);
    return source;
}

static rt_source *source_of(tdm_instance *instance, const tdm_device_params *params) {
    tdm_device_params p;
    tdm_struct_read(&p, sizeof p, params);
    return source_get(instance, rt_options_driver(p.options, p.n_option));
}

static tdm_status device_count(tdm_instance *instance, const tdm_device_params *params,
                               int32_t *n_out, tdm_error *err) {
    const rt_source *source = source_of(instance, params);
    *n_out = source != NULL ? source->n_facts : 0;
    if (source == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    if (*n_out == 0) tdm_fail(err, TDM_UNAVAILABLE, "%s", source->reason.message);
    return TDM_OK;
}

static void info_fill(const rt_source *source, const rt_facts *facts, int32_t index,
                      uint64_t memory_free, bool may_wait, uint64_t max_buffer,
                      tdm_device_info *info_out) {
    tdm_device_info info = {.struct_size = sizeof info};
    snprintf(info.name, sizeof info.name, "%s%d", rt_vendor_this.plugin, (int)index);
    snprintf(info.description, sizeof info.description, "%s%.60s (%s %d.%d)",
             source->driver.is_emulated ? "EMULATED: " : "", facts->name, rt_vendor_this.api,
             source->driver.version / rt_vendor_this.version_major,
             source->driver.version % rt_vendor_this.version_major / rt_vendor_this.version_minor);
    snprintf(info.vendor, sizeof info.vendor, "%s", rt_vendor_this.maker);
    snprintf(info.pci_address, sizeof info.pci_address, "%s", facts->pci_address);
    info.memory_total = facts->memory;
    info.memory_free = memory_free;
    info.buffer_align = GPU_BUFFER_ALIGN;
    info.max_buffer = max_buffer;
    info.flags = TDM_DEVICE_HOLDS_TEMPS;
    if (may_wait) info.flags |= TDM_DEVICE_HAS_EXCHANGE;
    if (may_wait) info.exchange_wait_max_ns = TDM_WAIT_FOREVER;
    if (facts->attribute[RT_IS_INTEGRATED] != 0) info.flags |= TDM_DEVICE_IS_INTEGRATED;
    if (facts->attribute[RT_MAPS_HOST] != 0) info.import_align = 4096;
    if (rt_vendor_this.block_target(facts->attribute[RT_MAJOR], facts->attribute[RT_MINOR]) != NULL)
        info.prompt_step = rt_vendor_this.block_step;
    /* By the UUID the host finds devices of two plugins that are the same card. */
    info.has_uuid = facts->has_uuid;
    memcpy(info.uuid, facts->uuid, sizeof info.uuid);
    tdm_struct_write(info_out, &info, sizeof info);
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    const rt_source *source = source_of(instance, params);
    if (source == NULL || index < 0 || index >= source->n_facts)
        return tdm_fail(err, TDM_NOT_FOUND, "%s: no device %d", rt_vendor_this.plugin, (int)index);
    tdm_device_params p;
    rt_options options;
    tdm_struct_read(&p, sizeof p, params);
    bool is_good = rt_options_parse(p.options, p.n_option, &options, NULL) == TDM_OK;
    info_fill(source, &source->facts[index], index, source->facts[index].memory, false,
              is_good ? options.max_buffer : 0, info_out);
    return TDM_OK;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Most workgroups along x for workgroups of any size, where the vendor also limits the threads of
 * the axis. More workgroups go along y (gpu_step_grid). */
static uint32_t grid_max(int32_t n_group, int32_t max_group_size) {
    const uint64_t limit = rt_vendor_this.max_thread;
    const uint64_t by_thread = limit / (uint64_t)max_group_size;
    return limit != 0 && by_thread < (uint64_t)n_group ? (uint32_t)by_thread : (uint32_t)n_group;
}

/* True where the device runs PRODUCT_TILE_BLOCK and the plugin was built with it. */
static bool has_block_matrices(const rt_device *device) {
    const gpu_step widest = {.kernel = GPU_KERNEL_PRODUCT_TILE_BLOCK, .spec = {[3] = 256}};
    const int32_t *a = device->facts->attribute;
    const char *target = rt_vendor_this.block_target(a[RT_MAJOR], a[RT_MINOR]);
    if (target == NULL || a[RT_MAX_SHARED_SIZE] < (int32_t)rt_shared_size(&widest)) return false;
    if (device->source->driver.is_emulated) return true;
    for (const rt_image *image = rt_images; image->module != NULL; image++)
        if (strcmp(image->target, target) == 0) return true;
    return false;
}

static void target_fill(rt_device *device, const rt_options *options) {
    const int32_t *a = device->facts->attribute;
    gpu_target *t = &device->target;
    snprintf(t->name, sizeof t->name, "%s", device->name);
    t->subgroup_min = t->subgroup_max = a[RT_WAVE_SIZE];
    t->max_group_size = a[RT_GROUP_SIZE] < 1024 ? a[RT_GROUP_SIZE] : 1024;
    t->max_grid[0] = grid_max(a[RT_GRID_X], t->max_group_size);
    t->max_grid[1] = (uint32_t)a[RT_GRID_Y];
    t->max_grid[2] = 1;
    t->shared_size = (uint32_t)a[RT_SHARED_SIZE];
    t->shared_most = (uint32_t)a[RT_MAX_SHARED_SIZE];
    t->n_unit = a[RT_UNITS];
    t->is_host = a[RT_IS_INTEGRATED] != 0;
    t->is_unfused = !options->has_fusion;
    t->has_dot8 = true;
    t->product.lane_max_subgroup = -1;
    t->product.has_fixed_tiles = true;
    t->product.dot_one_k = 1; /* so that a token alone gives the same bits as in a batch */
    t->product.row_group = 2 * a[RT_WAVE_SIZE];
    t->attention.part_teams = 4;
    t->norm.share = 4;
    t->norm.long_share = 32;
    t->product.quantize_lanes = 8;
    t->product.rows_quantize = true;
    t->counts_groups = rt_vendor_this.has_split_cache == NULL ||
                       !rt_vendor_this.has_split_cache(a[RT_MAJOR], a[RT_MINOR]);
    t->product.has_wide_matrices =
        options->has_matrix && rt_vendor_this.has_matrices(a[RT_MAJOR], a[RT_MINOR]);
    t->product.has_block_matrices = t->product.has_wide_matrices && has_block_matrices(device);
    t->attention.has_matrices = t->product.has_wide_matrices;
    const int32_t least = rt_vendor_this.least_copying;
    if (least > 0 && 10 * a[RT_MAJOR] + a[RT_MINOR] >= least) t->attention.matrix_least_tok = 1;
    t->has_kernel = rt_has_kernel;
}

static tdm_status facts_check(const rt_device *device, tdm_error *err) {
    const int32_t *a = device->facts->attribute;
    int32_t wave = a[RT_WAVE_SIZE];
    if ((wave == 32 || wave == 64) && a[RT_GROUP_SIZE] >= 256 && a[RT_SHARED_SIZE] >= 16384 &&
        a[RT_GRID_X] > 0 && a[RT_GRID_Y] > 0)
        return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s (%s): waves of %d, workgroups of %d threads, %d bytes of shared memory: "
                    "the kernels need waves of 32 or 64, 256 threads and 16384 bytes",
                    device->name, device->facts->name, (int)wave, (int)a[RT_GROUP_SIZE],
                    (int)a[RT_SHARED_SIZE]);
}

static void device_close(tdm_device *device) {
    if (device == NULL) return;
    if (device->context != NULL) {
        device->fn->context_set(device->context);
        rt_modules_destroy(device);
        rt_uploads_destroy(device);
        rt_card_close(device);
        if (device->copy_stream != NULL) device->fn->stream_destroy(device->copy_stream);
        device->fn->context_release(device->facts->device);
        device->fn->context_set(NULL);
    }
    pthread_mutex_destroy(&device->copy_mutex);
    free(device);
}

static tdm_status device_start(rt_device *device, const rt_options *options, tdm_error *err) {
    rt_result result = device->fn->context_retain(&device->context, device->facts->device);
    if (result != RT_SUCCESS) {
        device->context = NULL;
        return rt_fail(device, err, result, RT_FN_context_retain);
    }
    tdm_status status = rt_card_open(device, err);
    if (status == TDM_OK) status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    result = device->fn->stream_create(&device->copy_stream, RT_STREAM_NON_BLOCKING);
    if (result != RT_SUCCESS) {
        device->copy_stream = NULL;
        return rt_fail(device, err, result, RT_FN_stream_create);
    }
    status = rt_uploads_create(device, err);
    if (status == TDM_OK) status = rt_modules_create(device, err);
    if (status == TDM_OK) status = rt_modules_check(device, err);
    if (status == TDM_OK) status = rt_early_decide(device, options, err);
    return status != TDM_OK ? status : rt_wait_decide(device, options, err);
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    tdm_device_params p;
    rt_options options;
    tdm_struct_read(&p, sizeof p, params);
    tdm_status status = rt_options_parse(p.options, p.n_option, &options, err);
    if (status != TDM_OK) return status;
    rt_source *source = source_get(instance, options.driver);
    if (source == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", rt_vendor_this.plugin);
    if (p.index < 0 || p.index >= source->n_facts)
        return tdm_fail(
            err, TDM_NOT_FOUND, "%s: no device %d: %s", rt_vendor_this.plugin, (int)p.index,
            source->n_facts == 0 ? source->reason.message : "`tandem devices` lists them");
    rt_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", rt_vendor_this.plugin);
    device->instance = instance;
    device->source = source;
    device->fn = &source->driver;
    device->facts = &source->facts[p.index];
    device->index = p.index;
    atomic_init(&device->has_graphs, options.has_graphs);
    atomic_init(&device->has_warned_graphs, false);
    device->max_buffer = options.max_buffer;
    snprintf(device->name, sizeof device->name, "%s%d", rt_vendor_this.plugin, (int)p.index);
    pthread_mutex_init(&device->copy_mutex, NULL);
    /* First: target_fill divides by numbers that it checks. */
    status = facts_check(device, err);
    if (status == TDM_OK) {
        target_fill(device, &options);
        status = device_start(device, &options, err);
    }
    if (status != TDM_OK) {
        device_close(device);
        return status;
    }
    *device_out = device;
    return TDM_OK;
}

static tdm_status device_get_info(tdm_device *device, tdm_device_info *info_out, tdm_error *err) {
    size_t n_free = 0, n_total = 0;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    (void)rt_card_settle(device, false);
    rt_result result = device->fn->memory_info(&n_free, &n_total);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_memory_info);
    n_free += (size_t)rt_card_kept(device->card); /* an allocation that needs it gets it */
    /* On an integrated device HIP reports more free memory than the device has in total
     * (unslothai/unsloth#7960: 120 GiB of 62). */
    if (n_free > device->facts->memory) n_free = (size_t)device->facts->memory;
    info_fill(device->source, device->facts, device->index, n_free, device->target.may_wait,
              device->max_buffer, info_out);
    return TDM_OK;
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static tdm_status device_supports_op(tdm_device *device, const tdm_graph *graph, int32_t node,
                                     tdm_error *err) {
    return gpu_plan_supports(&device->target, graph, node, err);
}

static tdm_status device_graph_supports(tdm_device *device, const tdm_graph *graph,
                                        uint8_t *supported_out, tdm_error *err) {
    (void)err;
    for (int32_t i = 0; i < graph->n_node; i++)
        supported_out[i] = gpu_plan_supports(&device->target, graph, i, NULL) == TDM_OK;
    return TDM_OK;
}

static tdm_status device_split_unit(tdm_device *device, const tdm_graph *graph, int32_t value,
                                    int32_t axis, int64_t *unit_out, tdm_error *err) {
    return tdm_split_unit_block(device->name, graph, value, axis, unit_out, err);
}

const tdm_device_ops rt_device_ops = {
    .struct_size = sizeof(tdm_device_ops),
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .get_info = device_get_info,
    .supports_op = device_supports_op,
    .graph_supports = device_graph_supports,
    .measure_limits = rt_limits_measure,
};

const tdm_split_ops rt_split_ops = {
    .struct_size = sizeof(tdm_split_ops),
    .split_unit = device_split_unit,
};
