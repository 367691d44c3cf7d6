/* SPDX-License-Identifier: MIT
 *
 * exchange.c: steps of EXCHANGE (collective.h). PUBLISH writes this member's part to the arena;
 * COLLECT computes the result from the arena. A whole exchange, on devices whose kernels may wait
 * for other members, has the steps of both with WIRE_WAIT between them; a short sum is one
 * WIRE_REDUCE.
 */
#include <stddef.h>
#include <string.h>

#include "plugins/gpu/ops/axes.h"
#include "plugins/gpu/ops/ops.h"
#include "tandem/collective.h"

enum { X, ARENA, STEP, RESIDUAL, X2, PEER };

enum {
    GROUP_SIZE = 128,
    WAIT_GROUP_SIZE = 64, /* at least one thread for each member: TDM_MAX_MEMBERS */
    Q8_LEN = 32,
    /* Most elements of a sum that one workgroup exchanges: eight for each of 1024 threads. It would
     * read the addends of longer sums more slowly than many workgroups do. */
    REDUCE_LEN = 8192
};

_Static_assert(offsetof(tdm_step_header, exchange_base) == 15 * sizeof(int32_t),
               "shaders/arena.glsl reads exchange_base there");

/* ---- Words ----------------------------------------------------------------------------------- */

static void words_of_u64(int32_t word[2], uint64_t x) {
    word[0] = (int32_t)(uint32_t)x;
    word[1] = (int32_t)(uint32_t)(x >> 32);
}

/* The memory of the data, from byte `off` of area 0 on, in the peer memory where the node has it.
 * Sets area[3] (kernel.h), by which kernels add the area. */
static gpu_operand arena_from(const gpu_emit *e, int32_t area[3], uint64_t off) {
    gpu_operand operand = e->src[e->src[PEER].is_present ? PEER : ARENA].place;
    operand.off += off;
    operand.size -= off;
    area[0] = e->node->params.exchange.stage;
    words_of_u64(&area[1], e->node->params.exchange.area_stride);
    return operand;
}

/* Sets the operand to the verdict of the wait before a step (nullable: in phases there is none).
 * Returns whether there is one. */
static bool verdict_set(gpu_operand *operand, const gpu_operand *verdict) {
    if (verdict != NULL) *operand = *verdict;
    return verdict != NULL;
}

static bool is_sender(const gpu_emit *e) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    return (p->senders >> p->member & 1) != 0;
}

/* Elements of an addend along the axis of a SUM_PART. */
static int64_t whole_of(const gpu_emit *e) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    return p->whole != 0 || !e->src[X].is_present ? p->whole : e->src[X].ne[p->axis];
}

/* Sets the grid to n invocations at least, and *word to n. */
static tdm_status invocations_set(const gpu_emit *e, gpu_step *step, int32_t *word, int64_t n,
                                  tdm_error *err) {
    tdm_status status = gpu_word(e, word, n, err);
    if (status != TDM_OK) return status;
    return gpu_step_grid(e, step, (n + GROUP_SIZE - 1) / GROUP_SIZE, err);
}

/* *out: the bytes of source i in canonical order: the source itself or, where it is not contiguous,
 * a copy in scratch, whose step is appended. */
static tdm_status dense_source(gpu_emit *e, int i, gpu_operand *out, tdm_error *err) {
    gpu_value from = e->src[i];
    *out = from.place;
    if (gpu_value_is_contiguous(&from)) return TDM_OK;
    tdm_type_info info = tdm_type_get_info(from.type);
    if (info.block_len > 1) {
        /* Rows of blocks as rows of 16-bit numbers, which a copy does not change. */
        from.ne[0] = from.ne[0] / info.block_len * info.block_size / 2;
        from.nb[0] = 2;
        from.type = TDM_TYPE_F16;
    }
    gpu_value to = from;
    to.nb[0] = tdm_type_get_info(from.type).block_size;
    for (int k = 1; k < TDM_MAX_DIMS; k++) to.nb[k] = to.nb[k - 1] * to.ne[k - 1];
    to.place = gpu_emit_scratch(e, (uint64_t)(to.nb[3] * to.ne[3]));
    *out = to.place;
    return gpu_emit_copy(e, &to, &from, err);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

static int32_t wire_of(int32_t type) {
    switch (type) {
    case TDM_TYPE_F16: return GPU_WIRE_F16;
    case TDM_TYPE_BF16: return GPU_WIRE_BF16;
    case TDM_TYPE_Q8_0: return GPU_WIRE_Q8_0;
    default: return GPU_WIRE_F32;
    }
}

static tdm_status addend_emit(gpu_emit *e, tdm_error *err) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_WIRE_STORE, GROUP_SIZE);
    int64_t n = tdm_shape_count(e->src[X].ne);
    if (n == 0) return TDM_OK;
    tdm_status status = dense_source(e, X, &step.operand[1], err);
    if (status != TDM_OK) return status;
    int64_t n_unit = p->wire_type == TDM_TYPE_Q8_0 ? (n + Q8_LEN - 1) / Q8_LEN : n;
    status = gpu_word(e, &step.word[0], n, err);
    if (status == TDM_OK) status = invocations_set(e, &step, &step.word[1], n_unit, err);
    if (status != TDM_OK) return status;
    step.operand[0] =
        arena_from(e, &step.word[2], p->data_off + (uint64_t)p->member * p->data_stride);
    step.operand[2] = e->src[STEP].place;
    step.spec[0] = wire_of(p->wire_type);
    return gpu_emit_step(e, &step, err);
}

