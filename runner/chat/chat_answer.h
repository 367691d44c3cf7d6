/* SPDX-License-Identifier: MIT
 *
 * chat_answer.h: generates the answers of a conversation in one context. The tokens at the
 * beginning of a prompt that the context already holds are not computed again.
 */
#ifndef TANDEM_RUNNER_CHAT_ANSWER_H
#define TANDEM_RUNNER_CHAT_ANSWER_H

#include "runner/generation.h"

typedef struct runner_chat_answer_params {
    const int32_t *prompt; /* [n_prompt] at least 1 token, at most n_ctx */
    int32_t n_prompt;
    int32_t n_batch; /* tokens of the prompt decoded at a time, at least 1 */
    llm_sampler_params sampler;
    int32_t n_predict; /* -1 = no limit */
    int32_t n_keep;    /* tokens at the beginning that a context shift keeps */
    bool shifts_context;
    const char *stop; /* a text that ends the answer and is not part of it; "" = none */
    int32_t stop_id;  /* a token that ends it, besides the vocabulary's; LLM_TOKEN_NONE = none */
    runner_text_fn text;
    void *user; /* of text */
} runner_chat_answer_params;

typedef struct runner_chat_answer_result {
    runner_stop stop;
    int32_t n_reused; /* tokens of the prompt that the context held already */
    int32_t n_prompt; /* tokens of the prompt that were computed */
    uint64_t prompt_ns;
    int32_t n_generated; /* tokens sampled */
    uint64_t decode_ns;  /* of sampling and of all steps behind the prompt */
    int32_t n_shift;     /* context shifts */
} runner_chat_answer_result;

/* The tokens that sequence 0 of a context holds; the functions below keep it in step with the
 * context. Cleared = none yet. */
typedef struct runner_chat_held {
    int32_t *tokens; /* [n_ctx] allocated on first use; the caller frees it with free() */
    int32_t n;
} runner_chat_held;

/* Saves the held tokens with their cached rows as a state file (llm/cache/state.h). [setup] */
tdm_status runner_chat_held_save(runner_session *session, const runner_chat_held *held,
                                 const char *path, tdm_error *err);

/* Replaces what is held by the content of such a file. On failure nothing is held. [setup] */
tdm_status runner_chat_held_load(runner_session *session, runner_chat_held *held, const char *path,
                                 tdm_error *err);

/* Generates an answer. Ctrl-C ends it with RUNNER_STOP_INTERRUPT and is not a failure. *text_out is
 * all the text that was passed to params->text, NUL-terminated; the caller frees it with free().
 * NULL on failure. [setup] */
tdm_status runner_chat_answer(runner_session *session, runner_chat_held *held,
                              const runner_chat_answer_params *params,
                              runner_chat_answer_result *result, char **text_out, tdm_error *err);

#endif
