/* SPDX-License-Identifier: MIT
 *
 * draft.h: a draft proposes the next tokens of a large model (speculative decoding). The large model
 * computes all proposals in one step, and the caller keeps those that the large model samples too.
 * So the text is the same as without the draft. There are three kinds of drafts, with the same calls:
 *
 *   a model   a small one with the same vocabulary
 *   a layer   of the large model, which only drafts (MTP)
 *   n-grams   where the last tokens stand earlier in the sequence, what followed them there
 *             (draft_ngram.h)
 *
 * The draft's context has a sequence for each one of the large model. It holds a prefix of that
 * one's tokens. The missing ones are decoded by llm_draft_follow, or, where they are few, by
 * llm_draft_propose. A layer that drafts reads the large model's hidden states: llm_draft_accept
 * keeps those of each batch of the large model until the layer decodes its tokens. N-grams decode
 * nothing: they read the tokens that they lack when they propose.
 *
 * A call that fails leaves the draft of its sequences undefined: empty them by llm_draft_truncate.
 *
 * One thread at a time.
 */
#ifndef LLM_DRAFT_H
#define LLM_DRAFT_H

#include "llm/constraint.h"
#include "llm/context.h"
#include "llm/draft_ngram.h"
#include "llm/draft_pace.h"
#include "llm/sampler.h"

/* The largest n_max: longer runs of proposals are hardly ever accepted whole. */
#define LLM_MAX_DRAFT 64

typedef struct llm_draft llm_draft;

/* Checks that every token id has the same meaning in both models. TDM_INVALID_ARGUMENT names the
 * first difference. The weights need not be loaded. [setup] */
tdm_status llm_draft_check(const llm_model *draft, const llm_model *model, tdm_error *err);

typedef struct llm_draft_params {
    llm_context *ctx;          /* of the draft model or the layer: empty, and outlives the draft. NULL =
                                  n-grams */
    const llm_context *target; /* the large model's, which has as many sequences */
    int32_t n_max;             /* proposals at a time, 1 .. LLM_MAX_DRAFT */
    int32_t n_gram;            /* of n-grams: tokens that must be alike, 1 .. LLM_MAX_DRAFT_NGRAM */
} llm_draft_params;

/* Makes a draft that holds nothing. [setup] */
tdm_status llm_draft_create(const llm_draft_params *params, llm_draft **draft_out, tdm_error *err);
/* NULL is a no-op. [setup] */
void llm_draft_destroy(llm_draft *draft);

/* Whether it is a layer of the large model, whose context then gives hidden states. */
bool llm_draft_is_layer(const llm_draft *draft);
/* Whether it decodes tokens: n-grams do not. Their proposals cost nothing, and are of any number. */
bool llm_draft_decodes(const llm_draft *draft);
/* Tokens that the draft of a sequence holds. */
int32_t llm_draft_length(const llm_draft *draft, int32_t seq);
/* How many of a sequence's n_tok tokens the draft has to decode; -1 = it lacks hidden states, too,
 * and gives no proposals until it is emptied. */
int32_t llm_draft_missing(const llm_draft *draft, int32_t seq, int32_t n_tok);

/* Proposals for one sequence. */
typedef struct llm_draft_item {
    int32_t seq;
    llm_sampler *sampler;     /* samples proposals, not those of n-grams; made with the parameters of
                                 `model` */
    const llm_sampler *model; /* the large model's, after accepting `next`; not changed */
    const int32_t *history;   /* [n_history] tokens that the large model holds */
    int32_t n_history;        /* the draft holds the first of them */
    int32_t next;             /* the token behind them */
    int32_t n;                /* proposals, 1 .. n_max */
    float p_min;              /* ends before one that the draft gives a smaller probability; n-grams
                                 give none */
    const int32_t *bars;      /* [n_bar] tokens that are never proposed */
    int32_t n_bar;
    const llm_logit_bias *bias; /* [n_bias] added to the draft's logits; the context then gives
                                    whole rows */
    int32_t n_bias;
    /* At the place behind `next`. The draft proposes tokens that it allows, and moves it over them. A
     * single token that may follow is proposed whatever the draft's logits are. The context then
     * gives whole rows. NULL = none. */
    const llm_constraint *constraint;
    int32_t *tokens_out; /* [n] */
    /* How many were proposed: less than n by p_min, where the constraint is complete or fails, and
     * where n-grams find nothing. */
    int32_t n_out;
} llm_draft_item;

/* Proposes tokens for n_item sequences, all of them unlike, whose tokens are decoded together. */
tdm_status llm_draft_propose(llm_draft *draft, llm_draft_item *items, int32_t n_item,
                             tdm_error *err);

/* After the large model has decoded a batch of which n_kept tokens of a sequence stay, behind
 * `length` tokens: keeps what the draft holds of them. `target` is the large model's context, as
 * after that batch, and `first` the index in it of the first of these tokens; the others follow. */
tdm_status llm_draft_accept(llm_draft *draft, int32_t seq, const llm_context *target, int32_t first,
                            int32_t length, int32_t n_kept, tdm_error *err);

/* A part of what a draft lacks. */
typedef struct llm_draft_part {
    int32_t seq;
    const int32_t *tokens; /* [n_tok] the sequence's tokens from llm_draft_length on */
    int32_t n_tok;         /* of a layer, at most as many as it has hidden states for */
} llm_draft_part;

/* Decodes parts of n_part unlike sequences together. Not of n-grams. */
tdm_status llm_draft_follow(llm_draft *draft, const llm_draft_part *parts, int32_t n_part,
                            tdm_error *err);

/* Keeps the first n_tok tokens of a sequence at most. To 0 it cannot fail. */
tdm_status llm_draft_truncate(llm_draft *draft, int32_t seq, int32_t n_tok, tdm_error *err);
/* The large model's empty sequence dst shares the first n_tok tokens of src: the draft shares as
 * many of them as it can. */
tdm_status llm_draft_fork(llm_draft *draft, int32_t dst, int32_t src, int32_t n_tok,
                          tdm_error *err);
/* Before the large model's sequence, which holds the n_history tokens of `history`, is shifted: the
 * draft follows, or drops the tokens that move and decodes them again later. */
tdm_status llm_draft_shift(llm_draft *draft, int32_t seq, const int32_t *history, int32_t n_history,
                           int32_t n_keep, int32_t n_discard, tdm_error *err);

#endif
