/* SPDX-License-Identifier: MIT
 *
 * measure.h: measures how fast members are. It runs products with weights on them: with one column,
 * which memory bandwidth limits, and with many columns, which arithmetic limits. All members run at
 * the same time, because they may share a memory bus or cores; then each alone, for comparison.
 * share = auto (solve.h) and the predictions (report.h) use the rates.
 */
#ifndef TANDEM_META_MEASURE_H
#define TANDEM_META_MEASURE_H

#include "plugins/meta/meta.h"

/* Measures the active members for weights of `type` and stores their rates. Does nothing where that
 * was done before. Takes about a quarter of a second, and meanwhile 64 MiB on each member, up to
 * 512 MiB on a fast one. A member that cannot multiply such weights has the rate 0. The devices
 * are claimed (claims.h), because members wait for each other. Under device->mutex.
 *
 * For tests, which must not depend on the load of the machine: the environment variable
 * TANDEM_TEST_RATES gives the rates, and nothing is measured. It has a pair READ,MULTIPLY for each
 * member, separated by spaces: bytes and multiply-adds a second. The last pair is for all further
 * members. */
tdm_status meta_measure(meta_device *device, tdm_type type, tdm_error *err);

/* The rate of a device, measured as `rate` by runs of `work` bytes or multiply-adds, without the
 * `submit` seconds that each run took for its submission. At most half of a run is left out. 0
 * stays 0. [any-thread] */
double meta_rate_without_submission(double rate, double work, double submit);

#endif
