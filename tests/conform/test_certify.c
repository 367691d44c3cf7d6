/* SPDX-License-Identifier: MIT
 *
 * test_certify.c: runs the whole conformance suite against one plugin and expects exactly one check
 * to fail, or none.
 *
 *     test_certify PLUGIN.so CHECK [FAMILY [batch]]
 *
 * CHECK "-" = all pass. With FAMILY only the checks whose ids begin so, such as "tensor."; with
 * "batch" those that can share a process do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/conform/failed_checks.h"

static certify_params params = {.level = -1, .seed = 20};
static const char *expected;

static void test_plugin(void **state) {
    char ids[1024];
    (void)state;
    const certify_result result = failed_checks_run(&params, ids, sizeof ids);
    const bool passes = strcmp(expected, "-") == 0;
    assert_string_equal(ids, passes ? "" : expected);
    assert_int_equal(result.n_failed, passes ? 0 : 1);
    assert_true(result.n_passed > 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plugin)};
    if (argc < 3 || argc > 5 || (argc == 5 && strcmp(argv[4], "batch") != 0)) return 2;
    params.file = argv[1];
    expected = argv[2];
    if (argc > 3) params.only = argv[3];
    params.is_batch = argc > 4;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
