/* SPDX-License-Identifier: MIT
 *
 * body.h: reads the fields of a request's JSON, and writes errors in the form of each API.
 *
 * Where a field is absent or null, api_get_bool, _int, _number and _string leave *value as it is. A
 * wrong type or range is TDM_INVALID_ARGUMENT, with the field's name in the message. [any-thread]
 */
#ifndef TANDEM_SERVER_BODY_H
#define TANDEM_SERVER_BODY_H

#include <jansson.h>

#include "server/http/http.h"

#define API_JSON_DEPTH_MAX 64 /* most brackets open at once in a body */

/* Parses `text` as an object, or (is_array) as an array. The caller releases *out with json_decref.
 * TDM_INVALID_ARGUMENT: it is no JSON (the message says where), of another type, or nested too
 * deeply; *out is NULL then. */
tdm_status api_body_parse(const char *text, size_t len, bool is_array, json_t **out,
                          tdm_error *err);

/* A field, borrowed; NULL = it is absent or null. */
json_t *api_get(const json_t *object, const char *name);
tdm_status api_get_bool(const json_t *object, const char *name, bool *value, tdm_error *err);
/* A whole number in least .. most, also one written as 5.0. */
tdm_status api_get_int(const json_t *object, const char *name, int64_t least, int64_t most,
                       int64_t *value, tdm_error *err);
tdm_status api_get_number(const json_t *object, const char *name, double least, double most,
                          double *value, tdm_error *err);
/* *value is borrowed from the object. */
tdm_status api_get_string(const json_t *object, const char *name, const char **value,
                          tdm_error *err);
/* *value is borrowed from the object; NULL = the field is absent or null. */
tdm_status api_get_object(const json_t *object, const char *name, json_t **value, tdm_error *err);
tdm_status api_get_array(const json_t *object, const char *name, json_t **value, tdm_error *err);

/* The text of a message's content: a string, null (""), or an array of parts of type text, with a
 * line end between them. A new string. TDM_UNSUPPORTED for other parts. */
tdm_status api_content_text(const json_t *content, char **text_out, tdm_error *err);

/* How an API writes errors. */
typedef enum api_shape { API_SHAPE_OPENAI, API_SHAPE_ANTHROPIC, API_SHAPE_OLLAMA } api_shape;

/* The HTTP status for a status. is_queue_full says what TDM_RESOURCE_EXHAUSTED means: the queue is
 * full, which is 429, since the same request may be accepted later; or memory is short, which is
 * 500, as for other failures of a device. */
int api_http_status(tdm_status status, bool is_queue_full);
/* A message as a new JSON string. A message that is not well-formed UTF-8 (it may have text of a
 * request, or be cut off within a character) gets '?' for every byte that is not ASCII. */
json_t *api_message_json(const char *message);
/* An error in the form of an API, as a new object. */
json_t *api_error_json(api_shape shape, int http_status, const char *message);
/* Replies with an error. retry_ns > 0 adds Retry-After, in seconds and rounded up. */
void api_error_reply(server_exchange *x, api_shape shape, int http_status, const char *message,
                     uint64_t retry_ns);
/* Replies with an object, and releases it. NULL, or no memory: the reply is 500. */
void api_json_reply(server_exchange *x, int http_status, json_t *object);

#endif
