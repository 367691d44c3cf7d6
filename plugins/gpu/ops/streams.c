/* SPDX-License-Identifier: MIT
 *
 * streams.c: see streams.h. Each fusion is one step of the kernel STREAMS.
 */
#include "plugins/gpu/ops/streams.h"

#include <string.h>

#include "plugins/gpu/ops/axes.h"
#include "plugins/gpu/ops/norm.h"

enum {
    MAX_STREAM = TDM_MAX_SINKHORN,
    LANE_LEN = 4,    /* elements that an invocation loads at a time */
    PART_LEN = 1024, /* elements of a workgroup, without a norm */
    PART_THREADS = 128
};

/* ---- Patterns -------------------------------------------------------------------------------- */

static const tdm_node *node_at(const gpu_uses *uses, int32_t node) {
    return tdm_graph_node(uses->graph, node);
}

/* The node that writes the value, where its op is `op` and the value has one reader; else -1. */
static int32_t inner_writer(const gpu_uses *uses, int32_t value, tdm_op op) {
    return gpu_uses_is_inner(uses, value) ? gpu_uses_writer(uses, value, op) : -1;
}

/* The chain of ADDs that ends with `last`, each of which adds a value to the sum before it: writes
 * them to adds[MAX_STREAM], the first one first, and returns how many; 0 where they are too
 * many. */
static int adds_find(const gpu_uses *uses, int32_t last, int32_t adds[MAX_STREAM]) {
    int n = 0;
    for (int32_t at = last; at >= 0; n++) {
        if (n == MAX_STREAM - 1) return 0;
        memmove(adds + 1, adds, (size_t)n * sizeof *adds);
        adds[0] = at;
        at = inner_writer(uses, node_at(uses, at)->src[0], TDM_OP_ADD);
    }
    return n;
}

static void append(gpu_fused *out, int32_t node) {
    out->node[out->n++] = node;
}

/* The pattern of a read: MUL of x by factors, then ADDs of all streams of its result. */
bool gpu_streams_read_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    int32_t adds[MAX_STREAM];
    if (node_at(uses, node)->op != TDM_OP_ADD) return false;
    const int n_add = adds_find(uses, node, adds);
    if (n_add == 0) return false;
    const int32_t base = uses->places[node_at(uses, adds[0])->src[0]].base;
    const int32_t mul = gpu_uses_writer(uses, base, TDM_OP_MUL);
    if (mul < 0 || uses->n_read[base] != n_add + 1 ||
        tdm_graph_value(uses->graph, base)->kind != TDM_VALUE_TEMP)
        return false;
    *out = (gpu_fused){.node = {mul}, .n = 1};
    for (int i = 0; i < n_add; i++) {
        if (uses->places[node_at(uses, adds[i])->src[1]].base != base) return false;
        append(out, adds[i]);
    }
    return true;
}

/* The pattern `before`, then RMS_NORM of its result. is_inner: nothing else may read the result. */
static bool norm_match(const gpu_uses *uses, int32_t node, bool is_inner,
                       bool (*before)(const gpu_uses *uses, int32_t node, gpu_fused *out),
                       gpu_fused *out) {
    const tdm_node *norm = node_at(uses, node);
    if (norm->op != TDM_OP_RMS_NORM || (is_inner && !gpu_uses_is_inner(uses, norm->src[0])))
        return false;
    const int32_t add = gpu_uses_writer(uses, uses->places[norm->src[0]].base, TDM_OP_ADD);
    if (add < 0 || !before(uses, add, out)) return false;
    append(out, node);
    return true;
}

bool gpu_streams_read_norm_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return norm_match(uses, node, true, gpu_streams_read_match, out);
}

/* Where a MUL of a REPEAT writes the value, and each has one reader: appends both nodes. */
static bool spread_append(const gpu_uses *uses, int32_t value, gpu_fused *out) {
    const int32_t mul = inner_writer(uses, value, TDM_OP_MUL);
    if (mul < 0) return false;
    const int32_t repeat = inner_writer(uses, node_at(uses, mul)->src[0], TDM_OP_REPEAT);
    if (repeat < 0) return false;
    append(out, repeat);
    append(out, mul);
    return true;
}

