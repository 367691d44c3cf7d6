/* SPDX-License-Identifier: MIT
 *
 * select.c: TOP_K and MOE_ROUTE. Their results are discrete, so there is one implementation, in
 * plain C, for every instruction set and for the reference path: equal inputs give equal choices.
 */
#include <math.h>

#include "plugins/cpu/ops/arith.h"
#include "plugins/cpu/ops/strided.h"
#include "plugins/cpu/ops/ops.h"

/* ---- Top k ----------------------------------------------------------------------------------- */

/* Is (a, i) before (b, j): the larger, NaN below everything, then the lower index. */
static bool ranks_before(float a, int32_t i, float b, int32_t j) {
    if (a > b) return true;
    if (a < b) return false;
    bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return b_nan;
    return i < j;
}

/* Restores the heap order (the worst of the k on top) below entry `at`. */
static void heap_sink(float *value, int32_t *id, int64_t k, int64_t at) {
    float v = value[at];
    int32_t i = id[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= k) break;
        if (child + 1 < k && ranks_before(value[child], id[child], value[child + 1], id[child + 1]))
            child++;
        if (!ranks_before(v, i, value[child], id[child])) break;
        value[at] = value[child];
        id[at] = id[child];
        at = child;
    }
    value[at] = v;
    id[at] = i;
}

/* The k best of x[0 .. n), best first; ids count from 0. A heap of the best so far, whose top is
 * what the next must beat; then a heap sort, which leaves the worst at the end. */
static void row_top_k(const uint8_t *x, int64_t nb, int64_t n, float *value, int32_t *id,
                      int64_t k) {
    for (int64_t i = 0; i < k; i++) {
        value[i] = cpu_f32_at(x, i, nb);
        id[i] = (int32_t)i;
    }
    for (int64_t i = k / 2 - 1; i >= 0; i--) heap_sink(value, id, k, i);
    for (int64_t i = k; i < n; i++) {
        float v = cpu_f32_at(x, i, nb);
        /* The later of two equal values ranks lower. So v must be larger, or replace a NaN. */
        if (!(v > value[0]) && !(value[0] != value[0] && v == v)) continue;
        value[0] = v;
        id[0] = (int32_t)i;
        heap_sink(value, id, k, 0);
    }
    for (int64_t last = k - 1; last > 0; last--) {
        float v = value[last];
        int32_t i = id[last];
        value[last] = value[0];
        id[last] = id[0];
        value[0] = v;
        id[0] = i;
        heap_sink(value, id, last, 0);
    }
}

static void top_k_run(const cpu_node *n, cpu_worker *w) {
    const cpu_view *x = &n->src[0], *value = &n->dst[0], *id = &n->dst[1];
    int64_t k = value->ne[0], first, last;
    if (k == 0) return;
    cpu_worker_share(w, tdm_shape_rows(x->ne), 1, &first, &last);
    for (int64_t r = first; r < last; r++) {
        int32_t *ids = (void *)cpu_view_row(id, r);
        row_top_k(cpu_view_row(x, r), x->nb[0], x->ne[0], (void *)cpu_view_row(value, r), ids, k);
        for (int64_t i = 0; i < k; i++) ids[i] += n->node->params.top_k.index_base;
    }
}

/* ---- Expert routing -------------------------------------------------------------------------- */

/* A worker's scratch: score and choice of each expert, rank of each group, and whether an expert
 * may still be chosen. */
typedef struct route_room {
    float *score;
    float *choice;
    float *rank;
    uint8_t *is_open;
} route_room;

static size_t route_room_size(int64_t n_expert) {
    return ((size_t)n_expert * (3 * sizeof(float) + 1) + 63) / 64 * 64;
}

static size_t route_scratch_size(const cpu_device *device, const tdm_graph *graph,
                                 const tdm_node *node) {
    int64_t n_expert = tdm_graph_value(graph, node->src[0])->ne[0];
    return route_room_size(n_expert) * (size_t)device->n_thread;
}

/* Softmax over n numbers in place; a NaN makes all of them NaN. */
static void softmax_in_place(float *x, int64_t n) {
    float max = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > max) max = x[i];
    for (int64_t i = 0; i < n; i++) {
        /* If all are -inf the weights are 0, so that the layer adds nothing. */
        x[i] = max == -INFINITY && x[i] == x[i] ? 0.0f : expf(x[i] - max);
        sum += (double)x[i];
    }
    for (int64_t i = 0; i < n && sum != 0; i++) x[i] = (float)((double)x[i] / sum);
}

static float score_of(tdm_route_score kind, float logit) {
    switch (kind) {
    case TDM_ROUTE_SIGMOID: return 1.0f / (1.0f + expf(-logit));
    case TDM_ROUTE_SQRT_SOFTPLUS: return sqrtf(cpu_act_plain(TDM_ACT_SOFTPLUS, logit));
    default: return logit; /* softmax follows */
    }
}

