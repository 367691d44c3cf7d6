/* SPDX-License-Identifier: MIT
 *
 * anthropic.c: /v1/messages in Anthropic's form (https://docs.anthropic.com/en/api/messages): its
 * messages become OpenAI's, which templates read, and answers become blocks.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

/* ---- The request ---- */

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the messages");
}

static const char *type_of(const json_t *block) {
    const char *type = json_string_value(json_object_get(block, "type"));
    return type != NULL ? type : "";
}

/* Converts a block that is no text: a call of the assistant is added to `calls`, the result of a
 * call to `messages` as a message of its own. Reasoning is left out. */
static tdm_status block_convert(const json_t *block, json_t *messages, json_t *calls,
                                tdm_error *err) {
    const char *type = type_of(block), *id = "", *name = "";
    if (strcmp(type, "thinking") == 0 || strcmp(type, "redacted_thinking") == 0) return TDM_OK;
    if (strcmp(type, "tool_use") == 0) {
        const json_t *input = json_object_get(block, "input");
        tdm_status status = api_get_string(block, "id", &id, err);
        if (status == TDM_OK) status = api_get_string(block, "name", &name, err);
        if (status != TDM_OK) return status;
        json_array_append_new(
            calls, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function",
                             "name", name, "arguments",
                             json_is_object(input) ? json_deep_copy(input) : json_object()));
        return TDM_OK;
    }
    if (strcmp(type, "tool_result") == 0) {
        char *text = NULL;
        tdm_status status = api_get_string(block, "tool_use_id", &id, err);
        if (status == TDM_OK)
            status = api_content_text(json_object_get(block, "content"), &text, err);
        if (status == TDM_OK)
            json_array_append_new(messages, json_pack("{s:s, s:s, s:s}", "role", "tool",
                                                      "tool_call_id", id, "content", text));
        free(text);
        return status;
    }
    return tdm_fail(err, TDM_UNSUPPORTED, "a content block of type '%s' is not supported", type);
}

static tdm_status message_convert(const json_t *message, json_t *messages, tdm_error *err) {
    const char *role = "";
    const json_t *content = json_object_get(message, "content"), *block;
    size_t i;
    char *text = NULL;
    tdm_status status = api_get_string(message, "role", &role, err);
    if (status == TDM_OK && strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 &&
        strcmp(role, "system") != 0)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "a message has role '%s', expected user or "
                          "assistant",
                          role);
    if (status != TDM_OK) return status;
    json_t *texts = json_array(), *calls = json_array();
    if (json_is_array(content)) {
        json_array_foreach(content, i, block) {
            if (status != TDM_OK) break;
            if (strcmp(type_of(block), "text") == 0)
                json_array_append(texts, (json_t *)block);
            else
                status = block_convert(block, messages, calls, err);
        }
        content = texts;
    }
    if (status == TDM_OK) status = api_content_text(content, &text, err);
    /* a message that had only results has become messages of the role tool */
    const bool is_empty = status == TDM_OK && text[0] == '\0' && content == texts &&
                          json_array_size(calls) == 0 && strcmp(role, "user") == 0;
    if (status == TDM_OK && !is_empty) {
        json_t *one = json_pack("{s:s, s:s}", "role", role, "content", text);
        if (json_array_size(calls) > 0) json_object_set(one, "tool_calls", calls);
        if (json_array_append_new(messages, one) != 0) status = no_memory(err);
    }
    free(text);
    json_decref(texts);
    json_decref(calls);
    return status;
}

