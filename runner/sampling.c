/* SPDX-License-Identifier: MIT
 *
 * sampling.c: see sampling.h.
 */
#include "runner/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runner/config/config_value.h"

static uint64_t seed_find(runner_config *config) {
    int64_t seed = runner_config_get_int(config, "seed");
    if (seed >= 0) return (uint64_t)seed;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mix =
        (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u + (uint64_t)now.tv_sec + (uint64_t)getpid();
    return (mix ^ mix >> 32) & 0xffffffffu; /* what --seed takes */
}

/* ---- Lists ---- */

/* Fails because `word` names no step; the message lists the names. */
static tdm_status samplers_fail(runner_config *config, const char *word, size_t len,
                                tdm_error *err) {
    char names[160];
    size_t n = 0;
    for (int i = 0; i < LLM_SAMPLER_STEP_COUNT && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, " %s",
                              llm_sampler_step_name((llm_sampler_step)i));
    return runner_config_fail(config, "samplers", TDM_INVALID_ARGUMENT, err,
                              "'%.*s' is no step; there are:%s", (int)len, word, names);
}

/* Reads "penalties;top_k;temperature": the steps and their order. n_order 0 = the usual order, -1 =
 * no step at all. */
static tdm_status samplers_read(runner_config *config, llm_sampler_params *p, tdm_error *err) {
    const char *at = runner_config_get_string(config, "samplers");
    p->n_order = 0;
    while (*at != '\0') {
        const size_t len = strcspn(at, ";,");
        const int step = llm_sampler_step_find(at, len);
        if (step < 0 && len > 0) return samplers_fail(config, at, len, err);
        if (step >= 0 && p->n_order == LLM_SAMPLER_ORDER_MAX)
            return runner_config_fail(config, "samplers", TDM_INVALID_ARGUMENT, err,
                                      "more than %d steps", LLM_SAMPLER_ORDER_MAX);
        if (step >= 0) p->order[p->n_order++] = (uint8_t)step;
        at += len + (at[len] != '\0');
    }
    bool is_usual = p->n_order == LLM_SAMPLER_USUAL_COUNT;
    for (int32_t i = 0; i < p->n_order; i++) is_usual = is_usual && p->order[i] == i;
    if (is_usual)
        p->n_order = 0;
    else if (p->n_order == 0)
        p->n_order = -1;
    return TDM_OK;
}

/* "15043+1.5", "15043-1.5", "15043-inf" */
static tdm_status biases_read(runner_config *config, const llm_vocab *vocab, runner_sampling *s,
                              tdm_error *err) {
    const size_t n = runner_config_get_count(config, "logit-bias");
    s->bias = calloc(n + 1, sizeof *s->bias);
    if (s->bias == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "logit-bias: no memory");
    for (size_t i = 0; i < n; i++) {
        const char *text = runner_config_get_string_at(config, "logit-bias", i);
        char *sign, *end;
        const long token = strtol(text, &sign, 10);
        const float bias = strtof(sign, &end);
        if (sign == text || (*sign != '+' && *sign != '-') || end == sign + 1 || *end != '\0' ||
            bias != bias || token < 0 || token >= llm_vocab_n_token(vocab))
            return runner_config_fail(config, "logit-bias", TDM_INVALID_ARGUMENT, err,
                                      "'%s' is not a token number below %d and a signed number, as "
                                      "in 15043+1 or 15043-inf",
                                      text, llm_vocab_n_token(vocab));
        s->bias[i] = (llm_logit_bias){(int32_t)token, bias};
    }
    s->params.logit_bias = s->bias;
    s->params.n_logit_bias = (int32_t)n;
    return TDM_OK;
}

/* The texts of dry-sequence-breaker; "none" is no text. */
static tdm_status breakers_read(runner_config *config, const llm_vocab *vocab, runner_sampling *s,
                                tdm_error *err) {
    const size_t n = runner_config_get_count(config, "dry-sequence-breaker");
    char **texts = calloc(n + 1, sizeof *texts);
    tdm_status status = texts != NULL ? TDM_OK : TDM_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n && status == TDM_OK; i++) {
        const char *text = runner_config_get_string_at(config, "dry-sequence-breaker", i);
        texts[i] = strdup(strcmp(text, "none") == 0 ? "" : text);
        if (texts[i] != NULL)
            runner_text_unescape(texts[i]);
        else
            status = TDM_RESOURCE_EXHAUSTED;
    }
    if (status != TDM_OK) tdm_fail(err, status, "dry-sequence-breaker: no memory");
    if (status == TDM_OK)
        status =
            llm_sampler_breakers_create(vocab, (const char *const *)texts, n, &s->breakers, err);
    if (status == TDM_INVALID_ARGUMENT) {
        const tdm_error cause = *err;
        status =
            runner_config_fail(config, "dry-sequence-breaker", status, err, "%s", cause.message);
    }
    s->params.dry_breakers = s->breakers;
    for (size_t i = 0; texts != NULL && i < n; i++) free(texts[i]);
    free(texts);
    return status;
}

