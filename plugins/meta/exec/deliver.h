/* SPDX-License-Identifier: MIT
 *
 * deliver.h: copies a plan's outputs from the members' memory to the caller's buffers.
 */
#ifndef TANDEM_META_DELIVER_H
#define TANDEM_META_DELIVER_H

#include "plugins/meta/exec/plan.h"

/* Writes every output to its binding. Each element comes from its owner. No member may be running.
 * A failure names the output and the member. Under device->mutex, after meta_plan_bind. */
tdm_status meta_outputs_deliver(meta_plan *plan, tdm_error *err);

/* The bytes of member d's local value, an OUTPUT of its part, in host memory: in place, or in the
 * member's staging memory, where they are valid until the next call for this member. Under
 * device->mutex. */
tdm_status meta_part_fetch(meta_plan *plan, int32_t d, int32_t local, const uint8_t **bytes_out,
                           tdm_error *err);

#endif
