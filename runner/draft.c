/* SPDX-License-Identifier: MIT
 *
 * draft.c: see draft.h.
 */
#include "runner/draft.h"

#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "runner/llama_flags.h"
#include "runner/plan/fit.h"

bool runner_draft_is_layer(runner_app *app) {
    return strcmp(runner_config_get_string(app->config, "draft"), "mtp") == 0;
}

static bool is_ngram(runner_app *app) {
    return strcmp(runner_config_get_string(app->config, "draft"), "ngram") == 0;
}

bool runner_draft_is_set(runner_app *app) {
    return runner_draft_is_layer(app) || is_ngram(app) ||
           runner_config_get_string(app->config, "model-draft")[0] != '\0';
}

/* The most tokens to propose at a time; 0 = the value of `draft` is invalid. A number in `draft`
 * and the key draft-max mean the same: the one at the stronger level counts (a flag against a
 * file), and `draft` where both are at the same level. */
static int32_t draft_max(runner_app *app) {
    runner_config *config = app->config;
    const char *text = runner_config_get_string(config, "draft");
    const int32_t n_max = (int32_t)runner_config_get_int(config, "draft-max");
    char *end = NULL;
    if (text[0] == '\0' || runner_draft_is_layer(app) || is_ngram(app)) return n_max;
    const long n = strtol(text, &end, 10);
    if (*end != '\0' || n < 1 || n > LLM_MAX_DRAFT) return 0;
    const bool is_overruled = runner_config_get_origin(config, "draft-max").level >
                              runner_config_get_origin(config, "draft").level;
    return is_overruled ? n_max : (int32_t)n;
}

/* Refuses the models with encoders that llm_draft_check refuses. */
static tdm_status ngram_check(const llm_model *model, tdm_error *err) {
    if (!model->arch->is_encoder && model->hparams.n_layer_encoder == 0) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s: architecture '%s' has an encoder, with which drafts are not supported; "
                    "leave out `draft = ngram`",
                    model->path, model->hparams.arch);
}

/* Prints a note for each given key that the drafter does not read. is_any: there is a drafter. */
static void useless_note(runner_app *app, bool is_any) {
    static const struct {
        const char *key;
        bool is_of_ngrams, is_of_models;
    } keys[] = {
        {"draft-ngram", true, false},        {"draft-max", true, true},
        {"draft-min", true, true},           {"draft-p-min", false, true},
        {"cache-type-k-draft", false, true}, {"cache-type-v-draft", false, true},
    };
    const char *draft = runner_config_get_string(app->config, "draft");
    const bool is_of_ngrams = is_ngram(app);
    if (!is_any && draft[0] != '\0')
        runner_key_note(app, "draft", "a number needs a draft model, with model-draft");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const bool is_read = is_any && (is_of_ngrams ? keys[i].is_of_ngrams : keys[i].is_of_models);
        if (is_read ||
            runner_config_get_origin(app->config, keys[i].key).level == RUNNER_LEVEL_BUILT_IN)
            continue;
        runner_key_note(app, keys[i].key,
                        !is_any ? "nothing drafts; give model-draft, or mtp or ngram for draft"
                        : is_of_ngrams ? "`draft = ngram` has no draft model"
                                       : "it is of `draft = ngram`");
    }
}

tdm_status runner_draft_open(runner_draft *draft, const runner_session *host, tdm_error *err) {
    runner_app *app = host->app;
    const char *path = runner_config_get_string(app->config, "model-draft");
    const bool is_layer = runner_draft_is_layer(app);
    tdm_status status = runner_config_check(app->config, err);
    if (status != TDM_OK) return status;
    draft->n_max = draft_max(app);
    draft->n_min = (int32_t)runner_config_get_int(app->config, "draft-min");
    draft->p_min = (float)runner_config_get_float(app->config, "draft-p-min");
    if (draft->n_max == 0)
        return runner_usage(app, err,
                            "draft: '%s' is neither mtp nor ngram nor a whole number from 1 to %d",
                            runner_config_get_string(app->config, "draft"), LLM_MAX_DRAFT);
    const bool is_any = is_layer || is_ngram(app) || path[0] != '\0';
    if (is_any && draft->n_min > draft->n_max)
        return runner_usage(app, err,
                            "draft-min = %d: no draft has more than draft-max = %d tokens, so that "
                            "none would be checked",
                            (int)draft->n_min, (int)draft->n_max);
    if ((is_layer || is_ngram(app)) && path[0] != '\0')
        return runner_usage(app, err,
                            "`draft = %s` drafts without a draft model: leave it out or "
                            "model-draft",
                            is_layer ? "mtp" : "ngram");
    useless_note(app, is_any);
    if (is_ngram(app)) draft->n_gram = (int32_t)runner_config_get_int(app->config, "draft-ngram");
    /* n-grams need no model of their own: only the host's model is checked. */
    if (is_ngram(app)) return ngram_check(host->model, err);
    if (is_layer) return runner_session_open_draft(&draft->session, host, err);
    if (path[0] == '\0') return TDM_OK;
    status = runner_session_open(&draft->session, app, path, err);
    return status == TDM_OK ? llm_draft_check(draft->session.model, host->model, err) : status;
}

/* The name of a type for the draft model's cache; NULL = the model's. */
static const char *draft_type(runner_config *config, const char *key) {
    return runner_config_is_auto(config, key) ? NULL : runner_config_get_string(config, key);
}

void runner_draft_join(runner_draft *draft, const runner_session *host, runner_context_wish *wish) {
    if (draft->session.model == NULL) return;
    runner_session_join(&draft->session, host);
    wish->drafter = &draft->session;
    wish->draft_type_k = draft_type(host->app->config, "cache-type-k-draft");
    wish->draft_type_v = draft_type(host->app->config, "cache-type-v-draft");
}

tdm_status runner_draft_load(runner_draft *draft, const runner_session *host,
                             runner_context_wish *wish, tdm_error *err) {
    if (draft->session.model == NULL) return TDM_OK;
    wish->type_k = draft_type(host->app->config, "cache-type-k-draft");
    wish->type_v = draft_type(host->app->config, "cache-type-v-draft");
    runner_session_join(&draft->session, host);
    const tdm_status status = runner_fit(&draft->session, wish, err);
    return status == TDM_OK ? runner_session_load(&draft->session, err) : status;
}

tdm_status runner_draft_begin(runner_draft *draft, const runner_session *host,
                              const runner_context_wish *wish, tdm_error *err) {
    if (draft->session.model == NULL && draft->n_gram == 0) return TDM_OK;
    tdm_status status = TDM_OK;
    if (draft->session.model != NULL) status = runner_session_begin(&draft->session, wish, err);
    if (status != TDM_OK) return status;
    const llm_draft_params params = {.ctx = draft->session.ctx,
                                     .target = host->ctx,
                                     .n_max = draft->n_max,
                                     .n_gram = draft->n_gram};
    return llm_draft_create(&params, &draft->draft, err);
}

tdm_status runner_draft_candidates(runner_draft *draft, const llm_sampler *sampler,
                                   int32_t n_barred, tdm_error *err) {
    if (draft->session.ctx == NULL) return TDM_OK;
    return runner_session_candidates(&draft->session, sampler,
                                     n_barred + llm_draft_n_extra(draft->draft), err);
}

void runner_draft_close(runner_draft *draft) {
    llm_draft_destroy(draft->draft);
    draft->draft = NULL;
    runner_session_close(&draft->session);
}
