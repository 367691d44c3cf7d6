/* SPDX-License-Identifier: MIT
 *
 * oracle.h: the CPU plugin's reference path, which computes the expected results of a small graph.
 * The CPU plugin is a shared object beside this one, and is used through the ABI alone.
 */
#ifndef TANDEM_VULKAN_ORACLE_H
#define TANDEM_VULKAN_ORACLE_H

#include "plugins/gpu/plan/excerpt.h"
#include "tandem/plugin.h"

typedef struct vk_oracle {
    void *library;
    const tdm_plugin *plugin;
    tdm_instance *instance;
    tdm_device *device;
} vk_oracle;

/* Opens a device of one thread on the reference path. TDM_NOT_FOUND where there is no CPU plugin.
 * Closed with vk_oracle_close. [setup] */
tdm_status vk_oracle_open(const tdm_host *host, vk_oracle *oracle, tdm_error *err);

/* Does nothing on an oracle that is not open. [setup] */
void vk_oracle_close(vk_oracle *oracle);

/* The memory of a small graph on a device: a buffer for each slot. */
typedef struct vk_slots {
    const tdm_plugin *plugin;
    tdm_binding *bindings; /* n_slot of the graph */
    int32_t n_slot;
    tdm_buffer *state; /* bound to the graph's STATE; the caller's */
} vk_slots;

/* Binds the graph's STATE, where it has one, to `state`. Allocates the rest, and uploads
 * bytes[n_value] of weights and inputs; all other bytes are set to 0xff, which reads as NaN.
 * Released with vk_slots_free, also after a failure. */
tdm_status vk_slots_make(const tdm_plugin *plugin, tdm_device *device, const gpu_excerpt *excerpt,
                         tdm_buffer *state, void *const *bytes, vk_slots *slots, tdm_error *err);
void vk_slots_free(vk_slots *slots);

/* Downloads a value that is no weight and has a slot, as canonical bytes. */
tdm_status vk_slots_read(const vk_slots *slots, const gpu_excerpt *excerpt, int32_t value,
                         void *bytes, tdm_error *err);

#endif
