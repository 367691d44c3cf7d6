/* SPDX-License-Identifier: MIT
 *
 * token_loss.c: see token_loss.h. Sums over rows of f32 are in double.
 */
#include "runner/commands/token_loss.h"

#include <math.h>
#include <stdlib.h>

void token_loss_log_probs(const float *logits, int32_t n, float *out) {
    float peak = -INFINITY;
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        if (logits[i] > peak) peak = logits[i];
    for (int32_t i = 0; i < n; i++) sum += expf(logits[i] - peak);
    double shift = peak + log(sum);
    for (int32_t i = 0; i < n; i++) out[i] = (float)(logits[i] - shift);
}

int32_t token_loss_top(const float *values, int32_t n) {
    int32_t top = 0;
    for (int32_t i = 1; i < n; i++)
        if (values[i] > values[top]) top = i;
    return top;
}

/* With delta = log p_ref - log p, the divergence is sum p_ref delta. Both distributions sum to 1,
 * so it is also sum p_ref (delta + e^-delta - 1), whose terms are never negative and of second
 * order in delta: that is what is summed. p_ref e^-delta is p. Where p is much larger than p_ref, p
 * itself is added, because e^-delta may overflow while p_ref is near 0. */
double token_loss_divergence(const float *reference, const float *log_probs, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        double p_ref = exp(reference[i]), delta = (double)reference[i] - log_probs[i];
        if (p_ref == 0) /* only p is left; delta may be inf - inf */
            sum += exp(log_probs[i]);
        else if (delta < -1)
            sum += exp(log_probs[i]) + p_ref * (delta - 1);
        else
            sum += p_ref * (delta + expm1(-delta));
    }
    return sum;
}

void token_loss_mean_add(token_loss_mean *mean, double value) {
    mean->sum += value;
    mean->squares += value * value;
    mean->n++;
}

double token_loss_mean_get(const token_loss_mean *mean) {
    return mean->n > 0 ? mean->sum / (double)mean->n : 0;
}

double token_loss_mean_uncertainty(const token_loss_mean *mean) {
    if (mean->n < 2) return 0;
    double middle = token_loss_mean_get(mean);
    double variance = mean->squares / (double)mean->n - middle * middle;
    return variance > 0 ? sqrt(variance / (double)(mean->n - 1)) : 0;
}

double token_loss_perplexity(const token_loss_mean *nll, double *uncertainty_out) {
    double value = exp(token_loss_mean_get(nll));
    *uncertainty_out = value * token_loss_mean_uncertainty(nll);
    return value;
}

static int compare(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double token_loss_quantile(double *values, uint64_t n, double share) {
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare);
    double place = share * (double)(n - 1);
    uint64_t below = (uint64_t)place;
    if (below + 1 >= n) return values[n - 1];
    double part = place - (double)below;
    return part == 0 ? values[below] : values[below] * (1 - part) + values[below + 1] * part;
}
