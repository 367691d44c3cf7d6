/* SPDX-License-Identifier: MIT
 *
 * ollama.c: ollama's API (https://github.com/ollama/ollama/blob/main/docs/api.md): streams are
 * lines of JSON, and the default; times are nanoseconds; arguments of calls are objects.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llm/arch/arch.h"
#include "server/api/state.h"

/* The version of ollama's API that this one is like: the first with /v1/messages. Clients conclude
 * from it what is served: Codex needs 0.13.4 (/v1/responses), Visual Studio Code 0.6.4
 * (capabilities in /api/show). */
#define API_VERSION "0.14.0"

static json_t *time_json(int64_t seconds) {
    char text[32];
    struct tm parts;
    const time_t at = (time_t)seconds;
    gmtime_r(&at, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return json_string(text);
}

/* ---- Answers ---- */

/* The fields that the lines of chats and of completions have in common. */
static json_t *line_make(const api_answer *a, bool is_last) {
    return json_pack("{s:s, s:o, s:b}", "model", a->model->name, "created_at",
                     time_json((int64_t)time(NULL)), "done", is_last);
}

static void counts_add(const api_answer *a, json_t *line) {
    const server_usage *u = &a->usage;
    const char *reason = api_finish_reason(&a->choices[0]);
    json_t *counts = json_pack("{s:s, s:I, s:i, s:i, s:I, s:i, s:I}", "done_reason",
                               strcmp(reason, "length") == 0 ? "length" : "stop", "total_duration",
                               (json_int_t)(server_clock() - a->started_ns), "load_duration", 0,
                               "prompt_eval_count", u->n_prompt, "prompt_eval_duration",
                               (json_int_t)u->prompt_ns, "eval_count", u->n_generated,
                               "eval_duration", (json_int_t)u->answer_ns);
    json_object_update(line, counts);
    json_decref(counts);
}

static json_t *call_json(const api_call *call) {
    return json_pack("{s:{s:o, s:o}}", "function", "name", api_buffer_json(&call->name),
                     "arguments", api_call_arguments(call));
}

static void ollama_error(api_answer *a, int http_status, const char *message) {
    api_answer_line(a, api_error_json(API_SHAPE_OLLAMA, http_status, message));
}

static void message_line(api_answer *a, json_t *message, bool is_last) {
    json_t *line = line_make(a, is_last);
    json_object_set_new(line, "message", message);
    if (is_last) counts_add(a, line);
    api_answer_line(a, line);
}

static void chat_piece(api_answer *a, api_choice *c, reply_piece piece, const char *text,
                       size_t len) {
    json_t *message = NULL;
    switch (piece) {
    case REPLY_TEXT:
        message = json_pack("{s:s, s:s%}", "role", "assistant", "content", text, len);
        break;
    case REPLY_REASONING:
        message = json_pack("{s:s, s:s, s:s%}", "role", "assistant", "content", "", "thinking",
                            text, len);
        break;
    case REPLY_CALL_END:
        /* without a cut call, since clients would run it with other arguments */
        if (c->n_call > 0 && !api_call_is_cut(c))
            message = json_pack("{s:s, s:s, s:[o]}", "role", "assistant", "content", "",
                                "tool_calls", call_json(&c->calls[c->n_call - 1]));
        break;
    default: return; /* a call is sent whole */
    }
    if (message != NULL) message_line(a, message, false);
}

static void chat_end(api_answer *a) {
    const api_choice *c = &a->choices[0];
    const int n_call = c->n_call - api_call_is_cut(c);
    json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content",
                                a->is_stream ? json_string("") : api_buffer_json(&c->content));
    if (!a->is_stream && c->reasoning.len > 0)
        json_object_set_new(message, "thinking", api_buffer_json(&c->reasoning));
    if (!a->is_stream && n_call > 0) {
        json_t *calls = json_array();
        for (int i = 0; i < n_call; i++) json_array_append_new(calls, call_json(&c->calls[i]));
        json_object_set_new(message, "tool_calls", calls);
    }
    message_line(a, message, true);
}

