/* SPDX-License-Identifier: MIT
 *
 * limits.h: what a group can do at most.
 */
#ifndef TANDEM_META_LIMITS_H
#define TANDEM_META_LIMITS_H

#include "plugins/meta/meta.h"

/* tdm_device_ops.measure_limits: the sums over the members that work, all measured at the same time,
 * since they may share a memory bus. What one of them does not tell is unknown of the group.
 * [setup] */
tdm_status meta_limits_measure(meta_device *device, tdm_device_limits *limits_out, tdm_error *err);

#endif
