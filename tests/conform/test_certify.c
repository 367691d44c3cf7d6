/* SPDX-License-Identifier: MIT
 *
 * test_certify.c: runs the conformance suite against one plugin and expects exactly one check to
 * fail, or none.
 *
 *     test_certify PLUGIN.so ID [PREFIX [SECONDS]]
 *
 * ID "-" = all pass. PREFIX restricts the suite to checks whose id begins so; SECONDS is what a
 * check may take.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "certify/certify.h"

static certify_params params;
static const char *expected;

/* The ids of failed checks, with commas between; the report goes to the test's output too. */
static void failures_read(FILE *report, char *ids, size_t ids_size) {
    char line[2048];
    size_t n = 0;
    rewind(report);
    ids[0] = 0;
    while (fgets(line, sizeof line, report) != NULL) {
        if (strncmp(line, "skip", 4) != 0) fputs(line, stdout);
        if (strncmp(line, "FAIL  ", 6) != 0) continue;
        n += (size_t)snprintf(ids + n, ids_size - n, "%s%.*s", n > 0 ? "," : "",
                              (int)strcspn(line + 6, ":"), line + 6);
        if (n >= ids_size) break;
    }
}

static void test_one_failure(void **state) {
    certify_result result = {0};
    tdm_error err = {0};
    char ids[1024];
    FILE *report = tmpfile();
    (void)state;
    assert_non_null(report);
    if (certify_run(&params, report, &result, &err) != TDM_OK) fail_msg("%s", err.message);
    failures_read(report, ids, sizeof ids);
    fclose(report);
    if (strcmp(expected, "-") == 0) {
        assert_string_equal(ids, "");
        assert_int_equal(result.n_failed, 0);
        assert_true(result.n_passed > 0);
    } else {
        assert_string_equal(ids, expected);
        assert_int_equal(result.n_failed, 1);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_failure)};
    if (argc < 3) return 2;
    params.file = argv[1];
    params.level = -1;
    params.seed = 20;
    expected = argv[2];
    if (argc > 3) params.only = argv[3];
    if (argc > 4) params.limit_s = atoi(argv[4]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
