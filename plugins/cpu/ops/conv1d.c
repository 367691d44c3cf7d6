/* SPDX-License-Identifier: MIT
 *
 * conv1d.c: CONV1D: a short causal convolution over the tokens of each sequence, a filter for each
 * channel.
 *
 *   y[c, t] = bias[c] + sum_i w[i, c] * x[c, t - k + 1 + i]
 *
 * Workers divide the channels. A worker goes through its channels in blocks: it turns the weights
 * of a block so that channels are neighbours, reads the inputs that the state holds for them, and
 * then goes through the tokens.
 */
#include <string.h>

#include "plugins/cpu/ops/ops.h"
#include "plugins/cpu/ops/recurrent.h"
#include "plugins/cpu/ops/strided.h"

enum { SRC_X, SRC_W, SRC_BIAS, SRC_STEP, SRC_STATE };
enum { BLOCK = 64 };

static tdm_status supports(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                           tdm_error *err) {
    (void)device;
    return cpu_recurrent_supports(graph, node, SRC_STEP, SRC_STATE, err);
}

static size_t floats_round(size_t n) {
    return (n + 15) / 16 * 16;
}

/* A worker's scratch for a block: pointers to k rows, then k rows of weights, k - 1 of the state, k
 * for inputs whose channels are not adjacent in memory, and one of the bias. */
static size_t worker_size(int64_t k) {
    return (floats_round((size_t)k * sizeof(float *) / sizeof(float)) + (size_t)(3 * k) * BLOCK) *
           sizeof(float);
}

static size_t scratch_size(const cpu_device *device, const tdm_graph *graph, const tdm_node *node) {
    return worker_size(tdm_graph_value(graph, node->src[SRC_W])->ne[0]) * (size_t)device->n_thread;
}

/* A block of channels of one sequence. */
typedef struct block {
    const cpu_node *n;
    const cpu_recurrence *r;
    const cpu_recurrent_kernels *kernels;
    int64_t first, len, k;
    const float **rows; /* [k] */
    float *w, *history, *input, *bias;
} block;

static const float *filter_at(const cpu_node *n, int64_t i, int64_t c) {
    const cpu_view *w = &n->src[SRC_W];
    return (const float *)(const void *)(w->data + i * w->nb[0] + c * w->nb[1]);
}

static void weights_load(block *b) {
    const cpu_view *bias = &b->n->src[SRC_BIAS];
    for (int64_t c = 0; c < b->len; c++) {
        for (int64_t i = 0; i < b->k; i++) b->w[i * BLOCK + c] = *filter_at(b->n, i, b->first + c);
        b->bias[c] = bias->data != NULL ? cpu_f32_at(bias->data, b->first + c, bias->nb[0]) : 0.0f;
    }
}

/* Channel c as channel *at of unit *unit; returns how many channels from c on are neighbours in
 * that unit. */
static int64_t channel_find(const block *b, int64_t c, int64_t *unit, int64_t *at) {
    const tdm_conv_params *p = &b->n->node->params.conv;
    int64_t n_unit = b->r->layout.n_head_kv, before = 0;
    for (int32_t s = 0; s < p->n_segment; s++, before += p->unit_len[s - 1]) {
        int64_t in = c - n_unit * before, len = p->unit_len[s];
        if (in >= n_unit * len) continue;
        *unit = in / len;
        *at = before + in % len;
        return len - in % len;
    }
    *unit = *at = 0;
    return b->len;
}

/* The k - 1 inputs before a token, between the slot and rows of BLOCK floats. A slot of -1 gives
 * zeros. */
static void history_move(const block *b, int32_t slot, float *rows, bool is_store) {
    int64_t n_ch = b->n->src[SRC_X].ne[0], n_unit = b->r->layout.n_head_kv, len = n_ch / n_unit;
    for (int64_t c = 0, n; c < b->len; c += n) {
        int64_t unit, at;
        n = channel_find(b, b->first + c, &unit, &at);
        if (n > b->len - c) n = b->len - c;
        float *slot_data = cpu_recurrence_unit(b->r, slot, unit);
        for (int64_t i = 0; i < b->k - 1; i++) {
            float *row = rows + i * BLOCK + c;
            if (slot_data == NULL)
                memset(row, 0, (size_t)n * sizeof *row);
            else if (is_store)
                memcpy(slot_data + i * len + at, row, (size_t)n * sizeof *row);
            else
                memcpy(row, slot_data + i * len + at, (size_t)n * sizeof *row);
        }
    }
}

