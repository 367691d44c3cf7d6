/* SPDX-License-Identifier: MIT
 *
 * cuda.c: what differs for NVIDIA's devices: names and numbers of attributes. The rest
 * of the plugin is plugins/gpu/rt.
 */
#include <stdio.h>

#include "plugins/gpu/rt/rt.h"

static const char *const libraries[] = {"libcuda.so.1", NULL};

/* words.h multiplies matrices by PTX's mma, of shapes that devices have from sm_75 on. */
static bool has_matrices(int32_t major, int32_t minor) {
    return 10 * major + minor >= 75;
}

/* The target of product_tile_block: wgmma is an instruction of sm_90a alone; no later device has
 * it. */
static const char *block_target(int32_t major, int32_t minor) {
    return major == 9 && minor == 0 ? "sm_90a" : NULL;
}

static void target_print(const char *pci_address, int32_t major, int32_t minor, char text[16]) {
    (void)pci_address;
    snprintf(text, 16, "sm_%d%d", (int)(major % 1000), (int)(minor % 10));
}

const rt_vendor rt_vendor_this = {
    .plugin = "cuda",
    .api = "CUDA",
    .maker = "NVIDIA",
    .libraries = libraries,
    .no_device = "there is no card, or CUDA_VISIBLE_DEVICES hides it",
    .targets_option = "-Dptx_targets",
    .error_name = "cuGetErrorName",
    .peer_by_context = "cuCtxEnablePeerAccess",
    .function_load = "cuFuncLoad", /* CUDA 12.4 */
    .launch_ex = "cuLaunchKernelEx",
    .early_version = 12030, /* CUDA 12.3, the first with CUgraphEdgeData */
    .least_early = 90,
    .version_major = 1000, /* CUDA_VERSION */
    .version_minor = 10,
    .has_matrices = has_matrices,
    .block_target = block_target,
    .target_print = target_print,
    .block_step = 2048,
    .least_copying = 80,
    .n_branch = 4,
    .clock_khz = 1000000, /* %globaltimer counts nanoseconds */
    /* CUdevice_attribute */
    .attribute = {[RT_GROUP_SIZE] = 1,
                  [RT_GRID_X] = 5,
                  [RT_GRID_Y] = 6,
                  [RT_SHARED_SIZE] = 8,
                  [RT_MAX_SHARED_SIZE] = 97,
                  [RT_WAVE_SIZE] = 10,
                  [RT_UNITS] = 16,
                  [RT_IS_INTEGRATED] = 18,
                  [RT_MAPS_HOST] = 19,
                  [RT_MAJOR] = 75,
                  [RT_MINOR] = 76,
                  [RT_KERNEL_TIMEOUT] = 17,
                  [RT_CLOCK_KHZ] = -1},
};

static const tdm_plugin cuda_plugin = {
    .struct_size = sizeof(tdm_plugin),
    .name = "cuda",
    .version = "0.1.0",
    .licence = "MIT",
    .init = rt_plugin_init,
    .deinit = rt_plugin_deinit,
    .device = &rt_device_ops,
    .buffer = &rt_buffer_ops,
    .queue = &rt_queue_ops,
    .split = &rt_split_ops,
    .options = &rt_option_table,
};

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    if (host == NULL || !TDM_HAS(host, semaphore))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "cuda: the host offers no semaphores");
    *plugin_out = &cuda_plugin;
    return TDM_OK;
}
