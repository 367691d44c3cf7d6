/* SPDX-License-Identifier: MIT
 *
 * json_scan.h: finds where JSON values end in text that comes in pieces. It counts brackets and
 * finds the ends of strings; whether the value is well-formed is not checked.
 */
#ifndef TANDEM_SERVER_JSON_SCAN_H
#define TANDEM_SERVER_JSON_SCAN_H

#include "server/reply/parse.h"

/* What a function found at the front of a text that may not be complete. */
typedef enum reply_scan {
    REPLY_SCAN_OK,   /* it is there */
    REPLY_SCAN_MORE, /* it may be there: more text decides */
    REPLY_SCAN_FAIL  /* it is not there */
} reply_scan;

/* The state of a scan. Cleared = before a value. */
typedef struct json_scan {
    int depth; /* brackets that are open */
    /* The value has begun; the last byte was within a string, behind its backslash, within a number
     * or word that is the whole value; the value is complete. */
    bool has_begun, is_string, is_escape, is_scalar, is_done;
} json_scan;

/* Scans the next len bytes. Returns how many of them belong to the value, white space before it
 * included, and sets is_done where it is complete. is_done without has_begun: there is no value. */
size_t json_scan_push(json_scan *scan, const char *text, size_t len);
/* Moves *at past the value that begins there. REPLY_SCAN_MORE leaves *at. */
reply_scan json_scan_skip(const char *text, size_t len, size_t *at);
/* Moves *at past the string that begins there; its contents are text[*from .. *from + *n). */
reply_scan json_scan_string(const char *text, size_t len, size_t *at, size_t *from, size_t *n);
/* Moves *at past white space. */
void json_scan_space(const char *text, size_t len, size_t *at);
/* Whether text[0 .. len) is one well-formed JSON value. False for 1 MiB and more, or without
 * memory. */
bool json_scan_is_value(const char *text, size_t len);
/* Passes text as a JSON string to `take`, in pieces of kind REPLY_ARGUMENTS. */
void json_scan_quote(reply_piece_fn take, void *user, const char *text, size_t len);

#endif
