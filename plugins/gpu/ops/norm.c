/* SPDX-License-Identifier: MIT
 *
 * norm.c: steps of ops that reduce a row: SOFTMAX, LAYER_NORM, RMS_NORM and its halves SUM_SQ and
 * RMS_APPLY; and RMS_NORM fused with the ADD before it or the MUL or SCALE after it. A workgroup
 * computes a row.
 */
#include "plugins/gpu/ops/norm.h"

#include <string.h>

#include "plugins/gpu/ops/axes.h"
#include "plugins/gpu/ops/ops.h"

enum {
    LANE_LEN = 4,         /* elements that an invocation loads at a time */
    SHARE_LEN = 16,       /* elements of an invocation, with few rows */
    LONG_SHARE_LEN = 128, /* with many rows, which fill the device: fewer threads of a workgroup
                             wait for each other */
    MANY_ROWS = 64,
    N_PASS = 3, /* loops over a row, at most */
    GROUP_MAX = 1024,
    MAX_SUBGROUPS = 256 /* of a workgroup: shaders/reduce.glsl */
};

static int32_t word_of_float(float x) {
    int32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}

int32_t gpu_row_group_size(const gpu_target *target, int64_t n, int64_t n_row) {
    int32_t size = target->subgroup_max, most = GROUP_MAX;
    const gpu_norm_tuning *tuning = &target->norm;
    int64_t share = n_row >= MANY_ROWS
                        ? (tuning->long_share != 0 ? tuning->long_share : LONG_SHARE_LEN)
                        : (tuning->share != 0 ? tuning->share : SHARE_LEN);
    if (most > target->max_group_size) most = target->max_group_size;
    if (most > MAX_SUBGROUPS * target->subgroup_min) most = MAX_SUBGROUPS * target->subgroup_min;
    while (size * 2 <= most && size * share < n) size *= 2;
    return size < most ? size : most;
}

static tdm_status trips_check(const gpu_emit *e, int64_t n, int32_t size, tdm_error *err) {
    int64_t trips = N_PASS * (n / ((int64_t)LANE_LEN * size) + 1) + 2 * MAX_SUBGROUPS;
    if (e->target->max_trips == 0 || trips <= e->target->max_trips) return TDM_OK;
    return gpu_refuse(e, err, "rows of %lld elements take %lld iterations; the device runs %d",
                      (long long)n, (long long)trips, (int)e->target->max_trips);
}

/* Sources of a row op besides x: NULL or absent where it has none. */
typedef struct row_sources {
    const gpu_value *weight; /* of RMS_NORM it may have several rows */
    const gpu_value *bias;
    const gpu_value *sum;
    float scale; /* of RMS_NORM: all rows are multiplied by it */
} row_sources;

static tdm_status words_set(const gpu_emit *e, gpu_step *step, const row_sources *from,
                            tdm_error *err) {
    const gpu_value *x = &e->src[0];
    const gpu_value *columns[] = {from->weight, from->bias};
    int64_t n_all = e->node->op == TDM_OP_RMS_APPLY && e->node->params.norm.n != 0
                        ? e->node->params.norm.n
                        : x->ne[0];
    const gpu_value *rows = e->node->op == TDM_OP_RMS_NORM ? from->weight : from->sum;
    int32_t stride[TDM_MAX_DIMS] = {0};
    tdm_status status = gpu_word(e, &step->word[0], x->ne[0], err);
    if (status == TDM_OK) status = gpu_words_split(e, &step->word[1], &x->ne[1], err);
    if (status == TDM_OK) status = gpu_words_strides(e, &step->word[8], x, x->ne, err);
    if (status == TDM_OK && rows != NULL && rows->is_present)
        status = gpu_words_strides(e, stride, rows, rows->ne, err);
    memcpy(&step->word[12], &stride[1], 3 * sizeof stride[0]);
    for (int i = 0; i < 2 && status == TDM_OK; i++)
        if (columns[i] != NULL && columns[i]->is_present && columns[i]->ne[0] > 1)
            status =
                gpu_word(e, &step->word[15 + i], columns[i]->nb[0] / (int64_t)sizeof(float), err);
    if (e->node->op == TDM_OP_RMS_NORM) step->word[16] = word_of_float(from->scale);
    step->word[17] = word_of_float(e->node->params.norm.eps);
    step->word[18] = word_of_float((float)(1.0 / (double)n_all));
    if (status == TDM_OK) status = gpu_word(e, &step->word[19], tdm_shape_rows(x->ne), err);
    /* Element numbers of x and of the destination fit into 31 bits. */
    int32_t extent;
    if (status == TDM_OK)
        status = gpu_word(e, &extent, (int64_t)(x->place.size / sizeof(float)), err);
    if (status == TDM_OK) status = gpu_word(e, &extent, tdm_shape_count(e->dst[0].ne), err);
    return status;
}

