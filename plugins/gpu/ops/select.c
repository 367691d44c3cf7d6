/* SPDX-License-Identifier: MIT
 *
 * select.c: steps of TOP_K and MOE_ROUTE. Kernels compare a value and its index as one integer (an
 * entry), so that all drivers choose the same.
 */
#include <string.h>

#include "plugins/gpu/ops/ops.h"

enum {
    LIST_LEN = 1024, /* entries that a workgroup sorts: shaders/rank.glsl */
    ENTRY_SIZE = 8,  /* bytes */
    GROUP_MIN = 64,  /* threads of a workgroup, a power of two */
    GROUP_MAX = 256,
    SHARE_MAX = 32,           /* entries of a row that an invocation takes */
    LIST_SHARED_SIZE = 8448,  /* bytes of shared memory of a sorting kernel: the list and a count */
    ROUTE_SHARED_SIZE = 13568 /* of ROUTE: also scores and partial sums */
};

static int32_t min32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* The kernels here index with 31 bits. */
static tdm_status extents_check(const gpu_emit *e, tdm_error *err) {
    int32_t word;
    return gpu_word(e, &word, (int64_t)(e->src[0].place.size / sizeof(float)), err);
}

static tdm_status limits_check(const gpu_emit *e, uint32_t shared_size, int32_t group_size,
                               int64_t trips, tdm_error *err) {
    const gpu_target *t = e->target;
    if (shared_size > t->shared_size)
        return gpu_refuse(e, err, "takes %u bytes of shared memory; the device has %u", shared_size,
                          t->shared_size);
    if (group_size > t->max_group_size)
        return gpu_refuse(e, err, "takes workgroups of %d threads; the device has up to %d",
                          (int)group_size, (int)t->max_group_size);
    if (t->max_trips != 0 && trips > t->max_trips)
        return gpu_refuse(e, err, "takes %lld iterations; the device runs %d", (long long)trips,
                          (int)t->max_trips);
    return TDM_OK;
}

/* Loop iterations of an invocation that sorts LIST_LEN entries with others: 55 steps of the
 * network, and the outer loops. */
static int64_t sort_trips(int32_t group_size) {
    return 55 * (LIST_LEN / 2 / group_size + 1) + 10;
}

/* Iterations of TOP_K: ranking a whole list by counting takes most of them. */
static int64_t top_k_trips(int32_t group_size) {
    return (LIST_LEN / group_size + 1) * (LIST_LEN + 1) + group_size + 2 * SHARE_MAX;
}

/* ---- Top k of few ---------------------------------------------------------------------------- */

/* A step: the k best of each chunk of each row. `from` is NULL where entries are x itself. */
static tdm_status chunks_emit(gpu_emit *e, const gpu_step *like, const gpu_operand *from, int64_t n,
                              int64_t n_chunk, const gpu_operand *to, tdm_error *err) {
    gpu_step step = *like;
    tdm_status status = gpu_word(e, &step.word[0], n, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[6], n_chunk, err);
    /* Entries of all rows, as the kernel counts them. */
    int32_t word;
    if (status == TDM_OK) status = gpu_word(e, &word, n * e->src[0].ne[1], err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, n_chunk * e->src[0].ne[1], err);
    if (status != TDM_OK) return status;
    step.spec[0] = from == NULL;
    step.spec[1] = n_chunk == 1;
    step.operand[0] = n_chunk == 1 ? e->dst[0].place : *to;
    if (n_chunk == 1) step.operand[1] = e->dst[1].place;
    if (from != NULL) step.operand[2] = *from;
    if (from == NULL || n_chunk == 1) step.operand[3] = e->src[0].place;
    return gpu_emit_step(e, &step, err);
}

/* Appends steps that reduce each chunk of a row to its k best entries. These form a shorter row for
 * the next step, until one chunk is left. */
