/* SPDX-License-Identifier: MIT
 *
 * arith.c: steps of elementwise ops: ADD, MUL, DIV, GLU; SCALE, CLAMP, SQRT, ACT.
 */
#include <string.h>

#include "plugins/gpu/ops/axes.h"
#include "plugins/gpu/ops/ops.h"

enum { GROUP_SIZE = 128 };

static int32_t word_of_float(float x) {
    int32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}

/* The number of elements as a word, and an invocation for each `width` of them. */
static tdm_status elements_set(const gpu_emit *e, gpu_step *step, int32_t *word, int64_t n,
                               int32_t width, tdm_error *err) {
    int64_t per_group = (int64_t)width * step->group_size;
    tdm_status status = gpu_word(e, word, n, err);
    return status != TDM_OK ? status : gpu_step_grid(e, step, (n + per_group - 1) / per_group, err);
}

/* dst = op(a, b); dst is contiguous. */
static tdm_status pair_values_emit(gpu_emit *e, gpu_pair_op op, tdm_act act, const gpu_value *dst,
                                   const gpu_value *a, const gpu_value *b, tdm_error *err) {
    const gpu_value *values[] = {a, b, dst};
    gpu_step step = gpu_step_make(e, GPU_KERNEL_PAIR, GROUP_SIZE);
    int64_t n = tdm_shape_count(dst->ne);
    gpu_axes axes;
    if (n == 0) return TDM_OK;
    tdm_status status = gpu_axes_make(e, &axes, dst->ne, values, 3, err);
    if (status == TDM_OK) status = gpu_axes_shape(e, &step.word[0], &axes, err);
    if (status == TDM_OK) status = gpu_axes_strides(e, &step.word[7], &axes, 0, err);
    if (status == TDM_OK) status = gpu_axes_strides(e, &step.word[11], &axes, 1, err);
    if (status == TDM_OK)
        status = elements_set(e, &step, &step.word[15], n, gpu_axes_width(&axes), err);
    if (status != TDM_OK) return status;
    step.spec[0] = op;
    step.spec[1] = axes.n_axis;
    step.spec[2] = gpu_axes_width(&axes);
    step.spec[3] = gpu_axes_lane(&axes, 0);
    step.spec[4] = gpu_axes_lane(&axes, 1);
    step.spec[5] = act;
    step.spec[6] = gpu_axes_lane(&axes, 2);
    step.operand[0] = dst->place;
    step.operand[1] = a->place;
    step.operand[2] = b->place;
    return gpu_emit_step(e, &step, err);
}

static tdm_status pair_emit(gpu_emit *e, gpu_pair_op op, tdm_act act, tdm_error *err) {
    return pair_values_emit(e, op, act, &e->dst[0], &e->src[0], &e->src[1], err);
}

/* n elements of f32, one after the other. */
static gpu_value floats_at(gpu_operand place, int64_t n) {
    gpu_value v = {.is_present = true, .type = TDM_TYPE_F32, .ne = {n, 1, 1, 1}, .place = place};
    v.nb[0] = sizeof(float);
    v.nb[1] = v.nb[2] = v.nb[3] = n * (int64_t)sizeof(float);
    return v;
}

tdm_status gpu_emit_glu(gpu_emit *e, tdm_act act, gpu_operand dst, gpu_operand gate, gpu_operand up,
                        int64_t n, tdm_error *err) {
    gpu_value to = floats_at(dst, n), a = floats_at(gate, n), b = floats_at(up, n);
    return pair_values_emit(e, GPU_PAIR_GLU, act, &to, &a, &b, err);
}

static tdm_status unary_emit(gpu_emit *e, gpu_unary_op op, float a, float b, tdm_act act,
                             tdm_error *err) {
    const gpu_value *dst = &e->dst[0], *values[] = {&e->src[0], dst};
    gpu_step step = gpu_step_make(e, GPU_KERNEL_UNARY, GROUP_SIZE);
    int64_t n = tdm_shape_count(dst->ne);
    gpu_axes axes;
    if (n == 0) return TDM_OK;
    tdm_status status = gpu_axes_make(e, &axes, dst->ne, values, 2, err);
    if (status == TDM_OK) status = gpu_axes_shape(e, &step.word[0], &axes, err);
    if (status == TDM_OK) status = gpu_axes_strides(e, &step.word[7], &axes, 0, err);
    if (status == TDM_OK)
        status = elements_set(e, &step, &step.word[11], n, gpu_axes_width(&axes), err);
    if (status != TDM_OK) return status;
    step.word[12] = word_of_float(a);
    step.word[13] = word_of_float(b);
    step.spec[0] = op;
    step.spec[1] = axes.n_axis;
    step.spec[2] = gpu_axes_width(&axes);
    step.spec[3] = gpu_axes_lane(&axes, 0);
    step.spec[4] = act;
    step.spec[5] = gpu_axes_lane(&axes, 1);
    step.operand[0] = dst->place;
    step.operand[1] = e->src[0].place;
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_op_add(gpu_emit *e, tdm_error *err) {
    return pair_emit(e, GPU_PAIR_ADD, TDM_ACT_NONE, err);
}

tdm_status gpu_op_mul(gpu_emit *e, tdm_error *err) {
    return pair_emit(e, GPU_PAIR_MUL, TDM_ACT_NONE, err);
}

tdm_status gpu_op_div(gpu_emit *e, tdm_error *err) {
    return pair_emit(e, GPU_PAIR_DIV, TDM_ACT_NONE, err);
}

tdm_status gpu_op_glu(gpu_emit *e, tdm_error *err) {
    return pair_emit(e, GPU_PAIR_GLU, (tdm_act)e->node->params.act.act, err);
}

tdm_status gpu_op_scale(gpu_emit *e, tdm_error *err) {
    const tdm_op_params *p = &e->node->params;
    return unary_emit(e, GPU_UNARY_SCALE, p->scale.scale, p->scale.bias, TDM_ACT_NONE, err);
}

tdm_status gpu_op_clamp(gpu_emit *e, tdm_error *err) {
    const tdm_op_params *p = &e->node->params;
    return unary_emit(e, GPU_UNARY_CLAMP, p->clamp.min, p->clamp.max, TDM_ACT_NONE, err);
}

tdm_status gpu_op_sqrt(gpu_emit *e, tdm_error *err) {
    return unary_emit(e, GPU_UNARY_SQRT, 0, 0, TDM_ACT_NONE, err);
}

tdm_status gpu_op_act(gpu_emit *e, tdm_error *err) {
    return unary_emit(e, GPU_UNARY_ACT, 0, 0, (tdm_act)e->node->params.act.act, err);
}
