/* SPDX-License-Identifier: MIT
 *
 * ops.h: the op table (ops.c): which function runs an op, and whether a device runs a node.
 */
#ifndef TANDEM_CPU_OPS_H
#define TANDEM_CPU_OPS_H

#include "plugins/cpu/cpu.h"

/* The row of an op; NULL for views and for what this plugin does not run. [any-thread] */
const cpu_op_impl *cpu_op_find(int32_t op);

/* tdm_device_ops.supports_op. [any-thread] */
tdm_status cpu_op_supports(const cpu_device *device, const tdm_graph *graph, int32_t node,
                           tdm_error *err);

#endif