static tdm_status tournament_emit(gpu_emit *e, const gpu_step *like, int32_t k, tdm_error *err) {
    gpu_step step = *like;
    int32_t share = min32(LIST_LEN / k, SHARE_MAX);
    int64_t n = e->src[0].ne[0], n_row = e->src[0].ne[1];
    int64_t chunk = (int64_t)share * step.group_size;
    gpu_operand from, to = {.space = GPU_SPACE_NONE};
    bool is_first = true;
    tdm_status status = TDM_OK;
    step.word[4] = k;
    step.word[5] = (int32_t)chunk;
    step.word[7] = e->node->params.top_k.index_base;
    while (status == TDM_OK) {
        int64_t n_chunk = (n + chunk - 1) / chunk;
        from = to;
        if (n_chunk > 1)
            to =
                gpu_emit_scratch(e, (uint64_t)n_chunk * (uint64_t)n_row * (uint64_t)k * ENTRY_SIZE);
        status = chunks_emit(e, &step, is_first ? NULL : &from, n, n_chunk, &to, err);
        if (n_chunk == 1) break;
        n = n_chunk * k;
        is_first = false;
    }
    return status;
}

/* ---- Top k of many --------------------------------------------------------------------------- */

static tdm_status sort_stage_emit(gpu_emit *e, const gpu_step *like, gpu_sort_stage stage,
                                  int32_t run, int32_t stride, int64_t n_group, tdm_error *err) {
    gpu_step step = *like;
    bool reads_x = stage == GPU_SORT_LOAD || stage == GPU_SORT_STORE;
    tdm_status status = gpu_step_grid(e, &step, n_group, err);
    if (status != TDM_OK) return status;
    step.spec[0] = stage;
    step.word[5] = run;
    step.word[6] = stride;
    if (!reads_x) step.operand[3] = (gpu_operand){.space = GPU_SPACE_NONE};
    if (stage != GPU_SORT_STORE)
        step.operand[1] = step.operand[2] = (gpu_operand){.space = GPU_SPACE_NONE};
    return gpu_emit_step(e, &step, err);
}

/* Sorts rows whole, padded to a power of two, with Batcher's bitonic network. */
static tdm_status sort_emit(gpu_emit *e, const gpu_step *like, int32_t k, tdm_error *err) {
    gpu_step step = *like;
    int64_t n_row = e->src[0].ne[1], padded = LIST_LEN, size = step.group_size;
    int32_t count;
    while (padded < e->src[0].ne[0]) padded *= 2;
    tdm_status status = gpu_word(e, &count, padded * n_row, err);
    if (status != TDM_OK) return status;
    step.word[4] = (int32_t)padded;
    step.word[7] = k;
    step.word[8] = e->node->params.top_k.index_base;
    step.operand[0] = gpu_emit_scratch(e, (uint64_t)count * ENTRY_SIZE);
    step.operand[1] = e->dst[0].place;
    step.operand[2] = e->dst[1].place;
    step.operand[3] = e->src[0].place;
    int64_t n_block = count / LIST_LEN, n_pair_group = (count / 2 + size - 1) / size;
    status = sort_stage_emit(e, &step, GPU_SORT_LOAD, 0, 0, n_block, err);
    for (int64_t run = 2 * LIST_LEN; run <= padded && status == TDM_OK; run *= 2) {
        for (int64_t stride = run / 2; stride >= LIST_LEN && status == TDM_OK; stride /= 2)
            status = sort_stage_emit(e, &step, GPU_SORT_EXCHANGE, (int32_t)run, (int32_t)stride,
                                     n_pair_group, err);
        if (status == TDM_OK)
            status = sort_stage_emit(e, &step, GPU_SORT_MERGE, (int32_t)run, 0, n_block, err);
    }
    if (status != TDM_OK) return status;
    return sort_stage_emit(e, &step, GPU_SORT_STORE, 0, 0, (k * n_row + size - 1) / size, err);
}

/* ---- Ops ------------------------------------------------------------------------------------- */

