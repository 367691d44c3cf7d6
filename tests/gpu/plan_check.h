/* SPDX-License-Identifier: MIT
 *
 * plan_check.h: proves that a finished plan computes the same as its steps one after the other in
 * the order of emission. Validation layers of a driver do not find hazards through addresses, so
 * this is the only check of barriers.
 */
#ifndef TANDEM_TESTS_GPU_PLAN_CHECK_H
#define TANDEM_TESTS_GPU_PLAN_CHECK_H

#include "plugins/gpu/plan/plan.h"
#include "tandem/status.h"

/* Replays the list with the byte ranges that its steps read and write. TDM_INTERNAL, with a message
 * that names the two steps or the operand, where
 *   - an operand reaches past its slot, the scratch or the constants, or writes constants,
 *   - two steps without a barrier between them conflict: one writes bytes that the other touches,
 *   - two steps that conflict in a slot or an area are not in emission order,
 *   - a step reads scratch that no step wrote, or that belongs to another area since.
 * Time grows with the square of the number of steps. [any-thread] */
tdm_status gpu_plan_check(const gpu_plan *plan, tdm_error *err);

#endif