static tdm_status tools_convert(const json_t *tools, json_t **out, tdm_error *err) {
    size_t i;
    const json_t *tool;
    *out = json_array();
    json_array_foreach(tools, i, tool) {
        const char *name = json_string_value(json_object_get(tool, "name"));
        if (name == NULL || !json_is_object(json_object_get(tool, "input_schema")))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "tools[%zu] has no name or no input_schema",
                            i);
        json_t *function = json_pack("{s:s, s:O}", "name", name, "parameters",
                                     json_object_get(tool, "input_schema"));
        if (json_is_string(json_object_get(tool, "description")))
            json_object_set(function, "description", json_object_get(tool, "description"));
        json_array_append_new(*out,
                              json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return TDM_OK;
}

/* {type: auto, any, none or tool, name} as OpenAI's tool_choice: a new value; NULL = there is
 * none. */
static json_t *choice_convert(const json_t *choice) {
    const char *type = type_of(choice);
    if (choice == NULL) return NULL;
    if (strcmp(type, "any") == 0) return json_string("required");
    if (strcmp(type, "tool") != 0) return json_string(type);
    return json_pack("{s:s, s:{s:O*}}", "type", "function", "function", "name",
                     json_object_get(choice, "name"));
}

/* The text of the system message. Claude Code begins it with a block for Anthropic's own servers,
 * which differs in each conversation. It is left out: with it, conversations would share no cached
 * prefix. */
static tdm_status system_read(const json_t *body, char **text_out, tdm_error *err) {
    static const char note[] = "x-anthropic-billing-header:";
    const json_t *system = json_object_get(body, "system"), *block;
    size_t i;
    if (!json_is_array(system)) return api_content_text(system, text_out, err);
    json_t *blocks = json_array();
    json_array_foreach(system, i, block) {
        const char *text = json_string_value(json_object_get(block, "text"));
        if (text != NULL && strncmp(text, note, sizeof note - 1) == 0) continue;
        json_array_append(blocks, (json_t *)block);
    }
    const tdm_status status = api_content_text(blocks, text_out, err);
    json_decref(blocks);
    return status;
}

/* The request in OpenAI's form: a new object. */
static tdm_status body_convert(const json_t *body, json_t **out, tdm_error *err) {
    static const char *const same[] = {"temperature", "top_p", "top_k", "stream", "max_tokens"};
    json_t *messages = NULL, *tools = NULL, *thinking = NULL, *choice = NULL, *converted = NULL;
    json_t *output = NULL;
    size_t i;
    const json_t *one;
    char *system = NULL;
    *out = json_object();
    for (i = 0; i < sizeof same / sizeof same[0]; i++)
        if (json_object_get(body, same[i]) != NULL)
            json_object_set(*out, same[i], json_object_get(body, same[i]));
    json_t *all = json_array();
    json_object_set_new(*out, "messages", all);
    tdm_status status = api_get_array(body, "messages", &messages, err);
    if (status == TDM_OK) status = system_read(body, &system, err);
    if (status == TDM_OK && system[0] != '\0')
        json_array_append_new(all, json_pack("{s:s, s:s}", "role", "system", "content", system));
    free(system);
    if (status == TDM_OK)
        json_array_foreach(messages, i, one) if (status == TDM_OK) status =
            message_convert(one, all, err);
    if (status == TDM_OK) status = api_get_array(body, "tools", &tools, err);
    if (status == TDM_OK && tools != NULL) {
        status = tools_convert(tools, &converted, err);
        json_object_set_new(*out, "tools", converted);
    }
    if (status == TDM_OK) status = api_get_object(body, "tool_choice", &choice, err);
    if (status == TDM_OK && choice != NULL)
        json_object_set_new(*out, "tool_choice", choice_convert(choice));
    if (status == TDM_OK) status = api_get_object(body, "thinking", &thinking, err);
    if (status == TDM_OK && thinking != NULL)
        json_object_set_new(
            *out, "chat_template_kwargs",
            json_pack("{s:b}", "enable_thinking", strcmp(type_of(thinking), "disabled") != 0));
    if (status == TDM_OK) status = api_get_object(body, "output_config", &output, err);
    if (status == TDM_OK && api_get(output, "format") != NULL)
        json_object_set(*out, "response_format", api_get(output, "format"));
    if (status == TDM_OK) return TDM_OK;
    json_decref(*out);
    *out = NULL;
    return status;
}

/* ---- The answer ---- */

enum { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_TOOL };

/* Anthropic's word for the end; *sequence is the stop string that was found, or null. */
static const char *stop_reason(const api_choice *c, json_t **sequence) {
    *sequence = json_null();
    if (c->n_call > 0 && !api_call_is_cut(c)) return "tool_use";
    const bool is_asked = c->stop.found >= 0 && c->stop.found < c->n_asked_stop;
    if (c->result.end == SERVER_END_SINK && is_asked) {
        *sequence = json_string(c->stop.strings[c->stop.found]);
        return "stop_sequence";
    }
    return strcmp(api_finish_reason(c), "length") == 0 ? "max_tokens" : "end_turn";
}

static json_t *usage_json(const server_usage *u) {
    return json_pack("{s:i, s:i, s:i, s:i}", "input_tokens", u->n_prompt - u->n_cached,
                     "cache_read_input_tokens", u->n_cached, "cache_creation_input_tokens", 0,
                     "output_tokens", u->n_generated);
}

static json_t *message_json(const api_answer *a, json_t *content, json_t *reason, json_t *sequence,
                            json_t *usage) {
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", a->id, "type", "message",
                     "role", "assistant", "model", a->model->name, "content", content,
                     "stop_reason", reason, "stop_sequence", sequence, "usage", usage);
}

static void messages_begin(api_answer *a) {
    json_t *usage = json_pack("{s:i, s:i}", "input_tokens", a->n_prompt, "output_tokens", 0);
    api_answer_event(a, "message_start",
                     json_pack("{s:s, s:o}", "type", "message_start", "message",
                               message_json(a, json_array(), json_null(), json_null(), usage)));
}

static void block_end(api_answer *a, api_choice *c) {
    if (c->state == BLOCK_NONE) return;
    c->state = BLOCK_NONE;
    api_answer_event(a, "content_block_stop",
                     json_pack("{s:s, s:i}", "type", "content_block_stop", "index", c->n_block++));
}

static void block_begin(api_answer *a, api_choice *c, int state, json_t *block) {
    if (c->state == state && state != BLOCK_TOOL) {
        json_decref(block);
        return;
    }
    block_end(a, c);
    c->state = state;
    api_answer_event(a, "content_block_start",
                     json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index",
                               c->n_block, "content_block", block));
}

