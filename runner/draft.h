/* SPDX-License-Identifier: MIT
 *
 * draft.h: a small model, or a layer of the large one that only drafts (MTP), proposes the next
 * tokens of a large model (speculative decoding). The large model computes all proposals in one
 * step, and the caller keeps those that the large model samples too. So the text is the same as
 * without the draft.
 *
 * The draft's context holds a prefix of the large model's tokens. It decodes the missing ones
 * before it proposes. A layer that drafts reads the large model's hidden states: with
 * runner_draft_follow it decodes the prompt beside the large model, and runner_draft_accept keeps
 * the states of the accepted tokens until it decodes those.
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
 * by `params`, at most n_max at a time, and never one of the `n_bar` tokens of `bars`, which are
 * copied. [setup] */
tdm_status runner_draft_create(runner_session *session, const llm_sampler_params *params,
                               int32_t n_max, const int32_t *bars, int32_t n_bar,
                               runner_draft **draft_out, tdm_error *err);
/* NULL is a no-op. [setup] */
void runner_draft_destroy(runner_draft *draft);

/* Proposes n tokens that may follow the `n_history` tokens of `history` and then `next`. The tokens
 * that the draft holds must be the first of `history`. `sampler` is the large model's, as it is
 * after accepting `next`; it is not changed. [setup] */
tdm_status runner_draft_propose(runner_draft *draft, const llm_sampler *sampler,
                                const int32_t *history, int32_t n_history, int32_t next, int32_t n,
                                int32_t *tokens_out, tdm_error *err);

/* Decodes the first n tokens of the prompt; they are all but its last one. [setup] */
tdm_status runner_draft_prefill(runner_draft *draft, const int32_t *tokens, int32_t n_tok,
                                int32_t n_batch, tdm_error *err);

/* Makes a layer that drafts decode every batch of the prompt behind the large model's, of session
 * `target`, whose context is empty and gives hidden states. Nothing for a draft model. Ends with
 * runner_draft_destroy. [setup] */
void runner_draft_follow(runner_draft *draft, runner_session *target);

/* After the large model has decoded `next` and its proposals behind `length` tokens, of which
 * n_kept (at least 1) stay: keeps what the draft holds of them. `target` is the large model's
 * context, as after that step. [setup] */
tdm_status runner_draft_accept(runner_draft *draft, const llm_context *target, int32_t length,
                               int32_t n_kept, tdm_error *err);

/* Before the large model's context, which holds the n_history tokens of `history`, is shifted: the
 * draft follows, or drops the tokens that move and decodes them again later. [setup] */
tdm_status runner_draft_shift(runner_draft *draft, const int32_t *history, int32_t n_history,
                              int32_t n_keep, int32_t n_discard, tdm_error *err);

#endif
