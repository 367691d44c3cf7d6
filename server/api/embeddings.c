/* SPDX-License-Identifier: MIT
 *
 * embeddings.c: /v1/embeddings in OpenAI's form: texts or tokens in, vectors out, as numbers or as
 * base64 of little-endian float32; ollama's /api/embed and the older /api/embeddings.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

#define N_AT_ONCE 16 /* inputs of a request that wait in the engine's queue */

/* One exchange; it is freed once all inputs are done. */
typedef struct vectors vectors;
struct vectors {
    api_task task;
    server_api *api;
    server_exchange *x;
    const server_model *model;
    api_shape shape;
    json_t *(*reply_make)(const vectors *v);
    int32_t normalize; /* as llm_embedding_normalize */
    bool is_base64;
    uint64_t started_ns;
    int n_input;
    int64_t n_token;
    struct vectors_input {
        vectors *owner;
        int32_t *tokens; /* [n_tok] */
        int32_t n_tok;
        float *values; /* [n] */
        int32_t n;
    } * inputs;
    int n_submitted; /* of the task */
    pthread_mutex_t lock;
    int n_over;        /* guarded by lock: inputs that are done */
    tdm_status status; /* guarded by lock: the first failure */
    char message[512];
    uint64_t retry_ns;
    bool has_replied; /* of the task */
};

static json_t *base64(const float *values, int32_t n) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = (const unsigned char *)values;
    const size_t size = (size_t)n * sizeof *values;
    char *text = malloc(size / 3 * 4 + 8), *at = text;
    if (text == NULL) return NULL;
    for (size_t i = 0; i < size; i += 3) {
        const unsigned b1 = i + 1 < size ? bytes[i + 1] : 0, b2 = i + 2 < size ? bytes[i + 2] : 0;
        const unsigned group = (unsigned)bytes[i] << 16 | b1 << 8 | b2;
        *at++ = letters[group >> 18];
        *at++ = letters[group >> 12 & 63];
        *at++ = i + 1 < size ? letters[group >> 6 & 63] : '=';
        *at++ = i + 2 < size ? letters[group & 63] : '=';
    }
    json_t *string = json_stringn(text, (size_t)(at - text));
    free(text);
    return string;
}

static json_t *vector_json(const vectors *v, int i) {
    if (v->is_base64) return base64(v->inputs[i].values, v->inputs[i].n);
    json_t *numbers = json_array();
    for (int32_t k = 0; k < v->inputs[i].n; k++)
        json_array_append_new(numbers, json_real((double)v->inputs[i].values[k]));
    return numbers;
}

static json_t *openai_reply(const vectors *v) {
    json_t *data = json_array();
    for (int i = 0; i < v->n_input; i++)
        json_array_append_new(data, json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", i,
                                              "embedding", vector_json(v, i)));
    return json_pack("{s:s, s:s, s:o, s:{s:I, s:I}}", "object", "list", "model", v->model->name,
                     "data", data, "usage", "prompt_tokens", (json_int_t)v->n_token, "total_tokens",
                     (json_int_t)v->n_token);
}

static json_t *ollama_reply(const vectors *v) {
    json_t *all = json_array();
    for (int i = 0; i < v->n_input; i++) json_array_append_new(all, vector_json(v, i));
    return json_pack("{s:s, s:o, s:I, s:i, s:I}", "model", v->model->name, "embeddings", all,
                     "total_duration", (json_int_t)(server_clock() - v->started_ns),
                     "load_duration", 0, "prompt_eval_count", (json_int_t)v->n_token);
}

/* The older form: one text, whose vector has its own length. */
static json_t *ollama_old_reply(const vectors *v) {
    return json_pack("{s:o}", "embedding", v->n_input > 0 ? vector_json(v, 0) : json_array());
}

