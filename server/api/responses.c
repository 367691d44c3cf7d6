/* SPDX-License-Identifier: MIT
 *
 * responses.c: /v1/responses in OpenAI's form
 * (https://platform.openai.com/docs/api-reference/responses). Requests become those of chat
 * completions, and answers become items. Nothing is stored, so previous_response_id is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

/* ---- The request ---- */

static const char *type_of(const json_t *item, const char *otherwise) {
    const char *type = json_string_value(json_object_get(item, "type"));
    return type != NULL ? type : otherwise;
}

/* The name of a function in a chat, as a new value: NAME, or NAMESPACE__NAME where it has a
 * namespace. */
static json_t *joined_name(const char *space, const char *name) {
    return space != NULL ? json_sprintf("%s__%s", space, name) : json_string(name);
}

/* Adds an item of `input` to the messages of a chat. Calls in a row share a message. Reasoning is
 * left out. */
static tdm_status item_convert(const json_t *item, json_t *messages, tdm_error *err) {
    const char *type = type_of(item, "message"), *id = "", *name = "", *arguments = "{}";
    const char *space = NULL;
    if (strcmp(type, "reasoning") == 0) return TDM_OK;
    if (strcmp(type, "message") == 0) {
        json_t *copy = json_pack("{s:O*, s:O*}", "role", json_object_get(item, "role"), "content",
                                 json_object_get(item, "content"));
        json_array_append_new(messages, copy);
        return TDM_OK;
    }
    tdm_status status = api_get_string(item, "call_id", &id, err);
    if (status != TDM_OK) return status;
    if (strcmp(type, "function_call_output") == 0) {
        json_array_append_new(messages,
                              json_pack("{s:s, s:s, s:O*}", "role", "tool", "tool_call_id", id,
                                        "content", json_object_get(item, "output")));
        return TDM_OK;
    }
    if (strcmp(type, "function_call") != 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "an item of 'input' of type '%s' is not supported",
                        type);
    status = api_get_string(item, "name", &name, err);
    if (status == TDM_OK) status = api_get_string(item, "namespace", &space, err);
    if (status == TDM_OK) status = api_get_string(item, "arguments", &arguments, err);
    if (status != TDM_OK) return status;
    json_t *call = json_pack("{s:s, s:s, s:{s:o, s:s}}", "id", id, "type", "function", "function",
                             "name", joined_name(space, name), "arguments", arguments);
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    json_t *calls = json_object_get(last, "tool_calls");
    if (calls != NULL)
        json_array_append_new(calls, call);
    else
        json_array_append_new(messages, json_pack("{s:s, s:s, s:[o]}", "role", "assistant",
                                                  "content", "", "tool_calls", call));
    return TDM_OK;
}

static tdm_status input_convert(const json_t *body, json_t *messages, tdm_error *err) {
    const json_t *input = api_get(body, "input"), *item;
    const char *instructions = "";
    size_t i;
    tdm_status status = api_get_string(body, "instructions", &instructions, err);
    if (status == TDM_OK && instructions[0] != '\0')
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    if (status == TDM_OK && json_is_string(input))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
    else if (status == TDM_OK && !json_is_array(input))
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'input' must be a text or an array of items");
    if (status == TDM_OK)
        json_array_foreach(input, i, item) if (status == TDM_OK) status =
            item_convert(item, messages, err);
    return status;
}

/* Adds a tool of type function, whose fields are its own members here, in the form of a chat. */
static tdm_status function_add(const json_t *tool, const char *space, json_t *out, tdm_error *err) {
    const char *name = json_string_value(json_object_get(tool, "name"));
    if (name == NULL) return tdm_fail(err, TDM_INVALID_ARGUMENT, "an entry of 'tools' has no name");
    json_t *function = json_copy((json_t *)tool);
    json_object_del(function, "type");
    json_object_set_new(function, "name", joined_name(space, name));
    json_array_append_new(out, json_pack("{s:s, s:o}", "type", "function", "function", function));
    return TDM_OK;
}

/* The tools in the form of a chat: functions, and those of namespaces under joined names. Tools of
 * other types, of which Codex sends some with each request, are left out, as llama-server does:
 * OpenAI's servers run them (web_search), or their calls are no JSON (custom). */
static tdm_status tools_convert(const json_t *tools, json_t **out, tdm_error *err) {
    size_t i, k;
    const json_t *tool, *inner;
    tdm_status status = TDM_OK;
    *out = json_array();
    json_array_foreach(tools, i, tool) {
        const char *type = type_of(tool, "");
        if (status == TDM_OK && strcmp(type, "function") == 0)
            status = function_add(tool, NULL, *out, err);
        if (strcmp(type, "namespace") != 0) continue;
        const char *space = json_string_value(json_object_get(tool, "name"));
        json_array_foreach(json_object_get(tool, "tools"), k, inner) {
            if (status == TDM_OK && strcmp(type_of(inner, ""), "function") == 0)
                status = function_add(inner, space, *out, err);
        }
    }
    return status;
}