/* True where a later ADD of the same pattern continues the sum of `add`, so that the pattern does
 * not end with `add`. */
static bool goes_on(const gpu_uses *uses, int32_t add) {
    const int32_t sum = node_at(uses, add)->dst[0];
    if (!gpu_uses_is_inner(uses, sum)) return false;
    for (int32_t i = add + 1; i < uses->graph->n_node; i++) {
        const tdm_node *node = node_at(uses, i);
        gpu_fused spread = {.n = 0};
        if (node->n_src > 0 && node->src[0] == sum)
            return node->op == TDM_OP_ADD && spread_append(uses, node->src[1], &spread);
    }
    return false;
}

/* The pattern of a write: REPEAT of y, MUL by factors, ADD to the streams. With a mix, before that:
 * REPEAT and MUL of each stream, and ADDs of all results. */
bool gpu_streams_write_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    int32_t adds[MAX_STREAM];
    *out = (gpu_fused){.n = 0};
    if (node_at(uses, node)->op != TDM_OP_ADD ||
        !spread_append(uses, node_at(uses, node)->src[1], out) || goes_on(uses, node))
        return false;
    append(out, node);
    const int32_t mixed = inner_writer(uses, node_at(uses, node)->src[0], TDM_OP_ADD);
    const int n_add = mixed < 0 ? 0 : adds_find(uses, mixed, adds);
    if (n_add == 0) return true;
    gpu_fused with = *out;
    if (with.n + 3 * n_add + 2 + 2 > GPU_FUSE_MAX) return true;
    bool is_mix = spread_append(uses, node_at(uses, adds[0])->src[0], &with);
    for (int i = 0; i < n_add && is_mix; i++) {
        is_mix = spread_append(uses, node_at(uses, adds[i])->src[1], &with);
        append(&with, adds[i]);
    }
    if (is_mix) *out = with;
    return true;
}

bool gpu_streams_write_norm_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    return norm_match(uses, node, false, gpu_streams_write_match, out);
}

bool gpu_streams_write_norm_mul_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    const tdm_node *mul = node_at(uses, node);
    if (mul->op != TDM_OP_MUL) return false;
    const int32_t norm = inner_writer(uses, mul->src[0], TDM_OP_RMS_NORM);
    if (norm < 0 || !gpu_streams_write_norm_match(uses, norm, out)) return false;
    append(out, node);
    return true;
}

/* ---- The step -------------------------------------------------------------------------------- */

/* A step of STREAMS (formula: kernel.h). Strides count elements. */
typedef struct streams {
    gpu_operand x, c;
    int32_t n_in;            /* streams that are added; 0 = there is no c */
    int64_t x_stride[2];     /* over streams, tokens */
    int64_t c_stride[3];     /* over streams of x, streams of the sum, tokens */
    const gpu_value *y, *f;  /* y [n_embd, 1, n_tok], f [1, n_out, n_tok]; NULL = none */
    const gpu_value *sum;    /* n_embd * n_out * n_tok elements, contiguous */
    const gpu_emit *norm;    /* RMS_NORM of the sum; NULL = none */
    const gpu_value *dst;    /* result of the norm, with its weight */
    const gpu_value *weight; /* of the norm; not present = none */
    bool is_kept;            /* the sum is stored beside the norm */
    int64_t n_embd, n_out, n_tok;
} streams;

static int64_t stride_of(const gpu_value *v, int axis) {
    return v->ne[axis] == 1 ? 0 : v->nb[axis] / (int64_t)sizeof(float);
}

/* Refuses a value that is not f32, or whose groups of four elements of a row do not lie at
 * multiples of 16 bytes. */
