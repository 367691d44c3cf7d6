/* SPDX-License-Identifier: MIT
 *
 * serve_model.c: see serve_model.h.
 */
#include "runner/commands/serve_model.h"

#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/tokenizer/utf8.h"
#include "runner/lora.h"
#include "runner/plan/fit.h"
#include "runner/plan/pick.h"
#include "runner/plan/plan.h"
#include "server/grammar/grammar.h"

#define N_RUNNING 16 /* requests that run at a time where `parallel` is not set */

/* Replaces bytes that are not UTF-8 by '?', because replies in JSON cannot have them. */
static void utf8_keep(char *text) {
    size_t n = 0;
    for (size_t at = 0, len = strlen(text); at < len; at += n)
        if (llm_utf8_begin(text + at, len - at, &n) != LLM_UTF8_WHOLE) memset(text + at, '?', n);
}

static int32_t n_running(serve_model *m) {
    const bool is_given =
        runner_config_get_origin(m->app.config, "parallel").level != RUNNER_LEVEL_BUILT_IN;
    return is_given ? (int32_t)runner_config_get_int(m->app.config, "parallel") : N_RUNNING;
}

static server_limits limits_of(serve_model *m) {
    return (server_limits){
        .struct_size = sizeof(server_limits),
        .n_running = n_running(m),
        .n_queued = (int32_t)runner_config_get_int(m->app.config, "queue-size"),
    };
}

/* Opens the chat template. A model without one is no failure: it can still complete texts. */
static tdm_status template_read(serve_model *m, tdm_error *err) {
    tdm_status status = runner_chat_prompt_open(&m->prompt, &m->app, m->session.model, err);
    if (status != TDM_NOT_FOUND || m->prompt.vocab == NULL) return status;
    if (runner_config_get_string(m->app.config, "template")[0] != '\0') return status;
    runner_terminal_print(m->app.terminal, RUNNER_MESSAGE_NOTE,
                          "the model has no chat template: only texts are completed; --template "
                          "FILE gives one");
    return TDM_OK;
}

static const char *text_or_empty(const char *text) {
    return text != NULL ? text : "";
}

static tdm_status model_make(serve_model *m, tdm_error *err) {
    bool is_given = false;
    const int64_t n_predict = runner_config_get_int(m->app.config, "predict");
    if (m->prompt.source != NULL) utf8_keep(m->prompt.source);
    m->model = (server_model){
        .name = m->name,
        .model = m->session.model,
        .vocab = m->prompt.vocab,
        .tpl = m->prompt.tpl,
        .tpl_text = text_or_empty(m->prompt.source),
        .bos = text_or_empty(m->prompt.bos),
        .eos = text_or_empty(m->prompt.eos),
        .stop = text_or_empty(m->prompt.stop),
        .stop_id = m->prompt.tpl != NULL ? m->prompt.stop_id : LLM_TOKEN_NONE,
        .is_encoder = m->session.model->arch->is_encoder,
        .device = m->session.info.description,
        .n_predict = n_predict > 0 ? (int32_t)n_predict : 0,
        .n_running = n_running(m),
        .min_draft = m->draft.n_min,
        .min_draft_p = m->draft.p_min,
    };
    if (llm_pooling_read(m->session.model, &m->model.pooling, &is_given, NULL) != TDM_OK)
        m->model.pooling = LLM_POOLING_LAST;
    return grammar_vocab_create(m->model.vocab, m->session.model->hparams.n_vocab,
                                &m->model.grammar_vocab, err);
}

/* Loads the drafter, whose context has the size and the number of sequences of the model's. */
static tdm_status draft_load(serve_model *m, const runner_context_wish *settings,
                             runner_context_wish *wish, tdm_error *err) {
    runner_context_request request;
    if (m->draft.session.model == NULL) return TDM_OK;
    const tdm_status status = runner_session_context(&m->session, settings, &request, err);
    if (status != TDM_OK) return status;
    wish->n_ctx = runner_plan_context_size(&m->session, &request.params);
    wish->n_seq = settings->n_seq;
    return runner_draft_load(&m->draft, &m->session, wish, err);
}

/* A server_engine_params.device_noted; called on the engine's thread. `failure` NULL = it works
 * again. */
static void device_noted(void *user, const char *failure) {
    const serve_model *m = user;
    if (failure != NULL)
        runner_terminal_print(m->app.terminal, RUNNER_MESSAGE_WARNING,
                              "model '%s': %s (/health answers 503 until a step works again)",
                              m->name, failure);
    else
        runner_terminal_print(m->app.terminal, RUNNER_MESSAGE_WARNING,
                              "model '%s': the device works again", m->name);
}

