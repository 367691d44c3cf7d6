/* SPDX-License-Identifier: MIT
 *
 * sinkhorn.c: SINKHORN: matrices whose rows and columns are divided by their sums in turns, after
 * Sinkhorn and Knopp (doi:10.2140/pjm.1967.21.343). A matrix has a few rows; workers divide the
 * tokens.
 */
#include <math.h>

#include "plugins/cpu/ops/ops.h"
#include "plugins/cpu/ops/strided.h"

/* y /= (sum along one axis + eps): `step` is the distance of neighbours along it, `next` that of
 * its lines. */
static void lines_divide(double *y, int64_t n, int64_t step, int64_t next, double eps) {
    for (int64_t line = 0; line < n; line++) {
        double *at = y + line * next, sum = eps;
        for (int64_t i = 0; i < n; i++) sum += at[i * step];
        for (int64_t i = 0; i < n; i++) at[i * step] /= sum;
    }
}

static void softmax_row(double *x, int64_t n, double eps) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) {
        x[i] = max == -INFINITY && x[i] == x[i] ? 0 : exp(x[i] - max);
        sum += x[i];
    }
    for (int64_t i = 0; i < n; i++) x[i] = (sum != 0 ? x[i] / sum : x[i]) + eps;
}

static void token_run(const cpu_node *n, int64_t tok) {
    const cpu_view *x = &n->src[0], *out = &n->dst[0];
    const tdm_sinkhorn_params *p = &n->node->params.sinkhorn;
    const int64_t len = x->ne[0];
    double y[TDM_MAX_SINKHORN * TDM_MAX_SINKHORN];
    for (int64_t j = 0; j < len; j++) {
        const uint8_t *row = x->data + j * x->nb[1] + tok * x->nb[2];
        for (int64_t i = 0; i < len; i++) y[j * len + i] = (double)cpu_f32_at(row, i, x->nb[0]);
        softmax_row(y + j * len, len, (double)p->eps);
    }
    for (int32_t iter = 0; iter < p->n_iter; iter++) {
        if (iter > 0) lines_divide(y, len, 1, len, (double)p->eps);
        lines_divide(y, len, len, 1, (double)p->eps);
    }
    for (int64_t j = 0; j < len; j++)
        for (int64_t i = 0; i < len; i++)
            *(float *)(void *)(out->data + i * out->nb[0] + j * out->nb[1] + tok * out->nb[2]) =
                (float)y[j * len + i];
}

static void run(const cpu_node *n, cpu_worker *w) {
    int64_t first, last;
    cpu_worker_share(w, n->src[0].ne[2], 1, &first, &last);
    for (int64_t tok = first; tok < last; tok++) token_run(n, tok);
}

const cpu_op_impl cpu_op_sinkhorn = {.run = run};
