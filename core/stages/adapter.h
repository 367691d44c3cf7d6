/* SPDX-License-Identifier: MIT
 *
 * adapter.h: devices without gaps, for plugins that borrow others' devices (host.h, device_acquire).
 *
 * What the plugin behind a device does not offer the core fills in: queues, copies, layouts of
 * weights. What the device itself refuses to run, the CPU runs, as stages of the same plan; weights
 * and caches that are of use to such nodes alone live there too, which a device finds out from the
 * items that buffers are allocated with. A device that needs none of this is lent as it is.
 */
#ifndef TANDEM_CORE_ADAPTER_H
#define TANDEM_CORE_ADAPTER_H

#include "core/device/runtime.h"

/* Opens device `name` where it is not open and lends it. The device stays open until the runtime is
 * destroyed; what is lent is returned with tdm_adapter_release, or then. [setup] */
tdm_status tdm_adapter_acquire(tdm_runtime *rt, const char *name, tdm_acquired_device *device_out,
                               tdm_error *err);
/* Buffers, plans and queues of the lent device have been released. Clears *device; a cleared one
 * is a no-op. [setup] */
void tdm_adapter_release(tdm_runtime *rt, tdm_acquired_device *device);

#endif