static tdm_status aligned_check(const gpu_emit *e, const gpu_value *v, tdm_error *err) {
    if (v->type == TDM_TYPE_F32 && gpu_value_lane(v) == GPU_LANE_ALIGNED) return TDM_OK;
    return gpu_refuse(e, err, "streams that are not aligned are not fused");
}

static tdm_status norm_set(const gpu_emit *e, const streams *s, gpu_step *step, tdm_error *err) {
    const gpu_value *x = &s->norm->src[0];
    const float eps = s->norm->node->params.norm.eps, part = (float)(1.0 / (double)x->ne[0]);
    const bool is_each = x->ne[0] == s->n_embd;
    const gpu_value *w = s->weight;
    if ((!is_each && x->ne[0] != s->n_embd * s->n_out) || !gpu_value_is_contiguous(x) ||
        x->place.off != s->sum->place.off || x->place.size != s->sum->place.size)
        return gpu_refuse(e, err, "a norm of parts of streams is not fused");
    step->spec[2] = is_each ? GPU_STREAMS_NORM_EACH : GPU_STREAMS_NORM_ALL;
    step->spec[3] = w->is_present;
    step->spec[4] = s->is_kept;
    memcpy(&step->word[11], &eps, sizeof eps);
    memcpy(&step->word[12], &part, sizeof part);
    if (!w->is_present) return TDM_OK;
    if ((s->n_in > 0 && s->y != NULL) || !is_each || w->ne[0] != s->n_embd ||
        (w->ne[1] != 1 && w->ne[1] != s->n_out) || w->ne[2] != 1 || w->ne[3] != 1)
        return gpu_refuse(e, err, "a norm with such weights is not fused");
    step->operand[s->n_in == 0 ? 3 : 4] = w->place;
    tdm_status status = aligned_check(e, w, err);
    return status != TDM_OK ? status : gpu_word(e, &step->word[13], stride_of(w, 1), err);
}

static tdm_status streams_emit(gpu_emit *e, const streams *s, tdm_error *err) {
    const bool has_norm = s->norm != NULL;
    const int64_t n = s->n_embd, n_row = s->n_out * s->n_tok;
    if (n * n_row == 0) return TDM_OK;
    if (n % LANE_LEN != 0 || s->x.off % 16 != 0 || s->x_stride[0] % LANE_LEN != 0 ||
        s->x_stride[1] % LANE_LEN != 0)
        return gpu_refuse(e, err, "streams that are not aligned are not fused");
    gpu_step step = gpu_step_make(e, GPU_KERNEL_STREAMS, PART_THREADS);
    int64_t n_group = n_row, n_part = 1, unit = n / LANE_LEN, trips = s->n_in + 1;
    tdm_status status = TDM_OK;
    if (has_norm) {
        status = norm_set(e, s, &step, err);
        const bool is_all = step.spec[2] == GPU_STREAMS_NORM_ALL;
        if (is_all) n_group = s->n_tok;
        step.group_size = gpu_row_group_size(e->target, is_all ? n * s->n_out : n, n_group);
        trips *= is_all ? s->n_out : 1;
    } else {
        unit = PART_LEN / LANE_LEN;
        n_part = (n + PART_LEN - 1) / PART_LEN;
        n_group = n_row * n_part;
    }
    const int64_t words[] = {n,
                             s->n_out,
                             s->n_tok,
                             s->x_stride[0],
                             s->x_stride[1],
                             s->c_stride[0],
                             s->c_stride[1],
                             s->c_stride[2],
                             s->y != NULL ? stride_of(s->y, 2) : 0,
                             s->f != NULL ? stride_of(s->f, 1) : 0,
                             s->f != NULL ? stride_of(s->f, 2) : 0};
    int32_t extent;
    for (int i = 0; i < 11 && status == TDM_OK; i++)
        status = gpu_word(e, &step.word[i], words[i], err);
    if (status == TDM_OK) status = gpu_word(e, &extent, n * n_row, err);
    if (status == TDM_OK) status = gpu_word(e, &extent, (int64_t)(s->x.size / sizeof(float)), err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[14], n_group, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, n_group, err);
    if (status == TDM_OK && s->y != NULL) status = aligned_check(e, s->y, err);
    if (status != TDM_OK) return status;
    step.word[15] = (int32_t)n_part;
    step.word[16] = (int32_t)unit;
    step.trips = (trips + 1) * (unit / step.group_size + 1) + 2 * 256;
    step.spec[0] = s->n_in;
    step.spec[1] = s->y != NULL;
    step.operand[0] = has_norm ? s->dst->place : s->sum->place;
    if (s->is_kept) step.operand[1] = s->sum->place;
    step.operand[2] = s->x;
    if (s->n_in > 0) step.operand[3] = s->c;
    if (s->y != NULL) {
        step.operand[4] = s->y->place;
        step.operand[5] = s->f->place;
    }
    return gpu_emit_step(e, &step, err);
}

