/* SPDX-License-Identifier: MIT
 *
 * lse_merge.c: LSE_MERGE: attention over a union of parts from each part's (o, m, l).
 */
#include <math.h>

#include "plugins/cpu/ops/ops.h"

enum { SRC_O, SRC_ML };

static float read_at(const cpu_view *view, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return *(const float *)(const void *)(view->data + i0 * view->nb[0] + i1 * view->nb[1] +
                                          i2 * view->nb[2] + i3 * view->nb[3]);
}

/* M = max m_p, w_p = l_p exp(m_p - M), o = sum w_p o_p / sum w_p; a part over nothing (l = 0) has
 * no weight, and a union over nothing gives 0. */
static void merge_row(const cpu_node *n, int64_t head, int64_t token) {
    const cpu_view *o = &n->src[SRC_O], *ml = &n->src[SRC_ML];
    uint8_t *out = n->dst[0].data + head * n->dst[0].nb[1] + token * n->dst[0].nb[2];
    float max = -INFINITY, total = 0;
    for (int64_t p = 0; p < o->ne[3]; p++) {
        float m = read_at(ml, 0, head, token, p);
        if (read_at(ml, 1, head, token, p) > 0 && m > max) max = m;
    }
    for (int64_t i = 0; i < o->ne[0]; i++) *(float *)(void *)(out + i * n->dst[0].nb[0]) = 0;
    for (int64_t p = 0; p < o->ne[3]; p++) {
        float l = read_at(ml, 1, head, token, p);
        if (l == 0) continue;
        float weight = l * expf(read_at(ml, 0, head, token, p) - max);
        total += weight;
        if (weight == 0) continue;
        for (int64_t i = 0; i < o->ne[0]; i++)
            *(float *)(void *)(out + i * n->dst[0].nb[0]) += weight * read_at(o, i, head, token, p);
    }
    if (total == 0) return;
    for (int64_t i = 0; i < o->ne[0]; i++) *(float *)(void *)(out + i * n->dst[0].nb[0]) /= total;
}

static void run(const cpu_node *n, cpu_worker *w) {
    int64_t first, last, n_head = n->src[SRC_O].ne[1];
    cpu_worker_share(w, n_head * n->src[SRC_O].ne[2], 1, &first, &last);
    for (int64_t row = first; row < last; row++) merge_row(n, row % n_head, row / n_head);
}

const cpu_op_impl cpu_op_lse_merge = {.run = run};
