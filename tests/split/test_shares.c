/* SPDX-License-Identifier: MIT
 *
 * test_shares.c: share = auto from given rates and memory: shares are proportional to rates, no
 * member exceeds its memory, and RAM that several members share is assigned once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/meta/share/measure.h"
#include "plugins/meta/share/solve.h"
#include "tests/support/random.h"

static void must_be(double got, double want) {
    if (!(got > want - 1e-9 && got < want + 1e-9)) fail_msg("%.9f is not %.9f", got, want);
}

/* All members end at the same time; one that would only hold up the others gets nothing. */
static void test_balance(void **state) {
    double part[3];
    (void)state;
    meta_share_balance(3, (const double[]){1, 2, 4}, (const double[]){0.5, 0.5, 0.5}, part);
    must_be(part[0], 4.0 / 7);
    must_be(part[1], 2.0 / 7);
    must_be(part[2], 1.0 / 7);
    meta_share_balance(2, (const double[]){4, 4}, (const double[]){0, 1}, part);
    must_be(part[0], 0.625);
    must_be(part[1], 0.375);
    meta_share_balance(3, (const double[]){4, 0, 4}, (const double[]){0, 0, 9}, part);
    must_be(part[0], 1);
    must_be(part[1], 0);
    must_be(part[2], 0);
}

/* Of a prompt and its answer, with these parts. */
static double time_of(int32_t n, const meta_pace *pace, const double *part) {
    double answer = 0, prompt = 0;
    for (int32_t d = 0; d < n; d++) {
        if (!(part[d] > 0)) continue;
        double a = pace[d].extra + part[d] * pace[d].answer, p = part[d] * pace[d].prompt;
        if (a > answer) answer = a;
        if (p > prompt) prompt = p;
    }
    return answer + prompt;
}

/* A card of 1 TB/s and 60 T multiply-adds beside a CPU of 50 GB/s and 1 T, with a model of 3.8 GB
 * and 6.6 G weights, four tokens of a prompt for one of an answer: ms. Shares by the sum of both
 * times would give the CPU 4 %, and 0.57 ms of 4.7 would be spent waiting for it in prompts. */
static void test_unlike_pace(void **state) {
    const meta_pace pace[2] = {{3.8, 0, 0.44}, {76, 0, 26.4}};
    const double summed[2] = {102.4 / 106.64, 4.24 / 106.64};
    double part[2];
    (void)state;
    meta_share_pace(2, pace, part);
    assert_true(part[1] > 0.0163 && part[1] < 0.0165);
    assert_true(time_of(2, pace, part) < 0.89 * time_of(2, pace, summed));
    /* Members alike but for their speed: both kinds of work end together. */
    meta_share_pace(2, (const meta_pace[]){{4, 0, 1}, {12, 0, 3}}, part);
    assert_true(part[0] > 0.75 - 1e-6 && part[0] < 0.75 + 1e-6);
    /* Without prompts, and with members that cannot work. */
    meta_share_pace(2, (const meta_pace[]){{4, 0, 0}, {4, 1, 0}}, part);
    must_be(part[0], 0.625);
    meta_share_pace(2, (const meta_pace[]){{0, 0, 0}, {4, 1, 2}}, part);
    must_be(part[0], 0);
    must_be(part[1], 1);
}

/* No random shares of random machines are faster. */
static void test_pace_is_best(void **state) {
    uint64_t random = 7;
    (void)state;
    for (int i = 0; i < 60; i++) {
        const int32_t n = 2 + i % 4;
        meta_pace pace[5];
        double part[5], sum = 0;
        for (int32_t d = 0; d < n; d++)
            pace[d] =
                (meta_pace){1 + random_u32_below(&random, 100), random_u32_below(&random, 3) * 0.3,
                            1 + random_u32_below(&random, 100)};
        meta_share_pace(n, pace, part);
        const double time = time_of(n, pace, part);
        for (int32_t d = 0; d < n; d++) sum += part[d];
        must_be(sum, 1);
        for (int k = 0; k < 4000; k++) {
            double other[5], all = 0;
            for (int32_t d = 0; d < n; d++) {
                other[d] = random_u32_below(&random, 1000) * (random_u32_below(&random, 6) != 0);
                if (k % 2 != 0) other[d] = part[d] * (900 + random_u32_below(&random, 200));
                all += other[d];
            }
            for (int32_t d = 0; d < n; d++) other[d] /= all;
            if (all > 0 && time_of(n, pace, other) < time * (1 - 1e-4))
                fail_msg("machine %d: %.6f is less than %.6f", i, time_of(n, pace, other), time);
        }
    }
}

