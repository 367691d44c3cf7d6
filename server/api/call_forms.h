/* SPDX-License-Identifier: MIT
 *
 * call_forms.h: how the families of reply/parse.h write a call, as rules of GBNF, for calls.c.
 */
#ifndef TANDEM_SERVER_API_CALL_FORMS_H
#define TANDEM_SERVER_API_CALL_FORMS_H

#include <jansson.h>
#include <stdio.h>

#include "server/models.h"
#include "server/reply/parse.h"

/* The rule of the arguments of tool number %zu. */
#define API_CALL_RULE "tool%zu"

/* Writes a text that may be one control token of the model. */
void api_mark_write(const server_model *model, const char *text, FILE *out);
/* Writes what comes before the rule `body` where an answer is a call from its beginning. */
void api_call_open_write(const server_model *model, reply_family family, FILE *out);

/* Families that write arguments one by one: adds a definition for each that is written as JSON. Others:
 * nothing. False = no memory. */
bool api_call_parameters_define(reply_family family, json_t *definitions);
/* Writes the rule `body`: what follows the text that opens a call, up to the end of the call. */
void api_call_form_write(const server_model *model, reply_family family, const json_t *tools,
                         const json_t *definitions, FILE *out);

#endif
