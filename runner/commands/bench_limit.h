/* SPDX-License-Identifier: MIT
 *
 * bench_limit.h: how fast a test could be at most on a device whose limits are known: each step
 * takes as long as reading what it has to read, or multiplying what it has to multiply, whichever
 * takes longer. The field knows it as the roofline model (Williams, Waterman and Patterson 2009).
 */
#ifndef TANDEM_RUNNER_BENCH_LIMIT_H
#define TANDEM_RUNNER_BENCH_LIMIT_H

#include "llm/work.h"

typedef struct bench_limit {
    bool is_unknown; /* a limit was needed that the device did not tell */
    double seconds;  /* the least that all steps so far take */
    double by_read;  /* of these: steps that reading limits, */
    double by_int8;  /* and those that arithmetic does, most of it with quantised weights */
    double by_f32;   /* or with others */
} bench_limit;

/* What held between two looks at a device: the mean of both. What one of them could not tell is the
 * other's; 0 where neither could. */
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