static tdm_status engine_make(serve_model *m, const runner_context_wish *settings,
                              const runner_context_wish *draft, tdm_error *err) {
    runner_config *config = m->app.config;
    runner_context_request request, draft_request = {0};
    tdm_status status = runner_session_context(&m->session, settings, &request, err);
    if (status == TDM_OK && m->draft.session.model != NULL)
        status = runner_session_context(&m->draft.session, draft, &draft_request, err);
    if (status != TDM_OK) return status;
    const server_engine_params params = {
        .struct_size = sizeof params,
        .context = request.params,
        .limits = limits_of(m),
        /* Scores of a reranker come from the context of embeddings, too. */
        .gives_embeddings = m->model.is_encoder || m->model.pooling == LLM_POOLING_RANK ||
                            runner_config_get_bool(config, "embeddings"),
        .embedding = request.params,
        .draft = m->draft.session.model,
        .draft_context = draft_request.params,
        .n_gram = m->draft.n_gram,
        .n_draft = m->draft.n_max,
        .device_noted = device_noted,
        .device_noted_user = m,
    };
    return server_engine_create(m->session.model, &params, &m->model.engine, err);
}

/* ---- The name ---- */

/* The value of `alias`, or the name of the file without ".gguf". The caller frees it. */
static char *name_make(runner_config *config) {
    const char *alias = runner_config_get_string(config, "alias");
    const char *path = runner_config_get_string(config, "model");
    if (alias[0] != '\0') return strdup(alias);
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash != NULL ? slash + 1 : path);
    char *end = name != NULL ? strstr(name, ".gguf") : NULL;
    if (end != NULL && end[5] == '\0') *end = '\0';
    return name;
}

/* ---- All of it ---- */

tdm_status serve_model_init(serve_model *m, const runner_app *app, const char *section,
                            tdm_error *err) {
    *m = (serve_model){.app = *app};
    if (section != NULL) {
        tdm_status status = runner_config_copy(app->config, section, &m->config, err);
        if (status != TDM_OK) return status;
        m->app.config = m->config;
    }
    m->name = section != NULL ? strdup(section) : name_make(app->config);
    if (m->name == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a name");
    utf8_keep(m->name);
    return TDM_OK;
}

void serve_model_clear(serve_model *m) {
    free(m->name);
    runner_config_destroy(m->config);
    *m = (serve_model){0};
}

tdm_status serve_model_open(serve_model *m, tdm_error *err) {
    runner_context_wish settings = {.begins_decoder = true,
                                    .gives_hidden = runner_draft_is_layer(&m->app)};
    runner_context_wish draft = {0};
    tdm_status status = runner_session_open(&m->session, &m->app, NULL, err);
    if (status == TDM_OK) status = runner_draft_open(&m->draft, &m->session, err);
    if (status == TDM_OK) status = template_read(m, err);
    if (status == TDM_OK) status = runner_session_pick(&m->session, NULL, 0, err);
    if (status == TDM_OK) {
        const server_limits limits = limits_of(m);
        settings.n_seq = server_engine_n_seq(m->session.model, &limits);
        settings.gives_embeddings = m->session.model->arch->is_encoder;
    }
    if (status == TDM_OK) runner_draft_join(&m->draft, &m->session, &settings);
    if (status == TDM_OK) status = runner_fit(&m->session, &settings, err);
    if (status == TDM_OK) status = runner_session_load(&m->session, err);
    if (status == TDM_OK) status = draft_load(m, &settings, &draft, err);
    if (status == TDM_OK) status = model_make(m, err);
    if (status == TDM_OK)
        status = runner_sampling_read(m->app.config, m->model.vocab, &m->sampling, err);
    if (status == TDM_OK) m->model.sampler = m->sampling.params;
    if (status == TDM_OK) status = engine_make(m, &settings, &draft, err);
    if (status != TDM_OK) serve_model_close(m);
    return status;
}

void serve_model_close(serve_model *m) {
    grammar_vocab_destroy(m->model.grammar_vocab);
    runner_sampling_free(&m->sampling);
    runner_chat_prompt_close(&m->prompt);
    runner_draft_close(&m->draft);
    runner_session_close(&m->session);
    m->model = (server_model){0};
}
