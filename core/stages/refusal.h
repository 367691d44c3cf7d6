/* SPDX-License-Identifier: MIT
 *
 * refusal.h: the log line about an op that a device does not run.
 */
#ifndef TANDEM_CORE_REFUSAL_H
#define TANDEM_CORE_REFUSAL_H

#include "core/device/runtime_internal.h"

/* Logs that `node` runs on `taken_by` because `dev` refuses its op: once for each op and device.
 * Nothing is logged for a cache that the configuration keeps in the host's memory. [any-thread] */
void tdm_refusal_report(tdm_open_device *dev, const tdm_open_device *taken_by,
                        const tdm_graph *graph, const tdm_node *node, const char *reason);

#endif
