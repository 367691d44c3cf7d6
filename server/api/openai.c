/* SPDX-License-Identifier: MIT
 *
 * openai.c: chat completions and completions in OpenAI's form
 * (https://platform.openai.com/docs/api-reference), with llama-server's `timings`.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/openai.h"
#include "server/api/state.h"

/* ---- Parts of both APIs ---- */

json_t *api_usage_json(const api_answer *a) {
    const server_usage *u = &a->usage;
    return json_pack("{s:i, s:i, s:i, s:{s:i}}", "prompt_tokens", u->n_prompt, "completion_tokens",
                     u->n_generated, "total_tokens", u->n_prompt + u->n_generated,
                     "prompt_tokens_details", "cached_tokens", u->n_cached);
}

static double per_second(int64_t n, uint64_t ns) {
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

json_t *api_timings_json(const server_usage *u) {
    const int n_read = u->n_prompt - u->n_cached, n_more = u->n_generated - 1;
    const double prompt_ms = (double)u->prompt_ns / 1e6, answer_ms = (double)u->answer_ns / 1e6;
    json_t *timings = json_pack(
        "{s:i, s:i, s:f, s:f, s:i, s:f, s:f, s:f}", "cache_n", u->n_cached, "prompt_n", n_read,
        "prompt_ms", prompt_ms, "prompt_per_second", per_second(n_read, u->prompt_ns),
        "predicted_n", u->n_generated, "predicted_ms", answer_ms, "predicted_per_second",
        n_more > 0 ? per_second(n_more, u->answer_ns) : 0.0, "queue_ms", (double)u->queue_ns / 1e6);
    if (timings == NULL || u->n_draft == 0) return timings;
    json_object_set_new(timings, "draft_n", json_integer(u->n_draft));
    json_object_set_new(timings, "draft_n_accepted", json_integer(u->n_draft_accepted));
    return timings;
}

/* A token with its probability. A token whose bytes are not well-formed UTF-8 has the text U+FFFD;
 * its bytes are in `bytes`. */
static json_t *token_json(const api_answer *a, int32_t token, float logprob) {
    const llm_vocab_str text = llm_vocab_token_bytes(a->model->vocab, token);
    json_t *string = json_stringn(text.len > 0 ? text.ptr : "", text.len), *bytes = json_array();
    if (string == NULL) string = json_string("\xef\xbf\xbd");
    for (size_t i = 0; i < text.len; i++)
        json_array_append_new(bytes, json_integer((unsigned char)text.ptr[i]));
    /* JSON has no infinity */
    const double value = isfinite(logprob) ? (double)logprob : -9999.0;
    return json_pack("{s:o, s:f, s:o, s:i}", "token", string, "logprob", value, "bytes", bytes,
                     "id", token);
}

json_t *api_logprobs_json(const api_answer *a, api_choice *c, int from, const char *top_name) {
    json_t *content = json_array();
    for (int i = from; i < c->n_shown; i++) {
        const api_token *token = &c->shown[i];
        json_t *one = token_json(a, token->token, token->logprob), *top = json_array();
        for (int k = 0; k < token->n_top; k++)
            json_array_append_new(top, token_json(a, token->top[k].token, token->top[k].logprob));
        json_object_set_new(one, top_name, top);
        json_array_append_new(content, one);
    }
    return content;
}

/* The `logprobs` of a choice from token n_written on, which then count as written; null where they
 * are not requested. */
static json_t *chat_logprobs(const api_answer *a, api_choice *c) {
    if (!a->wants_logprobs) return json_null();
    json_t *content = api_logprobs_json(a, c, c->n_written, "top_logprobs");
    c->n_written = c->n_shown;
    return json_pack("{s:o, s:n}", "content", content, "refusal");
}

/* A reply or chunk of either API, with one choice or none (NULL). Takes `choice` over. */
static json_t *chunk_make(const api_answer *a, const char *object, json_t *choice) {
    json_t *choices = json_array();
    if (choice != NULL) json_array_append_new(choices, choice);
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", a->id, "object", object, "created",
                     (json_int_t)a->created, "model", a->model->name, "system_fingerprint",
                     "tandem", "choices", choices);
}