/* ---- Reads ----------------------------------------------------------------------------------- */

static bool has_shape(const gpu_value *v, int64_t n0, int64_t n1, int64_t n2) {
    return v->ne[0] == n0 && v->ne[1] == n1 && v->ne[2] == n2 && v->ne[3] == 1;
}

/* True where the n values have the same shape and strides, lie in the same memory, and follow each
 * other at one distance: *distance_out, bytes, a multiple of 4, not negative. */
static bool distance_get(const gpu_value *const *values, int n, int64_t *distance_out) {
    const gpu_operand *first = &values[0]->place;
    *distance_out = n > 1 ? (int64_t)(values[1]->place.off - first->off) : 0;
    for (int i = 0; i < n; i++) {
        const gpu_operand *each = &values[i]->place;
        if (each->space != first->space || each->index != first->index ||
            memcmp(values[i]->nb, values[0]->nb, sizeof values[0]->nb) != 0 ||
            memcmp(values[i]->ne, values[0]->ne, sizeof values[0]->ne) != 0 ||
            each->off != first->off + (uint64_t)(i * *distance_out))
            return false;
    }
    return *distance_out % (int64_t)sizeof(float) == 0 && *distance_out >= 0;
}

/* The memory from the first of the n values to the end of the last. */
static gpu_operand span_of(const gpu_value *const *values, int n) {
    gpu_operand span = values[0]->place;
    span.size += values[n - 1]->place.off - values[0]->place.off;
    return span;
}

tdm_status gpu_fused_streams_read(gpu_emit *nodes, tdm_error *err) {
    const gpu_value *x = &nodes[0].src[0], *c = &nodes[0].src[1], *each[MAX_STREAM];
    int n_add = 0;
    int64_t distance;
    while (nodes[n_add + 1].node != NULL && nodes[n_add + 1].node->op == TDM_OP_ADD) n_add++;
    gpu_emit *norm = nodes[n_add + 1].node != NULL ? &nodes[n_add + 1] : NULL;
    gpu_emit *e = norm != NULL ? norm : &nodes[n_add];
    const int64_t n_in = n_add + 1;
    each[0] = &nodes[1].src[0];
    for (int i = 0; i < n_add; i++) each[i + 1] = &nodes[i + 1].src[1];
    if (!has_shape(c, 1, n_in, x->ne[2]) || !has_shape(x, c->ne[0] * x->ne[0], n_in, x->ne[2]) ||
        !has_shape(each[0], x->ne[0], 1, x->ne[2]) ||
        each[0]->place.off != nodes[0].dst[0].place.off ||
        !distance_get(each, (int)n_in, &distance) || distance != nodes[0].dst[0].nb[1])
        return gpu_refuse(e, err, "a sum of parts of streams is not fused");
    streams s = {.x = x->place,
                 .c = c->place,
                 .n_in = (int32_t)n_in,
                 .x_stride = {stride_of(x, 1), stride_of(x, 2)},
                 .c_stride = {stride_of(c, 1), 0, stride_of(c, 2)},
                 .sum = &nodes[n_add].dst[0],
                 .norm = norm,
                 .n_embd = x->ne[0],
                 .n_out = 1,
                 .n_tok = x->ne[2]};
    if (norm != NULL) {
        s.dst = &norm->dst[0];
        s.weight = &norm->src[1];
    }
    tdm_status status = aligned_check(e, x, err);
    return status != TDM_OK ? status : streams_emit(e, &s, err);
}