static void block_delta(api_answer *a, api_choice *c, const char *type, const char *field,
                        const char *text, size_t len) {
    api_answer_event(a, "content_block_delta",
                     json_pack("{s:s, s:i, s:{s:s, s:s%}}", "type", "content_block_delta", "index",
                               c->n_block, "delta", "type", type, field, text, len));
}

static void messages_piece(api_answer *a, api_choice *c, reply_piece piece, const char *text,
                           size_t len) {
    switch (piece) {
    case REPLY_TEXT:
        block_begin(a, c, BLOCK_TEXT, json_pack("{s:s, s:s}", "type", "text", "text", ""));
        block_delta(a, c, "text_delta", "text", text, len);
        break;
    case REPLY_REASONING:
        block_begin(
            a, c, BLOCK_THINKING,
            json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""));
        block_delta(a, c, "thinking_delta", "thinking", text, len);
        break;
    case REPLY_CALL:
        if (c->n_call > 0)
            block_begin(a, c, BLOCK_TOOL,
                        json_pack("{s:s, s:s, s:s%, s:{}}", "type", "tool_use", "id",
                                  c->calls[c->n_call - 1].id, "name", text, len, "input"));
        break;
    case REPLY_ARGUMENTS: block_delta(a, c, "input_json_delta", "partial_json", text, len); break;
    case REPLY_CALL_END: block_end(a, c); break;
    }
}

static void messages_choice_end(api_answer *a, api_choice *c) {
    block_end(a, c);
}

static json_t *blocks_json(const api_choice *c) {
    json_t *blocks = json_array();
    if (c->reasoning.len > 0)
        json_array_append_new(blocks, json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                                api_buffer_json(&c->reasoning), "signature", ""));
    if (c->content.len > 0)
        json_array_append_new(
            blocks, json_pack("{s:s, s:o}", "type", "text", "text", api_buffer_json(&c->content)));
    for (int i = 0; i < c->n_call; i++)
        json_array_append_new(blocks,
                              json_pack("{s:s, s:s, s:o, s:o}", "type", "tool_use", "id",
                                        c->calls[i].id, "name", api_buffer_json(&c->calls[i].name),
                                        "input", api_call_arguments(&c->calls[i])));
    return blocks;
}

static void messages_end(api_answer *a) {
    api_choice *c = &a->choices[0];
    json_t *sequence = NULL;
    const char *reason = stop_reason(c, &sequence);
    if (!a->is_stream) {
        api_answer_json(a, message_json(a, blocks_json(c), json_string(reason), sequence,
                                        usage_json(&a->usage)));
        return;
    }
    api_answer_event(a, "message_delta",
                     json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta",
                               "stop_reason", reason, "stop_sequence", sequence, "usage",
                               usage_json(&a->usage)));
    api_answer_event(a, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void messages_error(api_answer *a, int http_status, const char *message) {
    api_answer_event(a, "error", api_error_json(API_SHAPE_ANTHROPIC, http_status, message));
}

static const api_dialect messages_dialect = {
    .shape = API_SHAPE_ANTHROPIC,
    .stream_type = "text/event-stream",
    .begin = messages_begin,
    .piece = messages_piece,
    .choice_end = messages_choice_end,
    .end = messages_end,
    .error = messages_error,
};

/* ---- Handlers ---- */

static tdm_status settings_make(api_context *c, api_settings *settings, json_t **body,
                                tdm_error *err) {
    api_chat chat = {0};
    api_settings_default(c, settings);
    tdm_status status = body_convert(c->body, body, err);
    if (status == TDM_OK) status = api_settings_read(c, *body, settings, err);
    if (status == TDM_OK) status = api_samplers_read(c, c->body, settings, err);
    if (status == TDM_OK)
        status =
            api_stops_read(api_get(c->body, "stop_sequences"), "stop_sequences", settings, err);
    if (status == TDM_OK) status = api_format_read(c, *body, settings, err);
    if (status == TDM_OK) status = api_chat_read(*body, &chat, err);
    if (status == TDM_OK) status = api_chat_settings(c, &chat, settings, err);
    api_chat_clear(&chat);
    return status;
}

tdm_status api_messages(api_context *c, tdm_error *err) {
    json_t *body = NULL;
    api_settings settings;
    tdm_status status = settings_make(c, &settings, &body, err);
    if (status == TDM_OK) status = api_submit(c, &messages_dialect, "msg_", &settings, NULL, err);
    api_settings_clear(&settings);
    json_decref(body);
    return status;
}

tdm_status api_count_tokens(api_context *c, tdm_error *err) {
    json_t *body = NULL;
    api_settings settings;
    tdm_status status = settings_make(c, &settings, &body, err);
    if (status == TDM_OK)
        api_json_reply(c->x, 200, json_pack("{s:i}", "input_tokens", settings.prompt_lens[0]));
    api_settings_clear(&settings);
    json_decref(body);
    return status;
}
