/* SPDX-License-Identifier: MIT
 *
 * settings.c: the fields of a request that say how its answer is made: limits, stop strings,
 * biases, probabilities, drafts, formats (samplers: samplers.c). Names are those of OpenAI and of
 * llama-server.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "llm/tokenizer/tokenizer.h"
#include "server/api/state.h"

static uint64_t seed_random(void) {
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) < 0) seed = (uint32_t)server_clock();
    return seed;
}

/* The most answers to a prompt: as many as run at a time. */
static int64_t choice_max(const server_model *model) {
    if (model->n_running < 1) return 1;
    return model->n_running < ANSWER_CHOICE_MAX ? model->n_running : ANSWER_CHOICE_MAX;
}

void api_settings_default(const api_context *c, api_settings *settings) {
    *settings = (api_settings){
        .n = 1,
        .sampler = c->model->sampler,
        .max_tokens = c->model->n_predict,
        .min_draft = c->model->min_draft,
        .min_draft_p = c->model->min_draft_p,
    };
    settings->sampler.seed = seed_random();
}

/* ---- Stop strings and biases ---- */

tdm_status api_stops_read(const json_t *value, const char *name, api_settings *settings,
                          tdm_error *err) {
    const bool is_one = json_is_string(value);
    const size_t n = is_one ? 1 : json_array_size(value);
    if (value == NULL || json_is_null(value)) return TDM_OK;
    if (!is_one && !json_is_array(value))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' must be a string or an array of strings",
                        name);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(is_one ? value : json_array_get(value, i));
        if (text == NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' has an entry that is no string", name);
        if (text[0] == '\0') continue;
        if (strlen(text) > REPLY_STOP_MAX || settings->n_stop == REPLY_N_STOP_MAX)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "'%s' has more than %d strings, or one of more than %d bytes", name,
                            REPLY_N_STOP_MAX, REPLY_STOP_MAX);
        settings->stops[settings->n_stop] = strdup(text);
        if (settings->stops[settings->n_stop] == NULL)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a stop string");
        settings->n_stop++;
    }
    return TDM_OK;
}

static tdm_status bias_add(api_settings *settings, int32_t token, float bias, tdm_error *err) {
    if (settings->n_bias == ANSWER_BIAS_MAX)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'logit_bias' has more than %d tokens",
                        ANSWER_BIAS_MAX);
    if (settings->bias == NULL) settings->bias = calloc(ANSWER_BIAS_MAX, sizeof *settings->bias);
    if (settings->bias == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for biases");
    settings->bias[settings->n_bias++] = (llm_logit_bias){token, bias};
    return TDM_OK;
}

/* Adds the bias `value` for token `id`, or, where `text` is not NULL, for all tokens of the text.
 * false = these tokens are never drawn. */
static tdm_status bias_entry(const api_context *c, const char *text, int64_t id,
                             const json_t *value, api_settings *settings, tdm_error *err) {
    if (!json_is_number(value) && !json_is_false(value))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'logit_bias' has a value that is neither a number nor false");
    const double number = json_is_false(value) ? -INFINITY : json_number_value(value);
    if (number > FLT_MAX)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'logit_bias' has the value %g, which is too large", number);
    const float bias = number < -FLT_MAX ? -INFINITY : (float)number;
    if (text == NULL) {
        if (id < 0 || id >= c->model->model->hparams.n_vocab)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "'logit_bias' has token %lld of %d",
                            (long long)id, (int)c->model->model->hparams.n_vocab);
        return bias_add(settings, (int32_t)id, bias, err);
    }
    int32_t *ids = NULL;
    size_t n = 0;
    tdm_status status = llm_tokenize(c->model->vocab, text, strlen(text),
                                     LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n, err);
    for (size_t i = 0; i < n && status == TDM_OK; i++)
        status = bias_add(settings, ids[i], bias, err);
    free(ids);
    return status;
}

