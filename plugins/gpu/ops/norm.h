/* SPDX-License-Identifier: MIT
 *
 * norm.h: how many threads reduce a row, for norm.c and streams.c.
 */
#ifndef TANDEM_GPU_NORM_H
#define TANDEM_GPU_NORM_H

#include "plugins/gpu/plan/target.h"

/* Threads of a workgroup that reduces one of n_row rows of n elements: a power of two, and at least
 * a subgroup where the device's workgroups have as many. [any-thread] */
int32_t gpu_row_group_size(const gpu_target *target, int64_t n, int64_t n_row);

#endif
