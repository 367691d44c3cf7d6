/* SPDX-License-Identifier: MIT
 *
 * samplers.c: the fields of a request that say how a token is drawn (llm/sampler.h), under the
 * names of llama-server. OpenAI and ollama have some of them, under the same names.
 */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

/* ---- Numbers ---- */

typedef struct float_field {
    const char *name;
    size_t off; /* in llm_sampler_params */
    double least, most;
    bool keeps_zero; /* to the sampler 0 means a default, so 0 becomes the smallest positive
                        float */
} float_field;

#define FIELD(name, member, least, most, keeps_zero)                                               \
    { name, offsetof(llm_sampler_params, member), least, most, keeps_zero }

static const float_field float_fields[] = {
    FIELD("temperature", temp, 0, 1000, false),
    FIELD("dynatemp_range", dynatemp_range, 0, 1000, false),
    FIELD("dynatemp_exponent", dynatemp_exponent, 0, 100, true),
    FIELD("top_p", top_p, 0, 1, true),
    FIELD("min_p", min_p, 0, 1, false),
    FIELD("typical_p", typical_p, 0, 1, true),
    FIELD("top_n_sigma", top_n_sigma, -1, 1000, false),
    FIELD("xtc_probability", xtc_probability, 0, 1, false),
    FIELD("xtc_threshold", xtc_threshold, 0, 1, false),
    FIELD("repeat_penalty", repeat_penalty, 0.01, 100, false),
    FIELD("presence_penalty", presence_penalty, -100, 100, false),
    FIELD("frequency_penalty", frequency_penalty, -100, 100, false),
    FIELD("adaptive_target", adaptive_target, -1, 1, true),
    FIELD("adaptive_decay", adaptive_decay, 0, 0.99, true),
    FIELD("dry_multiplier", dry_multiplier, 0, 100, false),
    FIELD("dry_base", dry_base, 1, 100, false),
    FIELD("mirostat_tau", mirostat_tau, 0, 1000, true),
    FIELD("mirostat_eta", mirostat_eta, 0, 100, true),
};

#undef FIELD

static tdm_status floats_read(const json_t *body, llm_sampler_params *sampler, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (size_t i = 0; i < sizeof float_fields / sizeof float_fields[0] && status == TDM_OK; i++) {
        const float_field *field = &float_fields[i];
        float *value = (float *)((char *)sampler + field->off);
        double number = *value;
        status = api_get_number(body, field->name, field->least, field->most, &number, err);
        *value = (float)number;
        if (field->keeps_zero && *value >= 0 && *value < FLT_MIN) *value = FLT_MIN;
    }
    return status;
}

static tdm_status ints_read(const json_t *body, llm_sampler_params *sampler, tdm_error *err) {
    int64_t top_k = sampler->top_k, last_n = sampler->repeat_last_n, seed = -1;
    int64_t min_keep = sampler->min_keep, mirostat = sampler->mirostat, dry_allowed = -1,
            dry_last_n = INT64_MIN;
    tdm_status status = api_get_int(body, "top_k", -1, INT32_MAX, &top_k, err);
    if (status == TDM_OK) status = api_get_int(body, "min_keep", 0, INT32_MAX, &min_keep, err);
    if (status == TDM_OK) status = api_get_int(body, "repeat_last_n", -1, INT32_MAX, &last_n, err);
    if (status == TDM_OK) status = api_get_int(body, "seed", INT64_MIN, INT64_MAX, &seed, err);
    if (status == TDM_OK)
        status = api_get_int(body, "dry_allowed_length", 0, INT32_MAX, &dry_allowed, err);
    if (status == TDM_OK)
        status = api_get_int(body, "dry_penalty_last_n", -1, INT32_MAX, &dry_last_n, err);
    if (status == TDM_OK) status = api_get_int(body, "mirostat", 0, 2, &mirostat, err);
    sampler->top_k = top_k < 0 ? 0 : (int32_t)top_k;
    sampler->min_keep = (int32_t)min_keep;
    sampler->repeat_last_n = (int32_t)last_n;
    sampler->mirostat = (int32_t)mirostat;
    if (seed >= 0) sampler->seed = (uint64_t)seed;
    /* the sampler reads 0 as the usual length, and as all tokens */
    if (dry_allowed >= 0)
        sampler->dry_allowed_length = dry_allowed == 0 ? -1 : (int32_t)dry_allowed;
    if (dry_last_n == 0) sampler->dry_multiplier = 0;
    if (dry_last_n != INT64_MIN) sampler->dry_last_n = dry_last_n < 0 ? 0 : (int32_t)dry_last_n;
    return status;
}

/* ---- Lists ---- */

/* llama-server's letters of the steps, for its short form of `samplers`. */
static const char letters[LLM_SAMPLER_STEP_COUNT] = {
    [LLM_SAMPLER_PENALTIES] = 'e',  [LLM_SAMPLER_DRY] = 'd',       [LLM_SAMPLER_TOP_N_SIGMA] = 's',
    [LLM_SAMPLER_TOP_K] = 'k',      [LLM_SAMPLER_TYPICAL_P] = 'y', [LLM_SAMPLER_TOP_P] = 'p',
    [LLM_SAMPLER_MIN_P] = 'm',      [LLM_SAMPLER_XTC] = 'x',       [LLM_SAMPLER_TEMPERATURE] = 't',
    [LLM_SAMPLER_ADAPTIVE_P] = 'a',
};

