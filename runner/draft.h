/* SPDX-License-Identifier: MIT
 *
 * draft.h: a small model that proposes the next tokens of a large one (speculative decoding). The
 * large model computes all proposals in one step, and the caller keeps those that the large model
 * samples too. So the text is the same as without the draft.
 *
 * The draft's context holds a prefix of the large model's tokens. It decodes the missing ones
 * before it proposes.
 */
#ifndef TANDEM_RUNNER_DRAFT_H
#define TANDEM_RUNNER_DRAFT_H

#include "llm/sampler.h"
#include "runner/session.h"

typedef struct runner_draft runner_draft;

/* Checks that every token id has the same meaning in both models. TDM_INVALID_ARGUMENT names the
 * first difference. The weights need not be loaded. [setup] */
tdm_status runner_draft_check(const llm_model *draft, const llm_model *model, tdm_error *err);

/* Makes a draft of a session, which outlives it and whose context is empty. Proposals are sampled
 * by `params`, and never one of the `n_bar` tokens of `bars`, which are copied. [setup] */
tdm_status runner_draft_create(runner_session *session, const llm_sampler_params *params,
                               const int32_t *bars, int32_t n_bar, runner_draft **draft_out,
                               tdm_error *err);
/* NULL is a no-op. [setup] */
void runner_draft_destroy(runner_draft *draft);

/* Proposes n tokens that may follow the `n_history` tokens of `history` and then `next`. The tokens
 * that the draft holds must be the first of `history`. `sampler` is the large model's, as it is
 * after accepting `next`; it is not changed. [setup] */
tdm_status runner_draft_propose(runner_draft *draft, const llm_sampler *sampler,
                                const int32_t *history, int32_t n_history, int32_t next, int32_t n,
                                int32_t *tokens_out, tdm_error *err);

/* Keeps at most the first n_tok tokens that the draft holds. [setup] */
tdm_status runner_draft_truncate(runner_draft *draft, int32_t n_tok, tdm_error *err);

#endif
