/* SPDX-License-Identifier: MIT
 *
 * answer.c: see answer.h: the submission of an answer's choices, the task that parses and writes,
 * and the answer's end.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "server/api/call_forms.h"
#include "server/api/queue.h"
#include "server/api/state.h"
#include "server/grammar/grammar.h"
#include "server/json/json_load.h"

/* ---- Buffers and names ---- */

void api_buffer_add(api_buffer *buffer, const char *data, size_t len) {
    if (buffer->size - buffer->len < len + 1) {
        const size_t size = (buffer->len + len + 1) * 2;
        char *grown = realloc(buffer->data, size);
        if (grown == NULL) {
            buffer->is_short = true;
            return;
        }
        buffer->data = grown;
        buffer->size = size;
    }
    if (len > 0) memcpy(buffer->data + buffer->len, data, len);
    buffer->len += len;
    buffer->data[buffer->len] = '\0';
}

void api_buffer_clear(api_buffer *buffer) {
    free(buffer->data);
    *buffer = (api_buffer){0};
}

const char *api_buffer_text(const api_buffer *buffer) {
    return buffer->data != NULL ? buffer->data : "";
}

json_t *api_buffer_json(const api_buffer *buffer) {
    return json_stringn(api_buffer_text(buffer), buffer->len);
}

void api_id_make(char *text, size_t size, const char *prefix) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char bytes[24] = {0};
    if (getrandom(bytes, sizeof bytes, 0) < 0) {
        const uint64_t now = server_clock();
        memcpy(bytes, &now, sizeof now);
    }
    size_t len = (size_t)snprintf(text, size, "%s", prefix);
    for (size_t i = 0; i < sizeof bytes && len + 1 < size; i++)
        text[len++] = letters[bytes[i] % 36];
    text[len] = '\0';
}

void api_settings_clear(api_settings *settings) {
    for (int32_t i = 0; i < settings->n_prompt; i++) free(settings->prompts[i]);
    free(settings->bias);
    llm_sampler_breakers_destroy(settings->breakers);
    json_decref(settings->tools);
    json_decref(settings->fields);
    for (int32_t i = 0; i < settings->n_stop; i++) free(settings->stops[i]);
    free(settings->grammar_text);
    grammar_release(settings->grammar);
    *settings = (api_settings){0};
}

/* ---- What dialects use ---- */

void api_answer_event(api_answer *a, const char *name, json_t *data) {
    char *text = data != NULL ? json_dumps(data, JSON_COMPACT) : NULL;
    json_decref(data);
    api_buffer event = {0};
    if (name != NULL) {
        api_buffer_add(&event, "event: ", 7);
        api_buffer_add(&event, name, strlen(name));
        api_buffer_add(&event, "\n", 1);
    }
    api_buffer_add(&event, "data: ", 6);
    if (text != NULL) api_buffer_add(&event, text, strlen(text));
    api_buffer_add(&event, "\n\n", 2);
    /* an event that lacks bytes would be wrong: break the stream instead */
    if (text == NULL || event.is_short)
        server_exchange_break(a->x);
    else
        server_exchange_write(a->x, event.data, event.len);
    free(text);
    api_buffer_clear(&event);
}

void api_answer_json(api_answer *a, json_t *data) {
    api_json_reply(a->x, 200, data);
}

void api_answer_line(api_answer *a, json_t *data) {
    if (!a->is_stream) {
        api_answer_json(a, data);
        return;
    }
    char *text = data != NULL ? json_dumps(data, JSON_COMPACT) : NULL;
    json_decref(data);
    if (text != NULL) {
        const size_t len = strlen(text);
        text[len] = '\n'; /* in place of the NUL */
        server_exchange_write(a->x, text, len + 1);
    } else {
        server_exchange_break(a->x);
    }
    free(text);
}

static bool is_limited(const api_choice *c) {
    const server_end end = c->result.end;
    return end == SERVER_END_LENGTH || end == SERVER_END_CONTEXT || end == SERVER_END_DEADLINE;
}

bool api_call_is_cut(const api_choice *c) {
    /* in this order: the result is final where the parser has ended */
    return c->n_call > 0 && reply_parser_is_cut(c->parser) && is_limited(c);
}

const char *api_finish_reason(const api_choice *c) {
    if (c->n_call > 0 && !api_call_is_cut(c)) return "tool_calls";
    return is_limited(c) ? "length" : "stop";
}