static tdm_status step_fail(const char *word, tdm_error *err) {
    char names[200] = "", shown[41] = "";
    size_t n = 0;
    /* a message is one line */
    for (size_t i = 0; word[i] != '\0' && i + 1 < sizeof shown; i++)
        shown[i] = (unsigned char)word[i] < ' ' ? '?' : word[i];
    for (int i = 0; i < LLM_SAMPLER_STEP_COUNT && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, " %s (%c)",
                              llm_sampler_step_name((llm_sampler_step)i), letters[i]);
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "'samplers' has '%s', expected some of%s", shown,
                    names);
}

static int step_of_letter(char letter) {
    for (int i = 0; i < LLM_SAMPLER_STEP_COUNT; i++)
        if (letters[i] == letter) return i;
    return -1;
}

/* Reads `samplers`: an array of names, or a string of letters. An empty one means no step at all.
 * llama-server's step `infill`, which editors send, is left out. */
static tdm_status order_read(const json_t *body, llm_sampler_params *sampler, tdm_error *err) {
    const json_t *steps = api_get(body, "samplers");
    const char *word = json_string_value(steps);
    if (steps == NULL) return TDM_OK;
    if (word == NULL && !json_is_array(steps))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'samplers' must be an array of names or a string of letters");
    const size_t n = word != NULL ? strlen(word) : json_array_size(steps);
    if (n > LLM_SAMPLER_ORDER_MAX)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'samplers' has %zu steps, expected 0 to %d", n,
                        LLM_SAMPLER_ORDER_MAX);
    size_t n_step = 0;
    for (size_t i = 0; i < n; i++) {
        const char one[2] = {word != NULL ? word[i] : '\0', '\0'};
        const char *name = word != NULL ? one : json_string_value(json_array_get(steps, i));
        if (name != NULL && (strcmp(name, "infill") == 0 || strcmp(name, "i") == 0)) continue;
        if (name == NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "'samplers' has an entry that is no string");
        const int step =
            word != NULL ? step_of_letter(word[i]) : llm_sampler_step_find(name, strlen(name));
        if (step < 0) return step_fail(name, err);
        sampler->order[n_step++] = (uint8_t)step;
    }
    sampler->n_order = n_step > 0 ? (int32_t)n_step : -1;
    /* the sampler is faster with n_order 0, the usual order */
    bool is_usual = n_step == LLM_SAMPLER_USUAL_COUNT;
    for (size_t i = 0; i < n_step; i++) is_usual = is_usual && sampler->order[i] == i;
    if (is_usual) sampler->n_order = 0;
    return TDM_OK;
}

/* Reads dry_sequence_breakers into the settings. */
static tdm_status breakers_read(const api_context *c, const json_t *body, api_settings *settings,
                                tdm_error *err) {
    const json_t *value = api_get(body, "dry_sequence_breakers");
    const char *texts[LLM_BREAKER_MAX];
    const size_t n = json_array_size(value);
    if (value == NULL) return TDM_OK;
    if (!json_is_array(value) || n > LLM_BREAKER_MAX)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'dry_sequence_breakers' must be an array of at most %d strings",
                        LLM_BREAKER_MAX);
    for (size_t i = 0; i < n; i++) {
        texts[i] = json_string_value(json_array_get(value, i));
        if (texts[i] == NULL || strlen(texts[i]) > LLM_BREAKER_LEN_MAX)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "'dry_sequence_breakers' has an entry that is no string of at most %d "
                            "bytes",
                            LLM_BREAKER_LEN_MAX);
    }
    llm_sampler_breakers_destroy(settings->breakers);
    tdm_status status =
        llm_sampler_breakers_create(c->model->vocab, texts, n, &settings->breakers, err);
    settings->sampler.dry_breakers = settings->breakers;
    return status;
}

/* ---- All ---- */

tdm_status api_samplers_read(const api_context *c, const json_t *body, api_settings *settings,
                             tdm_error *err) {
    tdm_status status = floats_read(body, &settings->sampler, err);
    if (status == TDM_OK) status = ints_read(body, &settings->sampler, err);
    if (status == TDM_OK) status = order_read(body, &settings->sampler, err);
    if (status == TDM_OK) status = breakers_read(c, body, settings, err);
    return status;
}

json_t *api_samplers_json(const llm_sampler_params *sampler) {
    json_t *params = json_object(), *order = json_array();
    for (size_t i = 0; i < sizeof float_fields / sizeof float_fields[0]; i++) {
        float value;
        memcpy(&value, (const char *)sampler + float_fields[i].off, sizeof value);
        if (float_fields[i].keeps_zero && value >= 0 && value <= FLT_MIN) value = 0;
        json_object_set_new(params, float_fields[i].name, json_real((double)value));
    }
    json_object_set_new(params, "top_k", json_integer(sampler->top_k));
    json_object_set_new(params, "min_keep", json_integer(sampler->min_keep));
    json_object_set_new(params, "repeat_last_n", json_integer(sampler->repeat_last_n));
    json_object_set_new(params, "mirostat", json_integer(sampler->mirostat));
    json_object_set_new(
        params, "dry_allowed_length",
        json_integer(sampler->dry_allowed_length < 0 ? 0 : sampler->dry_allowed_length));
    json_object_set_new(params, "dry_penalty_last_n",
                        json_integer(sampler->dry_last_n == 0 ? -1 : sampler->dry_last_n));
    const int32_t n = sampler->n_order == 0 ? LLM_SAMPLER_USUAL_COUNT : sampler->n_order;
    for (int32_t i = 0; i < n; i++) {
        const int step = sampler->n_order == 0 ? i : sampler->order[i];
        json_array_append_new(order, json_string(llm_sampler_step_name((llm_sampler_step)step)));
    }
    json_object_set_new(params, "samplers", order);
    return params;
}