/* Reads logit_bias: {id or text: bias}, OpenAI's form, or [[id or text, bias]], llama-server's. */
static tdm_status biases_read(const api_context *c, const json_t *body, api_settings *settings,
                              tdm_error *err) {
    json_t *biases = api_get(body, "logit_bias");
    tdm_status status = TDM_OK;
    const char *key;
    json_t *value;
    size_t i;
    if (biases == NULL) return TDM_OK;
    if (json_is_object(biases)) {
        json_object_foreach(biases, key, value) {
            char *end = NULL;
            const int64_t id = strtoll(key, &end, 10);
            const bool is_id = end != key && *end == '\0';
            if (status == TDM_OK)
                status = bias_entry(c, is_id ? NULL : key, id, value, settings, err);
        }
        return status;
    }
    if (!json_is_array(biases))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'logit_bias' must be an object or an array");
    json_array_foreach(biases, i, value) {
        const json_t *which = json_array_get(value, 0);
        if (status == TDM_OK && !json_is_string(which) && !json_is_integer(which))
            status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                              "an entry of 'logit_bias' must be [id or text, bias]");
        if (status == TDM_OK)
            status = bias_entry(c, json_string_value(which), json_integer_value(which),
                                json_array_get(value, 1), settings, err);
    }
    return status;
}

/* ---- All ---- */

/* Reads how many probabilities are shown. OpenAI's chats: logprobs true and top_logprobs n; its
 * completions: logprobs n; llama-server: n_probs. */
static tdm_status probabilities_read(const json_t *body, api_settings *settings, tdm_error *err) {
    int64_t n = -1, n_top = 0;
    tdm_status status = TDM_OK;
    if (json_is_boolean(api_get(body, "logprobs"))) {
        if (json_is_true(api_get(body, "logprobs"))) n = 0;
    } else {
        status = api_get_int(body, "logprobs", 0, ANSWER_TOP_MAX, &n, err);
    }
    if (status == TDM_OK)
        status = api_get_int(body, "top_logprobs", 0, ANSWER_TOP_MAX, &n_top, err);
    if (status == TDM_OK && n_top > 0 && n < 0)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'top_logprobs' requires 'logprobs': true");
    if (n_top > 0) n = n_top;
    int64_t n_probs = 0;
    if (status == TDM_OK) status = api_get_int(body, "n_probs", 0, ANSWER_TOP_MAX, &n_probs, err);
    if (n_probs > 0) n = n_probs;
    settings->wants_logprobs = n >= 0;
    settings->n_top = n > 0 ? (int32_t)n : 0;
    return status;
}

/* Reads the limits of the answer. -1 = no limit. Where several names are set, the last in the list
 * counts. llama-server's n_predict 0: the prompt is only read, so that it is cached for later
 * requests. */
static tdm_status limit_read(const json_t *body, api_settings *settings, tdm_error *err) {
    static const char *const names[] = {"n_predict", "max_tokens", "max_completion_tokens",
                                        "max_output_tokens"};
    tdm_status status = TDM_OK;
    for (int i = 0; i < 4 && status == TDM_OK; i++) {
        int64_t n = INT64_MIN;
        status = api_get_int(body, names[i], -1, INT32_MAX, &n, err);
        if (n == INT64_MIN) continue;
        settings->only_reads = n == 0 && i == 0;
        if (n == 0 && i > 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "'%s' is 0, expected at least 1, or -1 for no limit", names[i]);
        settings->max_tokens = n < 0 ? 0 : n == 0 ? 1 : (int32_t)n;
    }
    int64_t line_ms = 0;
    if (status == TDM_OK)
        status = api_get_int(body, "t_max_predict_ms", INT64_MIN, INT32_MAX, &line_ms, err);
    settings->line_limit = line_ms > 0 ? (uint64_t)line_ms * 1000000u : 0;
    return status;
}

/* Reads llama-server's fields of drafts, which have no effect where the model has no drafts. */
static tdm_status drafts_read(const json_t *body, api_settings *settings, tdm_error *err) {
    int64_t n_max = -1, n_min = settings->min_draft;
    double p_min = (double)settings->min_draft_p;
    tdm_status status = api_get_int(body, "speculative.n_max", 0, INT32_MAX, &n_max, err);
    if (status == TDM_OK)
        status = api_get_int(body, "speculative.n_min", 0, INT32_MAX, &n_min, err);
    if (status == TDM_OK) status = api_get_number(body, "speculative.p_min", 0, 1, &p_min, err);
    /* to the engine 0 means its own number, and -1 none */
    settings->max_draft = n_max < 0 ? 0 : n_max == 0 ? -1 : (int32_t)n_max;
    settings->min_draft = (int32_t)n_min;
    settings->min_draft_p = (float)p_min;
    return status;
}