/* The block's channels of a token; they are copied to `spare` where they are not adjacent. */
static const float *input_get(const block *b, int32_t token, float *spare) {
    const cpu_view *x = &b->n->src[SRC_X];
    const uint8_t *at = x->data + token * x->nb[1] + b->first * x->nb[0];
    if (x->nb[0] == (int64_t)sizeof(float)) return (const float *)(const void *)at;
    for (int64_t c = 0; c < b->len; c++) spare[c] = cpu_f32_at(at, c, x->nb[0]);
    return spare;
}

static void slot_store(block *b, int32_t slot) {
    if (cpu_recurrence_unit(b->r, slot, 0) == NULL) return;
    /* Row 0 is the oldest input, which the next token no longer reads. */
    for (int64_t i = 0; i < b->k - 1; i++)
        memmove(b->history + i * BLOCK, b->rows[i + 1], (size_t)b->len * sizeof(float));
    history_move(b, slot, b->history, true);
    for (int64_t i = 0; i < b->k - 1; i++) b->rows[i + 1] = b->history + i * BLOCK;
}

static void sequence_run(block *b, int32_t seq, int32_t first, int32_t last) {
    const cpu_view *y = &b->n->dst[0];
    history_move(b, b->r->rs_read[seq], b->history, false);
    for (int64_t i = 1; i < b->k; i++) b->rows[i] = b->history + (i - 1) * BLOCK;
    for (int32_t t = first; t < last; t++) {
        for (int64_t i = 1; i < b->k; i++) b->rows[i - 1] = b->rows[i];
        b->rows[b->k - 1] = input_get(b, t, b->input + (t % b->k) * BLOCK);
        float *out = (float *)(void *)(y->data + t * y->nb[1]) + b->first;
        b->kernels->conv(b->rows, b->w, BLOCK, b->k, b->bias, out, b->len);
        if (b->r->rs_write[t] >= 0) slot_store(b, b->r->rs_write[t]);
    }
}

static void unused_clear(const block *b) {
    const cpu_view *y = &b->n->dst[0];
    int32_t first, last;
    cpu_recurrence_used(b->r, &first, &last);
    for (int64_t t = 0; t < y->ne[1]; t++)
        if (t < first || t >= last)
            memset((float *)(void *)(y->data + t * y->nb[1]) + b->first, 0,
                   (size_t)b->len * sizeof(float));
}

static void run(const cpu_node *n, cpu_worker *w) {
    cpu_recurrence r;
    int64_t first, last, k = n->src[SRC_W].ne[0];
    uint8_t *at = n->scratch + (size_t)w->ith * worker_size(k);
    block b = {.n = n, .r = &r, .kernels = cpu_recurrent_pick(n->device), .k = k};
    cpu_recurrence_get(n, SRC_STEP, SRC_STATE, &r);
    b.rows = (const float **)(void *)at;
    b.w = (float *)(void *)at + floats_round((size_t)k * sizeof(float *) / sizeof(float));
    b.history = b.w + k * BLOCK;
    b.input = b.history + (k - 1) * BLOCK;
    b.bias = b.input + k * BLOCK;
    cpu_worker_share(w, n->src[SRC_X].ne[0], CPU_SHARE_UNIT, &first, &last);
    for (b.first = first; b.first < last; b.first += b.len) {
        b.len = last - b.first < BLOCK ? last - b.first : BLOCK;
        unused_clear(&b);
        weights_load(&b);
        for (int32_t s = 0; s < r.n_seq; s++) {
            int32_t from, to;
            if (cpu_recurrence_tokens(&r, s, &from, &to)) sequence_run(&b, s, from, to);
        }
    }
}

const cpu_op_impl cpu_op_conv1d = {.supports = supports, .scratch_size = scratch_size, .run = run};
