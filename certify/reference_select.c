/* SPDX-License-Identifier: MIT
 *
 * reference_select.c: TOP_K, MOE_ROUTE and MOE_FFN in double precision, after op.h.
 */
#include "certify/reference.h"

#include <math.h>
#include <stdlib.h>

/* True when a ranks before b: larger, NaN below everything; the caller breaks ties by index. */
static bool is_above(double a, double b) {
    if (isnan(a)) return false;
    return isnan(b) || a > b;
}

/* The best of x[n] that is not taken; ties go to the lower index. -1 when all are. */
static int64_t best_take(const double *x, bool *is_taken, int64_t n) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (!is_taken[i] && (best < 0 || is_above(x[i], x[best]))) best = i;
    if (best >= 0) is_taken[best] = true;
    return best;
}

void certify_reference_top_k(const certify_operands *o) {
    int64_t n = o->src[0].ne[0], k = o->dst[0].ne[0];
    bool *is_taken = malloc((size_t)n + 1);
    for (int64_t r = 0; is_taken != NULL && r < o->src[0].ne[1]; r++) {
        for (int64_t i = 0; i < n; i++) is_taken[i] = false;
        for (int64_t i = 0; i < k; i++) {
            int64_t best = best_take(o->src[0].x + r * n, is_taken, n);
            o->dst[0].x[r * k + i] = o->src[0].x[r * n + best];
            o->dst[1].x[r * k + i] = (double)(best + o->node->params.top_k.index_base);
        }
    }
    free(is_taken);
}

/* Drops (as taken) the experts of all but the best groups. */
static void groups_drop(const tdm_route_params *p, const double *choice, bool *is_taken,
                        int64_t n) {
    int64_t size = n / p->n_group;
    double *rank = calloc((size_t)p->n_group, sizeof *rank);
    bool *is_kept = calloc((size_t)p->n_group, sizeof *is_kept);
    for (int32_t g = 0; rank != NULL && is_kept != NULL && g < p->n_group; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (int64_t i = g * size; i < (g + 1) * size; i++) {
            if (choice[i] > first)
                second = first, first = choice[i];
            else if (choice[i] > second)
                second = choice[i];
        }
        rank[g] = p->score == TDM_ROUTE_SIGMOID && size > 1 ? first + second : first;
    }
    for (int32_t k = 0; rank != NULL && is_kept != NULL && k < p->n_group_used; k++)
        (void)best_take(rank, is_kept, p->n_group);
    for (int64_t i = 0; is_kept != NULL && i < n; i++)
        if (!is_kept[i / size]) is_taken[i] = true;
    free(rank);
    free(is_kept);
}

static void scores(const tdm_route_params *p, const double *logit, double *score, int64_t n) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, logit[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(logit[i] - max);
    for (int64_t i = 0; i < n; i++) {
        if (p->score == TDM_ROUTE_SOFTMAX) score[i] = exp(logit[i] - max) / sum;
        if (p->score == TDM_ROUTE_SIGMOID) score[i] = 1 / (1 + exp(-logit[i]));
        if (p->score == TDM_ROUTE_TOP_SOFTMAX) score[i] = logit[i];
    }
}

static void weights(const tdm_route_params *p, double *weight) {
    double scale = p->scale != 0 ? (double)p->scale : 1, sum = 0;
    if (p->score == TDM_ROUTE_TOP_SOFTMAX) {
        double max = -INFINITY, total = 0;
        for (int32_t u = 0; u < p->n_used; u++) max = fmax(max, weight[u]);
        for (int32_t u = 0; u < p->n_used; u++) total += weight[u] = exp(weight[u] - max);
        for (int32_t u = 0; u < p->n_used; u++) weight[u] /= total;
    }
    for (int32_t u = 0; u < p->n_used; u++) sum += weight[u];
    for (int32_t u = 0; u < p->n_used; u++) weight[u] *= scale / (p->normalize ? sum : 1);
}

void certify_reference_route(const certify_operands *o) {
    const tdm_route_params *p = &o->node->params.route;
    int64_t n = o->src[0].ne[0];
    double *score = malloc((size_t)n * 2 * sizeof *score);
    bool *is_taken = malloc((size_t)n);
    for (int64_t t = 0; score != NULL && is_taken != NULL && t < o->src[0].ne[1]; t++) {
        double *choice = score + n, *weight = o->dst[1].x + t * p->n_used;
        scores(p, o->src[0].x + t * n, score, n);
        for (int64_t i = 0; i < n; i++) {
            is_taken[i] = false;
            choice[i] = score[i] + (o->src[1].x != NULL ? o->src[1].x[i] : 0);
        }
        if (p->n_group > 1) groups_drop(p, choice, is_taken, n);
        for (int32_t u = 0; u < p->n_used; u++) {
            int64_t best = best_take(choice, is_taken, n);
            o->dst[0].x[t * p->n_used + u] = (double)best;
            weight[u] = score[best];
        }
        weights(p, weight);
    }
    free(score);
    free(is_taken);
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

void certify_reference_experts(const certify_operands *o) {
    int64_t n = o->src[0].ne[0], n_ff = o->src[3].ne[1], n_expert = o->src[3].ne[2];
    int64_t n_used = o->src[1].ne[0];
    double *hidden = malloc(((size_t)n_ff + 1) * sizeof *hidden);
    for (int64_t t = 0; hidden != NULL && t < o->src[0].ne[1]; t++) {
        const double *x = o->src[0].x + t * n;
        double *y = o->dst[0].x + t * n;
        for (int64_t i = 0; i < n; i++) y[i] = 0;
        for (int64_t u = 0; u < n_used; u++) {
            double e = o->src[1].x[t * n_used + u] - o->node->params.moe.first_expert;
            if (e < 0 || e >= (double)n_expert) continue;
            int64_t at = (int64_t)e * n * n_ff;
            for (int64_t j = 0; j < n_ff; j++)
                hidden[j] =
                    certify_act(o->node->params.moe.act, dot(o->src[3].x + at + j * n, x, n)) *
                    dot(o->src[4].x + at + j * n, x, n);
            for (int64_t i = 0; i < n; i++)
                y[i] +=
                    o->src[2].x[t * n_used + u] * dot(o->src[5].x + at + i * n_ff, hidden, n_ff);
        }
    }
    free(hidden);
}
