/* SPDX-License-Identifier: MIT
 *
 * trial.h: what the kinds of trials share: running an excerpt on the device and on the CPU's
 * reference path, and comparing numbers. trial.c has the trials of ops on values, trial_cache.c
 * those of ops on a cache, trial_arena.c those of exchanges.
 */
#ifndef TANDEM_VULKAN_TRIAL_H
#define TANDEM_VULKAN_TRIAL_H

#include "plugins/vulkan/oracle.h"
#include "plugins/vulkan/verdict.h"

struct vk_trial {
    vk_device *device;
    vk_oracle oracle;
    bool has_no_oracle; /* opening the CPU plugin failed; it is not tried again */
    bool lacks_memory;  /* the present trial had too little memory to make its graph */
};

/* The tables of this plugin, as vk_slots_make takes them. */
extern const tdm_plugin vk_trial_tables;

/* An array [n_value of the graph] of canonical bytes: of INPUTs and WEIGHTs, filled; or, where
 * is_output, of OUTPUTs, zeros. NULL for other values. Returns NULL without memory. Released with
 * vk_trial_bytes_free. */
void **vk_trial_bytes(const gpu_excerpt *x, bool is_output);
void vk_trial_bytes_free(void **bytes, int32_t n_value);

/* Runs an excerpt, with `state` bound to its STATE where it has one, and reads its outputs into
 * out[n_value]. vk_trial_on_device takes over the steps, also where it fails. */
tdm_status vk_trial_on_cpu(vk_trial *trial, const gpu_excerpt *x, tdm_buffer *state,
                           void *const *in, void **out, tdm_error *err);
tdm_status vk_trial_on_device(vk_trial *trial, const gpu_excerpt *x, gpu_plan *steps,
                              tdm_buffer *state, void *const *in, void **out, tdm_error *err);

/* Whether n elements agree, up to rounding. NaN agrees with NaN, and an infinity with the same one.
 * n is whole blocks of the type. */
bool vk_trial_floats_agree(tdm_type type, const uint8_t *got, const uint8_t *want, int64_t n);

/* Whether n ids agree, but for a few whose values are nearly equal. */
bool vk_trial_ids_agree(const int32_t *got, const int32_t *want, int64_t n);

/* The steps of an excerpt on a target, for the caller to destroy. NULL where the excerpt is not
 * valid or not supported, or where no step uses the pipeline of `step`. NULL without memory too:
 * then trial->lacks_memory is set. */
gpu_plan *vk_trial_plan(vk_trial *trial, const gpu_target *target, const gpu_excerpt *x,
                        const gpu_step *step);

/* A plan with copies of n steps, for vk_trial_result.tried. NULL without memory. */
gpu_plan *vk_trial_steps(const gpu_step *steps, int32_t n);

/* The following are for steps that store bytes beside their values (gpu_step_stores_bytes). Such a
 * step is tried together with a product that reads the bytes. */

/* The tdm_type of the weight of the first product that reads the bytes of `step`, a step of `plan`;
 * q8_0 where no product does. -1 where the step stores none. */
int32_t vk_trial_product(const gpu_plan *plan, const gpu_step *step);

/* Changes a target so that products of every length read bytes. */
void vk_trial_bytes_target(gpu_target *target);

/* The step that may be wrong where the steps `tried` gave a wrong result, for
 * vk_trial_result.tried: the product where it is wrong too with bytes that a separate step stores
 * (verdict `apart`); else `step`. */
gpu_plan *vk_trial_bytes_suspects(const gpu_step *step, const gpu_plan *tried, vk_verdict apart);

/* trial_cache.c: tries a step whose kernel is of GPU_KERNEL_LIST_CACHE or
 * GPU_KERNEL_LIST_RECURRENT. */
vk_trial_result vk_trial_cache(vk_trial *trial, const tdm_graph *graph, const gpu_plan *plan,
                               const gpu_step *step);

/* trial_arena.c: tries a step whose kernel is of GPU_KERNEL_LIST_WIRE. */
vk_trial_result vk_trial_arena(vk_trial *trial, const tdm_graph *graph, const gpu_step *step);

#endif
