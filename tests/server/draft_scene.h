/* SPDX-License-Identifier: MIT
 *
 * draft_scene.h: engines with drafts, requests of different kinds, and the comparison of their
 * answers, for tests of drafts.
 */
#ifndef TANDEM_TESTS_SERVER_DRAFT_SCENE_H
#define TANDEM_TESTS_SERVER_DRAFT_SCENE_H

#include "tests/server/engine_rig.h"

#ifdef TANDEM_SANITIZED
enum { N_ANSWER = 20 };
#else
enum { N_ANSWER = 48 };
#endif
enum { N_DRAFT = 5, N_PROMPT = 70 };

/* What a request asks for besides its prompt (draft_scene.c); N_KIND is their number. */
typedef enum kind {
    GREEDY,
    SEEDED,
    CHAIN,
    MIROSTAT,
    CONSTRAINED,
    BIASED,
    PROBABLE,
    FORCED,
    N_KIND
} kind;

/* An engine on a model, with N_DRAFT proposals of `draft`; NULL = without a draft. The caller
 * destroys it. */
server_engine *draft_scene_engine(llm_model *m, llm_model *draft, const llm_context_params *context,
                                  const server_limits *limits);

/* The answers to two prompts at a time. The caller frees them. */
void draft_scene_two(server_engine *engine, kind k, rig_answer *answers);

/* Fails unless tokens, ends and log-probabilities are the same. */
void draft_scene_alike(const char *what, const rig_answer *a, const rig_answer *expected);

/* llm_constraint.clone and .assign of a constraint whose state is an int of malloc: the place in the
 * text. */
tdm_status draft_scene_place_clone(const void *state, void **state_out, tdm_error *err);
void draft_scene_place_assign(void *state, const void *other);

#endif
