/* SPDX-License-Identifier: MIT
 *
 * llama.c: llama-server's own /completion and /infill (its tools/server/README.md). Streams have no
 * [DONE].
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/openai.h"
#include "server/api/state.h"

static const char *stop_type(const api_choice *c) {
    switch (c->result.end) {
    case SERVER_END_SINK: return "word";
    case SERVER_END_STOP:
    case SERVER_END_CONSTRAINT: return "eos";
    default: return "limit";
    }
}

static json_t *tokens_json(const api_answer *a, const api_choice *c, int from) {
    json_t *tokens = json_array();
    for (int i = from; i < c->n_shown && a->wants_tokens; i++)
        json_array_append_new(tokens, json_integer(c->shown[i].token));
    return tokens;
}

/* The members of `part` that response_fields lists: by name, or by a path ("timings/prompt_n"),
 * which is then the member's name. Those that are missing are left out. Takes `part` over. */
static json_t *fields_pick(const api_answer *a, json_t *part) {
    if (a->fields == NULL) return part;
    json_t *picked = json_object();
    size_t i;
    const json_t *one;
    json_array_foreach(a->fields, i, one) {
        json_t *found = part;
        for (const char *at = json_string_value(one); found != NULL && at != NULL;) {
            const size_t n = strcspn(at, "/");
            found = json_object_getn(found, at, n);
            at = at[n] == '/' ? at + n + 1 : NULL;
        }
        if (found != NULL) json_object_set(picked, json_string_value(one), found);
    }
    json_decref(part);
    return picked;
}

/* A part of an answer: its content, and the tokens and probabilities from token n_written on, which
 * then count as written. Takes `content` over. */
static json_t *part_json(api_answer *a, api_choice *c, json_t *content, bool is_last) {
    json_t *part = json_pack("{s:i, s:o, s:o, s:b}", "index", c->index, "content", content,
                             "tokens", tokens_json(a, c, c->n_written), "stop", is_last);
    if (a->wants_logprobs)
        json_object_set_new(part, "completion_probabilities",
                            api_logprobs_json(a, c, c->n_written, "top_logprobs"));
    c->n_written = c->n_shown;
    return part;
}

static void llama_piece(api_answer *a, api_choice *c, reply_piece piece, const char *text,
                        size_t len) {
    (void)piece;
    api_answer_event(a, NULL, fields_pick(a, part_json(a, c, json_stringn(text, len), false)));
}

static json_t *last_json(api_answer *a, api_choice *c) {
    const server_usage *u = &c->result.usage;
    json_t *content = a->is_stream ? json_string("") : api_buffer_json(&c->content);
    json_t *part = part_json(a, c, content, true);
    const bool is_word = c->result.end == SERVER_END_SINK && c->stop.found >= 0;
    json_t *more = json_pack(
        "{s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:b, s:o}", "model", a->model->name, "id_slot", -1,
        "stop_type", stop_type(c), "stopping_word", is_word ? c->stop.strings[c->stop.found] : "",
        "tokens_predicted", u->n_generated, "tokens_evaluated", u->n_prompt, "tokens_cached",
        u->n_prompt + u->n_generated, "truncated", 0, "timings", api_timings_json(u));
    json_object_update(part, more);
    json_decref(more);
    return fields_pick(a, part);
}

static void llama_choice_end(api_answer *a, api_choice *c) {
    api_answer_event(a, NULL, last_json(a, c));
}

/* The reply: an object for one answer, an array for several. */
static void llama_end(api_answer *a) {
    if (a->is_stream) return;
    if (a->n_choice == 1) {
        api_answer_json(a, last_json(a, &a->choices[0]));
        return;
    }
    json_t *all = json_array();
    for (int i = 0; i < a->n_choice; i++) json_array_append_new(all, last_json(a, &a->choices[i]));
    api_answer_json(a, all);
}

static const api_dialect llama_dialect = {
    .shape = API_SHAPE_OPENAI,
    .stream_type = "text/event-stream",
    .piece = llama_piece,
    .choice_end = llama_choice_end,
    .end = llama_end,
    .error = api_openai_error,
};

static tdm_status fields_read(const api_context *c, api_settings *settings, tdm_error *err) {
    json_t *fields = NULL;
    size_t i;
    const json_t *one;
    const tdm_status status = api_get_array(c->body, "response_fields", &fields, err);
    if (status != TDM_OK) return status;
    json_array_foreach(fields, i, one) {
        if (json_is_string(one)) continue;
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'response_fields' has an entry that is no string");
    }
    if (json_array_size(fields) == 0) return TDM_OK;
    settings->fields = json_deep_copy(fields);
    return settings->fields != NULL
               ? TDM_OK
               : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for 'response_fields'");
}

static tdm_status prompt_read(const api_context *c, api_settings *settings, tdm_error *err) {
    const json_t *prompt = api_get(c->body, "prompt");
    if (prompt == NULL) return tdm_fail(err, TDM_INVALID_ARGUMENT, "'prompt' is missing");
    return api_prompt_add(c, prompt, true, settings, err);
}

/* Answers a request whose prompts the function `prompt` adds. */
static tdm_status complete(api_context *c,
                           tdm_status (*prompt)(const api_context *c, api_settings *settings,
                                                tdm_error *err),
                           tdm_error *err) {
    api_settings settings;
    api_settings_default(c, &settings);
    tdm_status status = api_settings_read(c, c->body, &settings, err);
    if (status == TDM_OK) status = api_format_read(c, c->body, &settings, err);
    if (status == TDM_OK)
        status = api_get_bool(c->body, "return_tokens", &settings.wants_tokens, err);
    if (status == TDM_OK) status = fields_read(c, &settings, err);
    if (status == TDM_OK) status = prompt(c, &settings, err);
    if (status == TDM_OK) status = api_submit(c, &llama_dialect, "", &settings, NULL, err);
    api_settings_clear(&settings);
    return status;
}

tdm_status api_llama_completion(api_context *c, tdm_error *err) {
    return complete(c, prompt_read, err);
}

tdm_status api_llama_infill(api_context *c, tdm_error *err) {
    return complete(c, api_infill_read, err);
}