static void vectors_free(vectors *v) {
    for (int i = 0; i < v->n_input; i++) {
        free(v->inputs[i].values);
        free(v->inputs[i].tokens);
    }
    free(v->inputs);
    server_exchange_release(v->x);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

static void vectors_reply(vectors *v) {
    if (v->status != TDM_OK) {
        const int http_status = api_http_status(v->status);
        api_error_reply(v->x, v->shape, http_status, v->message,
                        http_status == 429 || http_status == 503 ? v->retry_ns + 1 : 0);
        return;
    }
    api_json_reply(v->x, 200, v->reply_make(v));
}

/* One input more is done. */
static void input_over(vectors *v, tdm_status status, const char *message) {
    pthread_mutex_lock(&v->lock);
    if (status != TDM_OK && v->status == TDM_OK) {
        v->status = status;
        snprintf(v->message, sizeof v->message, "%s", message);
    }
    v->n_over++;
    api_pool_add(v->api->writers, &v->task);
    pthread_mutex_unlock(&v->lock);
}

/* The engine's thread calls it. */
static void done_take(void *user, server_request_id id, tdm_status status, const char *message,
                      const float *vector, int32_t n) {
    struct vectors_input *input = user;
    (void)id;
    /* JSON has no such numbers */
    for (int32_t i = 0; i < n && status == TDM_OK; i++)
        if (!isfinite(vector[i])) {
            status = TDM_INTERNAL;
            message = "the vector of a text has values that are not finite";
        }
    if (status == TDM_OK) {
        input->values = malloc((size_t)n * sizeof *vector);
        if (input->values != NULL) {
            memcpy(input->values, vector, (size_t)n * sizeof *vector);
            input->n = n;
        } else {
            status = TDM_RESOURCE_EXHAUSTED;
            message = "no memory for a vector";
        }
    }
    input_over(input->owner, status, message);
}

static tdm_status input_submit(vectors *v, struct vectors_input *input, tdm_error *err) {
    const server_embedding_request request = {
        .struct_size = sizeof request,
        .tokens = input->tokens,
        .n_tok = input->n_tok,
        .pooling = v->model->pooling,
        .normalize = v->normalize,
        .total_limit = v->api->params.total_limit,
        .done = done_take,
        .user = input,
    };
    server_request_id id;
    return server_engine_embed(v->model->engine, &request, &id, &v->retry_ns, err);
}

/* Submits some inputs, or, once all are done, replies. After a failure, or where the client has gone,
 * the others are left out. */
static void vectors_run(api_task *task) {
    vectors *v = (vectors *)task; /* its first member */
    pthread_mutex_lock(&v->lock);
    int n_over = v->n_over;
    bool has_failed = v->status != TDM_OK;
    pthread_mutex_unlock(&v->lock);
    while (!v->has_replied && v->n_submitted < v->n_input && v->n_submitted - n_over < N_AT_ONCE) {
        tdm_error reason = {0};
        tdm_status status = TDM_CANCELLED;
        if (!has_failed && !server_exchange_is_gone(v->x))
            status = input_submit(v, &v->inputs[v->n_submitted], &reason);
        v->n_submitted++;
        if (status != TDM_OK) {
            has_failed = true;
            input_over(v, status, reason.message);
            n_over++;
        }
    }
    if (n_over < v->n_input) return;
    server_api *api = v->api;
    if (!v->has_replied) {
        v->has_replied = true;
        vectors_reply(v);
        pthread_mutex_lock(&api->lock);
        api->n_active--;
        pthread_mutex_unlock(&api->lock);
    }
    if (api_pool_finish(api->writers, task)) vectors_free(v);
}

/* Starts on the texts of the settings, in the way of `kind`, which has form, reply and scale. */
static tdm_status vectors_start(api_context *c, const vectors *kind, api_settings *settings,
                                tdm_error *err) {
    vectors *v = calloc(1, sizeof *v);
    if (v != NULL) *v = *kind;
    if (v != NULL) v->inputs = calloc((size_t)settings->n_prompt + 1, sizeof *v->inputs);
    if (v == NULL || v->inputs == NULL) {
        free(v);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the vectors");
    }
    v->task.run = vectors_run;
    v->api = c->api;
    v->x = c->x;
    v->model = c->model;
    v->started_ns = server_clock();
    v->n_input = settings->n_prompt;
    pthread_mutex_init(&v->lock, NULL);
    for (int i = 0; i < v->n_input; i++) {
        v->inputs[i].owner = v;
        v->inputs[i].tokens = settings->prompts[i];
        v->inputs[i].n_tok = settings->prompt_lens[i];
        v->n_token += settings->prompt_lens[i];
        settings->prompts[i] = NULL;
    }
    server_exchange_hold(c->x);
    api_active_add(c->api, 1);
    api_pool_add(c->api->writers, &v->task);
    return TDM_OK;
}

tdm_status api_embeddings(api_context *c, tdm_error *err) {
    const char *encoding = "float";
    const json_t *input = api_get(c->body, "input");
    api_settings settings;
    api_settings_default(c, &settings);
    if (input == NULL) input = api_get(c->body, "content"); /* llama-server's older name */
    tdm_status status = api_get_string(c->body, "encoding_format", &encoding, err);
    if (status == TDM_OK && strcmp(encoding, "float") != 0 && strcmp(encoding, "base64") != 0)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'encoding_format' must be float or base64");
    if (status == TDM_OK && api_get(c->body, "dimensions") != NULL)
        status = tdm_fail(err, TDM_UNSUPPORTED, "'dimensions' is not supported");
    if (status == TDM_OK && input == NULL)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'input' is missing");
    if (status == TDM_OK) status = api_inputs_add(c, input, &settings, err);
    const vectors kind = {.shape = API_SHAPE_OPENAI,
                          .reply_make = openai_reply,
                          .normalize = 2,
                          .is_base64 = strcmp(encoding, "base64") == 0};
    if (status == TDM_OK) status = vectors_start(c, &kind, &settings, err);
    api_settings_clear(&settings);
    return status;
}

/* ---- ollama ---- */

/* Cuts texts that are too long. The token that the model puts at the end stays. */
static void texts_cut(const api_context *c, api_settings *settings) {
    const int32_t most = server_engine_text_max(c->model->engine);
    for (int32_t i = 0; i < settings->n_prompt && most > 0; i++) {
        const int32_t n = settings->prompt_lens[i];
        if (n <= most) continue;
        const int32_t last = settings->prompts[i][n - 1];
        if (llm_vocab_token_type(c->model->vocab, last) == LLM_TOKEN_CONTROL)
            settings->prompts[i][most - 1] = last;
        settings->prompt_lens[i] = most;
    }
}

static tdm_status ollama_embed(api_context *c, const char *field, const vectors *kind,
                               tdm_error *err) {
    bool truncates = true;
    const json_t *input = api_get(c->body, field);
    api_settings settings;
    api_settings_default(c, &settings);
    tdm_status status = api_get_bool(c->body, "truncate", &truncates, err);
    if (status == TDM_OK && api_get(c->body, "dimensions") != NULL)
        status = tdm_fail(err, TDM_UNSUPPORTED, "'dimensions' is not supported");
    /* no text, or an empty one, loads the model, which is loaded: the reply has no vectors */
    const bool is_empty = input == NULL ||
                          (json_is_string(input) && json_string_length(input) == 0) ||
                          (json_is_array(input) && json_array_size(input) == 0);
    if (status == TDM_OK && !is_empty && !json_is_string(input) &&
        !json_is_string(json_array_get(input, 0)))
        status =
            tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' must be a text or an array of texts", field);
    if (status == TDM_OK && !is_empty) status = api_inputs_add(c, input, &settings, err);
    if (status == TDM_OK && truncates) texts_cut(c, &settings);
    if (status == TDM_OK) status = vectors_start(c, kind, &settings, err);
    api_settings_clear(&settings);
    return status;
}

tdm_status api_ollama_embed(api_context *c, tdm_error *err) {
    const vectors kind = {.shape = API_SHAPE_OLLAMA, .reply_make = ollama_reply, .normalize = 2};
    return ollama_embed(c, "input", &kind, err);
}

tdm_status api_ollama_embeddings(api_context *c, tdm_error *err) {
    const vectors kind = {
        .shape = API_SHAPE_OLLAMA, .reply_make = ollama_old_reply, .normalize = -1};
    const json_t *prompt = api_get(c->body, "prompt");
    if (prompt != NULL && !json_is_string(prompt))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'prompt' must be a string");
    return ollama_embed(c, "prompt", &kind, err);
}