tdm_status gpu_op_top_k(gpu_emit *e, tdm_error *err) {
    const gpu_value *x = &e->src[0];
    int32_t k = e->node->params.top_k.k, size = GROUP_MIN;
    bool is_few = k <= min32(GROUP_MAX, e->target->max_group_size);
    if (tdm_shape_count(e->dst[0].ne) == 0) return TDM_OK;
    while (size < GROUP_MAX && 2 * size <= e->target->max_group_size && size < k) size *= 2;
    if (size < k) is_few = false;
    gpu_step step = gpu_step_make(e, is_few ? GPU_KERNEL_TOP_K : GPU_KERNEL_SORT, size);
    tdm_status status = extents_check(e, err);
    if (status == TDM_OK)
        status = limits_check(e, LIST_SHARED_SIZE, size,
                              is_few ? top_k_trips(size) : 2 * sort_trips(size), err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[0], x->ne[0], err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[1], x->ne[1], err);
    if (status == TDM_OK && x->ne[0] > 1)
        status = gpu_word(e, &step.word[2], x->nb[0] / (int64_t)sizeof(float), err);
    if (status == TDM_OK && x->ne[1] > 1)
        status = gpu_word(e, &step.word[3], x->nb[1] / (int64_t)sizeof(float), err);
    if (status != TDM_OK) return status;
    return is_few ? tournament_emit(e, &step, k, err) : sort_emit(e, &step, k, err);
}

/* Strides of the ids, which the kernel indexes with 31 bits. */
static tdm_status given_words(const gpu_emit *e, const gpu_value *given, int32_t word[2],
                              tdm_error *err) {
    int32_t extent;
    tdm_status status = gpu_word(e, &extent, (int64_t)(given->place.size / sizeof(int32_t)), err);
    for (int i = 0; i < 2 && status == TDM_OK; i++)
        if (given->ne[i] > 1)
            status = gpu_word(e, &word[i], given->nb[i] / (int64_t)sizeof(int32_t), err);
    return status;
}

tdm_status gpu_op_moe_route(gpu_emit *e, tdm_error *err) {
    const tdm_route_params *p = &e->node->params.route;
    const gpu_value *logit = &e->src[0], *bias = &e->src[1], *given = &e->src[2];
    float scale = p->scale != 0 ? p->scale : 1;
    int64_t n_expert = logit->ne[0];
    int32_t size = GROUP_MIN;
    if (logit->ne[1] == 0) return TDM_OK;
    if (n_expert > LIST_LEN)
        return gpu_refuse(e, err, "%lld experts; the kernel sorts up to %d", (long long)n_expert,
                          (int)LIST_LEN);
    while (size < GROUP_MAX && 2 * size <= e->target->max_group_size && size * 2 < n_expert)
        size *= 2;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_ROUTE, size);
    tdm_status status = extents_check(e, err);
    if (status == TDM_OK)
        status =
            limits_check(e, ROUTE_SHARED_SIZE, size, 2 * sort_trips(size) + 16 * LIST_LEN, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[1], logit->ne[1], err);
    if (status == TDM_OK && n_expert > 1)
        status = gpu_word(e, &step.word[2], logit->nb[0] / (int64_t)sizeof(float), err);
    if (status == TDM_OK && logit->ne[1] > 1)
        status = gpu_word(e, &step.word[3], logit->nb[1] / (int64_t)sizeof(float), err);
    if (status == TDM_OK && bias->is_present && n_expert > 1)
        status = gpu_word(e, &step.word[4], bias->nb[0] / (int64_t)sizeof(float), err);
    if (status == TDM_OK && given->is_present) status = given_words(e, given, &step.word[9], err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, logit->ne[1], err);
    if (status != TDM_OK) return status;
    step.word[0] = (int32_t)n_expert;
    step.word[5] = p->n_used;
    step.word[6] = p->n_group_used;
    step.word[8] = p->id_divisor > 1 ? p->id_divisor : 1;
    memcpy(&step.word[7], &scale, sizeof scale);
    step.spec[0] = p->score;
    step.spec[1] = bias->is_present;
    step.spec[2] = p->normalize;
    step.spec[3] = p->n_group > 1 ? p->n_group : 1;
    step.operand[0] = e->dst[0].place;
    step.operand[1] = e->dst[1].place;
    step.operand[2] = logit->place;
    if (bias->is_present) step.operand[3] = bias->place;
    step.spec[4] = given->is_present;
    if (given->is_present) step.operand[4] = given->place;
    return gpu_emit_step(e, &step, err);
}
