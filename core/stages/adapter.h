/* SPDX-License-Identifier: MIT
 *
 * adapter.h: complete devices for plugins that acquire other plugins' devices (host.h,
 * device_acquire): the members of groups.
 *
 * An adapter supplies the slots that the device's plugin lacks: queues, copies, layouts of weights.
 * The CPU (the fallback) runs the nodes that the device refuses, as stages of the same plan.
 * Weights and caches that only such nodes read live on the fallback; the items of a buffer say
 * which these are. A device that needs none of this has no adapter: the caller gets the plugin's
 * own table.
 *
 * Files: adapter.c acquires devices and has the device table; adapter_place.c finds the side of
 * weights, caches and nodes; adapter_buffer.c has buffers, adapter_plan.c plans, adapter_queue.c
 * queues. They share adapter_internal.h and, for plans, adapter_plan.h.
 */
#ifndef TANDEM_CORE_ADAPTER_H
#define TANDEM_CORE_ADAPTER_H

#include "core/device/runtime.h"

/* Opens device `name` where it is not open, and gives it an adapter where it needs one. The device
 * stays open until the runtime is destroyed. Released with tdm_adapter_release, or with the
 * runtime. [setup] */
tdm_status tdm_adapter_acquire(tdm_runtime *rt, const char *name, tdm_acquired_device *device_out,
                               tdm_error *err);
/* The caller has released all buffers, plans and queues of the device. Clears *device; a cleared
 * one is a no-op. Returns the device that it was; NULL for a cleared one. [setup] */
tdm_open_device *tdm_adapter_release(tdm_runtime *rt, tdm_acquired_device *device);
/* Frees the adapters that were not released, when the runtime ends. [setup] */
void tdm_adapter_end(tdm_runtime *rt);

#endif
