/* SPDX-License-Identifier: MIT
 *
 * limits.h: the highest rates of a group.
 */
#ifndef TANDEM_META_LIMITS_H
#define TANDEM_META_LIMITS_H

#include "plugins/meta/meta.h"

/* tdm_device_ops.measure_limits: the sums over the active members. All are measured at the same
 * time, because they may share a memory bus. A limit that one member does not report is unknown for
 * the group. [setup] */
tdm_status meta_limits_measure(meta_device *device, tdm_device_limits *limits_out, tdm_error *err);

#endif