static void done_write(api_answer *a) {
    static const char done[] = "data: [DONE]\n\n";
    server_exchange_write(a->x, done, sizeof done - 1);
}

void api_openai_error(api_answer *a, int http_status, const char *message) {
    api_answer_event(a, NULL, api_error_json(a->dialect->shape, http_status, message));
}

/* Ends a stream: a chunk with the usage, where it is requested, and [DONE]. */
static void stream_end(api_answer *a, const char *object) {
    if (a->includes_usage) {
        json_t *chunk = chunk_make(a, object, NULL);
        json_object_set_new(chunk, "usage", api_usage_json(a));
        json_object_set_new(chunk, "timings", api_timings_json(&a->usage));
        api_answer_event(a, NULL, chunk);
    }
    done_write(a);
}

static void whole_end(api_answer *a, const char *object,
                      json_t *(*choice_json)(api_answer *a, api_choice *c)) {
    json_t *reply = chunk_make(a, object, NULL), *choices = json_object_get(reply, "choices");
    for (int i = 0; i < a->n_choice; i++)
        json_array_append_new(choices, choice_json(a, &a->choices[i]));
    json_object_set_new(reply, "usage", api_usage_json(a));
    json_object_set_new(reply, "timings", api_timings_json(&a->usage));
    api_answer_json(a, reply);
}

/* ---- Chat completions ---- */

#define CHAT_CHUNK "chat.completion.chunk"

static void chat_delta(api_answer *a, api_choice *c, json_t *delta, const char *reason) {
    json_t *choice = json_pack("{s:i, s:o, s:o, s:o}", "index", c->index, "delta", delta,
                               "logprobs", chat_logprobs(a, c), "finish_reason",
                               reason != NULL ? json_string(reason) : json_null());
    api_answer_event(a, NULL, chunk_make(a, CHAT_CHUNK, choice));
}

static void chat_begin(api_answer *a) {
    for (int i = 0; i < a->n_choice; i++)
        chat_delta(a, &a->choices[i], json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
                   NULL);
}

static void chat_piece(api_answer *a, api_choice *c, reply_piece piece, const char *text,
                       size_t len) {
    json_t *delta = NULL;
    const int k = c->n_call - 1;
    switch (piece) {
    case REPLY_TEXT: delta = json_pack("{s:s%}", "content", text, len); break;
    case REPLY_REASONING: delta = json_pack("{s:s%}", "reasoning_content", text, len); break;
    case REPLY_CALL:
        if (k < 0) return;
        delta = json_pack("{s:[{s:i, s:s, s:s, s:{s:s%, s:s}}]}", "tool_calls", "index", k, "id",
                          c->calls[k].id, "type", "function", "function", "name", text, len,
                          "arguments", "");
        break;
    case REPLY_ARGUMENTS:
        if (k < 0) return;
        delta = json_pack("{s:[{s:i, s:{s:s%}}]}", "tool_calls", "index", k, "function",
                          "arguments", text, len);
        break;
    case REPLY_CALL_END: return;
    }
    chat_delta(a, c, delta, NULL);
}

static void chat_choice_end(api_answer *a, api_choice *c) {
    chat_delta(a, c, json_object(), api_finish_reason(c));
}

json_t *api_calls_json(const api_choice *c) {
    json_t *calls = json_array();
    for (int i = 0; i < c->n_call; i++)
        json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", c->calls[i].id,
                                               "type", "function", "function", "name",
                                               api_buffer_json(&c->calls[i].name), "arguments",
                                               api_buffer_json(&c->calls[i].arguments)));
    return calls;
}

