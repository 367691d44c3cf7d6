/* SPDX-License-Identifier: MIT
 *
 * failed_checks.h: a run of the conformance suite in a cmocka test, and the checks that failed.
 */
#ifndef TANDEM_TESTS_FAILED_CHECKS_H
#define TANDEM_TESTS_FAILED_CHECKS_H

#include "certify/certify.h"

/* Runs the suite; `ids` receives the ids of failed checks, separated by commas ("" = none). The
 * report goes to standard output without the skipped checks. Fails the test when the suite cannot
 * run. */
certify_result failed_checks_run(const certify_params *params, char *ids, size_t ids_size);

#endif