/* ---- Writes ---------------------------------------------------------------------------------- */

/* Reads the nodes of a mix, if there is one, into *s: pairs of REPEAT and MUL from nodes[first] on,
 * an ADD behind each pair but the first. Returns the index of the node behind them; -1 where their
 * sources are not streams of one value. */
static int mix_get(gpu_emit *nodes, int first, const gpu_value *sum, streams *s) {
    const gpu_value *x[MAX_STREAM], *c[MAX_STREAM];
    int64_t x_distance, c_distance;
    int at = first, n = 0;
    while (nodes[at].node != NULL && nodes[at].node->op == TDM_OP_REPEAT) {
        if (n == MAX_STREAM) return -1;
        x[n] = &nodes[at].src[0];
        c[n] = &nodes[at + 1].src[1];
        n++;
        at += n == 1 ? 2 : 3;
    }
    if (n == 0) return at;
    if (!has_shape(x[0], sum->ne[0], 1, sum->ne[2]) ||
        !has_shape(c[0], 1, sum->ne[1], sum->ne[2]) || !distance_get(x, n, &x_distance) ||
        !distance_get(c, n, &c_distance) || gpu_value_lane(x[0]) != GPU_LANE_ALIGNED)
        return -1;
    s->n_in = n;
    s->x = span_of(x, n);
    s->c = span_of(c, n);
    s->x_stride[0] = x_distance / (int64_t)sizeof(float);
    s->x_stride[1] = stride_of(x[0], 2);
    s->c_stride[0] = c_distance / (int64_t)sizeof(float);
    s->c_stride[1] = stride_of(c[0], 1);
    s->c_stride[2] = stride_of(c[0], 2);
    return at;
}

/* nodes: REPEAT of y, MUL, ADD; a mix or none; RMS_NORM or none; MUL or none. */
tdm_status gpu_fused_streams_write(gpu_emit *nodes, tdm_error *err) {
    const gpu_value *y = &nodes[0].src[0], *f = &nodes[1].src[1], *sum = &nodes[2].dst[0];
    const gpu_value *x = &nodes[2].src[0];
    streams s = {
        .y = y, .f = f, .sum = sum, .n_embd = sum->ne[0], .n_out = sum->ne[1], .n_tok = sum->ne[2]};
    gpu_emit *e = &nodes[2];
    const int at = mix_get(nodes, 3, sum, &s);
    if (at < 0 || !has_shape(y, sum->ne[0], 1, sum->ne[2]) ||
        !has_shape(f, 1, sum->ne[1], sum->ne[2]) || memcmp(x->ne, sum->ne, sizeof x->ne) != 0)
        return gpu_refuse(e, err, "such sums of streams are not fused");
    tdm_status status = TDM_OK;
    if (s.n_in == 0) {
        s.x = x->place;
        s.x_stride[0] = stride_of(x, 1);
        s.x_stride[1] = stride_of(x, 2);
        status = aligned_check(e, x, err);
    }
    if (nodes[at].node != NULL) {
        gpu_emit *mul = nodes[at + 1].node != NULL ? &nodes[at + 1] : NULL;
        e = mul != NULL ? mul : &nodes[at];
        s.norm = &nodes[at];
        s.dst = &e->dst[0];
        s.weight = mul != NULL ? &mul->src[1] : &nodes[at].src[1];
        s.is_kept = true;
        if (mul != NULL && nodes[at].src[1].is_present)
            return gpu_refuse(e, err, "a norm with two weights is not fused");
    }
    return status != TDM_OK ? status : streams_emit(e, &s, err);
}
