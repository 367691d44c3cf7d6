/* SPDX-License-Identifier: MIT
 *
 * arith.c: steps of ADD, MUL and DIV.
 */
#include "plugins/gpu/ops/ops.h"

enum { PAIR_GROUP = 128 };

static tdm_status pair_emit(gpu_emit *e, gpu_pair_op op, tdm_error *err) {
    const gpu_value *a = &e->src[0], *b = &e->src[1], *dst = &e->dst[0];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_PAIR, PAIR_GROUP);
    int64_t n = tdm_shape_count(dst->ne);
    if (n == 0) return TDM_OK;
    tdm_status status = gpu_words_shape(e, &step.word[0], dst->ne, err);
    if (status == TDM_OK) status = gpu_words_strides(e, &step.word[4], a, dst->ne, err);
    if (status == TDM_OK) status = gpu_words_strides(e, &step.word[8], b, dst->ne, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[12], n, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, (n + PAIR_GROUP - 1) / PAIR_GROUP, err);
    if (status != TDM_OK) return status;
    step.spec[0] = op;
    step.operand[0] = dst->place;
    step.operand[1] = a->place;
    step.operand[2] = b->place;
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_op_add(gpu_emit *e, tdm_error *err) {
    return pair_emit(e, GPU_PAIR_ADD, err);
}

tdm_status gpu_op_mul(gpu_emit *e, tdm_error *err) {
    return pair_emit(e, GPU_PAIR_MUL, err);
}

tdm_status gpu_op_div(gpu_emit *e, tdm_error *err) {
    return pair_emit(e, GPU_PAIR_DIV, err);
}
