/* SPDX-License-Identifier: MIT
 *
 * serve_model.h: opens and closes a model of `tandem serve`, as its configuration says.
 */
#ifndef TANDEM_RUNNER_SERVE_MODEL_H
#define TANDEM_RUNNER_SERVE_MODEL_H

#include "runner/chat/chat_prompt.h"
#include "runner/draft.h"
#include "runner/sampling.h"
#include "server/models.h"

typedef struct serve_model {
    runner_app app;        /* with a configuration of its own, where there are several models */
    runner_config *config; /* that one; NULL = the command's. Owned */
    char *name;            /* for clients */
    /* What is open */
    runner_session session;
    runner_draft draft;
    runner_chat_prompt prompt;
    runner_sampling sampling;
    char *tpl_text;
    server_model model;
} serve_model;

/* Describes a model: that of a section [model NAME], or (NULL) the one of the configuration. Call
 * serve_model_clear in any case. [setup] */
tdm_status serve_model_init(serve_model *m, const runner_app *app, const char *section,
                            tdm_error *err);
void serve_model_clear(serve_model *m);

/* Opens it: m->model is for the server then. After Ctrl-C, TDM_CANCELLED. A model that fails to open
 * is closed. Any thread may call it, one at a time. */
tdm_status serve_model_open(serve_model *m, tdm_error *err);
/* Frees an open model whose engine was destroyed. The same threads. */
void serve_model_close(serve_model *m);

#endif
