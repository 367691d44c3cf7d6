/* SPDX-License-Identifier: MIT
 *
 * draft.h: a draft proposes the next tokens of a large model (speculative decoding). The large
 * model computes all proposals in one step, and the caller keeps those that the large model samples
 * too. So the text is the same as without the draft. There are three kinds of drafts, with the same
 * calls:
 *
 *   a model   a small model with the same vocabulary (llm_draft_check), which may lack the last
 *             token ids of the large model or have more. The ids in all calls are the large model's
 *   a layer   a layer of the large model that only drafts (MTP)
 *   n-grams   the last tokens are searched for earlier in the sequence; proposals are the tokens
 *             that followed them there (draft_ngram.h)
 *
 * The draft has a sequence for each sequence of the large model. It holds a prefix of the tokens
 * that the large model holds. A draft model or a layer decodes the missing tokens in
 * llm_draft_follow, or, where they are few, in llm_draft_propose. A layer also reads the large
 * model's hidden states: llm_draft_accept copies those of each batch of the large model, and the
 * draft keeps them until the layer has decoded the tokens. N-grams decode nothing: they read the
 * missing tokens in llm_draft_propose.
 *
 * After a call that fails, the draft's state of the sequences concerned is undefined. The caller
 * then empties them with llm_draft_truncate.
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

/* By how many tokens the vocabularies of a draft model and of the large model may differ. Models of
 * a family pad the same vocabulary to different lengths: Qwen2.5 has 151936 rows up to 3B, and
 * 152064 from 7B on. llama.cpp has the same limit (common/speculative.cpp). */
#define LLM_MAX_DRAFT_VOCAB_GAP 128

typedef struct llm_draft llm_draft;

/* Checks that every token id that both models have means the same in both, and that the numbers of
 * tokens, and of rows of the embeddings, differ by at most LLM_MAX_DRAFT_VOCAB_GAP.
 * TDM_INVALID_ARGUMENT names the first difference. The weights need not be loaded. [setup] */
tdm_status llm_draft_check(const llm_model *draft, const llm_model *model, tdm_error *err);

typedef struct llm_draft_params {
    llm_context *ctx;          /* of the draft model or the layer: empty, and outlives the draft.
                                  Gives whole rows, or llm_draft_n_extra more candidates than the
                                  samplers need. NULL = n-grams */
    const llm_context *target; /* the large model's, with as many sequences. Read in the call */
    int32_t n_max;             /* proposals at a time, 1 .. LLM_MAX_DRAFT */
    int32_t n_gram;            /* of n-grams: last tokens that must be equal to earlier ones,
                                  1 .. LLM_MAX_DRAFT_NGRAM. Not read for other drafts */
} llm_draft_params;

/* Makes a draft that holds no tokens. *draft_out is NULL on failure. [setup] */
tdm_status llm_draft_create(const llm_draft_params *params, llm_draft **draft_out, tdm_error *err);
/* NULL is a no-op. [setup] */
void llm_draft_destroy(llm_draft *draft);

/* Whether the draft is a layer of the large model. The large model's context must give hidden
 * states then (llm_context_params.gives_hidden). */
bool llm_draft_is_layer(const llm_draft *draft);
/* Whether the draft decodes tokens. N-grams do not: their proposals cost almost no time, and each
 * step may have another number of them. */
bool llm_draft_decodes(const llm_draft *draft);
/* How many token ids the draft model has beyond those of the large model. They are removed from its
 * rows, so that they are never proposed. */
int32_t llm_draft_n_extra(const llm_draft *draft);
/* Tokens that the draft of a sequence holds. */
int32_t llm_draft_length(const llm_draft *draft, int32_t seq);
/* The large model's sequence holds n_tok tokens: how many of them the draft has still to decode; 0
 * for n-grams. -1 = it cannot, since it holds more than n_tok tokens or since hidden states are
 * missing. Such a sequence gets no proposals until llm_draft_truncate has emptied it. */