/* The request as one of chat completions: a new object. */
static tdm_status body_convert(const json_t *body, json_t **out, tdm_error *err) {
    static const char *const same[] = {
        "temperature", "top_p", "stream", "max_output_tokens",   "tool_choice", "logit_bias",
        "seed",        "stop",  "top_k",  "chat_template_kwargs"};
    json_t *tools = NULL, *converted = NULL, *text = NULL, *reasoning = NULL;
    *out = json_object();
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (json_object_get(body, same[i]) != NULL)
            json_object_set(*out, same[i], json_object_get(body, same[i]));
    json_object_set_new(*out, "messages", json_array());
    tdm_status status = TDM_OK;
    if (api_get(body, "previous_response_id") != NULL)
        status =
            tdm_fail(err, TDM_UNSUPPORTED,
                     "'previous_response_id' is not supported: the server stores nothing; send "
                     "the whole conversation as 'input'");
    if (status == TDM_OK) status = input_convert(body, json_object_get(*out, "messages"), err);
    if (status == TDM_OK) status = api_get_array(body, "tools", &tools, err);
    if (status == TDM_OK && json_array_size(tools) > 0) {
        status = tools_convert(tools, &converted, err);
        json_object_set_new(*out, "tools", converted);
    }
    if (status == TDM_OK) status = api_get_object(body, "text", &text, err);
    if (status == TDM_OK && api_get(text, "format") != NULL)
        json_object_set(*out, "response_format", api_get(text, "format"));
    if (status == TDM_OK) status = api_get_object(body, "reasoning", &reasoning, err);
    if (status == TDM_OK && api_get(reasoning, "effort") != NULL)
        json_object_set(*out, "reasoning_effort", api_get(reasoning, "effort"));
    if (status == TDM_OK) return TDM_OK;
    json_decref(*out);
    *out = NULL;
    return status;
}

/* ---- Items of the output ---- */

enum { ITEM_NONE, ITEM_MESSAGE, ITEM_REASONING, ITEM_CALL };

static json_t *part_json(const api_buffer *text) {
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", api_buffer_json(text),
                     "annotations", "logprobs");
}

static json_t *message_item(const char *id, const api_buffer *text, bool is_done) {
    json_t *content = json_array();
    if (is_done) json_array_append_new(content, part_json(text));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", id, "status",
                     is_done ? "completed" : "in_progress", "role", "assistant", "content",
                     content);
}

static json_t *reasoning_item(const char *id, const api_buffer *text, bool is_done) {
    json_t *content = json_array();
    if (is_done)
        json_array_append_new(content, json_pack("{s:s, s:o}", "type", "reasoning_text", "text",
                                                 api_buffer_json(text)));
    return json_pack("{s:s, s:s, s:[], s:o, s:s}", "type", "reasoning", "id", id, "summary",
                     "content", content, "status", is_done ? "completed" : "in_progress");
}

/* The namespace of the function that is called, or NULL. *skip: how many bytes of the call's name
 * come before the function's own name. */
static const char *space_of(const api_answer *a, const api_call *call, size_t *skip) {
    const char *name = api_buffer_text(&call->name);
    size_t i, k;
    const json_t *tool, *inner;
    *skip = 0;
    json_array_foreach(api_get(a->request, "tools"), i, tool) {
        const char *space = json_string_value(json_object_get(tool, "name"));
        const size_t n = space != NULL ? strlen(space) : 0;
        if (strcmp(type_of(tool, ""), "namespace") != 0 || space == NULL ||
            strncmp(name, space, n) != 0 || strncmp(name + n, "__", 2) != 0)
            continue;
        json_array_foreach(json_object_get(tool, "tools"), k, inner) {
            const char *own = json_string_value(json_object_get(inner, "name"));
            if (own == NULL || strcmp(own, name + n + 2) != 0) continue;
            *skip = n + 2;
            return space;
        }
    }
    return NULL;
}

static const char *call_status(const api_answer *a, const api_call *call, bool is_done) {
    const api_choice *c = &a->choices[0];
    if (!is_done) return "in_progress";
    return call == &c->calls[c->n_call - 1] && api_call_is_cut(c) ? "incomplete" : "completed";
}

static json_t *call_item(const api_answer *a, const char *id, const api_call *call, bool is_done) {
    size_t skip;
    const char *space = space_of(a, call, &skip);
    json_t *item = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "type", "function_call", "id", id,
                             "status", call_status(a, call, is_done), "call_id", call->id, "name",
                             api_buffer_text(&call->name) + skip, "arguments",
                             is_done ? api_buffer_json(&call->arguments) : json_string(""));
    if (space != NULL) json_object_set_new(item, "namespace", json_string(space));
    return item;
}

