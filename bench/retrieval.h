/* SPDX-License-Identifier: MIT
 *
 * retrieval.h: rows of weights with which a model recalls what stood behind a key anywhere in its
 * context. They are constructed, not trained, so that a test knows the right answer at any length.
 * random_model.c decides which tensors a model has, and stores the rows.
 *
 * The vocabulary has, behind three special tokens, three classes of equally many tokens: keys,
 * values and fillers. Every token has a random code of unit length. The residual stream is
 *
 *     [ 1 | code of the token | code of the token before it | code that is recalled | 0 ... ]
 *
 * A head of the first layer attends to the previous token: its query and key are constants whose
 * rotary phases agree at distance 1. It fills the third part. A head of the last layer is an
 * induction head (Olsson et al., In-context Learning and Induction Heads, 2022): its query is the
 * code of the token, its keys are the codes of the tokens before the cached ones, its values are
 * the codes of the cached tokens. Behind a key that occurred before, the most likely token is the
 * value that followed it there. All other heads and the feed-forward blocks hold small random
 * numbers.
 *
 * The keys of the induction head lie in elements that do not rotate: in the upper half of a head,
 * which rope_freqs keeps from rotating; in a model with latent attention, in the elements that are
 * never rotated; in a model with windows, in the last layer, which sees all tokens and rotates
 * nothing.
 */
#ifndef BENCH_RETRIEVAL_H
#define BENCH_RETRIEVAL_H

#include "bench/random_model.h"

/* Checks that a retrieval model can have these sizes; TDM_INVALID_ARGUMENT names the wrong one.
 * [any-thread] */
tdm_status retrieval_check(const random_model_spec *spec, tdm_error *err);

/* Tokens of a class: the vocabulary without special tokens, cut into three. [any-thread] */
int64_t retrieval_class_size(const random_model_spec *spec);

/* Makes row `row` (counted over all matrices of the tensor) of tensor `name` (without "blk.N.") of
 * `layer` (-1 = none). dst[n] holds random numbers of standard deviation 1 before, and the row
 * after. [any-thread] */
void retrieval_row_make(const random_model_spec *spec, const char *name, int64_t layer, int64_t row,
                        float *dst, int64_t n);

#endif
