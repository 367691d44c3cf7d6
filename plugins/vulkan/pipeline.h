/* SPDX-License-Identifier: MIT
 *
 * pipeline.h: the pipelines of a device: a kernel with its group size and specialisation.
 */
#ifndef TANDEM_VULKAN_PIPELINE_H
#define TANDEM_VULKAN_PIPELINE_H

#include "plugins/vulkan/vk.h"

/* Reads what an earlier run has left on disk. */
tdm_status vk_pipelines_create(vk_device *device, tdm_error *err);

/* Leaves on disk what this run has compiled. */
void vk_pipelines_destroy(vk_device *device);

/* The pipelines of n_step steps, into pipelines_out[n_step]. Those that do not exist yet are
 * compiled by several threads; all are kept until the device is closed. [any-thread] */
tdm_status vk_pipelines_get(vk_device *device, const gpu_step *steps, int32_t n_step,
                            VkPipeline *pipelines_out, tdm_error *err);

#endif
