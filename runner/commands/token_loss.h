/* SPDX-License-Identifier: MIT
 *
 * token_loss.h: log-probabilities, running means, and the divergence of two distributions. It uses
 * neither models nor files.
 */
#ifndef TANDEM_RUNNER_TOKEN_LOSS_H
#define TANDEM_RUNNER_TOKEN_LOSS_H

#include <stdint.h>

/* Natural logarithms of the softmax of n logits; `out` may be `logits`. Logits of -inf are
 * probabilities of 0; one that is NaN or +inf makes the whole row NaN. [any-thread] */
void token_loss_log_probs(const float *logits, int32_t n, float *out);

/* Index of the largest of n values, the first of equal ones. [any-thread] */
int32_t token_loss_top(const float *values, int32_t n);

/* The Kullback-Leibler divergence of a distribution from a reference, in nats, both given as
 * log-probabilities: sum p_ref (log p_ref - log p). Never negative: rounding errors of the
 * logarithms count in the second order only. +inf where p is 0 and p_ref is not. [any-thread] */
double token_loss_divergence(const float *reference, const float *log_probs, int32_t n);

/* A running mean; cleared = empty. */
typedef struct token_loss_mean {
    double sum, squares;
    uint64_t n;
} token_loss_mean;

void token_loss_mean_add(token_loss_mean *mean, double value);   /* [any-thread] */
double token_loss_mean_get(const token_loss_mean *mean);         /* 0 where empty [any-thread] */
double token_loss_mean_uncertainty(const token_loss_mean *mean); /* one standard deviation of the
                                                                    mean; 0 where n < 2
                                                                    [any-thread] */

/* The perplexity, exp of a mean of -log p, and its uncertainty (one standard deviation, to first
 * order). [any-thread] */
double token_loss_perplexity(const token_loss_mean *nll, double *uncertainty_out);

/* The quantile `share` (0 to 1) of n values, interpolated linearly between neighbours. Sorts the
 * values. 0 where n is 0. [any-thread] */
double token_loss_quantile(double *values, uint64_t n, double share);

#endif