static const api_dialect chat_dialect = {
    .shape = API_SHAPE_OLLAMA,
    .stream_type = "application/x-ndjson",
    .piece = chat_piece,
    .end = chat_end,
    .error = ollama_error,
};

static void response_line(api_answer *a, json_t *text, json_t *thinking, bool is_last) {
    json_t *line = line_make(a, is_last);
    json_object_set_new(line, "response", text);
    if (thinking != NULL) json_object_set_new(line, "thinking", thinking);
    if (is_last) counts_add(a, line);
    api_answer_line(a, line);
}

static void generate_piece(api_answer *a, api_choice *c, reply_piece piece, const char *text,
                           size_t len) {
    (void)c;
    if (piece == REPLY_TEXT)
        response_line(a, json_stringn(text, len), NULL, false);
    else if (piece == REPLY_REASONING)
        response_line(a, json_string(""), json_stringn(text, len), false);
}

static void generate_end(api_answer *a) {
    const api_choice *c = &a->choices[0];
    const bool thinks = !a->is_stream && c->reasoning.len > 0;
    response_line(a, a->is_stream ? json_string("") : api_buffer_json(&c->content),
                  thinks ? api_buffer_json(&c->reasoning) : NULL, true);
}

static const api_dialect generate_dialect = {
    .shape = API_SHAPE_OLLAMA,
    .stream_type = "application/x-ndjson",
    .piece = generate_piece,
    .end = generate_end,
    .error = ollama_error,
};

/* ---- Requests ---- */

/* Reads `options`, whose fields have the names of settings.c but for num_predict, `stream` and
 * `format`. */
static tdm_status settings_read(api_context *c, api_settings *settings, tdm_error *err) {
    json_t *options = NULL, *format = api_get(c->body, "format");
    bool is_stream = true;
    api_settings_default(c, settings);
    tdm_status status = api_get_object(c->body, "options", &options, err);
    if (status == TDM_OK) status = api_get_bool(c->body, "stream", &is_stream, err);
    if (status == TDM_OK && options != NULL) {
        json_t *copy = json_copy(options);
        int64_t most = 0;
        status = api_get_int(copy, "num_predict", INT32_MIN, INT32_MAX, &most, err);
        /* -1 and -2 (fill the context) are both without limit */
        if (api_get(copy, "num_predict") != NULL)
            json_object_set_new(copy, "n_predict", json_integer(most < 1 ? -1 : most));
        json_object_del(copy, "n");
        if (status == TDM_OK) status = api_settings_read(c, copy, settings, err);
        json_decref(copy);
    }
    settings->is_stream = is_stream;
    if (status != TDM_OK || format == NULL) return status;
    if (json_is_object(format)) return api_grammar_schema(c, format, settings, err);
    const char *word = json_string_value(format);
    if (word != NULL && word[0] == '\0') return TDM_OK;
    if (word == NULL || strcmp(word, "json") != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'format' must be \"json\" or a JSON Schema");
    json_t *any = json_pack("{s:s}", "type", "object");
    status = api_grammar_schema(c, any, settings, err);
    json_decref(any);
    return status;
}

/* Reads `think`, true, false or a word for how much, into the template's options. */
static void think_read(const api_context *c, api_chat *chat) {
    const json_t *think = api_get(c->body, "think");
    if (think == NULL) return;
    if (chat->options == NULL) chat->options = json_object();
    json_object_set_new(chat->options, "enable_thinking", json_boolean(!json_is_false(think)));
    if (json_is_string(think)) json_object_set(chat->options, "reasoning_effort", (json_t *)think);
}

static tdm_status images_refuse(const json_t *object, tdm_error *err) {
    if (json_array_size(api_get(object, "images")) == 0) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED, "images are not supported");
}

/* Reads keep_alive. 0, where the server has several models: the model is closed once its requests
 * have ended; returns whether that is so. Other times are ignored: a model stays open until another
 * one lacks room. */
