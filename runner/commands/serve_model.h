/* SPDX-License-Identifier: MIT
 *
 * serve_model.h: one model of `tandem serve`, with its own configuration: opens and closes it.
 */
#ifndef TANDEM_RUNNER_SERVE_MODEL_H
#define TANDEM_RUNNER_SERVE_MODEL_H

#include "runner/chat/chat_prompt.h"
#include "runner/draft.h"
#include "runner/sampling.h"
#include "server/models.h"

typedef struct serve_model {
    runner_app app; /* a copy of the command's; app.config is `config` where that is not NULL */
    runner_config *config; /* of a section [model NAME]; NULL = the command's. Owned */
    char *name;            /* for clients, UTF-8; owned */
    /* Of an open model; else cleared. */
    runner_session session;
    runner_draft draft;
    runner_chat_prompt prompt; /* its source is UTF-8, for clients */
    runner_sampling sampling;
    server_model model; /* what the server uses; points into the fields above */
} serve_model;

/* Fills *m for the section [model NAME] called `section`, or (NULL) for the model of the command's
 * configuration. Opens nothing. Call serve_model_clear in any case. [setup] */
tdm_status serve_model_init(serve_model *m, const runner_app *app, const char *section,
                            tdm_error *err);
/* Releases a closed model. [setup] */
void serve_model_clear(serve_model *m);

/* Opens the model and makes its engine: then m->model is ready for the server. TDM_CANCELLED after
 * Ctrl-C. On failure everything is closed again. Any thread may call it, one at a time. */
tdm_status serve_model_open(serve_model *m, tdm_error *err);
/* Frees an open model after the caller has destroyed its engine. Any thread may call it, one at a
 * time. */
void serve_model_close(serve_model *m);

#endif
