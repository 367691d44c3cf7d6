/* SPDX-License-Identifier: MIT
 *
 * test_divisors.c: the multipliers with which kernels divide (plugins/gpu/ops/axes.h), and the
 * split of elements' numbers into coordinates.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plugins/gpu/ops/axes.h"
#include "tests/support/random.h"

/* As shaders/axes.glsl divides. */
static uint32_t divide(uint32_t n, gpu_divisor d) {
    uint32_t high = (uint32_t)((uint64_t)n * d.multiplier >> 32);
    return d.multiplier == 0 ? n : high >> d.shift;
}

static void check(uint32_t n, uint32_t by, gpu_divisor d) {
    if (n <= INT32_MAX && divide(n, d) != n / by)
        fail_msg("%u / %u = %u, not %u", n, by, n / by, divide(n, d));
}

/* Dividends beside multiples of the divisor, where a quotient that is off by one shows. */
static void check_divisor(uint32_t by, uint64_t *seed) {
    const gpu_divisor d = gpu_divisor_make(by);
    check(0, by, d);
    check(1, by, d);
    check(INT32_MAX, by, d);
    for (int i = 0; i < 20; i++) {
        uint32_t times = (uint32_t)(random_u64(seed) % (INT32_MAX / by + 1u));
        check(times * by, by, d);
        check(times * by + by - 1, by, d);
        if (times > 0) check(times * by - 1, by, d);
    }
}

static void quotients_are_exact(void **state) {
    uint64_t seed = 12;
    (void)state;
    for (uint32_t by = 1; by < 20000; by++) check_divisor(by, &seed);
    for (int bit = 1; bit < 31; bit++)
        for (uint32_t d = 0; d < 3; d++) check_divisor((1u << bit) - 1 + d, &seed);
    for (int i = 0; i < 100000; i++)
        check_divisor((uint32_t)(random_u64(&seed) % INT32_MAX) + 1, &seed);
    check_divisor(INT32_MAX, &seed);
}

static void splits_have_a_word_for_shifts(void **state) {
    const gpu_emit e = {.target = &(const gpu_target){.name = "none"}};
    const int64_t ne[3] = {1, 37, 4096};
    int32_t word[GPU_SPLIT_WORDS];
    tdm_error err = {0};
    (void)state;
    assert_int_equal(gpu_words_split(&e, word, ne, &err), TDM_OK);
    for (int i = 0; i < 3; i++) {
        gpu_divisor d = {(uint32_t)word[3 + i], word[6] >> (8 * i) & 255};
        assert_int_equal(word[i], ne[i]);
        for (uint32_t n = 0; n < 100000; n += 7) assert_int_equal(divide(n, d), n / ne[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotients_are_exact),
        cmocka_unit_test(splits_have_a_word_for_shifts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
