/* SPDX-License-Identifier: MIT
 *
 * chat_prompt.h: applies the model's chat template: the tokens of a conversation, and the token or
 * text that ends a turn of the assistant.
 */
#ifndef TANDEM_RUNNER_CHAT_PROMPT_H
#define TANDEM_RUNNER_CHAT_PROMPT_H

#include "llm/template/template.h"
#include "llm/tokenizer/vocab.h"
#include "runner/chat/chat_history.h"
#include "runner/session.h"

/* Cleared = not open. */
typedef struct runner_chat_prompt {
    llm_template *tpl;      /* owned */
    char *source;           /* the text of the template; NULL = none is open; owned */
    const llm_vocab *vocab; /* the model's */
    char *bos, *eos;        /* texts of these tokens; "" = the vocabulary has none; owned */
    char *stop;      /* text that ends a turn of the assistant and is no token; "" = none; owned */
    int32_t stop_id; /* token that ends a turn; LLM_TOKEN_NONE = none */
} runner_chat_prompt;

/* Reads the template that --template names, or the model's own, and renders a trial turn to find
 * the token or text that ends one. TDM_NOT_FOUND if there is no template: the message says what to
 * do. Call runner_chat_prompt_close in any case, also on failure. [setup] */
tdm_status runner_chat_prompt_open(runner_chat_prompt *prompt, runner_app *app,
                                   const llm_model *model, tdm_error *err);
/* Releases everything and clears *prompt. [setup] */
void runner_chat_prompt_close(runner_chat_prompt *prompt);

/* The tokens of a conversation: of the system's message and those from index `first` on. With
 * is_open they end with the beginning of the assistant's next turn. The caller frees *tokens_out
 * with free(). TDM_INVALID_ARGUMENT where the template makes no text of them. [setup] */
tdm_status runner_chat_prompt_tokens(const runner_chat_prompt *prompt,
                                     const runner_chat_history *history, size_t first, bool is_open,
                                     int32_t **tokens_out, int32_t *n_out, tdm_error *err);

#endif