json_t *api_call_arguments(const api_call *call) {
    /* with JSON_ALLOW_NUL, since a string may have \u0000 */
    json_t *value = server_json_load(api_buffer_text(&call->arguments), call->arguments.len,
                                     JSON_ALLOW_NUL, NULL);
    if (json_is_object(value)) return value;
    json_decref(value);
    return json_object();
}

/* ---- Pieces ---- */

static void call_begin(api_choice *c, const char *name, size_t len) {
    api_call *grown = realloc(c->calls, ((size_t)c->n_call + 1) * sizeof *grown);
    if (grown == NULL) {
        c->content.is_short = true;
        return;
    }
    c->calls = grown;
    api_call *call = &c->calls[c->n_call++];
    *call = (api_call){0};
    api_id_make(call->id, sizeof call->id, "call_");
    api_buffer_add(&call->name, name, len);
    if (call->name.is_short) c->content.is_short = true;
}

static void arguments_add(api_choice *c, const char *text, size_t len) {
    if (c->n_call == 0) return; /* the call had no memory */
    api_buffer *arguments = &c->calls[c->n_call - 1].arguments;
    api_buffer_add(arguments, text, len);
    if (arguments->is_short) c->content.is_short = true;
}

/* Begins the stream, where the answer is one and it has not begun. */
static void begin_once(api_answer *a) {
    if (a->has_begun || !a->is_stream) return;
    a->has_begun = true;
    server_exchange_add_header(a->x, "x-accel-buffering:", "no");
    server_exchange_stream(a->x, a->dialect->stream_type);
    if (a->dialect->begin != NULL) a->dialect->begin(a);
}

/* Takes a piece from the parser of a choice. */
static void piece_take(void *user, reply_piece piece, const char *text, size_t len) {
    api_choice *c = user;
    api_answer *a = c->answer;
    switch (piece) {
    case REPLY_TEXT: api_buffer_add(&c->content, text, len); break;
    case REPLY_REASONING: api_buffer_add(&c->reasoning, text, len); break;
    case REPLY_CALL: call_begin(c, text, len); break;
    case REPLY_ARGUMENTS: arguments_add(c, text, len); break;
    case REPLY_CALL_END: break;
    }
    if (a->is_stream && a->dialect->piece != NULL) a->dialect->piece(a, c, piece, text, len);
}

/* ---- The task ---- */

void api_answer_cancel(api_answer *a) {
    for (int i = 0; i < a->n_choice; i++)
        if (a->choices[i].id != 0 && !a->choices[i].is_over)
            server_engine_cancel(a->model->engine, a->choices[i].id);
}

/* Replies with an error, or ends the stream with one. */
static void fail(api_answer *a, int http_status, const char *message, uint64_t retry_ns) {
    if (a->has_failed) return;
    a->has_failed = true;
    if (a->has_begun) {
        a->dialect->error(a, http_status, message);
        server_exchange_end(a->x);
    } else {
        api_error_reply(a->x, a->dialect->shape, http_status, message,
                        http_status == 429 || http_status == 503 ? retry_ns + 1 : 0);
    }
}

/* The message of an end that is an error for the client; NULL = it is none. */
static const char *end_message(const api_choice *c, int *http_status) {
    *http_status = 503;
    if (c->result.end == SERVER_END_CANCELLED) return "the server is shutting down";
    if (c->result.end == SERVER_END_DEADLINE && c->result.usage.n_generated == 0)
        return "the request's time is over before it had its first token";
    return NULL;
}

/* Takes what is in the queue of a choice, parses it and writes it. */
static void choice_work(api_answer *a, api_choice *c) {
    if (c->has_ended) return;
    pthread_mutex_lock(&a->lock);
    api_buffer text = c->text;
    api_token *tokens = c->tokens;
    const int n_token = c->n_token;
    const bool is_over = c->is_over;
    c->text = (api_buffer){0};
    c->tokens = NULL;
    c->n_token = c->token_size = 0;
    /* under the lock: so this call comes after the one that paused the choice (queue.c) */
    if (c->is_paused && !is_over && c->id != 0) {
        c->is_paused = false;
        server_engine_pause(a->model->engine, c->id, false);
    }
    pthread_mutex_unlock(&a->lock);
    int http_status = 500;
    const char *message = NULL;
    if (is_over && c->failure != TDM_OK) {
        message = c->message;
        http_status = api_http_status(c->failure, c->retry_ns > 0);
    } else if (is_over) {
        message = end_message(c, &http_status);
    }
    if (message != NULL) {
        c->has_ended = true;
        fail(a, http_status, message, c->retry_ns);
    } else if (text.len > 0 || n_token > 0 || is_over) {
        begin_once(a);
        if (a->is_stream && c->n_written == c->n_shown) c->n_written = c->n_shown = 0;
        if (!api_tokens_append(&c->shown, &c->n_shown, &c->shown_size, tokens, n_token))
            c->content.is_short = true;
        if (text.is_short || !reply_parser_push(c->parser, api_buffer_text(&text), text.len))
            c->content.is_short = true;
        if (is_over) {
            reply_parser_end(c->parser);
            c->has_ended = true;
            if (a->is_stream && a->dialect->choice_end != NULL) a->dialect->choice_end(a, c);
        }
        if (c->content.is_short || c->reasoning.is_short)
            fail(a, 500, "no memory for the answer", 0);
    }
    free(tokens);
    api_buffer_clear(&text);
}