static const char *status_of(const api_answer *a, bool is_done) {
    if (!is_done) return "in_progress";
    const bool is_cut = strcmp(api_finish_reason(&a->choices[0]), "length") == 0;
    return is_cut ? "incomplete" : "completed";
}

/* A field of the request as a new reference, or `otherwise`, which it takes over. */
static json_t *request_field(const api_answer *a, const char *name, json_t *otherwise) {
    json_t *value = api_get(a->request, name);
    if (value == NULL) return otherwise;
    json_decref(otherwise);
    return json_incref(value);
}

static json_t *response_json(const api_answer *a, json_t *output, bool is_done) {
    const server_usage *u = &a->usage;
    const char *status = status_of(a, is_done);
    const bool is_cut = strcmp(status, "incomplete") == 0;
    json_t *usage =
        is_done ? json_pack("{s:i, s:{s:i}, s:i, s:{s:i}, s:i}", "input_tokens", u->n_prompt,
                            "input_tokens_details", "cached_tokens", u->n_cached, "output_tokens",
                            u->n_generated, "output_tokens_details", "reasoning_tokens", 0,
                            "total_tokens", u->n_prompt + u->n_generated)
                : json_null();
    json_t *response =
        json_pack("{s:s, s:s, s:I, s:s, s:n, s:o, s:s, s:o, s:o, s:b, s:b, s:n}", "id", a->id,
                  "object", "response", "created_at", (json_int_t)a->created, "status", status,
                  "error", "incomplete_details",
                  is_cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(), "model",
                  a->model->name, "output", output, "usage", usage, "parallel_tool_calls", 1,
                  "store", 0, "previous_response_id");
    static const char *const echoed[] = {"instructions", "max_output_tokens", "temperature",
                                         "top_p",        "reasoning",         "user"};
    for (size_t i = 0; i < sizeof echoed / sizeof echoed[0]; i++)
        json_object_set_new(response, echoed[i], request_field(a, echoed[i], json_null()));
    json_object_set_new(response, "tools", request_field(a, "tools", json_array()));
    json_object_set_new(response, "metadata", request_field(a, "metadata", json_object()));
    json_object_set_new(response, "tool_choice",
                        request_field(a, "tool_choice", json_string("auto")));
    json_object_set_new(response, "text",
                        request_field(a, "text", json_pack("{s:{s:s}}", "format", "type", "text")));
    json_object_set_new(response, "truncation", json_string("disabled"));
    return response;
}

/* ---- Streams ---- */

/* Writes an event with its number. Takes `data` over. */
static void event(api_answer *a, const char *type, json_t *data) {
    json_object_set_new(data, "type", json_string(type));
    json_object_set_new(data, "sequence_number", json_integer(a->n_event++));
    api_answer_event(a, type, data);
}

/* Writes an event about the present item, with the members of `more`, which it takes over. */
static void item_event(api_answer *a, api_choice *c, const char *type, bool has_part,
                       json_t *more) {
    json_t *data = json_pack("{s:s, s:i}", "item_id", c->item_id, "output_index", c->n_block);
    if (has_part) json_object_set_new(data, "content_index", json_integer(0));
    json_object_update(data, more);
    json_decref(more);
    event(a, type, data);
}

static void responses_begin(api_answer *a) {
    a->output = json_array();
    event(a, "response.created",
          json_pack("{s:o}", "response", response_json(a, json_array(), false)));
    event(a, "response.in_progress",
          json_pack("{s:o}", "response", response_json(a, json_array(), false)));
}

static json_t *item_json(const api_choice *c, bool is_done) {
    switch (c->state) {
    case ITEM_MESSAGE: return message_item(c->item_id, &c->item, is_done);
    case ITEM_REASONING: return reasoning_item(c->item_id, &c->item, is_done);
    default: return call_item(c->answer, c->item_id, &c->calls[c->n_call - 1], is_done);
    }
}

static void item_end(api_answer *a, api_choice *c) {
    if (c->state == ITEM_NONE) return;
    if (c->state == ITEM_MESSAGE) {
        item_event(a, c, "response.output_text.done", true,
                   json_pack("{s:o, s:[]}", "text", api_buffer_json(&c->item), "logprobs"));
        item_event(a, c, "response.content_part.done", true,
                   json_pack("{s:o}", "part", part_json(&c->item)));
    } else if (c->state == ITEM_REASONING) {
        item_event(a, c, "response.reasoning_text.done", true,
                   json_pack("{s:o}", "text", api_buffer_json(&c->item)));
    } else {
        const api_call *call = &c->calls[c->n_call - 1];
        json_t *item = call_item(a, c->item_id, call, true);
        item_event(a, c, "response.function_call_arguments.done", false,
                   json_pack("{s:o, s:O}", "arguments", api_buffer_json(&call->arguments), "name",
                             json_object_get(item, "name")));
        json_decref(item);
    }
    json_t *item = item_json(c, true);
    json_array_append(a->output, item);
    event(a, "response.output_item.done",
          json_pack("{s:i, s:o}", "output_index", c->n_block++, "item", item));
    api_buffer_clear(&c->item);
    c->state = ITEM_NONE;
}

