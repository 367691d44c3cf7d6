/* SPDX-License-Identifier: MIT
 *
 * config_fixture.h: what the tests of the configuration share: a folder with an INI file in it, and
 * parsing a command line given as one string.
 */
#ifndef TANDEM_TESTS_CONFIG_FIXTURE_H
#define TANDEM_TESTS_CONFIG_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runner/config/config.h"

/* The folder; set by folder_make. */
extern char folder[64];

/* Make and remove the folder (a group's set-up and tear-down). */
int folder_make(void **state);
int folder_remove(void **state);

/* Write a file of the folder: x.ini or model.gguf. */
void file_write_bytes(const char *name, const char *bytes, size_t n);
void file_write(const char *name, const char *text);

/* Splits "run -c 3" at blanks and parses it; "@" stands for --config and x.ini of the folder. The
 * configuration keeps pointers to the words, which are static: the next call overwrites them, so
 * there is one configuration at a time. The caller destroys it, after a failure too. */
runner_config *parse(const char *line, tdm_status *status, tdm_error *err);
/* The same, which must succeed. */
runner_config *parse_ok(const char *line);
/* The same after writing `text` to x.ini. */
runner_config *parse_file(const char *text, const char *line);

/* The line must fail with exactly `message`, in which "@" stands for the path of x.ini. */
void parse_fails(const char *line, int exit_code, const char *message);
/* The same for `run @` with that text in x.ini. */
void file_fails(const char *text, const char *message);

/* The origin of a value, as text; ":3" stands for line 3 of x.ini. */
void assert_origin(runner_config *config, const runner_section *section, const char *key,
                   const char *expected);
/* Fails the test if a getter was called for a key that does not exist, or for another type than the
 * key's (runner_config_check); destroys the configuration. */
void assert_checked(runner_config *config);

#endif
