/* SPDX-License-Identifier: MIT
 *
 * angle.h: the angles of RoPE as kernels compute them: exactly, in integers.
 *
 * From one position to the next a pair of elements turns by the same part of a full turn. The plan
 * has that part as a 64-bit fraction, computed in double precision. A kernel multiplies the
 * fraction by the position; what overflows 64 bits is whole turns. So position 1000000 is as exact
 * as position 1, on drivers whose fma rounds twice too.
 */
#ifndef TANDEM_GPU_ANGLE_H
#define TANDEM_GPU_ANGLE_H

#include "plugins/gpu/plan/emit.h"

/* mscale of op.h: the factor of cos and sin. [any-thread] */
float gpu_angle_mscale(const tdm_rope_params *params);

/* A constant of the plan: for each pair the turns per position, times 2^64, modulo 2^64. With
 * has_factor kernels divide the numbers by a factor for each pair. TDM_UNSUPPORTED where n_rot is
 * too large for a table or, with has_factor, where a pair turns by a whole turn or more per
 * position. */
tdm_status gpu_angle_constant(gpu_emit *e, const tdm_rope_params *params, bool has_factor,
                              gpu_operand *table_out, tdm_error *err);

#endif
