/* SPDX-License-Identifier: MIT
 *
 * bench_limit.h: the highest speed of a test that the limits of a device allow. The time of a step
 * is that of its reads or that of its arithmetic, whichever is longer: the roofline model
 * (Williams, Waterman and Patterson 2009).
 */
#ifndef TANDEM_RUNNER_BENCH_LIMIT_H
#define TANDEM_RUNNER_BENCH_LIMIT_H

#include "llm/work.h"

typedef struct bench_limit {
    bool is_unknown; /* a limit was needed that is not known */
    double seconds;  /* the least that all steps so far take */
    double by_read;  /* of these: steps that reading limits, */
    double by_int8;  /* and those that arithmetic does, most of it with quantised weights */
    double by_f32;   /* or with others */
} bench_limit;

/* The limits between two measurements: their mean. A limit that one of them does not have is taken
 * from the other; 0 where neither has it. */
tdm_device_limits bench_limits_between(const tdm_device_limits *before,
                                       const tdm_device_limits *after);

/* Adds n steps that take `work` each. */
void bench_limit_add(bench_limit *limit, const tdm_device_limits *limits, const llm_work *work,
                     double n);

/* What limits most of the time: "bw", "int8" or "f32"; NULL where that is unknown. */
const char *bench_limit_kind(const bench_limit *limit);

/* The median of the values above 0; 0 where there is none. Sorts them. */
double bench_known_median(double *values, int32_t n);

#endif
