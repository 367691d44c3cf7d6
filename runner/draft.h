/* SPDX-License-Identifier: MIT
 *
 * draft.h: the drafter of a model (llm/draft.h), from the keys model-draft, draft, draft-* and
 * cache-type-*-draft: a draft model, a layer of the model itself, or n-grams of the text.
 *
 * The host session is that of the model that checks the drafts. Its steps come first: call
 * runner_draft_open after runner_session_open of the host, runner_draft_join after
 * runner_session_pick, runner_draft_load after runner_session_load, and runner_draft_begin after
 * runner_session_begin.
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
    runner_session session; /* of the draft model or the layer; cleared = neither of them drafts */
    llm_draft *draft;       /* made by runner_draft_begin; NULL = none */
    int32_t n_gram;         /* tokens of the n-grams that draft; 0 = no n-grams */
    int32_t n_max;          /* most proposals of a step, 1 .. LLM_MAX_DRAFT */
    int32_t n_min;          /* a step with fewer proposals does not check them; 0 = always checks */
    float p_min;            /* llm_draft_item.p_min */
} runner_draft;

/* Whether the keys choose a layer of the model as the drafter: the model's context must then give
 * hidden states. [setup] */
bool runner_draft_is_layer(runner_app *app);
/* Whether the keys choose any drafter. [setup] */
bool runner_draft_is_set(runner_app *app);
/* Opens the drafter for the opened model of `host` into the cleared *draft. If the keys choose
 * none, it opens nothing and only checks them. Mistakes in the keys, and a model that cannot draft
 * for the other, fail here, before weights are read. Call runner_draft_close in any case, also on
 * failure. [setup] */
tdm_status runner_draft_open(runner_draft *draft, const runner_session *host, tdm_error *err);
/* Makes the drafter use the devices that `host` has picked, and enters it in *wish, the wish of the
 * host's context, so that plans count its memory. No-op for n-grams and without a drafter.
 * [setup] */
void runner_draft_join(runner_draft *draft, const runner_session *host, runner_context_wish *wish);
/* Loads the drafter onto the devices of `host`, whose model has been loaded. *wish is that of the
 * drafter's context: the caller sets n_ctx, and n_seq where there are several sequences; the cache
 * types are filled in from the keys. No-op for n-grams and without a drafter. [setup] */
tdm_status runner_draft_load(runner_draft *draft, const runner_session *host,
                             runner_context_wish *wish, tdm_error *err);
/* Makes draft->draft for the context of `host`, and the drafter's own context where it is a model
 * or a layer; `wish` is that of runner_draft_load. No-op without a drafter. [setup] */
tdm_status runner_draft_begin(runner_draft *draft, const runner_session *host,
                              const runner_context_wish *wish, tdm_error *err);
/* Calls runner_session_candidates for the drafter's own context, after runner_draft_begin; also for
 * the tokens that only the drafter has (llm_draft_n_extra). No-op where it has no context.
 * [setup] */
tdm_status runner_draft_candidates(runner_draft *draft, const llm_sampler *sampler,
                                   int32_t n_barred, tdm_error *err);
/* Releases everything and must be called before the host session is closed. A cleared one is a
 * no-op. [setup] */
void runner_draft_close(runner_draft *draft);

#endif
