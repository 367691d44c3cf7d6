/* SPDX-License-Identifier: MIT
 *
 * call.h: how the families of parse.h write a call: the part up to the arguments, and parameters
 * between marks.
 */
#ifndef TANDEM_SERVER_CALL_H
#define TANDEM_SERVER_CALL_H

#include "server/reply/json_scan.h"

/* What stands behind a head. */
typedef enum reply_form {
    REPLY_FORM_WHOLE,      /* nothing: the arguments were in it */
    REPLY_FORM_VALUE,      /* a JSON value */
    REPLY_FORM_PARAMETERS, /* parameters between marks */
} reply_form;

/* Places are offsets into the text. */
typedef struct reply_call_head {
    size_t name_at, name_len;
    size_t arguments_at, arguments_len; /* with REPLY_FORM_WHOLE; len 0 = none */
    size_t end;                         /* of the head */
    reply_form form;
    bool is_in_object; /* the value is a member of an object, whose end follows */
} reply_call_head;

/* Reads a head at the front of the text, with the mark that opens it (if the family has one).
 * is_ended: no text follows. */
reply_scan reply_call_head_read(reply_family family, const char *text, size_t len, bool is_ended,
                                reply_call_head *head);

typedef struct reply_parameter {
    size_t name_at, name_len, value_at, value_len;
    size_t end;
    size_t n_scanned; /* with REPLY_SCAN_MORE: where to begin next time */
} reply_parameter;

/* Reads a parameter at the front of the text. REPLY_SCAN_FAIL: there is none, the call ends. */
reply_scan reply_parameter_read(reply_family family, const char *text, size_t len, size_t from,
                                bool is_ended, reply_parameter *out);

#endif
