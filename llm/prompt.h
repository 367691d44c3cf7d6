/* SPDX-License-Identifier: MIT
 *
 * prompt.h: completes the tokens of a prompt before a model continues it. It matters only for
 * models with an encoder (T5): the prompt is the encoder's text, and the decoder's answer begins
 * with a token of its own (llm_hparams.decoder_start).
 */
#ifndef LLM_PROMPT_H
#define LLM_PROMPT_H

#include "llm/model.h"

/* If the model has an encoder: appends eos where the vocabulary adds one, and the token that begins
 * the decoder's text. Ids that contain this token already are not changed: the ids after it are the
 * beginning of the answer. (*ids)[*n] was allocated with malloc and may move.
 * TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_prompt_end(const llm_model *model, const llm_vocab *vocab, int32_t **ids, size_t *n,
                          tdm_error *err);

/* How many of n ids the encoder reads: those before the token that begins the decoder's text; n if
 * there is no such token, 0 if the model has no encoder. [any-thread] */
size_t llm_prompt_encoded(const llm_model *model, const int32_t *ids, size_t n);

#endif
