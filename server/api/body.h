/* SPDX-License-Identifier: MIT
 *
 * body.h: reads the fields of a request's JSON, and writes errors in the form of each API.
 *
 * A field that is absent or null has its default. A wrong type or range is TDM_INVALID_ARGUMENT,
 * with the field's name in the message. [any-thread]
 */
#ifndef TANDEM_SERVER_BODY_H
#define TANDEM_SERVER_BODY_H

#include <jansson.h>

#include "server/http/http.h"

#define API_JSON_DEPTH_MAX 64

/* Parses `text` as an object, or (is_array) as an array. The caller releases *out with json_decref.
 * TDM_INVALID_ARGUMENT says where it is none, or is nested too deeply. */
tdm_status api_body_parse(const char *text, size_t len, bool is_array, json_t **out,
                          tdm_error *err);

/* NULL = absent or null. Borrowed. */
json_t *api_get(const json_t *object, const char *name);
tdm_status api_get_bool(const json_t *object, const char *name, bool *value, tdm_error *err);
/* A whole number in least .. most, also one written as 5.0. */
tdm_status api_get_int(const json_t *object, const char *name, int64_t least, int64_t most,
                       int64_t *value, tdm_error *err);
tdm_status api_get_number(const json_t *object, const char *name, double least, double most,
                          double *value, tdm_error *err);
/* Borrowed; *value stays where the field is absent. */
tdm_status api_get_string(const json_t *object, const char *name, const char **value,
                          tdm_error *err);
/* NULL = absent. Borrowed. */
tdm_status api_get_object(const json_t *object, const char *name, json_t **value, tdm_error *err);
tdm_status api_get_array(const json_t *object, const char *name, json_t **value, tdm_error *err);

/* The text of a message's content: a string, null (""), or an array of parts of type text, with a
 * line end between them. A new string. TDM_UNSUPPORTED for other parts. */
tdm_status api_content_text(const json_t *content, char **text_out, tdm_error *err);

/* How an API writes errors. */
typedef enum api_shape { API_SHAPE_OPENAI, API_SHAPE_ANTHROPIC, API_SHAPE_OLLAMA } api_shape;

/* The HTTP status that fits. is_queue_full: TDM_RESOURCE_EXHAUSTED is that the queue is full, which
 * is 429, as the same request may be accepted later. Else memory is short, which is 500, as other
 * failures of a device are. */
int api_http_status(tdm_status status, bool is_queue_full);
/* A message as a new string. It may hold text of a request that is no UTF-8, or that its limit has cut
 * within a character: then every byte that is no ASCII becomes '?'. */
json_t *api_message_json(const char *message);
/* A new object. */
json_t *api_error_json(api_shape shape, int http_status, const char *message);
/* Replies with it. `retry_ns` > 0 adds Retry-After. */
void api_error_reply(server_exchange *x, api_shape shape, int http_status, const char *message,
                     uint64_t retry_ns);
/* Replies with an object, which is released. Without memory for it, with 500. */
void api_json_reply(server_exchange *x, int http_status, json_t *object);

#endif
