/* SPDX-License-Identifier: MIT
 *
 * early.h: early launches: a kernel starts while the kernel before it in its stream still runs
 * (NVIDIA's programmatic dependent launch). Decides whether a device launches early, and launches.
 *
 * Mental model. With an ordinary launch the workgroups of a kernel start when the last workgroup of
 * the kernel before has ended and its writes are visible. With an early launch they start as soon
 * as all workgroups of the kernel before have started and there is room for them on the device.
 * Each thread then waits itself: every kernel executes wait_previous of kernels/lang.h before it
 * reads or writes memory. So the time of the launch and the prefetch of weights overlap with the
 * end of the kernel before.
 *
 * Invariants:
 *   - A kernel ends after all kernels that were launched before it in its stream, since each waits
 *     for the one before it. So a wait for one kernel is a wait for all of them.
 *   - There is no deadlock: a workgroup that waits takes room from no workgroup that it waits for,
 *     as all of these have started.
 *   - Copies, events, the begin and the end of a captured graph, and kernels that are launched
 *     without it have the ordinary order.
 * This code has not run on a card yet.
 */
#ifndef TANDEM_GPU_RT_EARLY_H
#define TANDEM_GPU_RT_EARLY_H

#include "plugins/gpu/rt/rt.h"

/* True where the device's compute capability has early launches. */
bool rt_early_is_capable(const rt_device *device);

/* Sets device->launches_early where the option launch-early is yes. TDM_UNSUPPORTED with the reason
 * where the device, the driver, the kernels or other options rule it out. After rt_modules_check.
 * [setup] */
tdm_status rt_early_decide(rt_device *device, const rt_options *options, tdm_error *err);

/* True where this kernel (gpu_kernel) may be launched early, and where the kernel behind it may
 * be. */
bool rt_early_allows(int32_t kernel);

/* Launches a step's function early. It is as the driver's `launch`, for a function whose
 * rt_function waits, directly behind a kernel in the same stream. After rt_enter. */
rt_result rt_early_launch(const rt_device *device, const gpu_step *step, void *function,
                          void *stream, void **params);

#endif
