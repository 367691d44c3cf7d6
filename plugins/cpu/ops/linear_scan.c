/* SPDX-License-Identifier: MIT
 *
 * linear_scan.c: LINEAR_SCAN: a matrix for each head that decays and takes up an outer product with
 * every token. Gated delta rule: Yang et al., arXiv:2412.06464; state space duality: Dao and Gu,
 * arXiv:2405.21060.
 *
 *   e = erase S,  S *= exp(g a),  u = v or beta (v - k S),  S += k u + write e,  o = scale q S
 *
 * Rows of S (an element of v each) do not depend on one another. Workers divide the work into
 * pieces: some rows of one head of one sequence, which stay in the scratch for all its tokens.
 */
#include <string.h>

#include "plugins/cpu/ops/ops.h"
#include "plugins/cpu/ops/recurrent.h"
#include "plugins/cpu/ops/strided.h"

enum { SRC_Q, SRC_K, SRC_V, SRC_G, SRC_A, SRC_BETA, SRC_STEP, SRC_STATE, SRC_ERASE, SRC_WRITE };
enum { PIECE = 32 }; /* rows of a piece: 16 KB where dk is 128 */

static tdm_status supports(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                           tdm_error *err) {
    (void)device;
    return cpu_recurrent_supports(graph, node, SRC_STEP, SRC_STATE, err);
}

/* A worker's scratch: the rows of a piece, then q, k, g, a, erase, write and the decay, then v and
 * o. */
enum { N_SPARE = 6 };

static size_t worker_size(int64_t dk) {
    return cpu_kv_round((size_t)((PIECE + N_SPARE + 1) * dk + 2 * PIECE) * sizeof(float));
}

static size_t scratch_size(const cpu_device *device, const tdm_graph *graph, const tdm_node *node) {
    return worker_size(tdm_graph_value(graph, node->src[SRC_Q])->ne[0]) * (size_t)device->n_thread;
}

typedef struct piece {
    const cpu_node *n;
    const cpu_recurrence *r;
    const cpu_recurrent_kernels *kernels;
    int64_t dk, head, head_k;
    int64_t unit, matrix;  /* of the state */
    int64_t first, n_row;  /* elements of v */
    float *s;              /* [n_row][dk] */
    float *spare[N_SPARE]; /* [dk] for q, k, g, a, erase, write */
    float *decay;          /* [dk] */
    float *v, *o;          /* [PIECE] */
} piece;

/* n elements of a row, from `first` on; they are copied to `spare` where they are not adjacent. */
static const float *row_get(const cpu_view *x, int64_t first, int64_t n, int64_t i1, int64_t i2,
                            float *spare) {
    const uint8_t *at = x->data + first * x->nb[0] + i1 * x->nb[1] + i2 * x->nb[2];
    if (x->nb[0] == (int64_t)sizeof(float) || n == 1) return (const float *)(const void *)at;
    for (int64_t i = 0; i < n; i++) spare[i] = cpu_f32_at(at, i, x->nb[0]);
    return spare;
}

/* Rows of the piece in a slot; NULL where there is none. */
static float *slot_rows(const piece *p, int32_t slot) {
    float *unit = cpu_recurrence_unit(p->r, slot, p->unit);
    const int64_t dv = p->n->src[SRC_V].ne[0];
    return unit != NULL ? unit + (p->matrix * dv + p->first) * p->dk : NULL;
}

static void decay_make(const piece *p, int32_t token, cpu_scan_token *t) {
    const cpu_view *g = &p->n->src[SRC_G], *a = &p->n->src[SRC_A];
    const float *rate = row_get(g, 0, g->ne[0], p->head, g->ne[2] == 1 ? 0 : token, p->spare[2]);
    const float *factor = a->data != NULL ? row_get(a, 0, a->ne[0], p->head, 0, p->spare[3]) : NULL;
    bool is_one = g->ne[0] == 1 && (factor == NULL || a->ne[0] == 1);
    p->kernels->decay(rate, g->ne[0] > 1, factor, factor != NULL && a->ne[0] > 1, p->decay,
                      is_one ? 1 : p->dk);
    t->decay = is_one ? NULL : p->decay;
    t->decay_all = p->decay[0];
}

