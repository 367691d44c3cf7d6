/* SPDX-License-Identifier: MIT
 *
 * replicas.h: `check = replicas`: what several members hold of one value is compared after every
 * run. For finding a device that computes or copies wrongly; it costs memory for every such value,
 * and time.
 */
#ifndef TANDEM_META_REPLICAS_H
#define TANDEM_META_REPLICAS_H

#include "plugins/meta/rules/compile.h"

/* Notes what is held more than once and keeps it until the end of a run. Once all nodes have been
 * compiled. False after a failure. */
bool meta_replicas_keep(meta_compiler *c);

/* Compares: by bits what was sent, and what members of one kind computed; to a tolerance what unlike
 * members computed. TDM_DATA_LOSS names the value, the members and the first element that differs.
 * The members' queues are at rest. Under device->mutex. */
tdm_status meta_replicas_check(meta_plan *plan, tdm_error *err);

#endif
