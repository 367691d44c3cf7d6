/* SPDX-License-Identifier: MIT
 *
 * pipeline.h: the pipelines of a device: a kernel with its group size and specialisation.
 */
#ifndef TANDEM_VULKAN_PIPELINE_H
#define TANDEM_VULKAN_PIPELINE_H

#include "plugins/vulkan/cache_file.h"
#include "plugins/vulkan/vk.h"

/* Sets device->pipelines, and reads what earlier runs have left on disk. Released with
 * vk_pipelines_destroy. [setup] */
tdm_status vk_pipelines_create(vk_device *device, tdm_error *err);

/* Destroys all pipelines, and writes what this run has compiled to disk. [setup] */
void vk_pipelines_destroy(vk_device *device);

/* The pipelines of n_step steps, into pipelines_out[n_step]. Those that do not exist yet are
 * compiled by several threads; one that failed before is tried again. All are kept until the device
 * is closed. [any-thread] */
tdm_status vk_pipelines_get(vk_device *device, const gpu_step *steps, int32_t n_step,
                            VkPipeline *pipelines_out, tdm_error *err);

/* Whether the driver failed to compile a step's pipeline at the last attempt, for another reason
 * than too little memory. [any-thread] */
bool vk_pipeline_is_refused(vk_device *device, const gpu_step *step);

/* What a file of compiled pipelines, or of verdicts on them, is for. [any-thread] */
void vk_cache_key_get(const vk_facts *facts, vk_cache_key *key_out);

/* Equal for steps that share a pipeline, different where kernel code, group size, specialisation or
 * subgroup size differ. [any-thread] */
uint64_t vk_pipeline_hash(const vk_device *device, const gpu_step *step);

/* Hash of the SPIR-V of a step's kernel; whether a kernel of this build has that hash.
 * [any-thread] */
uint64_t vk_shader_hash(const gpu_step *step);
bool vk_shader_hash_is_known(uint64_t hash);

/* True for the kernel that the option test-limits makes wrong: its last workgroup is left out.
 * [any-thread] */
bool vk_kernel_is_spoilt(const vk_device *device, int32_t kernel);

#endif
