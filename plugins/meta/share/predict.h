/* SPDX-License-Identifier: MIT
 *
 * predict.h: how long a run of a plan takes, from the measured rates of the members and their
 * links.
 */
#ifndef TANDEM_META_PREDICT_H
#define TANDEM_META_PREDICT_H

#include "plugins/meta/exec/plan.h"

/* Fills the times of a report, and the seconds of each member's own nodes,
 * member_seconds[n_member]. They stay 0 where a member was not measured. [any-thread] */
tdm_status meta_predict(const meta_plan *plan, tdm_split_report *report, double *member_seconds,
                        tdm_error *err);

#endif
