/* SPDX-License-Identifier: MIT
 *
 * early.c: see early.h.
 */
#include "plugins/gpu/rt/early.h"

#include "plugins/gpu/rt/wait.h"

bool rt_early_is_capable(const rt_device *device) {
    const int32_t *a = device->facts->attribute;
    const int32_t least = rt_vendor_this.least_early;
    return least > 0 && 10 * a[RT_MAJOR] + a[RT_MINOR] >= least;
}

tdm_status rt_early_decide(rt_device *device, const rt_options *options, tdm_error *err) {
    const gpu_step fetch = {.kernel = GPU_KERNEL_FETCH};
    const rt_vendor *vendor = &rt_vendor_this;
    const char *why = NULL;
    rt_function function = {0};
    if (!options->is_early) return TDM_OK;
    tdm_status status = rt_function_get(device, &fetch, &function, err);
    if (status != TDM_OK) return status;
    if (!rt_early_is_capable(device))
        why = "the device has no such launches; NVIDIA's have them from compute capability 9.0 on";
    else if (device->fn->launch_ex == NULL || device->fn->version < vendor->early_version)
        why = "the driver is older than CUDA 12.3";
    else if (!function.waits)
        why = "the plugin has no kernels for it: build the plugin with "
              "-Dptx_targets=sm_90a,sm_90,sm_80";
    else if (!options->has_graphs)
        why = "it needs graphs = yes";
    if (why != NULL)
        return tdm_fail(err, TDM_UNSUPPORTED, "%s (%s): launch-early = yes: %s", device->name,
                        device->facts->name, why);
    device->launches_early = true;
    return TDM_OK;
}

/* False for a kernel that waits for other members, for two reasons. It runs as long as they need:
 * workgroups that were started behind it would take room on the device from other streams
 * meanwhile, perhaps from a member on the same device which has not published yet. And it publishes
 * to other devices what earlier kernels wrote: that order is left to the ordinary launch, which has
 * been tested on cards. */
bool rt_early_allows(int32_t kernel) {
    return !rt_wait_is_in(kernel);
}

rt_result rt_early_launch(const rt_device *device, const gpu_step *step, void *function,
                          void *stream, void **params) {
    rt_launch_attribute early = {.id = RT_LAUNCH_EARLY, .value = {.is_early = 1}};
    const rt_launch_config config = {.grid_x = step->grid[0],
                                     .grid_y = step->grid[1],
                                     .grid_z = step->grid[2],
                                     .block_x = (unsigned)step->group_size,
                                     .block_y = 1,
                                     .block_z = 1,
                                     .shared_size = rt_shared_size(step),
                                     .stream = stream,
                                     .attributes = &early,
                                     .n_attribute = 1};
    return device->fn->launch_ex(&config, function, params, NULL);
}