static bool keep_alive_read(const api_context *c) {
    const json_t *keep = api_get(c->body, "keep_alive");
    const char *text = json_string_value(keep);
    const bool is_zero =
        (json_is_number(keep) && json_number_value(keep) == 0) ||
        (text != NULL && strspn(text, "0") > 0 && strspn(text, "0smh") == strlen(text));
    return is_zero && server_models_n(c->api->params.models) > 1 &&
           server_models_unload(c->api->params.models, c->model_index);
}

/* Replies to a request without messages or prompt, which only loads (or, by keep_alive, unloads)
 * the model. It is open by now. */
static tdm_status loaded_reply(api_context *c, const char *field) {
    json_t *line = json_pack("{s:s, s:o, s:b, s:s}", "model", c->model->name, "created_at",
                             time_json((int64_t)time(NULL)), "done", 1, "done_reason",
                             keep_alive_read(c) ? "unload" : "load");
    if (strcmp(field, "message") == 0)
        json_object_set_new(line, field,
                            json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    else
        json_object_set_new(line, field, json_string(""));
    api_json_reply(c->x, 200, line);
    return TDM_OK;
}

tdm_status api_ollama_chat(api_context *c, tdm_error *err) {
    api_chat chat = {0};
    api_settings settings = {0};
    size_t i;
    const json_t *messages = api_get(c->body, "messages"), *one;
    tdm_status status = TDM_OK;
    if (json_array_size(messages) == 0) return loaded_reply(c, "message");
    json_array_foreach(messages, i, one) if (status == TDM_OK) status = images_refuse(one, err);
    if (status == TDM_OK) status = settings_read(c, &settings, err);
    if (status == TDM_OK) status = api_chat_read(c->body, &chat, err);
    if (status == TDM_OK) think_read(c, &chat);
    if (status == TDM_OK) status = api_chat_settings(c, &chat, &settings, err);
    if (status == TDM_OK) status = api_submit(c, &chat_dialect, "", &settings, NULL, err);
    if (status == TDM_OK) (void)keep_alive_read(c);
    api_chat_clear(&chat);
    api_settings_clear(&settings);
    return status;
}

/* The prompt is a turn of a chat, unless `raw` is set or the model has no template. */
tdm_status api_ollama_generate(api_context *c, tdm_error *err) {
    const char *prompt = "", *system = "", *suffix = "";
    bool is_raw = c->model->tpl == NULL;
    api_chat chat = {0};
    api_settings settings = {0};
    tdm_status status = api_get_string(c->body, "prompt", &prompt, err);
    if (status == TDM_OK) status = api_get_string(c->body, "system", &system, err);
    if (status == TDM_OK) status = api_get_string(c->body, "suffix", &suffix, err);
    if (status == TDM_OK) status = api_get_bool(c->body, "raw", &is_raw, err);
    if (status == TDM_OK) status = images_refuse(c->body, err);
    if (status == TDM_OK && suffix[0] != '\0')
        status = tdm_fail(err, TDM_UNSUPPORTED, "'suffix' is not supported");
    if (status != TDM_OK) return status;
    if (prompt[0] == '\0') return loaded_reply(c, "response");
    status = settings_read(c, &settings, err);
    if (status == TDM_OK && is_raw) {
        status = api_prompt_add(c, json_object_get(c->body, "prompt"), true, &settings, err);
    } else if (status == TDM_OK) {
        chat.messages = json_array();
        if (system[0] != '\0')
            json_array_append_new(chat.messages,
                                  json_pack("{s:s, s:s}", "role", "system", "content", system));
        json_array_append_new(chat.messages,
                              json_pack("{s:s, s:s}", "role", "user", "content", prompt));
        think_read(c, &chat);
        status = api_chat_settings(c, &chat, &settings, err);
    }
    if (status == TDM_OK) status = api_submit(c, &generate_dialect, "", &settings, NULL, err);
    if (status == TDM_OK) (void)keep_alive_read(c);
    api_chat_clear(&chat);
    api_settings_clear(&settings);
    return status;
}

/* ---- About the models ---- */

static json_t *details_json(const server_model *model) {
    char description[96], size[32];
    const char *family = model->model->arch->name;
    llm_model_describe(model->model, description, sizeof description);
    const char *type = strrchr(description, ' ');
    snprintf(size, sizeof size, "%.1fB", (double)model->model->n_param / 1e9);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf",
                     "family", family, "families", family, "parameter_size", size,
                     "quantization_level", type != NULL ? type + 1 : "");
}

