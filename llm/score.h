/* SPDX-License-Identifier: MIT
 *
 * score.h: scores of models that rate a text, or a text together with a query (rerankers): the head
 * that reads the hidden states, computed on the host, and the tokens of a query and a text. The
 * states are those of a context that gives embeddings (context.h).
 *
 *   x = the mean of all hidden states with llm_arch.is_score_mean; else that of the first token
 *       where tokens see later ones (is_bidirectional), and that of the last token where not
 *   y = norm(act(Wcls x + b))        where the file has cls, else x; act is tanh or
 *                                    llm_arch.score_act; norm where the file has one
 *   scores = Wout y + b              where the file has cls.output, else y; with
 *                                    llm_arch.has_score_softmax the softmax of these
 */
#ifndef LLM_SCORE_H
#define LLM_SCORE_H

#include "llm/model.h"

typedef struct llm_score_head llm_score_head;

/* Reads the head of the model's file; *head_out is NULL if it has none. The caller frees it before
 * the model is closed. TDM_DATA_LOSS if its matrices do not fit each other or the model. */
tdm_status llm_score_head_read(const llm_model *model, llm_score_head **head_out, tdm_error *err);
/* NULL is a no-op. */
void llm_score_head_free(llm_score_head *head);
/* How many numbers it gives for a text: 1 for most rerankers, else one for each class. */
int32_t llm_score_count(const llm_score_head *head);
/* Writes scores_out[llm_score_count] for a text with n_tok >= 1 hidden states rows[n_tok][n_embd].
 * One thread at a time for each head. */
void llm_score(llm_score_head *head, const float *rows, int32_t n_tok, float *scores_out);

/* The tokens of a query and a text in the form in which the model was trained. If the file has a
 * template (tokenizer.chat_template.rerank), the tokens of the filled template; names of control
 * tokens in it, also in the query and in the text, become control tokens. Otherwise both texts with
 * the tokens that the vocabulary adds around a text, and its separator between them. The caller
 * frees *ids_out with free(). [any-thread] */
tdm_status llm_score_tokenize(const llm_model *model, const char *query, size_t query_len,
                              const char *text, size_t text_len, int32_t **ids_out, size_t *n_out,
                              tdm_error *err);

#endif
