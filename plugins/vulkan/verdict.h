/* SPDX-License-Identifier: MIT
 *
 * verdict.h: which pipelines compute what the CPU computes. Each is tried once, before the first
 * plan that uses it: its node runs on little data on the device and on the CPU's reference path.
 * The verdict is kept on disk beside the pipeline cache, for this driver and this kernel's code,
 * so that later runs do not try it again. A wrong pipeline is replaced by a plainer one where the
 * planner has one; else its op is refused. A pipeline at whose trial the driver reset the device
 * counts as wrong, so that the next start does not try it again. So does one at whose compilation
 * or trial the driver ended two processes (compile_mark.h).
 */
#ifndef TANDEM_VULKAN_VERDICT_H
#define TANDEM_VULKAN_VERDICT_H

#include "plugins/vulkan/compile_mark.h"
#include "plugins/vulkan/vk.h"

/* Sets device->verdicts, and reads what earlier runs have found. Released with vk_verdicts_destroy.
 * [setup] */
tdm_status vk_verdicts_create(vk_device *device, tdm_error *err);
void vk_verdicts_destroy(vk_device *device);

/* The device's target, with which the planner uses no pipeline that was found wrong. Returns how
 * many were found wrong so far. [any-thread] */
int32_t vk_verdicts_target(vk_device *device, gpu_target *target_out);

/* Tries the pipelines of a plan that have no verdict. n_wrong: what vk_verdicts_target returned
 * with the plan's target. Returns true where more pipelines are known to be wrong now, also
 * through another thread or process: the plan must then be made again. A trial that fails (no
 * memory, no CPU plugin) does not fail the plan: the pipeline is used without a verdict.
 * [any-thread] */
bool vk_verdicts_check(vk_device *device, const tdm_graph *graph, const gpu_plan *steps,
                       int32_t n_wrong);

/* To be called where vk_pipelines_get failed with `status`. Counts the pipelines of matrix
 * hardware that the driver did not compile as wrong, since other kernels can replace them.
 * Returns true where there are such: the plan must then be made again. [any-thread] */
bool vk_verdicts_uncompiled(vk_device *device, const gpu_plan *steps, tdm_status status);

/* To be called around the driver's compilation of a step's pipeline, by the thread that compiles
 * it. vk_verdicts_compile_begin fails with TDM_UNSUPPORTED where that ended two processes;
 * vk_verdicts_compile_end is not called then. [any-thread] */
tdm_status vk_verdicts_compile_begin(vk_device *device, const gpu_step *step,
                                     vk_compile_mark *mark_out, tdm_error *err);
void vk_verdicts_compile_end(vk_device *device, const vk_compile_mark *mark);

/* To be called around a trial's run of steps, whose pipelines are made: a driver may compile them
 * only now. [any-thread] */
vk_first_run vk_verdicts_run_begin(vk_device *device, const gpu_plan *steps);
void vk_verdicts_run_end(vk_device *device, const vk_first_run *run);

/* How many pipelines earlier runs have found wrong with the driver of a physical device. The names
 * of their kernels go into text, with commas; where not all fit, it ends with "and N more" kernels.
 * `spoilt` is the kernel of test-limits wrong=, or empty. [any-thread] */
int32_t vk_verdicts_wrong(const vk_facts *facts, const char *spoilt, char *text, size_t size);

/* ---- trial.c ---- */

typedef struct vk_trial vk_trial;

/* What trials on a device need; the first trial opens the CPU plugin. NULL without memory. */
vk_trial *vk_trial_create(vk_device *device);
void vk_trial_destroy(vk_trial *trial);

/* What a trial found out. */
typedef struct vk_trial_result {
    vk_verdict verdict;
    /* Steps that ran, and of a wrong result those that may be its cause. Freed with
     * gpu_plan_destroy. NULL = only the step that was tried, or no memory */
    gpu_plan *tried;
    /* Of the steps of `tried` without a verdict: true where a wrong result makes all of them wrong,
     * false where only the last */
    bool blames_all;
} vk_trial_result;

/* Tries the pipeline of `step`, a step of `plan`: makes a small graph around its node that uses
 * the pipeline, runs it on the device and on the CPU, and compares. has_step[n_node]: 1 for nodes
 * with a step in the plan. One call at a time. */
vk_trial_result vk_trial_run(vk_trial *trial, const tdm_graph *graph, const uint8_t *has_step,
                             const gpu_plan *plan, const gpu_step *step);

#endif
