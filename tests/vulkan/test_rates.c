/* SPDX-License-Identifier: MIT
 *
 * test_rates.c: what a Vulkan device learns from the time of a computation (parts.h). No driver is
 * needed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plugins/vulkan/parts.h"

static vk_device device;
static const double rate = 1e9; /* of bytes and of multiply-adds, before each case */

/* The rate of bytes, or of multiply-adds, after `work` took `seconds`, as a multiple of `rate`. */
static double bytes_after(const gpu_work_range *work, double seconds) {
    atomic_store(&device.rates.bytes, rate);
    atomic_store(&device.rates.ops, rate);
    vk_rates_learn(&device, work, seconds);
    assert_true(atomic_load(&device.rates.ops) == rate);
    return atomic_load(&device.rates.bytes) / rate;
}

static double ops_after(const gpu_work_range *work, double seconds) {
    atomic_store(&device.rates.bytes, rate);
    atomic_store(&device.rates.ops, rate);
    vk_rates_learn(&device, work, seconds);
    assert_true(atomic_load(&device.rates.bytes) == rate);
    return atomic_load(&device.rates.ops) / rate;
}

static bool is_near(double a, double b) {
    return fabs(a - b) < 1e-9;
}

/* A second of work at the present rates. */
static void test_known_work(void **state) {
    (void)state;
    const gpu_work_range bytes = {{.bytes = 1e9}, {.bytes = 1e9}};
    const gpu_work_range ops = {{.bytes = 0.25e9, .ops = 0.75e9}, {.bytes = 0.25e9, .ops = 0.75e9}};
    assert_true(is_near(bytes_after(&bytes, 0.25), 2.5));
    assert_true(is_near(bytes_after(&bytes, 4), 0.625));
    assert_true(is_near(ops_after(&ops, 0.5), 1.5));
    assert_true(is_near(ops_after(&ops, 2), 0.75));
}

/* Between half a second and four. */
static void test_uncertain_work(void **state) {
    (void)state;
    const gpu_work_range work = {{.bytes = 0.5e9}, {.bytes = 4e9}};
    assert_true(is_near(bytes_after(&work, 1), 1));
    assert_true(is_near(bytes_after(&work, 3), 1));
    assert_true(is_near(bytes_after(&work, 0.25), 1.5)); /* by the least */
    assert_true(is_near(bytes_after(&work, 8), 0.75));   /* by the most */
    /* Nothing is certain: the rate never rises. */
    const gpu_work_range most = {{0}, {.bytes = 4e9}};
    assert_true(is_near(bytes_after(&most, 0.25), 1));
    assert_true(is_near(bytes_after(&most, 8), 0.75));
}

static void test_nothing_to_learn(void **state) {
    (void)state;
    const gpu_work_range none = {{0}, {0}}, work = {{.bytes = 1e9}, {.bytes = 1e9}};
    assert_true(is_near(bytes_after(&none, 1), 1));
    assert_true(is_near(bytes_after(&work, 0.001), 1)); /* too short */
}

/* Experts of several tokens count in the most only, and a step of few tiles is cut by its
 * multiply-adds. */
static void test_experts(void **state) {
    (void)state;
    gpu_step steps[2] = {{.kernel = GPU_KERNEL_PRODUCT_TILE,
                          .grid = {64, 1, 1},
                          .word = {[0] = 1000, [1] = 1000, [2] = 100},
                          .spec = {[4] = GPU_PRODUCT_PLAIN}},
                         {.kernel = GPU_KERNEL_PRODUCT_TILE,
                          .grid = {64, 1, 1},
                          .word = {[0] = 1000, [1] = 10000, [2] = 8},
                          .spec = {[3] = 32, [4] = GPU_PRODUCT_SORTED}}};
    gpu_plan list = {.steps = steps, .n_step = 2};
    vk_facts facts = {.is_cpu = false};
    tdm_error err = {0};
    tdm_plan plan = {.device = &device, .bound = {.steps = &list}};
    device.facts = &facts;
    atomic_store(&device.rates.bytes, rate);
    atomic_store(&device.rates.ops, rate);
    assert_int_equal(vk_parts_cut(&plan, &err), TDM_OK);
    assert_true(plan.work.least.ops == 1e8);
    assert_true(plan.work.most.ops == 1e8 + 2.56e9);
    assert_int_equal(plan.n_part, 1 + 6); /* 2.56 s in parts of half a second */
    free(plan.parts);
    free(plan.submits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_work),
        cmocka_unit_test(test_uncertain_work),
        cmocka_unit_test(test_nothing_to_learn),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
