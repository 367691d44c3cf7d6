/* SPDX-License-Identifier: MIT
 *
 * prompt.h: how the tokens of a prompt end that a model is to continue. In a model with an encoder
 * (T5) the prompt is the encoder's text, and its answer begins with a token of its own.
 */
#ifndef LLM_PROMPT_H
#define LLM_PROMPT_H

#include "llm/model.h"

/* Where the model has an encoder: appends eos, if its texts end with one, and the token that begins
 * the decoder's text. Ids that have this token are whole, and stay as they are: what is behind it is
 * the beginning of the answer. ids[n] come from malloc and may move. [any-thread] */
tdm_status llm_prompt_end(const llm_model *model, const llm_vocab *vocab, int32_t **ids, size_t *n,
                          tdm_error *err);

/* How many of n ids the encoder reads: those before the token that begins the decoder's text, n if
 * there is no such token. 0 without an encoder. [any-thread] */
size_t llm_prompt_encoded(const llm_model *model, const int32_t *ids, size_t n);

#endif
