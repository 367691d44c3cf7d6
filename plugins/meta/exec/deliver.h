/* SPDX-License-Identifier: MIT
 *
 * deliver.h: a plan's outputs from where the members left them to where the caller wants them.
 */
#ifndef TANDEM_META_DELIVER_H
#define TANDEM_META_DELIVER_H

#include "plugins/meta/exec/plan.h"

/* Writes every output to what it was bound to: each piece by its owner. The members' queues are at
 * rest. The message names output and member. Under device->mutex, after meta_plan_bind. */
tdm_status meta_outputs_deliver(meta_plan *plan, tdm_error *err);

/* Member d's value `local` of its part, an OUTPUT there, in host memory: where it is, or in the
 * member's staging memory until the next call for that member. Under device->mutex. */
tdm_status meta_part_fetch(meta_plan *plan, int32_t d, int32_t local, const uint8_t **bytes_out,
                           tdm_error *err);

#endif
