/* SPDX-License-Identifier: MIT
 *
 * norm.h: how many threads reduce a row: norm.c, streams.c.
 */
#ifndef TANDEM_GPU_NORM_H
#define TANDEM_GPU_NORM_H

#include "plugins/gpu/plan/target.h"

/* Threads for each of n_row rows of n elements: a power of two, a subgroup or more. [any-thread] */
int32_t gpu_row_group_size(const gpu_target *target, int64_t n, int64_t n_row);

#endif
