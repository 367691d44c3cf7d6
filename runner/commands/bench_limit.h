/* SPDX-License-Identifier: MIT
 *
 * bench_limit.h: the shortest time that a test can take by the limits of a device, hence its
 * highest speed. The time of a step is that of its reads or that of its arithmetic, whichever is
 * longer: the roofline model (Williams, Waterman and Patterson 2009).
 */
#ifndef TANDEM_RUNNER_BENCH_LIMIT_H
#define TANDEM_RUNNER_BENCH_LIMIT_H

#include "llm/work.h"

typedef struct bench_limit {
    bool is_unknown; /* a step needed a limit that is unknown: the sums are too small */
    double seconds;  /* the shortest time of all steps so far; the sum of the three below */
    double by_read;  /* of steps whose reads take longer than their arithmetic */
    double by_int8;  /* of the other steps, where products of 8-bit integers take longer than f32 */
    double by_f32;   /* of the other steps, where arithmetic in f32 takes longer */
} bench_limit;

/* The mean of two measurements of the limits. Where only one of them has a limit, it is that one; 0
 * = neither has it. [any-thread] */
tdm_device_limits bench_limits_between(const tdm_device_limits *before,
                                       const tdm_device_limits *after);

/* Adds n steps of `work` each, on a device with these limits. [any-thread] */
void bench_limit_add(bench_limit *limit, const tdm_device_limits *limits, const llm_work *work,
                     double n);

/* What limits the largest part of the time: "bw" (reads), "int8" or "f32"; NULL = unknown.
 * [any-thread] */
const char *bench_limit_kind(const bench_limit *limit);

/* The median of the values above 0; 0 if there is none. Sorts `values`. [any-thread] */
double bench_known_median(double *values, int32_t n);

#endif
