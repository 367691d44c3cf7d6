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

/* The rows of the table: cpu_op_<name> for each op of TDM_OP_LIST but views. The file of the op's
 * family defines it, in ops/ or kv/. An op without one does not link. */
#define CPU_OP_VIEW_(name)
#define CPU_OP_VALUE_(name)                  extern const cpu_op_impl cpu_op_##name;
#define CPU_OP_CACHE_                        CPU_OP_VALUE_
#define CPU_OP_GROUP_                        CPU_OP_VALUE_
#define CPU_OP_(ID, name, number, kind, ...) CPU_OP_##kind##_(name)
TDM_OP_LIST(CPU_OP_)
#undef CPU_OP_
#undef CPU_OP_GROUP_
#undef CPU_OP_CACHE_
#undef CPU_OP_VALUE_
#undef CPU_OP_VIEW_

#endif
