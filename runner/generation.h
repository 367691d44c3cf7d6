/* SPDX-License-Identifier: MIT
 *
 * generation.h: continues a prompt: decodes it, samples tokens, and passes their text to the
 * caller, for one sequence or several that share the prompt.
 */
#ifndef TANDEM_RUNNER_GENERATION_H
#define TANDEM_RUNNER_GENERATION_H

#include "core/counters.h"
#include "llm/sampler.h"
#include "llm/tokenizer/tokenizer.h"
#include "runner/draft.h"
#include "server/grammar/grammar.h"

/* Why a sequence ended. */
typedef enum runner_stop {
    RUNNER_STOP_NONE,    /* it has not ended */
    RUNNER_STOP_END,     /* the model ended the text */
    RUNNER_STOP_LENGTH,  /* n_predict tokens were generated */
    RUNNER_STOP_CONTEXT, /* the context is full */
    RUNNER_STOP_INTERRUPT
} runner_stop;

/* Called with each piece of text of sequence `seq`, in whole code points. A failure ends
 * generation. */
typedef tdm_status (*runner_text_fn)(void *user, int32_t seq, const char *text, size_t len,
                                     tdm_error *err);

typedef struct runner_generation_params {
    const int32_t *prompt; /* [n_prompt] at least 1 */
    int32_t n_prompt;
    int32_t n_batch;     /* tokens of the prompt decoded at a time, at least 1 */
    bool continues_text; /* the prompt ends in text that is continued: LLM_DETOKENIZE_CONTINUE */
    llm_sampler_params sampler;
    grammar *grammar;  /* that each sequence follows; NULL = none. Not together with ignores_end */
    int32_t n_seq;     /* 1 .. LLM_MAX_SEQ; sequence i draws with seed + i */
    int32_t n_predict; /* tokens for each sequence; -1 = no limit */
    int32_t n_keep;    /* tokens that a context shift keeps; -1 = the whole prompt */
    bool ignores_end;  /* tokens that end the text are never sampled */
    bool shows_special;  /* special tokens are printed as text */
    bool shifts_context; /* a sequence that is full drops old tokens instead of ending */
    /* Proposes tokens, which the model checks. Its draft holds no tokens yet; its own context, if
     * it has one, is as large as the model's. Only with n_seq 1. NULL = none */
    runner_draft *draft;
    /* [n_ctx] receives the tokens that sequence 0 holds at the end, also after an interrupt; NULL =
     * not needed */
    int32_t *held;
    /* Called once the prompt has been decoded, before any text; NULL = none. A failure ends the
     * generation. */
    tdm_status (*prompt_done)(void *user, tdm_error *err);
    runner_text_fn text;
    void *user; /* the first argument of prompt_done and text */
} runner_generation_params;

/* What was done, and the time that it took. Times are in nanoseconds. */
typedef struct runner_generation_result {
    runner_stop stop; /* of the sequence that ended last */
    int32_t n_reused; /* tokens of the prompt that the context held before */
    int32_t n_prompt; /* tokens of the prompt that were computed */
    uint64_t prompt_ns;
    int32_t n_held;      /* tokens that sequence 0 holds at the end */
    int64_t n_generated; /* tokens sampled, of all sequences */
    int64_t n_decoded;   /* of those, tokens that a step then decoded, in decode_ns */
    uint64_t decode_ns;  /* of sampling and of all steps behind the prompt */
    int32_t n_shift;     /* context shifts, of all sequences */
    int64_t n_proposed;  /* proposals of the drafter that the model checked */
    int64_t n_accepted;  /* of those, accepted */
    int64_t n_steady;    /* of n_decoded, tokens of all steps but the first, which makes plans */
    uint64_t steady[TDM_COUNTER_COUNT_]; /* by how much each counter grew in these steps */
} runner_generation_result;

/* Generates in the context of `session`, which has n_seq sequences. They are empty, except that
 * sequence 0 may hold the first tokens of the prompt (not all of them), which are then not computed
 * again. On failure, too, *result counts what was done. After Ctrl-C: TDM_CANCELLED, with
 * RUNNER_STOP_INTERRUPT. [setup] */
tdm_status runner_generate(runner_session *session, const runner_generation_params *params,
                           runner_generation_result *result, tdm_error *err);

#endif
