/* SPDX-License-Identifier: MIT
 *
 * test_bench_limit.c: the least time of steps, for machines with given rates, and how several
 * measurements are combined.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runner/commands/bench_limit.h"

static const tdm_device_limits machine = {.read_bandwidth = 100, .int8_peak = 1000, .f32_peak = 10};

static bench_limit of(const tdm_device_limits *limits, double read, double int8, double f32) {
    const llm_work work = {read, int8, f32};
    bench_limit limit = {0};
    bench_limit_add(&limit, limits, &work, 3);
    return limit;
}

/* The limit is the longer of the times for reading and for arithmetic. The times of both kinds of
 * arithmetic are added. */
static void test_longest_counts(void **state) {
    (void)state;
    static const struct {
        double read, int8, f32, seconds;
        const char *kind;
    } cases[] = {
        {200, 1000, 5, 2, "bw"},    {100, 3000, 0, 3, "int8"}, {100, 0, 40, 4, "f32"},
        {250, 2000, 10, 3, "int8"}, {250, 1000, 20, 3, "f32"}, {300, 1500, 15, 3, "bw"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench_limit limit = of(&machine, cases[i].read, cases[i].int8, cases[i].f32);
        assert_true(fabs(limit.seconds - (3 * cases[i].seconds)) < 1e-12);
        assert_string_equal(bench_limit_kind(&limit), cases[i].kind);
    }
}

/* Of several steps the limit is named after what limits most of the time. */
static void test_steps_add_up(void **state) {
    (void)state;
    const llm_work prompt = {100, 4000, 0}, token = {100, 10, 0};
    bench_limit limit = {0};
    bench_limit_add(&limit, &machine, &prompt, 1);
    bench_limit_add(&limit, &machine, &token, 3);
    assert_true(fabs(limit.seconds - (4 + 3)) < 1e-12);
    assert_string_equal(bench_limit_kind(&limit), "int8");
    bench_limit_add(&limit, &machine, &token, 2);
    assert_string_equal(bench_limit_kind(&limit), "bw");
}

/* A limit that is not known matters only where something needs it. */
static void test_unknown(void **state) {
    (void)state;
    tdm_device_limits no_f32 = machine, none = {0};
    no_f32.f32_peak = 0;
    bench_limit limit = of(&no_f32, 200, 1000, 0);
    assert_string_equal(bench_limit_kind(&limit), "bw");
    limit = of(&no_f32, 200, 1000, 1);
    assert_null(bench_limit_kind(&limit));
    limit = of(&none, 200, 0, 0);
    assert_null(bench_limit_kind(&limit));
    limit = of(&machine, 0, 0, 0);
    assert_null(bench_limit_kind(&limit));
}

/* The mean of two measurements; where one has no value, that of the other. */
static void test_between_looks(void **state) {
    (void)state;
    const tdm_device_limits fast = {.read_bandwidth = 50, .int8_peak = 0, .f32_peak = 0};
    const tdm_device_limits slow = {.read_bandwidth = 20, .int8_peak = 7, .f32_peak = 0};
    tdm_device_limits limits = bench_limits_between(&fast, &slow);
    assert_true(limits.read_bandwidth == 35 && limits.int8_peak == 7 && limits.f32_peak == 0);
    limits = bench_limits_between(&slow, &fast);
    assert_true(limits.read_bandwidth == 35 && limits.int8_peak == 7 && limits.f32_peak == 0);
}

static void test_median_of_what_is_known(void **state) {
    (void)state;
    double odd[] = {3, 0, 1, 50, 0, 2, 4}, even[] = {4, 1, 0, 2, 3}, one[] = {0, 0, 6},
           none[] = {0, 0};
    assert_true(bench_known_median(odd, 7) == 3);
    assert_true(bench_known_median(even, 5) == 2.5);
    assert_true(bench_known_median(one, 3) == 6);
    assert_true(bench_known_median(none, 2) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_counts),
        cmocka_unit_test(test_steps_add_up),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_between_looks),
        cmocka_unit_test(test_median_of_what_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