/* ---- All ---- */

tdm_status runner_sampling_read(runner_config *config, const llm_vocab *vocab,
                                runner_sampling *sampling, tdm_error *err) {
#define FLOAT(key)  ((float)runner_config_get_float(config, key))
#define NUMBER(key) ((int32_t)runner_config_get_int(config, key))
    const int32_t top_k = NUMBER("top-k");
    const int32_t dry_allowed = NUMBER("dry-allowed-length");
    const int32_t dry_last = NUMBER("dry-penalty-last-n");
    const float adaptive_target = FLOAT("adaptive-target");
    *sampling = (runner_sampling){
        .params = {
            .struct_size = sizeof(llm_sampler_params),
            .temp = FLOAT("temp"),
            .top_k = top_k < 0 ? 0 : top_k,
            /* 0 keeps the most likely token; for the sampler it would mean no limit. */
            .top_p = fmaxf(FLOAT("top-p"), FLT_MIN),
            .min_p = FLOAT("min-p"),
            .min_keep = NUMBER("min-keep"),
            .repeat_penalty = FLOAT("repeat-penalty"),
            .repeat_last_n = NUMBER("repeat-last-n"),
            .seed = seed_find(config),
            .frequency_penalty = FLOAT("frequency-penalty"),
            .presence_penalty = FLOAT("presence-penalty"),
            .typical_p = fmaxf(FLOAT("typical"), FLT_MIN),
            .top_n_sigma = FLOAT("top-n-sigma"),
            .xtc_probability = FLOAT("xtc-probability"),
            .xtc_threshold = FLOAT("xtc-threshold"),
            .dynatemp_range = FLOAT("dynatemp-range"),
            .dynatemp_exponent = fmaxf(FLOAT("dynatemp-exp"), FLT_MIN),
            .dry_multiplier = dry_last != 0 ? FLOAT("dry-multiplier") : 0,
            .dry_base = FLOAT("dry-base"),
            .dry_allowed_length = dry_allowed == 0 ? -1 : dry_allowed,
            .dry_last_n = dry_last < 0 ? 0 : dry_last,
            .adaptive_target = adaptive_target < 0 ? -1 : fmaxf(adaptive_target, FLT_MIN),
            .adaptive_decay = fmaxf(FLOAT("adaptive-decay"), FLT_MIN),
            .mirostat = NUMBER("mirostat"),
            .mirostat_tau = fmaxf(FLOAT("mirostat-ent"), FLT_MIN),
            .mirostat_eta = fmaxf(FLOAT("mirostat-lr"), FLT_MIN),
        }};
#undef FLOAT
#undef NUMBER
    tdm_status status = samplers_read(config, &sampling->params, err);
    if (status == TDM_OK) status = biases_read(config, vocab, sampling, err);
    if (status == TDM_OK) status = breakers_read(config, vocab, sampling, err);
    return status;
}

void runner_sampling_free(runner_sampling *sampling) {
    free(sampling->bias);
    llm_sampler_breakers_destroy(sampling->breakers);
    *sampling = (runner_sampling){0};
}