int32_t llm_draft_missing(const llm_draft *draft, int32_t seq, int32_t n_tok);

/* Proposals for one sequence. */
typedef struct llm_draft_item {
    int32_t seq;
    llm_sampler *sampler;     /* samples proposals; its state is overwritten. Made with the same
                                 parameters as `model`. Not used by n-grams */
    const llm_sampler *model; /* the large model's, which has accepted `next`; not changed */
    const int32_t *history;   /* [n_history] tokens that the large model holds */
    int32_t n_history;        /* the draft holds the first of them, at most all */
    int32_t next;             /* the token after them, which the large model has not decoded yet */
    int32_t n;                /* most proposals, 1 .. n_max */
    float p_min;              /* proposals end before a token to which the draft gives a smaller
                                 probability; 0 = no limit. Not read by n-grams */
    const int32_t *bars;      /* [n_bar] tokens that are never proposed */
    int32_t n_bar;
    const llm_logit_bias *bias; /* [n_bias] added to the draft's logits. With biases the draft's
                                    context must give whole rows of logits */
    int32_t n_bias;
    /* A constraint whose state is at the place after `next`. The draft proposes only tokens that it
     * allows, and moves its state over them. Where it allows a single token, that one is proposed
     * without reading the draft's logits. The draft's context must give whole rows of logits. NULL
     * = every token may follow. */
    const llm_constraint *constraint;
    int32_t *tokens_out; /* [n] */
    /* How many were proposed. Less than n where p_min ends them, where the constraint is complete,
     * fails or allows only a token of `bars`, and where n-grams find nothing. */
    int32_t n_out;
} llm_draft_item;

/* Proposes tokens for n_item different sequences, whose tokens are decoded together. */
tdm_status llm_draft_propose(llm_draft *draft, llm_draft_item *items, int32_t n_item,
                             tdm_error *err);

/* Call it after each batch of the large model: the sequence had `length` tokens before, and n_kept
 * tokens of the batch stay in it. Removes all other tokens from the draft; for a layer, copies the
 * hidden states of the n_kept tokens. `target` is the large model's context, whose last batch this
 * still is; `first` is the index in that batch of the first of the n_kept tokens, which follow one
 * another there. */
tdm_status llm_draft_accept(llm_draft *draft, int32_t seq, const llm_context *target, int32_t first,
                            int32_t length, int32_t n_kept, tdm_error *err);

/* Tokens of a sequence that the draft does not hold yet. */
typedef struct llm_draft_part {
    int32_t seq;
    const int32_t *tokens; /* [n_tok] the sequence's tokens from llm_draft_length on */
    int32_t n_tok;         /* of a layer, at most as many as llm_draft_accept has kept states for */
} llm_draft_part;

/* Decodes parts of n_part different sequences together. Not for n-grams. */
tdm_status llm_draft_follow(llm_draft *draft, const llm_draft_part *parts, int32_t n_part,
                            tdm_error *err);

/* Keeps at most the first n_tok tokens of a sequence. n_tok = 0 cannot fail. */
tdm_status llm_draft_truncate(llm_draft *draft, int32_t seq, int32_t n_tok, tdm_error *err);
/* Call it where llm_context_fork shares the first n_tok tokens of the large model's sequence src
 * with dst. The draft's sequence dst is empty; it gets as many of these tokens as can be shared. */
tdm_status llm_draft_fork(llm_draft *draft, int32_t dst, int32_t src, int32_t n_tok,
                          tdm_error *err);
/* Call it before llm_context_shift with the same n_keep and n_discard on the large model's
 * sequence, which holds the n_history tokens of `history`. A layer shifts its cache, too; other
 * drafts drop the tokens from n_keep on and read them again later. */
tdm_status llm_draft_shift(llm_draft *draft, int32_t seq, const int32_t *history, int32_t n_history,
                           int32_t n_keep, int32_t n_discard, tdm_error *err);

#endif
