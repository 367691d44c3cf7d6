/* SPDX-License-Identifier: MIT
 *
 * block_pool.c: BLOCK_POOL: for each channel a mean of x over the tokens of a block, weighted by
 * the softmax of their scores, in one pass: the weights are relative to the highest exponent so
 * far, and are scaled down when a higher one comes.
 *
 * Workers divide the channels. A worker goes through its channels in blocks, and for each sequence
 * through its tokens.
 */
#include <math.h>
#include <string.h>

#include "plugins/cpu/ops/ops.h"
#include "plugins/cpu/ops/recurrent.h"
#include "plugins/cpu/ops/strided.h"

enum { SRC_X, SRC_SCORE, SRC_BIAS, SRC_STEP, SRC_STATE };
enum { BLOCK = 64 };

static tdm_status supports(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                           tdm_error *err) {
    (void)device;
    return cpu_recurrent_supports(graph, node, SRC_STEP, SRC_STATE, err);
}

/* A mean under way, for some channels: the highest exponent so far, the sum of weights and the
 * weighted sum. A sum of weights of 0 = no token yet. */
typedef struct mean {
    float max[BLOCK], weight[BLOCK], sum[BLOCK];
} mean;

/* Channels first .. first + len - 1 of the result. */
typedef struct channels {
    const cpu_node *n;
    const cpu_recurrence *r;
    const int32_t *pos; /* [n_tok] */
    int64_t first, len, n_ch;
    int32_t n_part, block_len;
    mean present, behind; /* of the present block and of the one behind it */
} channels;

/* Copies a mean to its part of a slot or back: part 0 is the present block, 1 the one behind it. A
 * slot of -1 gives an empty mean. */
static void mean_move(const channels *c, int32_t slot, int part, mean *m, bool is_store) {
    float *at = cpu_recurrence_unit(c->r, slot, 0);
    float *const rows[] = {m->max, m->weight, m->sum};
    for (int i = 0; i < 3; i++) {
        float *kept = at != NULL ? at + (3 * part + i) * c->n_ch + c->first : NULL;
        if (kept == NULL)
            memset(rows[i], 0, sizeof m->max);
        else if (is_store)
            memcpy(kept, rows[i], (size_t)c->len * sizeof(float));
        else
            memcpy(rows[i], kept, (size_t)c->len * sizeof(float));
    }
}

/* Adds a token to a mean: rows `row` .. + len - 1 of x, with the bias of place `at` in the
 * block. */
static void mean_add(const channels *c, mean *m, int32_t token, int32_t at, int64_t row) {
    const cpu_view *x = &c->n->src[SRC_X], *score = &c->n->src[SRC_SCORE],
                   *bias = &c->n->src[SRC_BIAS];
    /* A single row or token of score or bias counts for all. */
    const int64_t of_token = score->ne[1] > 1 ? token : 0;
    const int64_t nb_score = score->ne[0] > 1 ? score->nb[0] : 0;
    const int64_t nb_bias = bias->ne[0] > 1 ? bias->nb[0] : 0;
    const uint8_t *px = x->data + token * x->nb[1], *ps = score->data + of_token * score->nb[1],
                  *pb = bias->data + at * bias->nb[1];
    for (int64_t i = 0; i < c->len; i++) {
        const float value = cpu_f32_at(px, row + i, x->nb[0]);
        const float s = cpu_f32_at(ps, row + i, nb_score) + cpu_f32_at(pb, row + i, nb_bias);
        if (m->weight[i] == 0 || s > m->max[i]) {
            const float scale = m->weight[i] == 0 ? 0 : expf(m->max[i] - s);
            m->max[i] = s;
            m->weight[i] = m->weight[i] * scale + 1;
            m->sum[i] = m->weight[i] == 1 ? value : m->sum[i] * scale + value;
        } else {
            const float w = expf(s - m->max[i]);
            m->weight[i] += w;
            m->sum[i] += w * value;
        }
    }
}

static void sequence_run(channels *c, int32_t seq, int32_t first, int32_t last) {
    const cpu_view *y = &c->n->dst[0];
    const int64_t own = c->first + (c->n_part - 1) * c->n_ch;
    mean_move(c, c->r->rs_read[seq], 0, &c->present, false);
    memset(&c->behind, 0, sizeof c->behind);
    if (c->n_part == 2) mean_move(c, c->r->rs_read[seq], 1, &c->behind, false);
    for (int32_t t = first; t < last; t++) {
        const int32_t at = c->pos[t] > 0 ? c->pos[t] % c->block_len : 0;
        if (at == 0) {
            c->present = c->behind;
            memset(&c->behind, 0, sizeof c->behind);
        }
        mean_add(c, &c->present, t, at, own);
        if (c->n_part == 2) mean_add(c, &c->behind, t, at, c->first);
        float *out = (float *)(void *)(y->data + t * y->nb[1]) + c->first;
        for (int64_t i = 0; i < c->len; i++) out[i] = c->present.sum[i] / c->present.weight[i];
        const int32_t slot = c->r->rs_write[t];
        if (cpu_recurrence_unit(c->r, slot, 0) == NULL) continue;
        mean_move(c, slot, 0, &c->present, true);
        if (c->n_part == 2) mean_move(c, slot, 1, &c->behind, true);
    }
}

static void run(const cpu_node *n, cpu_worker *w) {
    cpu_recurrence r;
    const tdm_kv_desc *desc = tdm_graph_kv(n->graph, n->node->params.pool.kv);
    const cpu_view *y = &n->dst[0];
    int64_t first, last;
    int32_t used_first, used_last;
    cpu_recurrence_get(n, SRC_STEP, SRC_STATE, &r);
    channels c = {.n = n,
                  .r = &r,
                  .pos = cpu_step_get(n->graph, &n->src[SRC_STEP], desc->cls).pos,
                  .n_ch = y->ne[0],
                  .n_part = n->node->params.pool.n_part,
                  .block_len = (int32_t)n->src[SRC_BIAS].ne[1]};
    cpu_worker_share(w, c.n_ch, CPU_SHARE_UNIT, &first, &last);
    cpu_recurrence_used(&r, &used_first, &used_last);
    for (c.first = first; c.first < last; c.first += c.len) {
        c.len = last - c.first < BLOCK ? last - c.first : BLOCK;
        for (int64_t t = 0; t < y->ne[1]; t++)
            if (t < used_first || t >= used_last)
                memset((float *)(void *)(y->data + t * y->nb[1]) + c.first, 0,
                       (size_t)c.len * sizeof(float));
        for (int32_t s = 0; s < r.n_seq; s++) {
            int32_t from, to;
            if (cpu_recurrence_tokens(&r, s, &from, &to)) sequence_run(&c, s, from, to);
        }
    }
}

const cpu_op_impl cpu_op_block_pool = {.supports = supports, .run = run};
