/* SPDX-License-Identifier: MIT
 *
 * early.h: kernels that start while the kernel before them in their stream still runs (NVIDIA's
 * programmatic dependent launch): whether a device can, and a launch that allows it.
 *
 * Mental model. Without it, the workgroups of a kernel start when the last one of the kernel before has ended
 * and its writes are visible. With it, they start as soon as all workgroups of the kernel before have
 * started, as far as there is room beside them, and each thread waits itself (wait_previous of
 * kernels/lang.h, which every kernel executes before it reads or writes memory). What a launch takes, and the
 * prefetch of weights, then lie beside the end of the kernel before.
 *
 * What holds:
 *   - A kernel ends after all kernels that were launched before it in its stream, since each waits for the one
 *     before it. So a wait for one kernel is a wait for all of them.
 *   - A started workgroup takes its place from no workgroup that it waits for: all of these have started.
 *   - Everything but a kernel (copies, events, the begin and the end of a captured graph) has the ordinary
 *     order, as has a kernel that is launched without it.
 * No card has run this.
 */
#ifndef TANDEM_GPU_RT_EARLY_H
#define TANDEM_GPU_RT_EARLY_H

#include "plugins/gpu/rt/rt.h"

/* By its compute capability alone. */
bool rt_early_is_capable(const rt_device *device);

/* Sets device->launches_early where `options` demand it. TDM_UNSUPPORTED with the reason for a device
 * that cannot. After rt_modules_check. [setup] */
tdm_status rt_early_decide(rt_device *device, const rt_options *options, tdm_error *err);

/* Whether kernels of this kind may be launched early, and kernels behind it. */
bool rt_early_allows(int32_t kernel);

/* As the driver's `launch`, of a function that waits. Only behind a kernel in the same stream.
 * After rt_enter. */
rt_result rt_early_launch(const rt_device *device, const gpu_step *step, void *function,
                          void *stream, void **params);

#endif