static void operand_set(gpu_operand *operand, const gpu_value *v) {
    if (v != NULL && v->is_present) *operand = v->place;
}

static tdm_status row_emit(gpu_emit *e, gpu_row_op op, const row_sources *from,
                           const gpu_value *dst, tdm_error *err) {
    const gpu_value *x = &e->src[0];
    int64_t n = x->ne[0], n_row = tdm_shape_rows(x->ne);
    gpu_step step = gpu_step_make(e, GPU_KERNEL_ROW, gpu_row_group_size(e->target, n, n_row));
    if (tdm_shape_count(dst->ne) == 0) return TDM_OK;
    tdm_status status = words_set(e, &step, from, err);
    if (status == TDM_OK) status = trips_check(e, n, step.group_size, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, n_row, err);
    if (status != TDM_OK) return status;
    step.spec[0] = op;
    step.spec[1] = gpu_value_lane(x);
    step.spec[4] = n % LANE_LEN != 0;
    step.spec[5] = gpu_value_lane(dst);
    if (from->weight != NULL && from->weight->is_present) {
        step.spec[2] = 1;
        step.spec[6] = gpu_value_lane(from->weight);
    }
    if (from->bias != NULL && from->bias->is_present) {
        step.spec[3] = 1;
        step.spec[7] = gpu_value_lane(from->bias);
    }
    step.operand[0] = dst->place;
    step.operand[1] = x->place;
    operand_set(&step.operand[2], from->weight);
    operand_set(&step.operand[3], from->bias);
    operand_set(&step.operand[4], from->sum);
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_op_softmax(gpu_emit *e, tdm_error *err) {
    return row_emit(e, GPU_ROW_SOFTMAX, &(row_sources){.weight = NULL}, &e->dst[0], err);
}

tdm_status gpu_op_rms_norm(gpu_emit *e, tdm_error *err) {
    return row_emit(e, GPU_ROW_RMS_NORM, &(row_sources){.weight = &e->src[1], .scale = 1},
                    &e->dst[0], err);
}

tdm_status gpu_op_layer_norm(gpu_emit *e, tdm_error *err) {
    return row_emit(e, GPU_ROW_LAYER_NORM, &(row_sources){.weight = &e->src[1], .bias = &e->src[2]},
                    &e->dst[0], err);
}

tdm_status gpu_op_sum_sq(gpu_emit *e, tdm_error *err) {
    return row_emit(e, GPU_ROW_SUM_SQ, &(row_sources){.weight = NULL}, &e->dst[0], err);
}

tdm_status gpu_op_rms_apply(gpu_emit *e, tdm_error *err) {
    return row_emit(e, GPU_ROW_RMS_APPLY, &(row_sources){.weight = &e->src[2], .sum = &e->src[1]},
                    &e->dst[0], err);
}

/* ---- Several nodes in one kernel
 * --------------------------------------------------------------- */

/* Gives e the number of the last node that its step computes: gpu_step.node is that one. Returns
 * e. */
static gpu_emit *named(gpu_emit *e, const gpu_emit *last) {
    e->index = last->index;
    return e;
}

/* nodes: RMS_NORM, SCALE of its result. */
tdm_status gpu_fused_norm_scale(gpu_emit *nodes, tdm_error *err) {
    const row_sources from = {.weight = &nodes[0].src[1],
                              .scale = nodes[1].node->params.scale.scale};
    if (nodes[1].node->params.scale.bias != 0)
        return gpu_refuse(&nodes[1], err, "a norm to which a number is added is not fused");
    return row_emit(named(&nodes[0], &nodes[1]), GPU_ROW_RMS_NORM, &from, &nodes[1].dst[0], err);
}

/* Checks that RMS_NORM and the MUL of its result by rows of weights are a norm with weights. */
static tdm_status weights_check(const gpu_emit *norm, const gpu_emit *mul, tdm_error *err) {
    if (norm->src[1].is_present)
        return gpu_refuse(mul, err, "a norm with two weights is not fused");
    if (mul->src[1].ne[0] == norm->src[0].ne[0]) return TDM_OK;
    return gpu_refuse(mul, err, "a norm with a weight of one element is not fused");
}

tdm_status gpu_fused_norm_mul(gpu_emit *nodes, tdm_error *err) {
    const row_sources from = {.weight = &nodes[1].src[1], .scale = 1};
    tdm_status status = weights_check(&nodes[0], &nodes[1], err);
    if (status != TDM_OK) return status;
    return row_emit(named(&nodes[0], &nodes[1]), GPU_ROW_RMS_NORM, &from, &nodes[1].dst[0], err);
}

/* nodes: ADD, RMS_NORM of its result. dst = norm * weight. */
static tdm_status add_norm_emit(gpu_emit *nodes, const gpu_value *weight, const gpu_value *dst,
                                tdm_error *err) {
    gpu_emit *e = &nodes[1];
    const gpu_value *a = &nodes[0].src[0], *b = &nodes[0].src[1];
    const bool has_rows = weight->is_present && tdm_shape_rows(weight->ne) > 1;
    int32_t stride[TDM_MAX_DIMS] = {0};
    int64_t n = a->ne[0], n_row = tdm_shape_rows(a->ne);
    int32_t count;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_ADD_NORM, gpu_row_group_size(e->target, n, n_row));
    if (memcmp(a->ne, b->ne, sizeof a->ne) != 0 || !gpu_value_is_contiguous(a) ||
        !gpu_value_is_contiguous(b))
        return gpu_refuse(e, err, "a sum of strided or repeated values is not fused");
    if (n * n_row == 0) return TDM_OK;
    tdm_status status = gpu_word(e, &count, n * n_row, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[0], n, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[1], n_row, err);
    if (status == TDM_OK && weight->is_present && n > 1)
        status = gpu_word(e, &step.word[2], weight->nb[0] / (int64_t)sizeof(float), err);
    if (status == TDM_OK && has_rows) status = gpu_words_split(e, &step.word[5], &a->ne[1], err);
    if (status == TDM_OK && has_rows)
        status = gpu_words_strides(e, stride, weight, weight->ne, err);
    if (status == TDM_OK) status = trips_check(e, n, step.group_size, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, n_row, err);
    if (status != TDM_OK) return status;
    step.word[3] = word_of_float(e->node->params.norm.eps);
    step.word[4] = word_of_float((float)(1.0 / (double)n));
    memcpy(&step.word[12], &stride[1], 3 * sizeof stride[0]);
    bool is_aligned = gpu_value_lane(a) == GPU_LANE_ALIGNED &&
                      gpu_value_lane(b) == GPU_LANE_ALIGNED &&
                      gpu_value_lane(&nodes[0].dst[0]) == GPU_LANE_ALIGNED &&
                      gpu_value_lane(dst) == GPU_LANE_ALIGNED;
    step.spec[0] = weight->is_present;
    step.spec[1] = n % LANE_LEN != 0;
    if (weight->is_present) step.spec[2] = gpu_value_lane(weight);
    step.spec[3] = is_aligned ? GPU_LANE_ALIGNED : GPU_LANE_DENSE;
    step.spec[4] = has_rows;
    step.operand[0] = dst->place;
    step.operand[1] = nodes[0].dst[0].place;
    step.operand[2] = a->place;
    step.operand[3] = b->place;
    operand_set(&step.operand[4], weight);
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_fused_add_norm(gpu_emit *nodes, tdm_error *err) {
    return add_norm_emit(nodes, &nodes[1].src[1], &nodes[1].dst[0], err);
}

/* nodes: ADD, RMS_NORM, MUL of the norm by rows of weights. */
tdm_status gpu_fused_add_norm_mul(gpu_emit *nodes, tdm_error *err) {
    tdm_status status = weights_check(&nodes[1], &nodes[2], err);
    if (status != TDM_OK) return status;
    named(&nodes[1], &nodes[2]);
    return add_norm_emit(nodes, &nodes[2].src[1], &nodes[2].dst[0], err);
}

/* ---- SINKHORN -------------------------------------------------------------------------------- */

/* SINKHORN of x, which has the shape of e's source, or where `a` is not NULL of x * a + b. */
static tdm_status sinkhorn_emit(gpu_emit *e, const gpu_value *x, const gpu_value *a,
                                const gpu_value *b, tdm_error *err) {
    enum { THREADS = 64 };
    const tdm_sinkhorn_params *p = &e->node->params.sinkhorn;
    const int32_t n = (int32_t)x->ne[0];
    const int64_t n_tok = x->ne[2];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_SINKHORN, THREADS);
    int32_t stride[TDM_MAX_DIMS], extent, lines = 1;
    if (n_tok == 0) return TDM_OK;
    while (lines < n) lines *= 2;
    tdm_status status = gpu_word(e, &extent, (int64_t)(x->place.size / sizeof(float)), err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[0], n_tok, err);
    if (status == TDM_OK) status = gpu_words_strides(e, stride, x, x->ne, err);
    if (status == TDM_OK)
        status = gpu_step_grid(e, &step, (n_tok * lines + THREADS - 1) / THREADS, err);
    if (status != TDM_OK) return status;
    memcpy(&step.word[1], stride, 3 * sizeof stride[0]);
    step.word[4] = p->n_iter;
    memcpy(&step.word[5], &p->eps, sizeof p->eps);
    step.spec[0] = n;
    step.spec[1] = lines;
    step.operand[0] = e->dst[0].place;
    step.operand[1] = x->place;
    if (a != NULL) {
        step.spec[2] = 1;
        step.operand[2] = a->place;
        step.operand[3] = b->place;
    }
    step.trips = (int64_t)p->n_iter * (4 * n + 1) + 4 * n;
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_op_sinkhorn(gpu_emit *e, tdm_error *err) {
    return sinkhorn_emit(e, &e->src[0], NULL, NULL, err);
}

/* nodes: MUL by one number, ADD of one for each element of a matrix, SINKHORN of the result as
 * matrices. */
tdm_status gpu_fused_affine_sinkhorn(gpu_emit *nodes, tdm_error *err) {
    gpu_emit *e = &nodes[2];
    const gpu_value *a = &nodes[0].src[1], *b = &nodes[1].src[1], *sum = &nodes[1].dst[0];
    const int64_t n = e->src[0].ne[0];
    gpu_value x = nodes[0].src[0];
    if (tdm_shape_count(a->ne) != 1 || tdm_shape_count(b->ne) != n * n || b->ne[0] != n * n ||
        x.ne[0] != n * n || x.ne[2] != 1 || x.ne[3] != 1 || !gpu_value_has_dense_rows(&x) ||
        !gpu_value_has_dense_rows(b) || !gpu_value_is_contiguous(&e->src[0]) ||
        e->src[0].place.off != sum->place.off || e->src[0].ne[2] != x.ne[1])
        return gpu_refuse(e, err, "such matrices are not fused");
    x.nb[2] = x.nb[1];
    x.nb[1] = n * (int64_t)sizeof(float);
    x.ne[2] = x.ne[1];
    x.ne[0] = x.ne[1] = n;
    return sinkhorn_emit(e, &x, a, b, err);
}
