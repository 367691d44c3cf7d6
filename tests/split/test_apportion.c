/* SPDX-License-Identifier: MIT
 *
 * test_apportion.c: assigning whole things by shares: once, over many layers, and one by one. The
 * oracle is the definition: totals against share times number.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plugins/meta/layout/partition.h"
#include "split_random.h"

/* Shares of all sizes, some 0, of which at least one is not. */
static void random_shares(int32_t n_member, double *share) {
    double total = 0;
    while (total == 0)
        for (int32_t d = 0; d < n_member; d++) {
            share[d] = random_below(5) == 0 ? 0 : exp(-(double)random_below(500) / 100);
            if (random_below(4) == 0) share[d] = share[d] > 0 ? 0.25 : 0;
            total += share[d];
        }
    for (int32_t d = 0; d < n_member; d++) share[d] /= total;
}

/* Runs of whole granules in member order, and nothing for no members. */
static void check_runs(int64_t n_part, int64_t granule, int32_t n_member, const double *share,
                       const int64_t *lo, const int64_t *hi) {
    int64_t at = 0;
    for (int32_t d = 0; d < n_member; d++) {
        assert_true(lo[d] <= hi[d]);
        if (lo[d] == hi[d]) assert_int_equal(lo[d], 0);
        if (share[d] == 0) assert_int_equal(hi[d], 0);
        if (lo[d] == hi[d]) continue;
        assert_int_equal(lo[d], at);
        assert_int_equal(lo[d] % granule, 0);
        assert_true(hi[d] % granule == 0 || hi[d] == n_part);
        at = hi[d];
    }
    assert_int_equal(at, n_part);
}

static void one_assignment_is_by_quota(void **state) {
    (void)state;
    for (int i = 0; i < 3000; i++) {
        int32_t n_member = 1 + (int32_t)random_below(i % 8 == 0 ? TDM_MAX_MEMBERS : 6);
        int64_t granule = 1 + random_below(7), n_part = random_below(400);
        int64_t lo[TDM_MAX_MEMBERS], hi[TDM_MAX_MEMBERS];
        double share[TDM_MAX_MEMBERS], carry[TDM_MAX_MEMBERS] = {0}, sum = 0;
        random_shares(n_member, share);
        meta_apportion(n_part, granule, n_member, share, carry, lo, hi);
        check_runs(n_part, granule, n_member, share, lo, hi);
        for (int32_t d = 0; d < n_member; d++) {
            double due = share[d] * (double)n_part;
            assert_true(fabs(due - (double)(hi[d] - lo[d])) <
                        (double)granule * (n_part % granule == 0 ? 1 : 2));
            assert_true(fabs(due - (double)(hi[d] - lo[d]) - carry[d]) < 1e-6);
            sum += carry[d];
        }
        assert_true(fabs(sum) < 1e-6);
    }
}

static void many_layers_even_out(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < 200; i++) {
        int32_t n_member = 1 + (int32_t)random_below(i % 4 == 0 ? TDM_MAX_MEMBERS : 8);
        bool is_even = i % 3 != 0;
        int64_t granule = 1 + random_below(9), n_granule = 1 + random_below(40);
        int64_t n_part = n_granule * granule - (is_even ? 0 : random_below(granule));
        int64_t lo[TDM_MAX_MEMBERS], hi[TDM_MAX_MEMBERS], had[TDM_MAX_MEMBERS] = {0};
        double share[TDM_MAX_MEMBERS], carry[TDM_MAX_MEMBERS] = {0};
        random_shares(n_member, share);
        for (int layer = 1; layer <= 300; layer++) {
            meta_apportion(n_part, granule, n_member, share, carry, lo, hi);
            check_runs(n_part, granule, n_member, share, lo, hi);
            for (int32_t d = 0; d < n_member; d++) {
                had[d] += hi[d] - lo[d];
                double off = fabs(share[d] * (double)n_part * layer - (double)had[d]);
                if (n_part % granule == 0 && off / (double)granule > worst)
                    worst = off / (double)granule;
                if (off >= (double)granule * (n_part % granule == 0 ? 1 : 2))
                    fail_msg("layer %d: member %d of %d with share %.4f of %lld parts in granules "
                             "of %lld is %.3f parts off",
                             layer, (int)d, (int)n_member, share[d], (long long)n_part,
                             (long long)granule, off);
            }
        }
    }
    printf("largest debt: %.3f granules\n", worst);
    assert_true(worst > 0.5); /* there was something to even out */
}

static void expect_sizes(int64_t n_part, int64_t granule, int32_t n_member, const double *share,
                         double *carry, const int64_t *sizes) {
    int64_t lo[TDM_MAX_MEMBERS], hi[TDM_MAX_MEMBERS];
    meta_apportion(n_part, granule, n_member, share, carry, lo, hi);
    for (int32_t d = 0; d < n_member; d++) assert_int_equal(hi[d] - lo[d], sizes[d]);
}

