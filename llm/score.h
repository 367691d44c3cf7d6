/* SPDX-License-Identifier: MIT
 *
 * score.h: models that score a text, or a text beside a query (rerankers): the head behind the hidden
 * states, computed on the host, and the tokens of a query and a text. The states: embedding.h.
 *
 *   x = the hidden state of the first token; of a model whose tokens do not see later ones of the
 *       last, of others the mean (llm_arch.is_score_mean)
 *   y = norm(act(Wcls x + b))        where the file has cls; tanh, or llm_arch.score_act
 *   scores = Wout y + b              where it has cls.output; softmax of them with
 *                                    llm_arch.has_score_softmax
 */
#ifndef LLM_SCORE_H
#define LLM_SCORE_H

#include "llm/model.h"

typedef struct llm_score_head llm_score_head;

/* The head of the model's file; *head_out is NULL where it has none. The caller frees it, before the
 * model. TDM_DATA_LOSS where its matrices do not fit. */
tdm_status llm_score_head_read(const llm_model *model, llm_score_head **head_out, tdm_error *err);
/* NULL is a no-op. */
void llm_score_head_free(llm_score_head *head);
/* How many numbers it gives for a text: 1 for most rerankers, else one for each class. */
int32_t llm_score_count(const llm_score_head *head);
/* scores_out[llm_score_count] of a text with n_tok >= 1 hidden states rows[n_tok][n_embd]. One thread
 * at a time for each head. */
void llm_score(llm_score_head *head, const float *rows, int32_t n_tok, float *scores_out);

/* The tokens of a text beside a query, as the model was trained: by the template for that in its file
 * (tokenizer.chat_template.rerank, in which texts of control tokens become those tokens), else both
 * with the tokens that the vocabulary puts around texts, and its separator between them. The caller
 * frees *ids_out with free(). [any-thread] */
tdm_status llm_score_tokenize(const llm_model *model, const char *query, size_t query_len,
                              const char *text, size_t text_len, int32_t **ids_out, size_t *n_out,
                              tdm_error *err);

#endif
