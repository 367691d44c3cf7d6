/* SPDX-License-Identifier: MIT
 *
 * hip.c: what differs for AMD's devices: names and numbers of attributes. The rest
 * of the plugin is plugins/gpu/rt.
 */
#include <stdio.h>

#include "plugins/gpu/rt/rt.h"
#include "plugins/hip/processor.h"

/* The newest first. AMD's own packages install to /opt/rocm and do not tell the loader of it; the
 * user has to (ROCm's documentation, "Post-installation instructions"). */
static const char *const libraries[] = {"libamdhip64.so.7",
                                        "libamdhip64.so.6",
                                        "libamdhip64.so.5",
                                        "libamdhip64.so",
                                        "/opt/rocm/lib/libamdhip64.so",
                                        NULL};

/* gfx940 to gfx950, and RDNA 3 and later. gfx90a and gfx908 have matrix instructions too, but the
 * driver reports for them the same major and minor numbers as for gfx906, which has none. Besides,
 * those of gfx90a take denormals of f16 for 0 (MIOpen's documentation, "MI200 MFMA Behavior
 * Specifics"). */
static bool has_matrices(int32_t major, int32_t minor) {
    return major >= 11 || (major == 9 && minor >= 4);
}

/* gfx940 to gfx950: each die has a second-level cache of its own. So a release at device scope
 * writes the stores back to memory. That takes nearly a microsecond, and the waves of a die do it
 * one after the other: 30 us for 304 workgroups have been reported for MI300X. A kernel for
 * generated tokens has thousands of workgroups. */
static bool has_split_cache(int32_t major, int32_t minor) {
    return major == 9 && minor >= 4;
}

static const char *block_target(int32_t major, int32_t minor) {
    (void)major;
    (void)minor;
    return NULL;
}

/* Where the operating system's kernel does not describe the device, the last digit is unknown:
 * '*'. */
static void target_print(const char *pci_address, int32_t major, int32_t minor, char text[16]) {
    if (!hip_processor_find(HIP_NODES, pci_address, text))
        snprintf(text, 16, "gfx%d%x*", (int)(major % 1000), (unsigned)(minor % 16));
}

const rt_vendor rt_vendor_this = {
    .plugin = "hip",
    .api = "HIP",
    .maker = "AMD",
    .libraries = libraries,
    .no_device =
        "there is no card, HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES hides it, or this user "
        "may not open /dev/kfd and /dev/dri/renderD* (groups render and video)",
    .targets_option = "-Damdgpu_targets",
    .error_text = "hipGetErrorName", /* hipDrvGetErrorName is there from HIP 5.3 on only */
    .peer_by_device = "hipDeviceEnablePeerAccess",
    .shared_alloc = "hipExtMallocWithFlags",
    .shared_flags = 1, /* hipDeviceMallocFinegrained: other memory may stay in a device's caches */
    .is_hip = true,
    .host_flags = 0x40000000, /* hipHostMallocCoherent: without it kernels may keep it in caches */
    /* hipEventReleaseToSystem: caches of gfx1201 keep stores to the host's memory after the end of
     * a kernel (ROCm/rocm-systems#8057). */
    .event_flags = 0x80000000,
    .max_thread = UINT32_MAX,  /* hipModuleLaunchKernel */
    .version_major = 10000000, /* HIP_VERSION */
    .version_minor = 100000,
    .has_matrices = has_matrices,
    .has_split_cache = has_split_cache,
    .block_target = block_target,
    .target_print = target_print,
    .uuid_make = hip_uuid_make,
    /* One stream alone. HIP 5.2 fails at the end of a capture of several streams whose last
     * launches are not in a row, even where the streams have been joined
     * (hipErrorStreamCaptureUnjoined). HIP 6 prepares the packets of a graph in advance only where
     * its nodes are in a row (GraphExec::CaptureAQLPackets). */
    .n_branch = 1,
    /* hipDeviceAttribute_t */
    .attribute = {[RT_GROUP_SIZE] = 56,
                  [RT_GRID_X] = 29,
                  [RT_GRID_Y] = 30,
                  [RT_SHARED_SIZE] = 74,
                  [RT_MAX_SHARED_SIZE] = -1,
                  [RT_WAVE_SIZE] = 87,
                  [RT_UNITS] = 63,
                  [RT_IS_INTEGRATED] = 16,
                  [RT_MAPS_HOST] = 3,
                  [RT_MAJOR] = 23,
                  [RT_MINOR] = 61,
                  [RT_KERNEL_TIMEOUT] = 18,
                  [RT_CLOCK_KHZ] = 10017},
};

static const tdm_plugin hip_plugin = {
    .struct_size = sizeof(tdm_plugin),
    .name = "hip",
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
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "hip: the host offers no semaphores");
    *plugin_out = &hip_plugin;
    return TDM_OK;
}
