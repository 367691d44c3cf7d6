/* SPDX-License-Identifier: MIT
 *
 * angle.h: the angles of RoPE as kernels compute them: exactly, in integers.
 *
 * A pair of elements turns by the same part of a turn with each position. The plan carries that
 * part as a 64-bit fraction, computed in double precision. A kernel multiplies it by the position;
 * what overflows is whole turns. So position 1000000 is as exact as position 1, on drivers whose
 * fma rounds twice too.
 */
#ifndef TANDEM_GPU_ANGLE_H
#define TANDEM_GPU_ANGLE_H

#include "plugins/gpu/plan/emit.h"

/* What cos and sin are multiplied by. [any-thread] */
float gpu_angle_mscale(const tdm_rope_params *params);

/* A constant of the plan: turns by position times 2^64, a number for each pair. Fails where n_rot
 * is too large for a table, or where the table cannot be divided by a factor (`has_factor`). */
tdm_status gpu_angle_constant(gpu_emit *e, const tdm_rope_params *params, bool has_factor,
                              gpu_operand *table_out, tdm_error *err);

#endif
