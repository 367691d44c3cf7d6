/* SPDX-License-Identifier: MIT
 *
 * draft.h: what drafts tokens for a model (llm/draft.h), as the keys model-draft, draft, draft-*
 * and cache-type-*-draft say: a model, a layer of the model, or n-grams of the text.
 */
#ifndef TANDEM_RUNNER_DRAFT_H
#define TANDEM_RUNNER_DRAFT_H

#include "llm/draft.h"
#include "runner/session.h"

/* The keys that a command's list has for drafts. */
#define RUNNER_KEYS_DRAFT                                                                          \
    " model-draft draft draft-ngram draft-max draft-min draft-p-min cache-type-k-draft"            \
    " cache-type-v-draft"

typedef struct runner_draft {
    runner_session session; /* of a model or a layer; else cleared */
    llm_draft *draft;       /* of runner_draft_begin; NULL = none */
    int32_t n_gram;         /* n-grams of so many tokens draft; 0 = they do not */
    int32_t n_max;          /* proposals at a time */
    int32_t n_min;          /* fewer are not checked */
    float p_min;            /* llm_draft_item.p_min */
} runner_draft;

/* Whether a layer of the model is to draft: the model's context then gives hidden states. */
bool runner_draft_is_layer(runner_app *app);
/* Whether the keys say that anything drafts. */
bool runner_draft_is_set(runner_app *app);
/* Opens what drafts for the opened model of `host`, if anything does, into the cleared *draft.
 * Mistakes in the keys, and a model that cannot draft for the other, are found before weights are
 * read. [setup] */
tdm_status runner_draft_open(runner_draft *draft, const runner_session *host, tdm_error *err);
/* Makes it use the devices that `host` has picked, and notes it in the wish of the host's context,
 * so that plans count its memory. No-op where nothing drafts. [setup] */
void runner_draft_join(runner_draft *draft, const runner_session *host, runner_context_wish *wish);
/* Loads it onto the devices of `host`, whose model has been loaded. *wish gets what the keys say of
 * its context; it has n_ctx, and n_seq where there are several. No-op where nothing drafts. [setup] */
tdm_status runner_draft_load(runner_draft *draft, const runner_session *host,
                             runner_context_wish *wish, tdm_error *err);
/* Makes a draft for the context of `host`, and a context for it where it has a model or a layer. The
 * wish is that of runner_draft_load. No-op where nothing drafts. [setup] */
tdm_status runner_draft_begin(runner_draft *draft, const runner_session *host,
                              const runner_context_wish *wish, tdm_error *err);
/* runner_session_candidates for the context of what drafts; no-op where it has none. */
tdm_status runner_draft_candidates(runner_draft *draft, const llm_sampler *sampler,
                                   int32_t n_barred, tdm_error *err);
/* Before the host session is closed. [setup] */
void runner_draft_close(runner_draft *draft);

#endif
