/* SPDX-License-Identifier: MIT
 *
 * body.c: see body.h.
 */
#include "server/api/body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/json_load.h"

/* Whether JSON is nested more than API_JSON_DEPTH_MAX deep. Checked before jansson parses it, which
 * uses stack for each level. */
static bool is_too_deep(const char *text, size_t len) {
    int depth = 0;
    bool is_string = false;
    for (size_t i = 0; i < len; i++) {
        const char c = text[i];
        if (is_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                is_string = false;
        } else if (c == '"') {
            is_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > API_JSON_DEPTH_MAX) return true;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

tdm_status api_body_parse(const char *text, size_t len, bool is_array, json_t **out,
                          tdm_error *err) {
    json_error_t reason;
    *out = NULL;
    if (is_too_deep(text, len))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "the JSON is nested more than %d deep",
                        API_JSON_DEPTH_MAX);
    *out = server_json_load(text, len, 0, &reason);
    if (*out == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "the body is not JSON: line %d, column %d: %s",
                        reason.line, reason.column, reason.text);
    if (is_array ? json_is_array(*out) : json_is_object(*out)) return TDM_OK;
    json_decref(*out);
    *out = NULL;
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "the body is not a JSON %s",
                    is_array ? "array" : "object");
}

json_t *api_get(const json_t *object, const char *name) {
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

static tdm_status wrong(const char *name, const char *expected, tdm_error *err) {
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' must be %s", name, expected);
}

tdm_status api_get_bool(const json_t *object, const char *name, bool *value, tdm_error *err) {
    const json_t *found = api_get(object, name);
    if (found == NULL) return TDM_OK;
    if (!json_is_boolean(found)) return wrong(name, "true or false", err);
    *value = json_is_true(found);
    return TDM_OK;
}

tdm_status api_get_int(const json_t *object, const char *name, int64_t least, int64_t most,
                       int64_t *value, tdm_error *err) {
    const json_t *found = api_get(object, name);
    if (found == NULL) return TDM_OK;
    int64_t number = 0;
    if (json_is_integer(found))
        number = json_integer_value(found);
    else if (json_is_real(found) && fabs(json_real_value(found)) < 9e15 &&
             floor(json_real_value(found)) == json_real_value(found))
        number = (int64_t)json_real_value(found);
    else if (json_is_real(found) && floor(json_real_value(found)) == json_real_value(found))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' is %g, expected %lld to %lld", name,
                        json_real_value(found), (long long)least, (long long)most);
    else
        return wrong(name, "a whole number", err);
    if (number < least || number > most)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' is %lld, expected %lld to %lld", name,
                        (long long)number, (long long)least, (long long)most);
    *value = number;
    return TDM_OK;
}

tdm_status api_get_number(const json_t *object, const char *name, double least, double most,
                          double *value, tdm_error *err) {
    const json_t *found = api_get(object, name);
    if (found == NULL) return TDM_OK;
    if (!json_is_number(found)) return wrong(name, "a number", err);
    const double number = json_number_value(found);
    if (!(number >= least && number <= most))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' is %g, expected %g to %g", name, number,
                        least, most);
    *value = number;
    return TDM_OK;
}

tdm_status api_get_string(const json_t *object, const char *name, const char **value,
                          tdm_error *err) {
    const json_t *found = api_get(object, name);
    if (found == NULL) return TDM_OK;
    if (!json_is_string(found)) return wrong(name, "a string", err);
    *value = json_string_value(found);
    return TDM_OK;
}

tdm_status api_get_object(const json_t *object, const char *name, json_t **value, tdm_error *err) {
    *value = api_get(object, name);
    return *value == NULL || json_is_object(*value) ? TDM_OK : wrong(name, "an object", err);
}

tdm_status api_get_array(const json_t *object, const char *name, json_t **value, tdm_error *err) {
    *value = api_get(object, name);
    return *value == NULL || json_is_array(*value) ? TDM_OK : wrong(name, "an array", err);
}

static bool is_text_type(const char *type) {
    return strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
           strcmp(type, "output_text") == 0;
}

/* The text of a content part; NULL = it is not a text. */
static const char *part_text(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type == NULL) return json_string_value(part);
    return is_text_type(type) ? json_string_value(json_object_get(part, "text")) : NULL;
}

