/* SPDX-License-Identifier: MIT
 *
 * report.h: the memory that a graph needs on each member, and the predicted time of a run (split.h:
 * split_report). Sizes come from the functions that allocate, rates from measure.h.
 */
#ifndef TANDEM_META_REPORT_H
#define TANDEM_META_REPORT_H

#include "plugins/meta/meta.h"

/* Fills *report. Under device->mutex. */
tdm_status meta_report(meta_device *device, const tdm_graph *graph, tdm_split_report *report,
                       tdm_error *err);

#endif
