/* SPDX-License-Identifier: MIT
 *
 * test_ranges.c: free ranges of a block beside a map that has a cell for each unit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/gpu/mem/ranges.h"
#include "tests/support/random.h"

enum { UNIT = 256, N_UNIT = 97, MAX_TAKEN = 64, N_TRIAL = 20000 };

typedef struct model {
    bool is_taken[N_UNIT];
    gpu_range taken[MAX_TAKEN];
    int n_taken;
} model;

/* The lowest unit from which n units are free; -1 = none. */
static int first_fit(const model *m, int n) {
    for (int i = 0; i + n <= N_UNIT; i++) {
        int k = 0;
        while (k < n && !m->is_taken[i + k]) k++;
        if (k == n) return i;
    }
    return -1;
}

static void mark(model *m, const gpu_range *range, bool is_taken) {
    int first = (int)(range->off / UNIT), n = (int)((range->size + UNIT - 1) / UNIT);
    for (int i = first; i < first + n; i++) {
        assert_int_not_equal(m->is_taken[i], is_taken);
        m->is_taken[i] = is_taken;
    }
}

/* The list is sorted, has no neighbours, and covers exactly the free units. */
static void list_check(const gpu_ranges *ranges, const model *m) {
    int n_free = 0, n_listed = 0;
    for (int i = 0; i < N_UNIT; i++) n_free += !m->is_taken[i];
    for (int32_t i = 0; i < ranges->n_free; i++) {
        const gpu_range *range = &ranges->free[i];
        assert_true(range->size > 0);
        if (i > 0) assert_true(range->off > range[-1].off + range[-1].size);
        for (uint64_t at = range->off; at < range->off + range->size; at += UNIT)
            assert_false(m->is_taken[at / UNIT]);
        n_listed += (int)(range->size / UNIT);
    }
    assert_int_equal(n_listed, n_free);
    assert_int_equal(ranges->n_taken, m->n_taken);
}

static void test_random(void **state) {
    gpu_ranges ranges;
    model m = {0};
    uint64_t seed = test_seed("ranges", 1);
    (void)state;
    assert_true(gpu_ranges_init(&ranges, N_UNIT * UNIT + 17, UNIT));
    for (int trial = 0; trial < N_TRIAL; trial++) {
        if (m.n_taken < MAX_TAKEN && random_u32_below(&seed, 2) == 0) {
            gpu_range *range = &m.taken[m.n_taken];
            range->size = 1 + random_u32_below(&seed, 12 * UNIT);
            int expected = first_fit(&m, (int)((range->size + UNIT - 1) / UNIT));
            bool is_given = gpu_ranges_take(&ranges, range->size, &range->off);
            assert_int_equal(is_given, expected >= 0);
            if (!is_given) continue;
            assert_int_equal(range->off, (uint64_t)expected * UNIT);
            mark(&m, range, true);
            m.n_taken++;
        } else if (m.n_taken > 0) {
            int i = (int)random_u32_below(&seed, (uint32_t)m.n_taken);
            mark(&m, &m.taken[i], false);
            gpu_ranges_give(&ranges, m.taken[i].off, m.taken[i].size);
            m.taken[i] = m.taken[--m.n_taken];
        }
        list_check(&ranges, &m);
    }
    gpu_ranges_free(&ranges);
}

static void test_limits(void **state) {
    gpu_ranges ranges;
    uint64_t off = 7;
    (void)state;
    assert_true(gpu_ranges_init(&ranges, 0, UNIT));
    assert_false(gpu_ranges_take(&ranges, 1, &off));
    gpu_ranges_free(&ranges);
    assert_true(gpu_ranges_init(&ranges, 4 * UNIT, UNIT));
    assert_false(gpu_ranges_take(&ranges, UINT64_MAX, &off));
    assert_false(gpu_ranges_take(&ranges, 4 * UNIT + 1, &off));
    assert_int_equal(off, 7);
    assert_true(gpu_ranges_take(&ranges, 4 * UNIT, &off));
    assert_int_equal(off, 0);
    assert_false(gpu_ranges_take(&ranges, 1, &off));
    gpu_ranges_give(&ranges, 0, 4 * UNIT);
    assert_true(gpu_ranges_take(&ranges, 1, &off));
    gpu_ranges_free(&ranges);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
                                       cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