/* A model of a list; `model` NULL = it is not open, so only its name is known. */
static json_t *model_json(const api_context *c, const char *name, const server_model *model) {
    char digest[80] = "";
    if (model != NULL)
        snprintf(digest, sizeof digest, "%064llx", (unsigned long long)model->model->fingerprint);
    return json_pack("{s:s, s:s, s:o, s:I, s:s, s:o}", "name", name, "model", name, "modified_at",
                     time_json(c->api->started), "size",
                     (json_int_t)(model != NULL ? model->model->file_size : 0), "digest", digest,
                     "details",
                     model != NULL ? details_json(model) : json_pack("{s:s}", "format", "gguf"));
}

/* Replies with a list of all models, or (is_open) of those that are open, with the sizes of their
 * contexts. */
static void list_reply(api_context *c, bool is_open) {
    server_models *models = c->api->params.models;
    json_t *list = json_array();
    for (int32_t i = 0; i < server_models_n(models); i++) {
        const server_model *model = server_models_peek(models, i);
        if (model != NULL || !is_open) {
            json_t *one = model_json(c, server_models_name(models, i), model);
            if (is_open)
                json_object_set_new(one, "context_length",
                                    json_integer(server_engine_n_ctx(model->engine)));
            json_array_append_new(list, one);
        }
        if (model != NULL) server_models_release(models, model);
    }
    api_json_reply(c->x, 200, json_pack("{s:o}", "models", list));
}

tdm_status api_ollama_tags(api_context *c, tdm_error *err) {
    (void)err;
    list_reply(c, false);
    return TDM_OK;
}

tdm_status api_ollama_ps(api_context *c, tdm_error *err) {
    (void)err;
    list_reply(c, true);
    return TDM_OK;
}

tdm_status api_ollama_version(api_context *c, tdm_error *err) {
    (void)err;
    api_json_reply(c->x, 200, json_pack("{s:s}", "version", API_VERSION));
    return TDM_OK;
}

/* Opens no model, since programs request this for all models that the server lists. */
tdm_status api_ollama_show(api_context *c, tdm_error *err) {
    char key[96];
    server_models *models = c->api->params.models;
    const server_model *model = server_models_peek(models, c->model_index);
    const bool is_encoder = model != NULL && model->is_encoder;
    json_t *capabilities = json_array(), *info = json_object();
    (void)err;
    json_array_append_new(capabilities, json_string(is_encoder ? "embedding" : "completion"));
    if (model != NULL && api_family(model) != REPLY_PLAIN)
        json_array_append_new(capabilities, json_string("tools"));
    if (model != NULL && strstr(model->tpl_text, "think") != NULL)
        json_array_append_new(capabilities, json_string("thinking"));
    if (model != NULL) {
        const char *arch = model->model->arch->name;
        json_object_set_new(info, "general.architecture", json_string(arch));
        snprintf(key, sizeof key, "%s.context_length", arch);
        json_object_set_new(info, key, json_integer(server_engine_n_ctx(model->engine)));
    }
    api_json_reply(
        c->x, 200,
        json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "modelfile", "", "parameters", "", "template",
                  model != NULL ? model->tpl_text : "", "details",
                  model != NULL ? details_json(model) : json_pack("{s:s}", "format", "gguf"),
                  "model_info", info, "capabilities", capabilities));
    if (model != NULL) server_models_release(models, model);
    return TDM_OK;
}
