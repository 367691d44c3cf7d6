/* SPDX-License-Identifier: MIT
 *
 * generation.h: continues a prompt: decodes, samples, and passes the text to the caller, for one
 * sequence or several that share the prompt.
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
    RUNNER_STOP_NONE, /* it has not */
    RUNNER_STOP_END,  /* the model ended the text */
    RUNNER_STOP_LENGTH,
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
    bool continues_text; /* the prompt holds text, which the generated one goes on from */
    llm_sampler_params sampler;
    grammar *grammar;  /* that each sequence follows; NULL = none. ignores_end is false then */
    int32_t n_seq;     /* 1 .. LLM_MAX_SEQ; sequence i draws with seed + i */
    int32_t n_predict; /* tokens for each sequence; -1 = no limit */
    int32_t n_keep;    /* tokens that a context shift keeps; -1 = the whole prompt */
    bool ignores_end;
    bool shows_special;
    bool shifts_context;
    runner_draft
        *draft;    /* proposes tokens to the model, which decides; it holds none, and a context
                            of its own is as large as the model's. One sequence only. NULL = none */
    int32_t *held; /* [n_ctx] receives the tokens that sequence 0 holds at the end, also
                            after an interrupt; NULL = none */
    /* Called once the prompt has been decoded, before any text; NULL = none. A failure ends the
     * generation. */
    tdm_status (*prompt_done)(void *user, tdm_error *err);
    runner_text_fn text;
    void *user; /* of both */
} runner_generation_params;

/* What was done, and the time it took. */
typedef struct runner_generation_result {
    runner_stop stop; /* of the sequence that ended last */
    int32_t n_reused; /* tokens of the prompt that the context held before */
    int32_t n_prompt; /* those computed */
    uint64_t prompt_ns;
    int32_t n_held;      /* tokens that sequence 0 holds at the end */
    int64_t n_generated; /* tokens sampled, of all sequences */
    int64_t n_decoded;   /* of those, computed further: what decode_ns took */
    uint64_t decode_ns;
    int32_t n_shift;
    int64_t n_proposed;                  /* by the draft */
    int64_t n_accepted;                  /* of those, accepted */
    int64_t n_steady;                    /* tokens decoded since the counters below began */
    uint64_t steady[TDM_COUNTER_COUNT_]; /* by how much each counter grew meanwhile */
} runner_generation_result;

/* Runs it on a session whose context has n_seq sequences. They are empty, except that sequence 0
 * may hold the first tokens of the prompt (not all of them), which are then not computed again.
 * *result is filled as far as it got, on failure too. After Ctrl-C: TDM_CANCELLED, with
 * RUNNER_STOP_INTERRUPT. [setup] */
tdm_status runner_generate(runner_session *session, const runner_generation_params *params,
                           runner_generation_result *result, tdm_error *err);

#endif
