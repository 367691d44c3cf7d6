/* SPDX-License-Identifier: MIT
 *
 * fake_context.h: a context without a model, for tests of the engine that need many requests, or
 * failures. It has the functions of llm/context.h that the engine calls, with page tables of
 * llm/cache/kv_cache.h. Each cell holds the token that was written to it, and the next token
 * follows from all tokens of a sequence as its page table gives them; so a page that is shared,
 * copied or given back wrongly changes the answer.
 */
#ifndef TANDEM_TESTS_SERVER_FAKE_CONTEXT_H
#define TANDEM_TESTS_SERVER_FAKE_CONTEXT_H

#include "llm/context.h"

enum { FAKE_N_VOCAB = 64 };

/* The model that goes with it: a vocabulary of FAKE_N_VOCAB ids without texts. */
llm_model *fake_model(void);
/* One that drafts for it: of each four tokens it gives one that is wrong. */
llm_model *fake_draft_model(void);
/* The token behind n others. */
int32_t fake_next(const int32_t *tokens, int32_t n);
/* Of later steps, every n-th fails with TDM_UNAVAILABLE; 0 = none. [any-thread] */
void fake_fail_every(int n);
/* The status of these failures; TDM_UNAVAILABLE at first. */
void fake_fail_with(tdm_status status);
/* Of later calls of llm_context_truncate to a length above 0, every n-th fails and loses half of the
 * tokens that it was to keep, as where a recurrent state cannot be computed again; 0 = none.
 * [any-thread] */
void fake_lose_every(int n);
/* While held, a step does not end. [any-thread] */
void fake_hold(bool is_held);

#endif
