/* SPDX-License-Identifier: MIT
 *
 * merge.c: steps of LSE_MERGE.
 */
#include "plugins/gpu/ops/ops.h"

enum { GROUP_SIZE = 64 };

tdm_status gpu_op_lse_merge(gpu_emit *e, tdm_error *err) {
    const gpu_value *o = &e->src[0], *ml = &e->src[1], *dst = &e->dst[0];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_MERGE, GROUP_SIZE);
    int64_t n = tdm_shape_count(dst->ne), n_part = o->ne[3];
    int32_t extent;
    if (n == 0) return TDM_OK;
    if (e->target->max_trips != 0 && 2 * n_part > e->target->max_trips)
        return gpu_refuse(e, err, "%lld parts; the device runs %d iterations", (long long)n_part,
                          (int)e->target->max_trips);
    tdm_status status = gpu_word(e, &extent, (int64_t)(o->place.size / sizeof(float)), err);
    if (status == TDM_OK)
        status = gpu_word(e, &extent, (int64_t)(ml->place.size / sizeof(float)), err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[0], o->ne[0], err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[1], o->ne[1], err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[2], n_part, err);
    if (status == TDM_OK) status = gpu_words_strides(e, &step.word[3], o, o->ne, err);
    if (status == TDM_OK) status = gpu_words_strides(e, &step.word[7], ml, ml->ne, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[11], n, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, (n + GROUP_SIZE - 1) / GROUP_SIZE, err);
    if (status != TDM_OK) return status;
    step.operand[0] = dst->place;
    step.operand[1] = o->place;
    step.operand[2] = ml->place;
    return gpu_emit_step(e, &step, err);
}
