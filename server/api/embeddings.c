/* SPDX-License-Identifier: MIT
 *
 * embeddings.c: /v1/embeddings in OpenAI's form: texts or tokens in, vectors out, as numbers or as
 * base64 of little-endian float32; ollama's /api/embed and the older /api/embeddings.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/vectors.h"

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

/* Appends a value, which it takes over. Without memory for either (NULL), *array is released and
 * becomes NULL, so that no reply lacks a part of it. */
static void append(json_t **array, json_t *value) {
    if (*array == NULL) {
        json_decref(value);
    } else if (json_array_append_new(*array, value) != 0) {
        json_decref(*array);
        *array = NULL;
    }
}

/* A vector as a new value; NULL = no memory. */
static json_t *vector_json(const api_vectors *v, int i) {
    if (v->is_base64) return base64(v->inputs[i].values, v->inputs[i].n);
    json_t *numbers = json_array();
    for (int32_t k = 0; k < v->inputs[i].n; k++)
        append(&numbers, json_real((double)v->inputs[i].values[k]));
    return numbers;
}

static json_t *openai_reply(const api_vectors *v) {
    json_t *data = json_array();
    for (int i = 0; i < v->n_input; i++)
        append(&data, json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", i, "embedding",
                                vector_json(v, i)));
    return json_pack("{s:s, s:s, s:o, s:{s:I, s:I}}", "object", "list", "model", v->model->name,
                     "data", data, "usage", "prompt_tokens", (json_int_t)v->n_token, "total_tokens",
                     (json_int_t)v->n_token);
}

static json_t *ollama_reply(const api_vectors *v) {
    json_t *all = json_array();
    for (int i = 0; i < v->n_input; i++) append(&all, vector_json(v, i));
    return json_pack("{s:s, s:o, s:I, s:i, s:I}", "model", v->model->name, "embeddings", all,
                     "total_duration", (json_int_t)(server_clock() - v->started_ns),
                     "load_duration", 0, "prompt_eval_count", (json_int_t)v->n_token);
}

/* The older form: one text, whose vector is not normalized. */
static json_t *ollama_old_reply(const api_vectors *v) {
    return json_pack("{s:o}", "embedding", v->n_input > 0 ? vector_json(v, 0) : json_array());
}

/* Refuses rerankers, whose files say how hidden states become scores, not how they become vectors,
 * and models whose tokens have a vector each. */
static tdm_status pooling_check(const api_context *c, tdm_error *err) {
    if (c->model->pooling == LLM_POOLING_NONE)
        return tdm_fail(
            err, TDM_UNSUPPORTED,
            "'%s' gives a vector for each token, and none for a text: use `tandem embed`",
            c->model->name);
    if (c->model->pooling != LLM_POOLING_RANK) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "'%s' is a reranker: it gives scores of texts, at /v1/rerank, and no vectors",
                    c->model->name);
}

tdm_status api_embeddings(api_context *c, tdm_error *err) {
    const char *encoding = "float";
    const json_t *input = api_get(c->body, "input");
    api_settings settings;
    api_settings_default(c, &settings);
    if (input == NULL) input = api_get(c->body, "content"); /* llama-server's older name */
    tdm_status status = pooling_check(c, err);
    if (status == TDM_OK) status = api_get_string(c->body, "encoding_format", &encoding, err);
    if (status == TDM_OK && strcmp(encoding, "float") != 0 && strcmp(encoding, "base64") != 0)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'encoding_format' must be float or base64");
    if (status == TDM_OK && api_get(c->body, "dimensions") != NULL)
        status = tdm_fail(err, TDM_UNSUPPORTED, "'dimensions' is not supported");
    if (status == TDM_OK && input == NULL)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'input' is missing");
    if (status == TDM_OK) status = api_inputs_add(c, input, &settings, err);
    const api_vectors kind = {.shape = API_SHAPE_OPENAI,
                              .reply_make = openai_reply,
                              .pooling = c->model->pooling,
                              .normalize = 2,
                              .is_base64 = strcmp(encoding, "base64") == 0};
    if (status == TDM_OK) status = api_vectors_start(c, &kind, &settings, err);
    api_settings_clear(&settings);
    return status;
}

/* ---- ollama ---- */

/* Cuts texts that are too long. A control token at the end, which the model adds, stays there. */
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

static tdm_status ollama_embed(api_context *c, const char *field, const api_vectors *kind,
                               tdm_error *err) {
    bool truncates = true;
    const json_t *input = api_get(c->body, field);
    api_settings settings;
    api_settings_default(c, &settings);
    tdm_status status = pooling_check(c, err);
    if (status == TDM_OK) status = api_get_bool(c->body, "truncate", &truncates, err);
    if (status == TDM_OK && api_get(c->body, "dimensions") != NULL)
        status = tdm_fail(err, TDM_UNSUPPORTED, "'dimensions' is not supported");
    /* without a text the request only loads the model, which is open by now: no vectors */
    const bool is_empty = input == NULL ||
                          (json_is_string(input) && json_string_length(input) == 0) ||
                          (json_is_array(input) && json_array_size(input) == 0);
    if (status == TDM_OK && !is_empty && !json_is_string(input) &&
        !json_is_string(json_array_get(input, 0)))
        status =
            tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' must be a text or an array of texts", field);
    if (status == TDM_OK && !is_empty) status = api_inputs_add(c, input, &settings, err);
    if (status == TDM_OK && truncates) texts_cut(c, &settings);
    if (status == TDM_OK) status = api_vectors_start(c, kind, &settings, err);
    api_settings_clear(&settings);
    return status;
}

tdm_status api_ollama_embed(api_context *c, tdm_error *err) {
    const api_vectors kind = {.shape = API_SHAPE_OLLAMA,
                              .reply_make = ollama_reply,
                              .pooling = c->model->pooling,
                              .normalize = 2};
    return ollama_embed(c, "input", &kind, err);
}

tdm_status api_ollama_embeddings(api_context *c, tdm_error *err) {
    const api_vectors kind = {.shape = API_SHAPE_OLLAMA,
                              .reply_make = ollama_old_reply,
                              .pooling = c->model->pooling,
                              .normalize = -1};
    const json_t *prompt = api_get(c->body, "prompt");
    if (prompt != NULL && !json_is_string(prompt))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'prompt' must be a string");
    return ollama_embed(c, "prompt", &kind, err);
}
