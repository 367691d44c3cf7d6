/* SPDX-License-Identifier: MIT
 *
 * verdict.h: which pipelines compute what the CPU computes. Each is tried once when a driver is
 * first met: its nodes run on little data on the device and on the CPU's reference path. What was
 * found is kept beside the pipeline cache, for this driver and this kernel's code, so that a known
 * driver is not checked again. A wrong pipeline is replaced by a plainer one where the planner has
 * one; else its op is refused. A pipeline at whose check the driver reset the device counts as wrong, so
 * that the next start gets further.
 */
#ifndef TANDEM_VULKAN_VERDICT_H
#define TANDEM_VULKAN_VERDICT_H

#include "plugins/vulkan/verdict_file.h"
#include "plugins/vulkan/vk.h"

/* Reads what earlier runs have found. Released with vk_verdicts_destroy. */
tdm_status vk_verdicts_create(vk_device *device, tdm_error *err);
void vk_verdicts_destroy(vk_device *device);

/* The device's target without what was found wrong. Returns how many pipelines were found wrong.
 * [any-thread] */
int32_t vk_verdicts_target(vk_device *device, gpu_target *target_out);

/* Tries the pipelines of a plan that have not been tried. n_wrong: what vk_verdicts_target returned
 * with the plan's target. Returns true where more pipelines are known to be wrong now, also through
 * another thread or process: the plan is then to be made again. A failure to try is no failure of
 * the plan: the pipeline counts as not checked. [any-thread] */
bool vk_verdicts_check(vk_device *device, const tdm_graph *graph, const gpu_plan *steps,
                       int32_t n_wrong);

/* After pipelines of a plan could not be made, with this status: counts those as wrong that another
 * kernel can replace, of matrix hardware, where the driver did not compile them. Returns true where
 * there are such: the plan is then to be made again. [any-thread] */
bool vk_verdicts_uncompiled(vk_device *device, const gpu_plan *steps, tdm_status status);

/* How many pipelines earlier runs have found wrong with the driver of a physical device. The names
 * of their kernels go into text, with commas; where not all fit, it ends with "and N more" kernels.
 * `spoilt` is the kernel of test-limits wrong=, or empty. [any-thread] */
int32_t vk_verdicts_wrong(const vk_facts *facts, const char *spoilt, char *text, size_t size);

/* ---- trial.c ---- */

typedef struct vk_trial vk_trial;

/* The means of trials on a device; the first one opens the CPU plugin. */
vk_trial *vk_trial_create(vk_device *device);
void vk_trial_destroy(vk_trial *trial);

/* What a trial found out. */
typedef struct vk_trial_result {
    vk_verdict verdict;
    /* The steps that ran, to be freed with gpu_plan_destroy; NULL where none did. */
    gpu_plan *tried;
    /* A wrong result is the fault of all steps of `tried` that are not known to be right; else of the
     * last one of them */
    bool blames_all;
} vk_trial_result;

/* Runs a small graph made around the node of `step`, a step of `plan`, that uses its pipeline, on
 * both. has_step[n_node]: nodes with a step in the plan. */
vk_trial_result vk_trial_run(vk_trial *trial, const tdm_graph *graph, const uint8_t *has_step,
                             const gpu_plan *plan, const gpu_step *step);

#endif