static tdm_status sum_emit(gpu_emit *e, const gpu_operand *verdict, tdm_error *err) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    const gpu_value *y = &e->dst[0];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_WIRE_SUM, GROUP_SIZE);
    int64_t n = tdm_shape_count(y->ne), inner = 1, run = n, whole = n, first = 0;
    tdm_status status = TDM_OK;
    if (n == 0) return TDM_OK;
    if (p->kind == TDM_EXCHANGE_SUM_PART) {
        for (int i = 0; i < p->axis; i++) inner *= y->ne[i];
        run = y->ne[p->axis] * inner;
        whole = whole_of(e) * inner;
        first = p->first * inner;
    }
    if (e->src[RESIDUAL].is_present) status = dense_source(e, RESIDUAL, &step.operand[3], err);
    gpu_divisor divisor = gpu_divisor_make(run);
    if (status == TDM_OK) status = invocations_set(e, &step, &step.word[0], n, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[4], run, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[7], whole, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[8], first, err);
    /* Elements of an addend. */
    int32_t count;
    if (status == TDM_OK) status = gpu_word(e, &count, n / run * whole, err);
    if (status != TDM_OK) return status;
    step.operand[0] = y->place;
    step.operand[1] = arena_from(e, &step.word[1], p->data_off);
    step.operand[2] = e->src[STEP].place;
    step.word[5] = (int32_t)divisor.multiplier;
    step.word[6] = divisor.shift;
    words_of_u64(&step.word[9], p->senders);
    words_of_u64(&step.word[11], p->data_stride);
    step.spec[0] = wire_of(p->wire_type);
    step.spec[1] = p->n_member;
    step.spec[2] = e->src[RESIDUAL].is_present;
    step.spec[3] = verdict_set(&step.operand[4], verdict);
    return gpu_emit_step(e, &step, err);
}

/* ---- Gathers --------------------------------------------------------------------------------- */

/* A copy between the whole result in the arena and a member's part of it, or all of it. All numbers
 * are bytes. The part consists of runs: bytes that are neighbours in the whole. */
typedef struct payload {
    gpu_operand bytes; /* the part, in canonical order */
    int64_t size;      /* of the part */
    /* run: of a run; whole: from run to run in the whole; first: where the first run begins
     * there */
    int64_t run, whole, first;
    uint64_t data_off; /* of the whole in the arena */
} payload;

/* Bytes of neighbours in canonical order that `length` indices of an axis span; of axis 0 whole
 * blocks. */
static int64_t axis_size(const gpu_value *v, int axis, int64_t length) {
    if (axis == 0) return (int64_t)tdm_type_row_size(v->type, length);
    int64_t size = (int64_t)tdm_type_row_size(v->type, v->ne[0]) * length;
    for (int i = 1; i < axis; i++) size *= v->ne[i];
    return size;
}

/* The unit of a copy: 16, 4, 2 or 1 bytes, the largest of which all numbers are multiples. */
static int32_t unit_of(const payload *l) {
    int64_t all =
        l->size | l->run | l->whole | l->first | (int64_t)l->bytes.off | (int64_t)l->data_off;
    return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
}