static void item_begin(api_answer *a, api_choice *c, int state, const char *id_prefix) {
    if (c->state == state && state != ITEM_CALL) return;
    item_end(a, c);
    c->state = state;
    api_id_make(c->item_id, sizeof c->item_id, id_prefix);
    event(a, "response.output_item.added",
          json_pack("{s:i, s:o}", "output_index", c->n_block, "item", item_json(c, false)));
    if (state == ITEM_MESSAGE)
        item_event(a, c, "response.content_part.added", true,
                   json_pack("{s:o}", "part", part_json(&c->item)));
}

static void responses_piece(api_answer *a, api_choice *c, reply_piece piece, const char *text,
                            size_t len) {
    switch (piece) {
    case REPLY_TEXT:
        item_begin(a, c, ITEM_MESSAGE, "msg_");
        api_buffer_add(&c->item, text, len);
        item_event(a, c, "response.output_text.delta", true,
                   json_pack("{s:s%, s:[]}", "delta", text, len, "logprobs"));
        break;
    case REPLY_REASONING:
        item_begin(a, c, ITEM_REASONING, "rs_");
        api_buffer_add(&c->item, text, len);
        item_event(a, c, "response.reasoning_text.delta", true,
                   json_pack("{s:s%}", "delta", text, len));
        break;
    case REPLY_CALL:
        if (c->n_call > 0) item_begin(a, c, ITEM_CALL, "fc_");
        break;
    case REPLY_ARGUMENTS:
        if (c->state == ITEM_CALL)
            item_event(a, c, "response.function_call_arguments.delta", false,
                       json_pack("{s:s%}", "delta", text, len));
        break;
    case REPLY_CALL_END: item_end(a, c); break;
    }
}

static void responses_choice_end(api_answer *a, api_choice *c) {
    item_end(a, c);
}

/* The items of an answer that is no stream, as a new array. */
static json_t *output_json(const api_choice *c) {
    char id[40];
    json_t *output = json_array();
    if (c->reasoning.len > 0) {
        api_id_make(id, sizeof id, "rs_");
        json_array_append_new(output, reasoning_item(id, &c->reasoning, true));
    }
    if (c->content.len > 0 || c->n_call == 0) {
        api_id_make(id, sizeof id, "msg_");
        json_array_append_new(output, message_item(id, &c->content, true));
    }
    for (int i = 0; i < c->n_call; i++) {
        api_id_make(id, sizeof id, "fc_");
        json_array_append_new(output, call_item(c->answer, id, &c->calls[i], true));
    }
    return output;
}

static void responses_end(api_answer *a) {
    if (!a->is_stream) {
        api_answer_json(a, response_json(a, output_json(&a->choices[0]), true));
        return;
    }
    const bool is_cut = strcmp(status_of(a, true), "incomplete") == 0;
    event(a, is_cut ? "response.incomplete" : "response.completed",
          json_pack("{s:o}", "response", response_json(a, json_incref(a->output), true)));
}

static void responses_error(api_answer *a, int http_status, const char *message) {
    char code[16];
    snprintf(code, sizeof code, "%d", http_status);
    event(
        a, "error",
        json_pack("{s:s, s:o, s:n}", "code", code, "message", api_message_json(message), "param"));
}

static const api_dialect responses_dialect = {
    .shape = API_SHAPE_OPENAI,
    .stream_type = "text/event-stream",
    .keeps_request = true,
    .begin = responses_begin,
    .piece = responses_piece,
    .choice_end = responses_choice_end,
    .end = responses_end,
    .error = responses_error,
};

tdm_status api_responses(api_context *c, tdm_error *err) {
    json_t *body = NULL;
    api_chat chat = {0};
    api_settings settings;
    api_settings_default(c, &settings);
    tdm_status status = body_convert(c->body, &body, err);
    if (status == TDM_OK) status = api_settings_read(c, body, &settings, err);
    if (status == TDM_OK) status = api_samplers_read(c, c->body, &settings, err);
    if (status == TDM_OK) status = api_format_read(c, body, &settings, err);
    if (status == TDM_OK) status = api_chat_read(body, &chat, err);
    if (status == TDM_OK) status = api_chat_settings(c, &chat, &settings, err);
    if (status == TDM_OK) status = api_submit(c, &responses_dialect, "resp_", &settings, NULL, err);
    api_chat_clear(&chat);
    api_settings_clear(&settings);
    json_decref(body);
    return status;
}
