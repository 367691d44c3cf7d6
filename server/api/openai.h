/* SPDX-License-Identifier: MIT
 *
 * openai.h: parts of OpenAI's replies that other APIs use, too. All give new objects.
 */
#ifndef TANDEM_SERVER_OPENAI_H
#define TANDEM_SERVER_OPENAI_H

#include "server/api/answer.h"

/* Counts of tokens, of all choices. */
json_t *api_usage_json(const api_answer *a);
/* llama-server's `timings`: counts, milliseconds and rates. */
json_t *api_timings_json(const server_usage *usage);
/* Calls of tools in OpenAI's form. */
json_t *api_calls_json(const api_choice *c);
/* An array of the shown tokens from number `from` on, with their probabilities; the member
 * `top_name` of each has the most likely ones. */
json_t *api_logprobs_json(const api_answer *a, api_choice *c, int from, const char *top_name);
/* api_dialect.error: writes an event with an error. */
void api_openai_error(api_answer *a, int http_status, const char *message);

#endif
