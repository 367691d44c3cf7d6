/* SPDX-License-Identifier: MIT
 *
 * test_limits.c: the rates that a group reports: sums over its members, where all of them report.
 * Measured rates depend on the machine and are not tested; sums are tested with rates that the shim
 * plugin reports.
 */
#include "tests/split/fault_rig.h"

#include "core/runtime.h"

/* The thread sanitizer has several bytes for each byte of memory, and each device reads up to a
 * GiB. The first test has all that threads do. */
static void memory_need(void) {
#ifdef __SANITIZE_THREAD__
    print_message("skipped: a GiB for each device takes several times that with this sanitizer\n");
    skip();
#endif
}

static tdm_open_device *group_open(tdm_runtime *rt, const char *name, const char *members,
                                   const char *share) {
    const tdm_option options[] = {{"members", members}, {"share", share}};
    const tdm_device_spec spec = {name, "meta", 0, options, 2};
    tdm_open_device *dev = NULL;
    OK(tdm_runtime_declare(rt, &spec, err));
    OK(tdm_runtime_open(rt, name, &dev, err));
    return dev;
}

static tdm_runtime *runtime_make(void) {
    tdm_runtime *rt = NULL;
    tdm_runtime_params params = {.struct_size = sizeof params,
                                 .plugin_path = getenv("FAULT_PLUGIN_PATH")};
    OK(tdm_runtime_create(&params, &rt, err));
    for (int i = 0; i < 4; i++) {
        const tdm_option plain[] = {{"threads", "1"}, {"isa", "plain"}};
        const tdm_option reference[] = {{"threads", "1"}, {"path", "reference"}};
        const char name[] = {(char)('a' + i), 0};
        const tdm_device_spec spec = {name, "cpu", 0, i < 3 ? plain : reference, 2};
        OK(tdm_runtime_declare(rt, &spec, err));
    }
    /* has no slot for limits, and passes all other calls on to "d" */
    const tdm_option behind[] = {{"member", "d"}};
    const tdm_device_spec silent = {"silent", "fault", 0, behind, 1};
    OK(tdm_runtime_declare(rt, &silent, err));
    return rt;
}

static void group_measures(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_make();
    tdm_open_device *group = group_open(rt, "group", "a, b, c", "1, 1, 0");
    tdm_device_limits limits;
    OK(tdm_open_device_measure_limits(group, &limits, err));
    assert_int_equal(limits.struct_size, sizeof limits);
    assert_string_equal(limits.arithmetic, "plain C");
    assert_true(limits.int8_peak > 0 && limits.f32_peak > 0 && limits.read_bandwidth >= 0);
    tdm_runtime_destroy(rt);
}

static void limits_are(tdm_open_device *dev, double read, double int8, double f32) {
    tdm_device_limits limits;
    OK(tdm_open_device_measure_limits(dev, &limits, err));
    assert_string_equal(limits.arithmetic, "given");
    if (limits.read_bandwidth != read || limits.int8_peak != int8 || limits.f32_peak != f32)
        fail_msg("read %g, int8 %g, f32 %g; expected %g, %g, %g", limits.read_bandwidth,
                 limits.int8_peak, limits.f32_peak, read, int8, f32);
}

/* Devices whose rates are given. One without a share adds nothing; a group inside a group adds its
 * sum; a rate that a member does not know is unknown of the group. */
static void group_adds_up(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_make();
    setenv("TANDEM_TEST_LIMITS", "1e10,2e12,3e11", 1);
    OK(tdm_runtime_load_file(rt, getenv("SHIM_PLUGIN"), err));
    for (int i = 0; i < 3; i++) {
        const tdm_option threads = {"threads", "1"};
        const char name[] = {'s', (char)('0' + i), 0};
        const tdm_device_spec spec = {name, "shim", 0, &threads, 1};
        OK(tdm_runtime_declare(rt, &spec, err));
    }
    limits_are(group_open(rt, "one", "s0, s1, s2", "0, 3, 0"), 1e10, 2e12, 3e11);
    tdm_open_device *two = group_open(rt, "two", "s0, s1, s2", "1, 1, 0");
    limits_are(two, 2e10, 4e12, 6e11);
    (void)group_open(rt, "inner", "s0, s1", "1, 1");
    limits_are(group_open(rt, "outer", "inner, s2", "2, 1"), 3e10, 6e12, 9e11);
    setenv("TANDEM_TEST_LIMITS", "0,2e12,3e11", 1);
    limits_are(two, 0, 4e12, 6e11);
    unsetenv("TANDEM_TEST_LIMITS");
    tdm_runtime_destroy(rt);
}

/* A group of a group. */
static void groups_nest(void **state) {
    (void)state;
    memory_need();
    tdm_runtime *rt = runtime_make();
    (void)group_open(rt, "inner", "a, b", "1, 1");
    tdm_open_device *outer = group_open(rt, "outer", "inner, c", "2, 1");
    tdm_device_limits limits;
    OK(tdm_open_device_measure_limits(outer, &limits, err));
    assert_string_equal(limits.arithmetic, "plain C");
    assert_true(limits.int8_peak > 0 && limits.f32_peak > 0);
    tdm_runtime_destroy(rt);
}

/* A device that reports nothing: its rates are unknown, and those of a group with it. */
static void missing_is_unknown(void **state) {
    (void)state;
    memory_need();
    tdm_runtime *rt = runtime_make();
    tdm_open_device *silent = NULL;
    tdm_device_limits limits;
    OK(tdm_runtime_open(rt, "silent", &silent, err));
    OK(tdm_open_device_measure_limits(silent, &limits, err));
    assert_true(limits.read_bandwidth == 0 && limits.int8_peak == 0 && limits.f32_peak == 0);
    assert_string_equal(limits.arithmetic, "");
    OK(tdm_open_device_measure_limits(group_open(rt, "half", "a, silent", "1, 1"), &limits, err));
    assert_true(limits.read_bandwidth == 0 && limits.int8_peak == 0 && limits.f32_peak == 0);
    assert_string_equal(limits.arithmetic, "mixed");
    OK(tdm_open_device_measure_limits(group_open(rt, "idle", "a, silent", "1, 0"), &limits, err));
    assert_true(limits.int8_peak > 0 && limits.f32_peak > 0);
    tdm_runtime_destroy(rt);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_measures),
        cmocka_unit_test(group_adds_up),
        cmocka_unit_test(groups_nest),
        cmocka_unit_test(missing_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