static void known_assignments(void **state) {
    (void)state;
    double carry[3] = {0};
    /* Exact quotas. */
    expect_sizes(8, 1, 2, (const double[]){.75, .25}, carry, (const int64_t[]){6, 2});
    expect_sizes(32, 1, 3, (const double[]){.625, .25, .125}, carry, (const int64_t[]){20, 8, 4});
    /* Largest remainder: 1.2, 1.05, 0.75. */
    expect_sizes(3, 1, 3, (const double[]){.4, .35, .25}, carry, (const int64_t[]){1, 1, 1});
    /* What the first was given too much goes to the second in the next layer. */
    memset(carry, 0, sizeof carry);
    expect_sizes(5, 1, 2, (const double[]){.5, .5}, carry, (const int64_t[]){3, 2});
    expect_sizes(5, 1, 2, (const double[]){.5, .5}, carry, (const int64_t[]){2, 3});
    expect_sizes(5, 1, 2, (const double[]){.5, .5}, carry, (const int64_t[]){3, 2});
    /* A granule of all: one gets it, the one with the largest share, and in turn. */
    memset(carry, 0, sizeof carry);
    expect_sizes(5, 8, 3, (const double[]){.3, .6, .1}, carry, (const int64_t[]){0, 5, 0});
    expect_sizes(5, 8, 3, (const double[]){.3, .6, .1}, carry, (const int64_t[]){5, 0, 0});
    expect_sizes(5, 8, 3, (const double[]){.3, .6, .1}, carry, (const int64_t[]){0, 5, 0});
    /* The last granule is a short one. */
    memset(carry, 0, sizeof carry);
    expect_sizes(10, 4, 2, (const double[]){.5, .5}, carry, (const int64_t[]){8, 2});
    /* Nothing to assign, no members, shares that do not add up to 1. */
    memset(carry, 0, sizeof carry);
    expect_sizes(0, 4, 2, (const double[]){.5, .5}, carry, (const int64_t[]){0, 0});
    expect_sizes(9, 1, 2, (const double[]){0, 0}, carry, (const int64_t[]){0, 0});
    expect_sizes(8, 1, 2, (const double[]){3, 1}, carry, (const int64_t[]){6, 2});
    expect_sizes(7, 1, 3, (const double[]){0, 1, 0}, carry, (const int64_t[]){0, 7, 0});
}

static void one_by_one_stays_close(void **state) {
    (void)state;
    double none[2] = {0}, carry_none[2] = {0};
    assert_int_equal(meta_apportion_next(2, none, carry_none), -1);
    for (int i = 0; i < 300; i++) {
        int32_t n_member = 1 + (int32_t)random_below(i % 4 == 0 ? TDM_MAX_MEMBERS : 8);
        double share[TDM_MAX_MEMBERS], carry[TDM_MAX_MEMBERS] = {0};
        int64_t had[TDM_MAX_MEMBERS] = {0};
        random_shares(n_member, share);
        for (int n = 1; n <= 400; n++) {
            int32_t who = meta_apportion_next(n_member, share, carry);
            assert_true(who >= 0 && share[who] > 0);
            had[who]++;
            for (int32_t d = 0; d < n_member; d++) {
                assert_true(fabs(share[d] * n - (double)had[d]) < 1);
                assert_true(fabs(share[d] * n - (double)had[d] - carry[d]) < 1e-6);
            }
        }
    }
}

static void pages_do_not_depend_on_how_many(void **state) {
    (void)state;
    static meta_device device = {.n_member = 4};
    static meta_page few[100], many[1000];
    int64_t n_few[4], n_many[4], seen[4] = {0};
    const double share[4] = {.5, 0, .3, .2};
    for (int d = 0; d < 4; d++) device.members[d].share = share[d];
    meta_pages_assign(&device, 100, few, n_few);
    meta_pages_assign(&device, 1000, many, n_many);
    assert_memory_equal(few, many, sizeof few);
    for (int i = 0; i < 1000; i++) assert_int_equal(many[i].local, seen[many[i].owner]++);
    for (int d = 0; d < 4; d++) {
        assert_int_equal(n_many[d], seen[d]);
        assert_true(fabs(share[d] * 1000 - (double)n_many[d]) < 1);
        assert_true(fabs(share[d] * 100 - (double)n_few[d]) < 1);
    }
    meta_pages_assign(&device, 0, NULL, n_few);
    assert_int_equal(n_few[0], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_assignment_is_by_quota),
        cmocka_unit_test(many_layers_even_out),
        cmocka_unit_test(known_assignments),
        cmocka_unit_test(one_by_one_stays_close),
        cmocka_unit_test(pages_do_not_depend_on_how_many),
    };
    random_begin("apportion");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
