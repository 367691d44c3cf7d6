/* SPDX-License-Identifier: MIT
 *
 * replicas.h: the option `check = replicas`. After every run it compares the values that several
 * members hold. It finds devices that compute or copy wrongly. It costs time, and memory for every
 * such value.
 */
#ifndef TANDEM_META_REPLICAS_H
#define TANDEM_META_REPLICAS_H

#include "plugins/meta/exec/plan.h"

/* Compares the plan's checks, which the compiler selected (rules/checks.c): exactly where the bits
 * were exchanged or where members of one kind of device computed them, within a tolerance where
 * members of different kinds computed them. TDM_DATA_LOSS names the value, the members and the
 * first element that differs. No member may be running. Under device->mutex. */
tdm_status meta_replicas_check(meta_plan *plan, tdm_error *err);

#endif