static tdm_status payload_emit(gpu_emit *e, const payload *l, bool publishes,
                               const gpu_operand *verdict, tdm_error *err) {
    gpu_step step = gpu_step_make(e, GPU_KERNEL_WIRE_COPY, GROUP_SIZE);
    int32_t unit = unit_of(l);
    gpu_divisor divisor = gpu_divisor_make(l->run / unit);
    if (l->size == 0) return TDM_OK;
    tdm_status status = invocations_set(e, &step, &step.word[0], l->size / unit, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[4], l->run / unit, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[7], l->whole / unit, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[8], l->first / unit, err);
    if (status != TDM_OK) return status;
    step.word[5] = (int32_t)divisor.multiplier;
    step.word[6] = divisor.shift;
    gpu_operand arena = arena_from(e, &step.word[1], l->data_off);
    step.operand[0] = publishes ? arena : l->bytes;
    step.operand[1] = publishes ? l->bytes : arena;
    step.operand[2] = e->src[STEP].place;
    step.spec[0] = unit;
    step.spec[1] = publishes;
    step.spec[2] = verdict_set(&step.operand[3], verdict);
    return gpu_emit_step(e, &step, err);
}

static tdm_status part_emit(gpu_emit *e, int i, int32_t axis, int32_t first, int32_t whole,
                            uint64_t data_off, tdm_error *err) {
    const gpu_value *x = &e->src[i];
    payload l = {.size = (int64_t)tdm_tensor_canonical_size(x->type, x->ne),
                 .run = axis_size(x, axis, x->ne[axis]),
                 .whole = axis_size(x, axis, whole),
                 .first = axis_size(x, axis, first),
                 .data_off = data_off};
    if (l.size == 0) return TDM_OK;
    tdm_status status = dense_source(e, i, &l.bytes, err);
    return status != TDM_OK ? status : payload_emit(e, &l, true, NULL, err);
}

static tdm_status result_emit(gpu_emit *e, const gpu_value *y, uint64_t data_off,
                              const gpu_operand *verdict, tdm_error *err) {
    int64_t size = (int64_t)tdm_tensor_canonical_size(y->type, y->ne);
    payload l = {.bytes = y->place, .size = size, .run = size, .whole = size, .data_off = data_off};
    return payload_emit(e, &l, false, verdict, err);
}

/* Elements of result i along an axis: `whole` or, where that is 0, by the destination's shape. */
static int32_t whole_along(const gpu_emit *e, int i, int32_t axis, int32_t whole) {
    return whole != 0 || !e->dst[i].is_present ? whole : (int32_t)e->dst[i].ne[axis];
}

static tdm_status parts_emit(gpu_emit *e, tdm_error *err) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    const int32_t whole = whole_along(e, 0, p->axis, p->whole);
    tdm_status status = part_emit(e, X, p->axis, p->first, whole, p->data_off, err);
    if (status != TDM_OK || p->data_off2 == 0) return status;
    const int32_t whole2 = whole_along(e, 1, p->axis2, p->whole2);
    return part_emit(e, X2, p->axis2, p->first2, whole2, p->data_off2, err);
}

static tdm_status results_emit(gpu_emit *e, const gpu_operand *verdict, tdm_error *err) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    tdm_status status = result_emit(e, &e->dst[0], p->data_off, verdict, err);
    if (status != TDM_OK || p->data_off2 == 0) return status;
    return result_emit(e, &e->dst[1], p->data_off2, verdict, err);
}

/* ---- Phases ---------------------------------------------------------------------------------- */

static bool is_gather(const gpu_emit *e) {
    return e->node->params.exchange.kind == TDM_EXCHANGE_GATHER;
}

static tdm_status publish_emit(gpu_emit *e, tdm_error *err) {
    return is_gather(e) ? parts_emit(e, err) : addend_emit(e, err);
}

static tdm_status collect_emit(gpu_emit *e, const gpu_operand *verdict, tdm_error *err) {
    return is_gather(e) ? results_emit(e, verdict, err) : sum_emit(e, verdict, err);
}

/* Chunks of the addend (collective.h): 1 of a sum of nothing, and of a GATHER. */
static int64_t chunk_count(const gpu_emit *e) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    if (is_gather(e)) return 1;
    int64_t n = 1;
    for (int i = 0; i < TDM_MAX_DIMS; i++)
        n *= p->kind == TDM_EXCHANGE_SUM_PART && i == p->axis ? whole_of(e) : e->dst[0].ne[i];
    return n == 0 ? 1 : (n + TDM_EXCHANGE_CHUNK - 1) / TDM_EXCHANGE_CHUNK;
}

static tdm_status wait_words_set(const gpu_emit *e, gpu_step *step, tdm_error *err) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    step->word[0] = p->n_member;
    step->word[1] = p->member;
    words_of_u64(&step->word[2], p->flag_off);
    step->word[11] = p->stage;
    return gpu_word(e, &step->word[4], chunk_count(e), err);
}