static json_t *chat_choice(api_answer *a, api_choice *c) {
    json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content",
                                c->content.len > 0 || c->n_call == 0 ? api_buffer_json(&c->content)
                                                                     : json_null());
    if (c->reasoning.len > 0)
        json_object_set_new(message, "reasoning_content", api_buffer_json(&c->reasoning));
    if (c->n_call > 0) json_object_set_new(message, "tool_calls", api_calls_json(c));
    return json_pack("{s:i, s:o, s:o, s:s}", "index", c->index, "message", message, "logprobs",
                     chat_logprobs(a, c), "finish_reason", api_finish_reason(c));
}

static void chat_end(api_answer *a) {
    if (a->is_stream)
        stream_end(a, CHAT_CHUNK);
    else
        whole_end(a, "chat.completion", chat_choice);
}

static const api_dialect chat_dialect = {
    .shape = API_SHAPE_OPENAI,
    .stream_type = "text/event-stream",
    .begin = chat_begin,
    .piece = chat_piece,
    .choice_end = chat_choice_end,
    .end = chat_end,
    .error = api_openai_error,
};

tdm_status api_chat_completions(api_context *c, tdm_error *err) {
    api_chat chat = {0};
    api_settings settings;
    api_settings_default(c, &settings);
    tdm_status status = api_settings_read(c, c->body, &settings, err);
    if (status == TDM_OK) status = api_format_read(c, c->body, &settings, err);
    if (status == TDM_OK) status = api_chat_read(c->body, &chat, err);
    if (status == TDM_OK) status = api_chat_settings(c, &chat, &settings, err);
    if (status == TDM_OK) status = api_submit(c, &chat_dialect, "chatcmpl-", &settings, NULL, err);
    api_chat_clear(&chat);
    api_settings_clear(&settings);
    return status;
}

/* ---- Completions ---- */

#define TEXT_OBJECT "text_completion"

/* The `logprobs` of a completion: tokens, token_logprobs, top_logprobs. */
static json_t *text_logprobs(const api_answer *a, api_choice *c) {
    if (!a->wants_logprobs) return json_null();
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array();
    for (int i = c->n_written; i < c->n_shown; i++) {
        const api_token *token = &c->shown[i];
        json_t *one = token_json(a, token->token, token->logprob), *top = json_object();
        json_array_append(tokens, json_object_get(one, "token"));
        json_array_append(logprobs, json_object_get(one, "logprob"));
        json_decref(one);
        for (int k = 0; k < token->n_top; k++) {
            one = token_json(a, token->top[k].token, token->top[k].logprob);
            json_object_set(top, json_string_value(json_object_get(one, "token")),
                            json_object_get(one, "logprob"));
            json_decref(one);
        }
        json_array_append_new(tops, top);
    }
    c->n_written = c->n_shown;
    return json_pack("{s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs,
                     "top_logprobs", tops);
}

/* A choice of a completion. Takes `text` over; reason NULL = it has not ended. */
static json_t *text_choice_json(api_answer *a, api_choice *c, json_t *text, const char *reason) {
    return json_pack("{s:o, s:i, s:o, s:o}", "text", text, "index", c->index, "logprobs",
                     text_logprobs(a, c), "finish_reason",
                     reason != NULL ? json_string(reason) : json_null());
}

static void text_piece(api_answer *a, api_choice *c, reply_piece piece, const char *text,
                       size_t len) {
    (void)piece;
    api_answer_event(
        a, NULL, chunk_make(a, TEXT_OBJECT, text_choice_json(a, c, json_stringn(text, len), NULL)));
}

/* a->text is the prompt that `echo` puts before each answer; NULL = none. */
static void text_begin(api_answer *a) {
    for (int i = 0; i < a->n_choice && a->text != NULL; i++)
        text_piece(a, &a->choices[i], REPLY_TEXT, a->text, strlen(a->text));
}