/* A card that reads 3 TB/s, measured by runs of 512 MiB with 50 us for the submission of each. */
static void test_submission_left_out(void **state) {
    const double size = 536870912, submit = 50e-6, measured = size / (size / 3e12 + submit);
    (void)state;
    assert_true(measured < 2.4e12);
    const double rate = meta_rate_without_submission(measured, size, submit);
    assert_true(rate > 3e12 * (1 - 1e-9) && rate < 3e12 * (1 + 1e-9));
    /* At most half of a run; nothing where the submission or the rate is not known. */
    must_be(meta_rate_without_submission(2, 6, 100), 4);
    must_be(meta_rate_without_submission(2, 6, 0), 2);
    must_be(meta_rate_without_submission(0, 6, 1), 0);
}

static void test_divide(void **state) {
    const double rate[3] = {6, 3, 1};
    double share[3];
    tdm_error err = {0};
    (void)state;
    assert_int_equal(meta_share_divide(3, rate, (const double[]){1, 1, 1}, 0, share, &err), TDM_OK);
    must_be(share[0], 0.6);
    must_be(share[1], 0.3);
    must_be(share[2], 0.1);
    /* What the first has no memory for goes to the others by their rates. */
    assert_int_equal(meta_share_divide(3, rate, (const double[]){0.2, 1, 1}, 0, share, &err),
                     TDM_OK);
    must_be(share[0], 0.2);
    must_be(share[1], 0.6);
    must_be(share[2], 0.2);
    /* A member with less than the least gets nothing. */
    assert_int_equal(meta_share_divide(3, rate, (const double[]){1, 1, 1}, 0.2, share, &err),
                     TDM_OK);
    must_be(share[0], 2.0 / 3);
    must_be(share[2], 0);
    /* Also where the others' shares add up to a little less than 1, by rounding. */
    const double rounding[3] = {0.004487609649013512, 0.8524030477516402, 0.14310934259934632};
    assert_int_equal(meta_share_divide(3, rounding, (const double[]){1, 1, 1}, 0.02, share, &err),
                     TDM_OK);
    assert_false(share[0] > 0);
    assert_int_equal(meta_share_divide(3, rate, (const double[]){0.2, 0.3, 0.4}, 0, share, &err),
                     TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "90 %"));
}

static void test_caps_alone(void **state) {
    const double rate[3] = {1, 1, 1};
    const meta_room room[3] = {
        {.free = 60, .whole = 10, .divisible = 100},
        {.free = -1, .whole = 10, .divisible = 100}, /* unknown */
        {.free = 5, .whole = 10, .divisible = 100},  /* not even what every member holds */
    };
    double cap[3];
    (void)state;
    meta_share_caps(3, room, rate, cap);
    must_be(cap[0], 0.5);
    assert_true(cap[1] >= 1);
    must_be(cap[2], 0);
}

/* A CPU and an integrated GPU over the same 110 bytes, each with a copy of 5, beside a card. */
static void test_caps_shared(void **state) {
    meta_room room[3] = {
        {.free = 110, .whole = 5, .divisible = 200, .is_shared = true},
        {.free = 110, .whole = 5, .divisible = 200, .is_shared = true},
        {.free = 55, .whole = 5, .divisible = 200},
    };
    double cap[3];
    (void)state;
    meta_share_caps(3, room, (const double[]){1, 3, 9}, cap);
    must_be(cap[0], 0.125);
    must_be(cap[1], 0.375);
    must_be(cap[2], 0.25);
    must_be((cap[0] + cap[1]) * 200 + 10, 110);
    /* The GPU's driver lends it less than its part: the rest is the CPU's. */
    room[1].free = 45;
    meta_share_caps(3, room, (const double[]){1, 3, 9}, cap);
    must_be(cap[1], 0.2);
    must_be(cap[0], 0.3);
    /* The CPU is too slow for a share, but may have to take what the others cannot hold: no more
     * than they leave of the RAM. */
    meta_share_caps(3, room, (const double[]){0, 3, 9}, cap);
    must_be(cap[1], 0.2);
    must_be(cap[0], 0.3);
    /* A member that was not measured gets no share, so it takes nothing from the others. */
    room[1].free = 110;
    meta_share_caps(3, room, (const double[]){1, 0, 9}, cap);
    must_be(cap[0], 0.525);
    /* Three members in RAM. */
    for (int d = 0; d < 3; d++)
        room[d] = (meta_room){.free = 130, .whole = 10, .divisible = 100, .is_shared = true};
    meta_share_caps(3, room, (const double[]){2, 2, 1}, cap);
    must_be(cap[0], 0.4);
    must_be(cap[2], 0.2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_unlike_pace),
        cmocka_unit_test(test_pace_is_best),
        cmocka_unit_test(test_divide),
        cmocka_unit_test(test_submission_left_out),
        cmocka_unit_test(test_caps_alone),
        cmocka_unit_test(test_caps_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
