/* SPDX-License-Identifier: MIT
 *
 * call_forms.h: writes GBNF rules for the text of a call as the families of reply/parse.h have it.
 * For calls.c; answer.c, which parses such texts, uses api_call_is_string, too.
 */
#ifndef TANDEM_SERVER_API_CALL_FORMS_H
#define TANDEM_SERVER_API_CALL_FORMS_H

#include <jansson.h>
#include <stdio.h>

#include "server/models.h"
#include "server/reply/parse.h"

/* The name of the rule and definition of the arguments of a tool, with its number. */
#define API_CALL_RULE "tool%zu"

/* Writes a text: as a literal, or as an alternative of it and the model's control token of that
 * text. */
void api_mark_write(const server_model *model, const char *text, FILE *out);
/* Writes the text that opens a call, with white space before it: what precedes the rule `body`
 * where the whole answer is a call. */
void api_call_open_write(const server_model *model, reply_family family, FILE *out);

/* For families that write arguments one by one: whether an argument of this schema is a string,
 * which is written as it is, without quotes. Others are written as JSON. [any-thread] */
bool api_call_is_string(const json_t *schema);
/* For these families: adds a definition for each argument that is written as JSON. For others it
 * adds nothing. False = no memory. */
bool api_call_parameters_define(reply_family family, json_t *definitions);
/* Writes the rule `body`: what follows the text that opens a call, up to the end of the call. */
void api_call_form_write(const server_model *model, reply_family family, const json_t *tools,
                         const json_t *definitions, FILE *out);

#endif
