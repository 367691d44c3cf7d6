/* SPDX-License-Identifier: MIT
 *
 * json_scan.h: finds the ends of JSON values in text that comes in pieces, without reading them.
 */
#ifndef TANDEM_SERVER_JSON_SCAN_H
#define TANDEM_SERVER_JSON_SCAN_H

#include "server/reply/parse.h"

typedef enum reply_scan { REPLY_SCAN_OK, REPLY_SCAN_MORE, REPLY_SCAN_FAIL } reply_scan;

/* Cleared = before a value. */
typedef struct json_scan {
    int depth;
    bool has_begun, is_string, is_escape, is_scalar, is_done;
} json_scan;

/* Bytes of text that belong to the value, white space before it included; is_done at its end. */
size_t json_scan_push(json_scan *scan, const char *text, size_t len);
/* Moves *at past the value that begins there. */
reply_scan json_scan_skip(const char *text, size_t len, size_t *at);
/* Moves *at past the string that begins there; its contents are text[*from .. *from + *n). */
reply_scan json_scan_string(const char *text, size_t len, size_t *at, size_t *from, size_t *n);
/* Moves *at past white space. */
void json_scan_space(const char *text, size_t len, size_t *at);
/* Whether text[0 .. len) is one JSON value, as far as brackets and words tell. */
bool json_scan_is_value(const char *text, size_t len);
/* Passes text as a JSON string, as pieces of arguments. */
void json_scan_quote(reply_piece_fn take, void *user, const char *text, size_t len);

#endif
