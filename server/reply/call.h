/* SPDX-License-Identifier: MIT
 *
 * call.h: reads the parts of a call as the families of parse.h write them: its head (the text up to
 * the arguments), and parameters between marks. Offsets are bytes from the beginning of the text.
 */
#ifndef TANDEM_SERVER_CALL_H
#define TANDEM_SERVER_CALL_H

#include "server/reply/json_scan.h"

/* What follows a head. */
typedef enum reply_form {
    REPLY_FORM_WHOLE,      /* nothing: the arguments are in the head */
    REPLY_FORM_VALUE,      /* a JSON value */
    REPLY_FORM_PARAMETERS, /* parameters between marks */
} reply_form;

typedef struct reply_call_head {
    size_t name_at, name_len;
    size_t arguments_at, arguments_len; /* with REPLY_FORM_WHOLE; len 0 = none */
    size_t end;                         /* of the head */
    reply_form form;
    bool is_in_object; /* the value is a member of an object, whose end follows */
} reply_call_head;

/* Reads a head at the front of the text, with the mark that opens it (if the family has one).
 * REPLY_SCAN_MORE: more text is needed, where is_ended is false; REPLY_SCAN_FAIL: it is no call.
 * *head is cleared before, and written with REPLY_SCAN_OK. is_ended: no text follows. */
reply_scan reply_call_head_read(reply_family family, const char *text, size_t len, bool is_ended,
                                reply_call_head *head);

typedef struct reply_parameter {
    size_t name_at, name_len, value_at, value_len;
    size_t end;       /* of the parameter, with its closing mark */
    size_t n_scanned; /* with REPLY_SCAN_MORE: `from` of the next call */
} reply_parameter;

/* Reads a parameter at the front of the text. The bytes before `from` are known not to have its
 * closing mark (0 = nothing is known). REPLY_SCAN_MORE: more text is needed. REPLY_SCAN_FAIL: there
 * is no parameter, so the call ends. *out is cleared before. */
reply_scan reply_parameter_read(reply_family family, const char *text, size_t len, size_t from,
                                bool is_ended, reply_parameter *out);

#endif
