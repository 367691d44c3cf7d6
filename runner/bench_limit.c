/* SPDX-License-Identifier: MIT
 *
 * bench_limit.c: adding up the least times of steps. What steps there are is cmd_bench.c's.
 */
#include "runner/bench_limit.h"

/* Seconds that `amount` takes at `rate`. */
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
