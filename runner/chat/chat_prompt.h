/* SPDX-License-Identifier: MIT
 *
 * chat_prompt.h: the model's chat template at work: the tokens of a conversation, and what ends the
 * assistant's turn in it.
 */
#ifndef TANDEM_RUNNER_CHAT_PROMPT_H
#define TANDEM_RUNNER_CHAT_PROMPT_H

#include "llm/template/template.h"
#include "llm/tokenizer/vocab.h"
#include "runner/chat/chat_history.h"
#include "runner/session.h"

/* Cleared = not open. */
typedef struct runner_chat_prompt {
    llm_template *tpl;
    const llm_vocab *vocab;
    char *bos, *eos; /* texts of the tokens; "" = none */
    char *stop;      /* text that ends a turn of the assistant's and is no token; "" = none */
    int32_t stop_id; /* the token that does; LLM_TOKEN_NONE */
} runner_chat_prompt;

/* Reads the template that --template names, or the model's own, and finds out by rendering a turn
 * what ends one. TDM_NOT_FOUND says what to do where there is none. Whatever fails,
 * runner_chat_prompt_close is due. [setup] */
tdm_status runner_chat_prompt_open(runner_chat_prompt *prompt, runner_app *app,
                                   const llm_model *model, tdm_error *err);
void runner_chat_prompt_close(runner_chat_prompt *prompt);

/* The tokens of the conversation up to where the assistant begins to speak, with the messages from
 * `first` on and the system's. The caller frees *tokens_out with free(). [setup] */
tdm_status runner_chat_prompt_tokens(const runner_chat_prompt *prompt,
                                     const runner_chat_history *history, size_t first, bool is_open,
                                     int32_t **tokens_out, int32_t *n_out, tdm_error *err);

#endif
