/* SPDX-License-Identifier: MIT
 *
 * launch.c: modules of the emulated driver, kernels in them, and their launches.
 */
#include <string.h>

#include "tests/simt/stream.h"

rt_result simt_module_load(void **module_out, const void *image, unsigned n_option, int *options,
                           void **values) {
    for (unsigned i = 0; i < n_option; i++) /* the caller reads the log where the call fails */
        if (options[i] == RT_JIT_ERROR_LOG) strcpy(values[i], "emulated: nothing is compiled\n-");
    CALL_UNSAFE(module_load);
    simt_idle_wait(simt_current);
    if (image == NULL) return RT_INVALID_VALUE;
    *module_out = (void *)(uintptr_t)&tandem_simt_version;
    simt_live_add(1);
    return RT_SUCCESS;
}

rt_result simt_module_unload(void *module) {
    (void)module;
    RELEASE();
    simt_idle_wait(simt_current);
    simt_live_add(-1);
    return RT_SUCCESS;
}

/* Functions of CUDA that were looked up last and are loaded at their first launch, unless the
 * caller loads them before. More than the functions of a plan. Under simt_mutex. */
static const simt_kernel *partial[64];

#ifndef SIMT_HIP
static void partial_add(const simt_kernel *kernel) {
    static size_t n_added;
    pthread_mutex_lock(&simt_mutex);
    partial[n_added++ % (sizeof partial / sizeof *partial)] = kernel;
    pthread_mutex_unlock(&simt_mutex);
}
#endif

/* Returns whether the function was not loaded yet. */
static bool partial_end(const simt_kernel *kernel) {
    bool was_partial = false;
    pthread_mutex_lock(&simt_mutex);
    for (size_t i = 0; i < sizeof partial / sizeof *partial; i++) {
        if (partial[i] != kernel) continue;
        partial[i] = NULL;
        was_partial = true;
    }
    pthread_mutex_unlock(&simt_mutex);
    return was_partial;
}

rt_result simt_module_function(void **function_out, void *module, const char *name) {
    CALL(module_function, true);
    (void)module;
    *function_out = simt_kernel_find(name);
    if (*function_out == NULL) return RT_NOT_FOUND;
#ifndef SIMT_HIP
    partial_add(*function_out); /* lazy loading */
#endif
    return RT_SUCCESS;
}

#ifndef SIMT_HIP
/* Not in RT_DRIVER_LIST (driver.h). */
EXPORT rt_result simt_function_load(void *function) __asm__("cuFuncLoad");

rt_result simt_function_load(void *function) {
    CALL_UNSAFE(function_load);
    simt_idle_wait(simt_current);
    if (function == NULL) return INVALID_HANDLE;
    (void)partial_end(function);
    return RT_SUCCESS;
}
#endif

/* Only the largest size of shared memory can be set. */
rt_result simt_function_set(void *function, int attribute, int value) {
    simt_kernel *kernel = function;
    CALL(function_set, true);
    if (kernel == NULL) return INVALID_HANDLE;
    if (attribute != RT_FUNCTION_SHARED_SIZE || value < 0 || value > SIMT_MORE_SHARED)
        return RT_INVALID_VALUE;
    pthread_mutex_lock(&simt_mutex);
    kernel->max_shared = (uint32_t)value;
    pthread_mutex_unlock(&simt_mutex);
    return RT_SUCCESS;
}

/* Replaces the addresses at the beginning of the arguments (struct Args of kernels/lang.h) by what
 * the device reaches there (simt_peer_address). */
static rt_result addresses_reach(const simt_context *c, simt_work *launch, size_t size) {
    uint64_t at[6];
    if (size < sizeof at) return RT_SUCCESS;
    memcpy(at, launch->args, sizeof at);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (at[i] == 0) continue;
        at[i] = simt_peer_address(simt_device_of(c), at[i], true);
        if (at[i] == 0) return RT_ILLEGAL_ADDRESS;
    }
    memcpy(launch->args, at, sizeof at);
    return RT_SUCCESS;
}

EXPORT void tandem_simt_order(int order);

void tandem_simt_order(int order) {
    simt_settings_read();
    simt_settings.order = (simt_order)order;
}

static rt_result kernel_launch(const rt_launch_config *config, const simt_kernel *kernel,
                               void **params, void **extra, bool is_early) {
    simt_stream *s = config->stream;
    if (kernel == NULL || s == NULL) return INVALID_HANDLE;
    if (params == NULL || extra != NULL || config->block_y != 1 || config->block_z != 1 ||
        config->grid_x == 0 || config->grid_y == 0 || config->grid_z == 0 ||
        kernel->args_size > SIMT_MAX_ARGS || config->grid_x > simt_settings.grid_x ||
        config->grid_y > MAX_GRID_Y || config->block_x > kernel->max_threads ||
        (config->shared_size > SIMT_MAX_SHARED && config->shared_size > kernel->max_shared))
        return RT_INVALID_VALUE;
#ifdef SIMT_HIP
    /* hipModuleLaunchKernel: fewer than 2^32 threads along an axis. */
    if ((uint64_t)config->grid_x * config->block_x > UINT32_MAX) return RT_INVALID_VALUE;
#endif
    /* CUDA's documents do not say what a capture makes of an early launch that depends on none or
     * on several launches. */
    if (is_early && s->capture != NULL && s->front.n != 1) return RT_INVALID_VALUE;
    if (partial_end(kernel)) simt_idle_wait(s->context);
    simt_command c = {.kind = COMMAND_LAUNCH,
                      .launch = {.kernel = kernel,
                                 .grid = {config->grid_x, config->grid_y, config->grid_z},
                                 .n_thread = config->block_x,
                                 .shared_size = config->shared_size,
                                 .wave_size = simt_settings.wave_size,
                                 .order = simt_settings.order,
                                 .is_early = is_early}};
    memcpy(c.launch.args, params[0], kernel->args_size);
    if (addresses_reach(s->context, &c.launch, kernel->args_size) != RT_SUCCESS)
        return RT_ILLEGAL_ADDRESS;
    if (s->capture == NULL) return simt_command_give(s, &c);
    return simt_graph_append(s->capture->graph, &s->front, &c.launch) ? RT_SUCCESS
                                                                      : RT_OUT_OF_MEMORY;
}

rt_result simt_launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size,
                      void *stream, void **params, void **extra) {
    const rt_launch_config config = {.grid_x = grid_x,
                                     .grid_y = grid_y,
                                     .grid_z = grid_z,
                                     .block_x = block_x,
                                     .block_y = block_y,
                                     .block_z = block_z,
                                     .shared_size = shared_size,
                                     .stream = stream};
    CALL(launch, true);
    return kernel_launch(&config, function, params, extra, false);
}

#ifndef SIMT_HIP
/* Not in RT_DRIVER_LIST (driver.h). Launches that are not captured start in their turn, as a driver
 * may do. */
EXPORT rt_result simt_launch_ex(const rt_launch_config *config, void *function, void **params,
                                void **extra) __asm__("cuLaunchKernelEx");

rt_result simt_launch_ex(const rt_launch_config *config, void *function, void **params,
                         void **extra) {
    bool is_early = false;
    CALL(launch_ex, true);
    if (config == NULL) return RT_INVALID_VALUE;
    for (unsigned i = 0; i < config->n_attribute; i++) {
        if (config->attributes[i].id != RT_LAUNCH_EARLY) return RT_INVALID_VALUE;
        is_early = config->attributes[i].value.is_early != 0;
    }
    return kernel_launch(config, function, params, extra, is_early);
}
#endif