static void token_run(const piece *p, int32_t token) {
    const cpu_view *beta = &p->n->src[SRC_BETA], *o = &p->n->dst[0];
    const float scale = p->n->node->params.scan.scale;
    cpu_scan_token t = {
        .q = row_get(&p->n->src[SRC_Q], 0, p->dk, p->head_k, token, p->spare[0]),
        .k = row_get(&p->n->src[SRC_K], 0, p->dk, p->head_k, token, p->spare[1]),
        .v = row_get(&p->n->src[SRC_V], p->first, p->n_row, p->head, token, p->v),
        .has_beta = beta->data != NULL,
        .scale = scale != 0 ? scale : 1.0f,
        .o = p->o,
    };
    if (t.has_beta) t.beta = *row_get(beta, 0, 1, p->head, token, NULL);
    if (p->n->src[SRC_ERASE].data != NULL) {
        t.erase = row_get(&p->n->src[SRC_ERASE], 0, p->dk, p->head_k, token, p->spare[4]);
        t.write = row_get(&p->n->src[SRC_WRITE], 0, p->dk, p->head_k, token, p->spare[5]);
    }
    decay_make(p, token, &t);
    p->kernels->scan(p->s, p->n_row, p->dk, &t);
    memcpy(o->data + p->first * o->nb[0] + p->head * o->nb[1] + token * o->nb[2], p->o,
           (size_t)p->n_row * sizeof(float));
}

static void piece_run(const piece *p, int32_t seq, int32_t first, int32_t last) {
    const size_t size = (size_t)(p->n_row * p->dk) * sizeof(float);
    const float *from = slot_rows(p, p->r->rs_read[seq]);
    if (from != NULL)
        memcpy(p->s, from, size);
    else
        memset(p->s, 0, size);
    for (int32_t t = first; t < last; t++) {
        token_run(p, t);
        float *to = slot_rows(p, p->r->rs_write[t]);
        if (to != NULL) memcpy(to, p->s, size);
    }
}

static void head_find(piece *p) {
    const tdm_scan_params *params = &p->n->node->params.scan;
    int64_t n_k = p->n->src[SRC_Q].ne[1], n_v = p->n->src[SRC_V].ne[1];
    if (params->is_tiled) {
        p->head_k = p->unit = p->head % n_k;
        p->matrix = p->head / n_k;
        return;
    }
    int64_t m = n_v / p->r->layout.n_head_kv;
    p->head_k = (params->first_head + p->head) / params->heads_per_k - params->first_head_k;
    p->unit = p->head / m;
    p->matrix = p->head % m;
}

static void unused_clear(const cpu_node *n, const cpu_recurrence *r, cpu_worker *w) {
    const cpu_view *o = &n->dst[0];
    int32_t used_first, used_last;
    int64_t first, last;
    cpu_recurrence_used(r, &used_first, &used_last);
    cpu_worker_share(w, o->ne[2], 1, &first, &last);
    for (int64_t t = first; t < last; t++)
        if (t < used_first || t >= used_last)
            memset(o->data + t * o->nb[2], 0, (size_t)(o->ne[0] * o->ne[1]) * sizeof(float));
}

static void run(const cpu_node *n, cpu_worker *w) {
    cpu_recurrence r;
    const int64_t dk = n->src[SRC_Q].ne[0], dv = n->src[SRC_V].ne[0], n_v = n->src[SRC_V].ne[1];
    float *at = (float *)(void *)(n->scratch + (size_t)w->ith * worker_size(dk));
    piece p = {.n = n, .r = &r, .kernels = cpu_recurrent_pick(n->device), .dk = dk, .s = at};
    cpu_recurrence_get(n, SRC_STEP, SRC_STATE, &r);
    for (int i = 0; i < N_SPARE; i++) p.spare[i] = at + (PIECE + i) * dk;
    p.decay = at + (PIECE + N_SPARE) * dk;
    p.v = at + (PIECE + N_SPARE + 1) * dk;
    p.o = p.v + PIECE;
    unused_clear(n, &r, w);
    const int64_t n_piece = (dv + PIECE - 1) / PIECE, n_item = n_piece * n_v;
    int64_t first, last;
    cpu_worker_share(w, n_item * r.n_seq, 1, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int32_t seq = (int32_t)(i / n_item), from, to;
        if (!cpu_recurrence_tokens(&r, seq, &from, &to)) continue;
        p.head = i % n_item / n_piece;
        p.first = i % n_piece * PIECE;
        p.n_row = dv - p.first < PIECE ? dv - p.first : PIECE;
        head_find(&p);
        piece_run(&p, seq, from, to);
    }
}

const cpu_op_impl cpu_op_linear_scan = {
    .supports = supports, .scratch_size = scratch_size, .run = run};
