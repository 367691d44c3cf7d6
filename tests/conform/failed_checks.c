/* SPDX-License-Identifier: MIT
 *
 * failed_checks.c: see failed_checks.h.
 */
#include "tests/conform/failed_checks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void report_read(FILE *report, char *ids, size_t ids_size) {
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

certify_result failed_checks_run(const certify_params *params, char *ids, size_t ids_size) {
    certify_result result = {0};
    tdm_error err = {0};
    FILE *report = tmpfile();
    assert_non_null(report);
    /* The suite runs each check in a child process. After a crash there, cmocka's handlers would
     * run the next test in the child. */
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
    signal(SIGILL, SIG_DFL);
    if (certify_run(params, report, &result, &err) != TDM_OK) fail_msg("%s", err.message);
    report_read(report, ids, ids_size);
    fclose(report);
    return result;
}