static void scores_fill(const cpu_node *n, int64_t tok, const route_room *room) {
    const cpu_view *logit = &n->src[0], *bias = &n->src[1];
    const tdm_route_params *p = &n->node->params.route;
    int64_t n_expert = logit->ne[0];
    const uint8_t *x = cpu_view_row(logit, tok);
    for (int64_t e = 0; e < n_expert; e++) {
        const float value = cpu_f32_at(x, e, logit->nb[0]);
        room->score[e] = score_of((tdm_route_score)p->score, value);
        room->is_open[e] = 1;
    }
    if (p->score == TDM_ROUTE_SOFTMAX) softmax_in_place(room->score, n_expert);
    for (int64_t e = 0; e < n_expert; e++)
        room->choice[e] =
            room->score[e] + (bias->data != NULL ? cpu_f32_at(bias->data, e, bias->nb[0]) : 0.0f);
}

/* The best open one of x[0 .. n); -1 when none is open. */
static int32_t best_open(const float *x, const uint8_t *is_open, int64_t n) {
    int32_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (is_open[i] && (best < 0 || ranks_before(x[i], (int32_t)i, x[best], best)))
            best = (int32_t)i;
    return best;
}

/* Closes the experts of all groups but the best n_group_used. */
static void groups_close(const tdm_route_params *p, int64_t n_expert, const route_room *room) {
    int64_t len = n_expert / p->n_group;
    for (int64_t g = 0; g < p->n_group; g++) {
        const float *choice = room->choice + g * len;
        uint8_t *is_open = room->is_open + g * len;
        int32_t best = best_open(choice, is_open, len);
        room->rank[g] = choice[best];
        if (p->score == TDM_ROUTE_SIGMOID || p->score == TDM_ROUTE_SQRT_SOFTPLUS) {
            is_open[best] = 0;
            int32_t second = best_open(choice, is_open, len);
            if (second >= 0) room->rank[g] += choice[second];
        }
    }
    memset(room->is_open, 0, (size_t)n_expert);
    for (int32_t used = 0; used < p->n_group_used && used < p->n_group; used++) {
        int64_t best = -1;
        for (int64_t g = 0; g < p->n_group; g++)
            if (!room->is_open[g * len] &&
                (best < 0 ||
                 ranks_before(room->rank[g], (int32_t)g, room->rank[best], (int32_t)best)))
                best = g;
        memset(room->is_open + best * len, 1, (size_t)len);
    }
}

/* The scores of the experts that are given. */
static void given_take(const cpu_node *n, int64_t tok, const route_room *room, int32_t *id,
                       float *weight) {
    const cpu_view *given = &n->src[2];
    int64_t n_expert = n->src[0].ne[0], n_used = n->dst[0].ne[0];
    for (int64_t u = 0; u < n_used; u++) {
        int32_t e = cpu_i32_at(cpu_view_row(given, tok), u, given->nb[0]);
        bool is_there = e >= 0 && e < n_expert;
        id[u] = is_there ? e : -1;
        /* the softmax that follows counts only experts that exist */
        float none = n->node->params.route.score == TDM_ROUTE_TOP_SOFTMAX ? -INFINITY : 0.0f;
        weight[u] = is_there ? room->score[e] : none;
    }
}

static void token_route(const cpu_node *n, int64_t tok, const route_room *room) {
    const tdm_route_params *p = &n->node->params.route;
    int64_t n_expert = n->src[0].ne[0], n_used = n->dst[0].ne[0];
    int32_t *id = (void *)cpu_view_row(&n->dst[0], tok);
    float *weight = (void *)cpu_view_row(&n->dst[1], tok);
    const bool is_given = n->src[2].data != NULL;
    scores_fill(n, tok, room);
    if (is_given) given_take(n, tok, room, id, weight);
    if (p->n_group > 1) groups_close(p, n_expert, room);
    for (int64_t u = 0; u < n_used && !is_given; u++) {
        int32_t best = best_open(room->choice, room->is_open, n_expert);
        id[u] = best; /* the rules leave at least n_used open */
        weight[u] = room->score[best];
        room->is_open[best] = 0;
    }
    if (p->score == TDM_ROUTE_TOP_SOFTMAX) softmax_in_place(weight, n_used);
    double sum = 0;
    for (int64_t u = 0; u < n_used; u++) sum += (double)weight[u];
    double factor = p->scale != 0.0f ? (double)p->scale : 1.0;
    if (p->normalize && sum != 0) factor /= sum;
    for (int64_t u = 0; u < n_used; u++) weight[u] = (float)((double)weight[u] * factor);
    for (int64_t u = 0; p->id_divisor > 1 && u < n_used; u++) id[u] /= p->id_divisor;
}

static void route_run(const cpu_node *n, cpu_worker *w) {
    int64_t n_expert = n->src[0].ne[0], first, last;
    uint8_t *memory = n->scratch + (size_t)w->ith * route_room_size(n_expert);
    route_room room = {.score = (void *)memory};
    room.choice = room.score + n_expert;
    room.rank = room.choice + n_expert;
    room.is_open = (void *)(room.rank + n_expert);
    cpu_worker_share(w, tdm_shape_rows(n->src[0].ne), 1, &first, &last);
    for (int64_t tok = first; tok < last; tok++) token_route(n, tok, &room);
}

const cpu_op_impl cpu_op_top_k = {.run = top_k_run};
const cpu_op_impl cpu_op_moe_route = {.scratch_size = route_scratch_size, .run = route_run};