tdm_status api_settings_read(const api_context *c, const json_t *body, api_settings *settings,
                             tdm_error *err) {
    bool caches = true;
    json_t *stream_options = NULL;
    int64_t n = 1;
    tdm_status status = api_samplers_read(c, body, settings, err);
    if (status == TDM_OK) status = limit_read(body, settings, err);
    if (status == TDM_OK) status = api_get_bool(body, "stream", &settings->is_stream, err);
    if (status == TDM_OK) status = api_get_object(body, "stream_options", &stream_options, err);
    if (status == TDM_OK && stream_options != NULL)
        status = api_get_bool(stream_options, "include_usage", &settings->includes_usage, err);
    if (status == TDM_OK) status = api_get_bool(body, "ignore_eos", &settings->ignores_end, err);
    if (status == TDM_OK) status = api_get_bool(body, "cache_prompt", &caches, err);
    if (status == TDM_OK) status = api_get_int(body, "n", 1, choice_max(c->model), &n, err);
    if (status == TDM_OK) status = api_stops_read(api_get(body, "stop"), "stop", settings, err);
    if (status == TDM_OK) status = biases_read(c, body, settings, err);
    if (status == TDM_OK) status = probabilities_read(body, settings, err);
    if (status == TDM_OK) status = drafts_read(body, settings, err);
    if (status == TDM_OK && api_get(body, "lora") != NULL) {
        settings->has_scales = true;
        status = api_scales_read(c->model, api_get(body, "lora"), settings->scales, err);
    }
    settings->is_uncached = !caches;
    settings->n = (int32_t)n;
    return status;
}

/* ---- Formats ---- */

/* Sets the format of the answer. Takes `text` over, also on failure; NULL = there was no memory. */
static tdm_status grammar_take(const api_context *c, char *text, bool is_schema,
                               api_settings *settings, tdm_error *err) {
    tdm_status status = TDM_OK;
    if (text == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a grammar");
    else if (c->model->grammar_vocab == NULL)
        status = tdm_fail(err, TDM_UNSUPPORTED, "this build has no constrained decoding");
    else if (settings->grammar_text != NULL)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "the request has more than one format: leave out all but one");
    if (status != TDM_OK) {
        free(text);
        return status;
    }
    settings->grammar_text = text;
    settings->grammar_is_schema = is_schema;
    return TDM_OK;
}

tdm_status api_grammar_schema(const api_context *c, const json_t *schema, api_settings *settings,
                              tdm_error *err) {
    return grammar_take(c, json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY), true, settings, err);
}

tdm_status api_grammar_text(const api_context *c, char *text, api_settings *settings,
                            tdm_error *err) {
    return grammar_take(c, text, false, settings, err);
}

static tdm_status response_format_read(const api_context *c, const json_t *format,
                                       api_settings *settings, tdm_error *err) {
    const char *type = "";
    json_t *wrapper = NULL;
    tdm_status status = api_get_string(format, "type", &type, err);
    if (status == TDM_OK) status = api_get_object(format, "json_schema", &wrapper, err);
    if (status != TDM_OK || strcmp(type, "text") == 0) return status;
    json_t *schema = api_get(wrapper != NULL ? wrapper : format, "schema");
    if (strcmp(type, "json_schema") == 0 && schema == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'response_format' of type json_schema has no schema");
    if (strcmp(type, "json_schema") != 0 && strcmp(type, "json_object") != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'response_format' has type '%s', expected text, json_object or "
                        "json_schema",
                        type);
    json_t *any = schema == NULL ? json_pack("{s:s}", "type", "object") : json_incref(schema);
    status = api_grammar_schema(c, any, settings, err);
    json_decref(any);
    return status;
}

tdm_status api_format_read(const api_context *c, const json_t *body, api_settings *settings,
                           tdm_error *err) {
    json_t *format = NULL;
    const char *grammar = "";
    tdm_status status = api_get_object(body, "response_format", &format, err);
    if (status == TDM_OK && format != NULL) status = response_format_read(c, format, settings, err);
    if (status == TDM_OK && api_get(body, "json_schema") != NULL)
        status = api_grammar_schema(c, api_get(body, "json_schema"), settings, err);
    if (status == TDM_OK) status = api_get_string(body, "grammar", &grammar, err);
    if (status != TDM_OK || grammar[0] == '\0') return status;
    return grammar_take(c, strdup(grammar), false, settings, err);
}
