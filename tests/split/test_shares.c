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

#include "plugins/meta/share/solve.h"

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
        cmocka_unit_test(test_divide),
        cmocka_unit_test(test_caps_alone),
        cmocka_unit_test(test_caps_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