/* Sums the usage of all choices. A prompt counts once, however many choices continue it. */
static void usage_sum(api_answer *a) {
    for (int i = 0; i < a->n_choice; i++) {
        const server_usage *one = &a->choices[i].result.usage;
        if (a->choices[i].is_first) {
            a->usage.n_prompt += one->n_prompt;
            a->usage.n_cached += one->n_cached;
            if (one->queue_ns > a->usage.queue_ns) a->usage.queue_ns = one->queue_ns;
            a->usage.prompt_ns += one->prompt_ns;
        }
        a->usage.n_generated += one->n_generated;
        a->usage.n_draft += one->n_draft;
        a->usage.n_draft_accepted += one->n_draft_accepted;
        if (one->answer_ns > a->usage.answer_ns) a->usage.answer_ns = one->answer_ns;
    }
}

static void log_end(api_answer *a) {
    if (a->api->params.log == NULL) return;
    char line[200];
    snprintf(line, sizeof line, "%s %s: %d tokens of prompt (%d cached), %d generated, %.0f ms",
             server_exchange_peer(a->x), server_exchange_path(a->x), a->usage.n_prompt,
             a->usage.n_cached, a->usage.n_generated,
             (double)(server_clock() - a->started_ns) / 1e6);
    a->api->params.log(a->api->params.log_user, line);
}

