/* SPDX-License-Identifier: MIT
 *
 * json.h: writes JSON (RFC 8259) value by value, with commas, indentation and escapes. Write errors
 * stay in the stream: the caller checks ferror at the end.
 */
#ifndef TANDEM_RUNNER_JSON_H
#define TANDEM_RUNNER_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A writer with `out` set and the rest cleared begins a document. */
typedef struct runner_json_writer {
    FILE *out;     /* borrowed */
    int depth;     /* objects and arrays that are open */
    bool has_more; /* the innermost one has a value already */
} runner_json_writer;

/* `key` is that of the value in its object, and NULL in an array and at the top. Texts are UTF-8;
 * invalid bytes become U+FFFD. Numbers that are not finite become null. [setup] */
void runner_json_begin_object(runner_json_writer *w, const char *key);
void runner_json_begin_array(runner_json_writer *w, const char *key);
void runner_json_end_object(runner_json_writer *w);
void runner_json_end_array(runner_json_writer *w);
void runner_json_string(runner_json_writer *w, const char *key, const char *text);
void runner_json_uint(runner_json_writer *w, const char *key, uint64_t value);
void runner_json_int(runner_json_writer *w, const char *key, int64_t value);
void runner_json_number(runner_json_writer *w, const char *key, double value);
void runner_json_bool(runner_json_writer *w, const char *key, bool value);
void runner_json_null(runner_json_writer *w, const char *key);

/* Writes only a text, in quotes and with its escapes, for output that a writer does not lay out.
 * [setup] */
void runner_json_text(FILE *out, const char *text);

#endif