static tdm_status part_refuse(const json_t *part, tdm_error *err) {
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type != NULL && is_text_type(type))
        return wrong("text", "a string in a content part of type text", err);
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "a content part of type '%s' is not supported: only text is",
                    type != NULL ? type : "?");
}

tdm_status api_content_text(const json_t *content, char **text_out, tdm_error *err) {
    size_t i, len = 0;
    const json_t *part;
    *text_out = NULL;
    if (content == NULL || json_is_null(content) || json_is_string(content)) {
        *text_out = strdup(json_is_string(content) ? json_string_value(content) : "");
    } else if (!json_is_array(content)) {
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "the content of a message must be a string or an array of parts");
    } else {
        json_array_foreach(content, i, part) {
            const char *text = part_text(part);
            if (text == NULL) return part_refuse(part, err);
            len += strlen(text) + 1;
        }
        char *at = *text_out = malloc(len + 1);
        if (at != NULL) at[0] = '\0';
        if (at != NULL) json_array_foreach(content, i, part) {
                if (i > 0) *at++ = '\n';
                at = stpcpy(at, part_text(part));
            }
    }
    return *text_out != NULL ? TDM_OK
                             : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a message");
}

/* ---- Errors ---- */

int api_http_status(tdm_status status, bool is_queue_full) {
    switch (status) {
    case TDM_OK: return 200;
    case TDM_INVALID_ARGUMENT:
    case TDM_OUT_OF_RANGE:
    case TDM_UNSUPPORTED:
    case TDM_DATA_LOSS: return 400; /* a template that fails on the messages, too */
    case TDM_NOT_FOUND: return 404;
    case TDM_RESOURCE_EXHAUSTED: return is_queue_full ? 429 : 500;
    case TDM_CANCELLED: /* the server is shutting down: a client that has left gets no reply */
    case TDM_UNAVAILABLE: return 503;
    case TDM_DEADLINE_EXCEEDED: return 504;
    default: return 500;
    }
}

/* The type of an error, in the words of OpenAI and Anthropic. */
static const char *error_type(api_shape shape, int http_status) {
    const bool is_anthropic = shape == API_SHAPE_ANTHROPIC;
    switch (http_status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return is_anthropic ? "request_too_large" : "invalid_request_error";
    case 429: return "rate_limit_error";
    case 503: return is_anthropic ? "overloaded_error" : "unavailable_error";
    default:
        if (http_status < 500) return "invalid_request_error";
        return is_anthropic ? "api_error" : "server_error";
    }
}

json_t *api_message_json(const char *message) {
    char plain[TDM_ERROR_MESSAGE_SIZE];
    size_t len = 0;
    json_t *text = json_string(message);
    if (text != NULL) return text;
    for (; message[len] != '\0' && len + 1 < sizeof plain; len++)
        plain[len] = (unsigned char)message[len] < 0x80 ? message[len] : '?';
    plain[len] = '\0';
    return json_string(plain);
}

json_t *api_error_json(api_shape shape, int http_status, const char *message) {
    const char *type = error_type(shape, http_status);
    json_t *text = api_message_json(message);
    switch (shape) {
    case API_SHAPE_ANTHROPIC:
        return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message",
                         text);
    case API_SHAPE_OLLAMA: return json_pack("{s:o}", "error", text);
    default:
        return json_pack("{s:{s:i, s:o, s:s, s:n}}", "error", "code", http_status, "message", text,
                         "type", type, "param");
    }
}

void api_json_reply(server_exchange *x, int http_status, json_t *object) {
    static const char failed[] = "{\"error\":{\"message\":\"no memory for the reply\"}}";
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text != NULL)
        server_exchange_reply(x, http_status, "application/json; charset=utf-8", text,
                              strlen(text));
    else
        server_exchange_reply(x, 500, "application/json", failed, sizeof failed - 1);
    free(text);
}

void api_error_reply(server_exchange *x, api_shape shape, int http_status, const char *message,
                     uint64_t retry_ns) {
    if (retry_ns > 0) {
        char seconds[24];
        snprintf(seconds, sizeof seconds, "%llu", (unsigned long long)(retry_ns / 1000000000u + 1));
        server_exchange_add_header(x, "retry-after:", seconds);
    }
    api_json_reply(x, http_status, api_error_json(shape, http_status, message));
}
