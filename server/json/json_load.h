/* SPDX-License-Identifier: MIT
 *
 * json_load.h: parses JSON whose numbers may have any length. JSON's grammar sets no limit, but
 * jansson refuses whole numbers beyond 64 bits, and numbers beyond those of a double.
 */
#ifndef TANDEM_SERVER_JSON_LOAD_H
#define TANDEM_SERVER_JSON_LOAD_H

#include <jansson.h>

/* As json_loadb. A whole number beyond 64 bits becomes a real number. A number that a double cannot
 * hold becomes a string of its digits: no number is near it. *reason may be NULL. A new value;
 * NULL = the text is no JSON, or there is no memory. [any-thread] */
json_t *server_json_load(const char *text, size_t len, size_t flags, json_error_t *reason);

#endif