static void answer_free(api_answer *a) {
    for (int i = 0; i < a->n_choice; i++) {
        api_choice *c = &a->choices[i];
        reply_parser_destroy(c->parser);
        reply_stop_clear(&c->stop);
        api_buffer_clear(&c->text);
        api_buffer_clear(&c->content);
        api_buffer_clear(&c->reasoning);
        api_buffer_clear(&c->item);
        for (int k = 0; k < c->n_call; k++) {
            api_buffer_clear(&c->calls[k].name);
            api_buffer_clear(&c->calls[k].arguments);
        }
        free(c->calls);
        free(c->tokens);
        free(c->shown);
    }
    free(a->choices);
    free(a->text);
    json_decref(a->request);
    json_decref(a->tools);
    json_decref(a->fields);
    json_decref(a->output);
    server_exchange_release(a->x);
    server_models_release(a->api->params.models, a->model);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* Takes the answer out of the API's list and off its exchange: no other thread finds it any
 * more. */
static void unlink_answer(api_answer *a) {
    server_api *api = a->api;
    if (a->is_unlinked) return;
    a->is_unlinked = true;
    pthread_mutex_lock(&api->lock);
    server_exchange_set_user(a->x, NULL);
    if (a->prev != NULL)
        a->prev->next = a->next;
    else
        api->answers = a->next;
    if (a->next != NULL) a->next->prev = a->prev;
    api->n_active--;
    pthread_mutex_unlock(&api->lock);
}

/* The task: writes what has come, and frees the answer when all is over. It is run after each event
 * of the engine, when the client has left, and when the reply has room again. */
static void answer_run(api_task *task) {
    api_answer *a = (api_answer *)task; /* its first member */
    pthread_mutex_lock(&a->lock);
    const bool is_over = a->n_open == 0;
    const bool is_silent =
        a->is_gone || a->has_failed || __atomic_load_n(&a->api->is_settling, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&a->lock);
    /* the reply is full: server_api_drained adds the task again when there is room */
    if (!is_silent && a->has_begun && server_exchange_queued(a->x) > SERVER_HTTP_QUEUE_FULL) return;
    bool is_written = true;
    for (int i = 0; i < a->n_choice && !is_silent && !a->has_failed; i++) {
        choice_work(a, &a->choices[i]);
        is_written = is_written && a->choices[i].has_ended;
    }
    if (a->has_failed && !is_over) {
        /* the choices that are submitted after this, too: each event, and the end of the
         * submission, adds the task again */
        pthread_mutex_lock(&a->lock);
        api_answer_cancel(a);
        pthread_mutex_unlock(&a->lock);
    }
    if (!is_over) return;
    if (!is_silent && !a->has_failed && !is_written) return; /* the last event adds it again */
    if (!is_silent && !a->has_failed && !a->is_unlinked) {
        usage_sum(a);
        begin_once(a);
        a->dialect->end(a);
        if (a->is_stream) server_exchange_end(a->x);
        log_end(a);
    }
    unlink_answer(a);
    if (api_pool_finish(a->api->writers, task)) answer_free(a);
}

/* ---- Events of the exchange ---- */

static api_answer *answer_of(api_listener *listener) {
    return (api_answer *)((char *)listener - offsetof(api_answer, listener));
}

static void answer_gone(api_listener *listener) {
    api_answer *a = answer_of(listener);
    pthread_mutex_lock(&a->lock);
    a->is_gone = true;
    api_answer_cancel(a);
    api_pool_add(a->api->writers, &a->task);
    pthread_mutex_unlock(&a->lock);
}

static void answer_drained(api_listener *listener) {
    api_answer *a = answer_of(listener);
    api_pool_add(a->api->writers, &a->task);
}

/* ---- Beginning ---- */

/* reply_parser_params.is_string, by the schema of the tool. */
static bool is_string_parameter(void *user, const char *tool, const char *parameter) {
    const api_answer *a = ((api_choice *)user)->answer;
    size_t i;
    const json_t *one;
    json_array_foreach(a->tools, i, one) {
        const json_t *function = json_object_get(one, "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (name == NULL || strcmp(name, tool) != 0) continue;
        const json_t *properties =
            json_object_get(json_object_get(function, "parameters"), "properties");
        return api_call_is_string(json_object_get(properties, parameter));
    }
    return false;
}

static tdm_status choice_make(api_choice *c, const api_settings *settings, tdm_error *err) {
    api_answer *a = c->answer;
    const reply_parser_params params = {
        .family = settings->is_chat ? api_family(a->model) : REPLY_PLAIN,
        .parses_calls = settings->parses_calls,
        .parses_reasoning = settings->parses_reasoning,
        .is_reasoning = settings->is_reasoning,
        .is_call = settings->is_call,
        .is_string = is_string_parameter,
        .take = piece_take,
        .user = c,
    };
    c->parser = reply_parser_create(&params);
    bool ok = c->parser != NULL;
    for (int i = 0; i < settings->n_stop && ok; i++)
        ok = reply_stop_add(&c->stop, settings->stops[i]);
    if (ok && settings->is_chat && a->model->stop[0] != '\0' &&
        strlen(a->model->stop) <= REPLY_STOP_MAX)
        ok = reply_stop_add(&c->stop, a->model->stop);
    c->n_asked_stop = settings->n_stop;
    if (!ok) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the answer");
    return TDM_OK;
}

static tdm_status choice_submit(api_choice *c, const api_settings *settings, uint64_t *retry_ns,
                                tdm_error *err) {
    api_answer *a = c->answer;
    const server_api_params *limits = &a->api->params;
    llm_constraint constraint = {0};
    server_request request = {
        .struct_size = sizeof request,
        .prompt = settings->prompts[c->index / settings->n],
        .n_prompt = settings->prompt_lens[c->index / settings->n],
        .max_tokens = settings->max_tokens,
        .sampler = settings->sampler,
        .bias = settings->bias,
        .n_bias = settings->n_bias,
        .scales = settings->has_scales ? settings->scales : NULL,
        .stop_tokens = &a->model->stop_id,
        .n_stop = settings->is_chat && a->model->stop_id != LLM_TOKEN_NONE,
        .ignores_end = settings->ignores_end,
        .wants_logprobs = settings->wants_logprobs,
        .n_top = settings->n_top,
        .max_draft = settings->max_draft,
        .min_draft = settings->min_draft,
        .min_draft_p = settings->min_draft_p,
        .shows_special = settings->shows_special,
        .continues_text = !settings->begins_text,
        .is_uncached = settings->is_uncached,
        .key = api_access_client(a->x),
        .scope = api_access_scope(a->x),
        .queue_limit = limits->queue_limit,
        .first_limit = limits->first_limit,
        .total_limit = limits->total_limit,
    };
    request.sampler.seed += (uint64_t)(c->index % settings->n);
    api_queue_sink(c, &request.sink);
    tdm_status status = TDM_OK;
    if (settings->grammar != NULL) {
        status = api_constraint_make(a->model, settings, &constraint, err);
        request.constraint = &constraint;
    }
    server_request_id id = 0;
    if (status == TDM_OK) {
        status = server_engine_submit(a->model->engine, &request, &id, retry_ns, err);
        if (status != TDM_OK && constraint.destroy != NULL) constraint.destroy(constraint.state);
    }
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&a->lock);
    c->id = id;
    const bool is_gone = a->is_gone;
    pthread_mutex_unlock(&a->lock);
    if (is_gone) server_engine_cancel(a->model->engine, id);
    return TDM_OK;
}

/* Submits the choices; those that the engine refuses are over. */
static void choices_submit(api_answer *a, const api_settings *settings) {
    tdm_status status = TDM_OK;
    tdm_error reason = {0};
    uint64_t retry_ns = 0;
    for (int i = 0; i < a->n_choice; i++) {
        api_choice *c = &a->choices[i];
        if (status == TDM_OK) status = choice_submit(c, settings, &retry_ns, &reason);
        if (status == TDM_OK) continue;
        pthread_mutex_lock(&a->lock);
        c->is_over = true;
        c->failure = status;
        c->retry_ns = retry_ns;
        snprintf(c->message, sizeof c->message, "%s", reason.message);
        a->n_open--;
        pthread_mutex_unlock(&a->lock);
    }
    pthread_mutex_lock(&a->lock);
    a->n_open--; /* the submission itself */
    api_pool_add(a->api->writers, &a->task);
    pthread_mutex_unlock(&a->lock);
}

tdm_status api_answer_start(server_api *api, server_exchange *x, const server_model *model,
                            const api_dialect *dialect, const char *id_prefix, json_t *request,
                            api_settings *settings, char *text, tdm_error *err) {
    const int n_choice = settings->n_prompt * settings->n;
    if (n_choice > ANSWER_CHOICE_MAX) {
        free(text);
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "a request has at most %d answers",
                        ANSWER_CHOICE_MAX);
    }
    api_answer *a = calloc(1, sizeof *a);
    if (a != NULL) a->choices = calloc((size_t)n_choice, sizeof *a->choices);
    if (a == NULL || a->choices == NULL) {
        free(a);
        free(text);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the answer");
    }
    a->task.run = answer_run;
    a->listener = (api_listener){.gone = answer_gone, .drained = answer_drained};
    a->api = api;
    a->x = x;
    a->dialect = dialect;
    a->model = model;
    a->n_choice = n_choice;
    a->n_open = n_choice + 1;
    a->is_stream = settings->is_stream;
    a->includes_usage = settings->includes_usage;
    a->wants_logprobs = settings->wants_logprobs;
    a->wants_tokens = settings->wants_tokens || settings->wants_logprobs;
    a->shows_special = settings->shows_special;
    a->only_reads = settings->only_reads;
    a->line_limit = settings->line_limit;
    a->n_top = settings->n_top;
    for (int32_t i = 0; i < settings->n_prompt; i++) a->n_prompt += settings->prompt_lens[i];
    a->created = (int64_t)time(NULL);
    a->started_ns = server_clock();
    /* copies, since two threads must not count references of the same JSON: jansson's inline
     * functions are not atomic */
    if (dialect->keeps_request) a->request = json_deep_copy(request);
    a->tools = json_deep_copy(settings->tools);
    a->fields = json_deep_copy(settings->fields);
    a->text = text;
    api_id_make(a->id, sizeof a->id, id_prefix);
    pthread_mutex_init(&a->lock, NULL);
    server_exchange_hold(x);
    server_models_hold(api->params.models, model);
    tdm_status status = TDM_OK;
    if ((dialect->keeps_request && a->request == NULL) ||
        (settings->tools != NULL && a->tools == NULL) ||
        (settings->fields != NULL && a->fields == NULL))
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the answer");
    for (int i = 0; i < n_choice && status == TDM_OK; i++) {
        a->choices[i].answer = a;
        a->choices[i].index = i;
        a->choices[i].is_first = i % settings->n == 0;
        status = choice_make(&a->choices[i], settings, err);
    }
    if (status != TDM_OK) {
        answer_free(a);
        return status;
    }
    pthread_mutex_lock(&api->lock);
    a->next = api->answers;
    if (api->answers != NULL) api->answers->prev = a;
    api->answers = a;
    api->n_active++;
    server_exchange_set_user(x, &a->listener);
    a->is_gone = server_exchange_is_gone(x);
    pthread_mutex_unlock(&api->lock);
    choices_submit(a, settings);
    return TDM_OK;
}
