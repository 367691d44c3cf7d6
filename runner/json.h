/* SPDX-License-Identifier: MIT
 *
 * json.h: writes JSON (RFC 8259) value by value, with commas, indentation and escapes. The caller
 * finds write errors in the stream (ferror).
 */
#ifndef TANDEM_RUNNER_JSON_H
#define TANDEM_RUNNER_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json_writer {
    FILE *out;
    int depth;     /* objects and arrays that are open */
    bool has_more; /* the innermost one has a value already */
} json_writer;

/* `key` is NULL in an array and at the top. Texts are UTF-8; invalid bytes become U+FFFD.
 * Numbers that are not finite become null. [setup] */
void json_begin_object(json_writer *w, const char *key);
void json_begin_array(json_writer *w, const char *key);
void json_end_object(json_writer *w);
void json_end_array(json_writer *w);
void json_string(json_writer *w, const char *key, const char *text);
void json_uint(json_writer *w, const char *key, uint64_t value);
void json_int(json_writer *w, const char *key, int64_t value);
void json_number(json_writer *w, const char *key, double value);
void json_bool(json_writer *w, const char *key, bool value);
void json_null(json_writer *w, const char *key);

#endif