/* Appends the wait. Its operands are the whole arena and the whole peer memory, which it "writes",
 * so that the planner orders it behind the steps that publish and before those that collect, and
 * keeps the order of waits: members that wait in different orders would wait for each other for
 * ever. */
static tdm_status wait_emit(gpu_emit *e, gpu_operand *verdict_out, tdm_error *err) {
    gpu_step step = gpu_step_make(e, GPU_KERNEL_WIRE_WAIT, WAIT_GROUP_SIZE);
    *verdict_out = gpu_emit_scratch(e, sizeof(uint32_t));
    tdm_status status = gpu_step_grid(e, &step, 1, err);
    if (status == TDM_OK) status = wait_words_set(e, &step, err);
    if (status != TDM_OK) return status;
    step.operand[0] = e->src[ARENA].place;
    step.operand[1] = *verdict_out;
    step.operand[2] = e->src[STEP].place;
    if (e->src[PEER].is_present) step.operand[3] = e->src[PEER].place;
    return gpu_emit_step(e, &step, err);
}

static bool is_aligned(const gpu_emit *e, int i) {
    return !e->src[i].is_present || gpu_value_lane(&e->src[i]) == GPU_LANE_ALIGNED;
}

/* True where one workgroup performs the whole exchange: WIRE_REDUCE. */
static bool is_short_sum(const gpu_emit *e) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    const gpu_value *y = &e->dst[0];
    const int64_t n = p->kind == TDM_EXCHANGE_SUM ? tdm_shape_count(y->ne) : 0;
    return n > 0 && n <= REDUCE_LEN && n % 4 == 0 && wire_of(p->wire_type) != GPU_WIRE_Q8_0 &&
           p->data_off <= INT32_MAX && (p->data_off | p->data_stride | p->area_stride) % 16 == 0 &&
           gpu_value_lane(y) == GPU_LANE_ALIGNED && (!is_sender(e) || is_aligned(e, X)) &&
           is_aligned(e, RESIDUAL);
}

static tdm_status reduce_emit(gpu_emit *e, tdm_error *err) {
    const tdm_exchange_params *p = &e->node->params.exchange;
    const int32_t n = (int32_t)tdm_shape_count(e->dst[0].ne);
    int32_t threads = (n / 4 + WAIT_GROUP_SIZE - 1) / WAIT_GROUP_SIZE * WAIT_GROUP_SIZE;
    if (threads > e->target->max_group_size) threads = e->target->max_group_size;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_WIRE_REDUCE, threads);
    tdm_status status = gpu_step_grid(e, &step, 1, err);
    if (status == TDM_OK && is_sender(e)) status = dense_source(e, X, &step.operand[1], err);
    if (status == TDM_OK && e->src[RESIDUAL].is_present)
        status = dense_source(e, RESIDUAL, &step.operand[2], err);
    if (status == TDM_OK) status = wait_words_set(e, &step, err);
    if (status != TDM_OK) return status;
    step.operand[0] = e->dst[0].place;
    step.operand[3] = e->src[ARENA].place;
    step.operand[4] = e->src[STEP].place;
    step.operand[5] = e->src[e->src[PEER].is_present ? PEER : ARENA].place;
    words_of_u64(&step.word[12], p->area_stride);
    step.word[14] = n;
    words_of_u64(&step.word[15], p->senders);
    words_of_u64(&step.word[17], p->data_stride);
    step.word[19] = (int32_t)p->data_off;
    step.spec[0] = wire_of(p->wire_type);
    step.spec[1] = p->n_member;
    step.spec[2] = e->src[RESIDUAL].is_present;
    return gpu_emit_step(e, &step, err);
}

static tdm_status whole_emit(gpu_emit *e, tdm_error *err) {
    gpu_operand verdict;
    if (!e->target->may_wait)
        return gpu_refuse(e, err, "its kernels do not wait for other members; phases 1 and 2 run");
    tdm_status status = TDM_OK;
    if (is_short_sum(e)) return reduce_emit(e, err);
    if (is_sender(e)) status = publish_emit(e, err);
    if (status == TDM_OK) status = wait_emit(e, &verdict, err);
    return status != TDM_OK ? status : collect_emit(e, &verdict, err);
}

tdm_status gpu_op_exchange(gpu_emit *e, tdm_error *err) {
    switch (e->node->params.exchange.phase) {
    case TDM_EXCHANGE_WHOLE: return whole_emit(e, err);
    case TDM_EXCHANGE_PUBLISH: return publish_emit(e, err);
    default: return collect_emit(e, NULL, err);
    }
}
