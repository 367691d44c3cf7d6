/* SPDX-License-Identifier: MIT
 *
 * bench_limit.c: sums of the shortest times of steps, and means of measured limits. bench.c adds
 * the steps.
 */
#include "runner/commands/bench_limit.h"

#include <stdlib.h>

static double between(double before, double after) {
    if (!(before > 0)) return after > 0 ? after : 0;
    return after > 0 ? (before + after) / 2 : before;
}

tdm_device_limits bench_limits_between(const tdm_device_limits *before,
                                       const tdm_device_limits *after) {
    tdm_device_limits limits = *before;
    limits.read_bandwidth = between(before->read_bandwidth, after->read_bandwidth);
    limits.int8_peak = between(before->int8_peak, after->int8_peak);
    limits.f32_peak = between(before->f32_peak, after->f32_peak);
    return limits;
}

/* Seconds that `amount` takes at `rate`; 0 and is_unknown where the rate is unknown (0). */
static double least_seconds(bench_limit *limit, double amount, double rate) {
    if (!(amount > 0)) return 0;
    if (!(rate > 0)) limit->is_unknown = true;
    return rate > 0 ? amount / rate : 0;
}

void bench_limit_add(bench_limit *limit, const tdm_device_limits *limits, const llm_work *work,
                     double n) {
    double read = least_seconds(limit, work->read_size, limits->read_bandwidth);
    double int8 = least_seconds(limit, work->n_op_int8, limits->int8_peak);
    double f32 = least_seconds(limit, work->n_op_f32, limits->f32_peak);
    /* Products of both kinds need the same cores, one after the other. */
    double longest = read > int8 + f32 ? read : int8 + f32;
    if (read >= longest)
        limit->by_read += n * longest;
    else if (int8 >= f32)
        limit->by_int8 += n * longest;
    else
        limit->by_f32 += n * longest;
    limit->seconds += n * longest;
}

const char *bench_limit_kind(const bench_limit *limit) {
    if (limit->is_unknown || !(limit->seconds > 0)) return NULL;
    if (limit->by_read >= limit->by_int8 && limit->by_read >= limit->by_f32) return "bw";
    return limit->by_int8 >= limit->by_f32 ? "int8" : "f32";
}

static int values_compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_known_median(double *values, int32_t n) {
    int32_t first = 0;
    qsort(values, (size_t)n, sizeof *values, values_compare);
    while (first < n && !(values[first] > 0)) first++;
    const int32_t n_known = n - first;
    if (n_known == 0) return 0;
    return (values[first + (n_known - 1) / 2] + values[first + n_known / 2]) / 2;
}