static void text_choice_end(api_answer *a, api_choice *c) {
    api_answer_event(
        a, NULL,
        chunk_make(a, TEXT_OBJECT, text_choice_json(a, c, json_string(""), api_finish_reason(c))));
}

static json_t *text_choice(api_answer *a, api_choice *c) {
    api_buffer text = {0};
    if (a->text != NULL) api_buffer_add(&text, a->text, strlen(a->text));
    api_buffer_add(&text, api_buffer_text(&c->content), c->content.len);
    json_t *choice = text_choice_json(a, c, api_buffer_json(&text), api_finish_reason(c));
    api_buffer_clear(&text);
    return choice;
}

static void text_end(api_answer *a) {
    if (a->is_stream)
        stream_end(a, TEXT_OBJECT);
    else
        whole_end(a, TEXT_OBJECT, text_choice);
}

static const api_dialect text_dialect = {
    .shape = API_SHAPE_OPENAI,
    .stream_type = "text/event-stream",
    .begin = text_begin,
    .piece = text_piece,
    .choice_end = text_choice_end,
    .end = text_end,
    .error = api_openai_error,
};

/* Adds `prompt`; with `suffix`, the prompt for the text between the two. */
static tdm_status prompt_read(const api_context *c, api_settings *settings, tdm_error *err) {
    const json_t *prompt = api_get(c->body, "prompt");
    const char *suffix = "";
    if (prompt == NULL) return tdm_fail(err, TDM_INVALID_ARGUMENT, "'prompt' is missing");
    const tdm_status status = api_get_string(c->body, "suffix", &suffix, err);
    if (status != TDM_OK) return status;
    if (suffix[0] == '\0') return api_prompt_add(c, prompt, true, settings, err);
    if (!json_is_string(prompt))
        return tdm_fail(err, TDM_UNSUPPORTED, "'suffix' requires one prompt, as text");
    return api_infill_add(c, NULL, json_string_value(prompt), "", suffix, settings, err);
}

tdm_status api_completions(api_context *c, tdm_error *err) {
    bool echoes = false;
    char *text = NULL;
    api_settings settings;
    api_settings_default(c, &settings);
    const json_t *prompt = api_get(c->body, "prompt");
    tdm_status status = api_settings_read(c, c->body, &settings, err);
    if (status == TDM_OK) status = api_format_read(c, c->body, &settings, err);
    if (status == TDM_OK) status = prompt_read(c, &settings, err);
    if (status == TDM_OK) status = api_get_bool(c->body, "echo", &echoes, err);
    if (status == TDM_OK && echoes && !json_is_string(prompt))
        status = tdm_fail(err, TDM_UNSUPPORTED, "'echo' requires one prompt, as text");
    if (status == TDM_OK && echoes && (text = strdup(json_string_value(prompt))) == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for 'echo'");
    if (status == TDM_OK)
        status = api_submit(c, &text_dialect, "cmpl-", &settings, text, err);
    else
        free(text);
    api_settings_clear(&settings);
    return status;
}

/* Mistral's completions between two texts: a request like one for a completion, with a reply like a
 * chat's. */
tdm_status api_fim_completions(api_context *c, tdm_error *err) {
    const char *prompt = NULL, *suffix = "";
    api_settings settings;
    api_settings_default(c, &settings);
    tdm_status status = api_settings_read(c, c->body, &settings, err);
    if (status == TDM_OK) status = api_get_string(c->body, "prompt", &prompt, err);
    if (status == TDM_OK) status = api_get_string(c->body, "suffix", &suffix, err);
    if (status == TDM_OK && prompt == NULL)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'prompt' is missing");
    if (status == TDM_OK) status = api_infill_add(c, NULL, prompt, "", suffix, &settings, err);
    if (status == TDM_OK) status = api_submit(c, &chat_dialect, "cmpl-", &settings, NULL, err);
    api_settings_clear(&settings);
    return status;
}
