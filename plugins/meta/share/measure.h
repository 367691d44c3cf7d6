/* SPDX-License-Identifier: MIT
 *
 * measure.h: how fast members are, found by running products with weights on them: one column at a
 * time, which memory limits, and many at once, which arithmetic limits. All of them at the same
 * time, since members may share a memory bus or cores, and each alone, for comparison. Who uses the
 * numbers: share = auto (solve.h) and predictions (report.h).
 */
#ifndef TANDEM_META_MEASURE_H
#define TANDEM_META_MEASURE_H

#include "plugins/meta/meta.h"

/* Measures the members that may work for weights of `type` and stores it in their rates; nothing
 * where that has been done. Takes about a quarter of a second and 64 MiB on each member while it
 * lasts; less where a member has less. A member that cannot multiply such weights has rates of 0.
 * Under device->mutex.
 *
 * For tests, which must not depend on the load of the machine: the environment variable
 * TANDEM_TEST_RATES gives the rates, and nothing is measured. It has a pair READ,MULTIPLY for each
 * member, separated by spaces: bytes and multiply-adds a second. The last pair is for all further
 * members. */
tdm_status meta_measure(meta_device *device, tdm_type type, tdm_error *err);

#endif
