/* SPDX-License-Identifier: MIT
 *
 * arith.c: steps of elementwise ops: ADD, MUL, DIV, GLU; SCALE, CLAMP, SQRT, ACT; and of fusions of
 * them.
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

/* Sets *word to the number of elements, and the grid to an invocation for each `width` of them. */
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

/* Parameters of a unary step. */
typedef struct unary_params {
    float word[4]; /* scale and bias or min and max; second scale and bias */
    tdm_act act;
} unary_params;

/* e's destination = op(x). */
static tdm_status unary_values_emit(gpu_emit *e, gpu_unary_op op, const unary_params *p,
                                    const gpu_value *x, tdm_error *err) {
    const gpu_value *dst = &e->dst[0], *values[] = {x, dst};
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
    for (int i = 0; i < 4; i++) step.word[12 + i] = word_of_float(p->word[i]);
    step.spec[0] = op;
    step.spec[1] = axes.n_axis;
    step.spec[2] = gpu_axes_width(&axes);
    step.spec[3] = gpu_axes_lane(&axes, 0);
    step.spec[4] = p->act;
    step.spec[5] = gpu_axes_lane(&axes, 1);
    step.operand[0] = dst->place;
    step.operand[1] = x->place;
    return gpu_emit_step(e, &step, err);
}

static tdm_status unary_emit(gpu_emit *e, gpu_unary_op op, float a, float b, tdm_act act,
                             tdm_error *err) {
    return unary_values_emit(e, op, &(unary_params){.word = {a, b}, .act = act}, &e->src[0], err);
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

/* ---- Several nodes in one kernel
 * --------------------------------------------------------------- */

/* An ACT between two SCALEs, one of which may be NULL. */
static tdm_status scaled_act_emit(gpu_emit *before, gpu_emit *act, gpu_emit *after,
                                  tdm_error *err) {
    gpu_emit *first = before == NULL ? act : before, *last = after == NULL ? act : after;
    unary_params p = {.word = {1, 0, 1, 0}, .act = (tdm_act)act->node->params.act.act};
    if (before != NULL) {
        p.word[0] = before->node->params.scale.scale;
        p.word[1] = before->node->params.scale.bias;
    }
    if (after != NULL) {
        p.word[2] = after->node->params.scale.scale;
        p.word[3] = after->node->params.scale.bias;
    }
    return unary_values_emit(last, GPU_UNARY_SCALED_ACT, &p, &first->src[0], err);
}

tdm_status gpu_fused_scale_act(gpu_emit *nodes, tdm_error *err) {
    return scaled_act_emit(&nodes[0], &nodes[1], NULL, err);
}

tdm_status gpu_fused_act_scale(gpu_emit *nodes, tdm_error *err) {
    return scaled_act_emit(NULL, &nodes[0], &nodes[1], err);
}

tdm_status gpu_fused_scale_act_scale(gpu_emit *nodes, tdm_error *err) {
    return scaled_act_emit(&nodes[0], &nodes[1], &nodes[2], err);
}

/* nodes: MUL, ADD to its result, ACT or none, SCALE or none. */
tdm_status gpu_fused_affine_act(gpu_emit *nodes, tdm_error *err) {
    int last = 1;
    unary_params p = {.word = {1, 0, 1, 0}};
    if (nodes[last + 1].node != NULL && nodes[last + 1].node->op == TDM_OP_ACT)
        p.act = (tdm_act)nodes[++last].node->params.act.act;
    if (nodes[last + 1].node != NULL) {
        p.word[2] = nodes[++last].node->params.scale.scale;
        p.word[3] = nodes[last].node->params.scale.bias;
    }
    gpu_emit *e = &nodes[last];
    const gpu_value *x = &nodes[0].src[0], *a = &nodes[0].src[1], *b = &nodes[1].src[1];
    const gpu_value *dst = &e->dst[0], *values[] = {x, a, b, dst};
    gpu_step step = gpu_step_make(e, GPU_KERNEL_UNARY, GROUP_SIZE);
    gpu_axes axes;
    const int64_t n = tdm_shape_count(dst->ne);
    if (memcmp(nodes[0].dst[0].ne, dst->ne, sizeof dst->ne) != 0)
        return gpu_refuse(e, err, "a product that is repeated is not fused");
    if (n == 0) return TDM_OK;
    tdm_status status = gpu_axes_make(e, &axes, dst->ne, values, 4, err);
    if (status == TDM_OK && axes.n_axis > 2)
        return gpu_refuse(e, err, "values of %d axes are not fused", (int)axes.n_axis);
    if (status == TDM_OK) status = gpu_axes_shape(e, &step.word[0], &axes, err);
    if (status == TDM_OK) status = gpu_axes_strides(e, &step.word[7], &axes, 0, err);
    if (status == TDM_OK)
        status = elements_set(e, &step, &step.word[11], n, gpu_axes_width(&axes), err);
    for (int i = 0; i < 4; i++) step.word[12 + i] = word_of_float(p.word[i]);
    for (int i = 0; i < 4 && status == TDM_OK; i++)
        status = gpu_word(e, &step.word[16 + i], axes.stride[1 + i / 2][i % 2], err);
    if (status != TDM_OK) return status;
    step.spec[0] = GPU_UNARY_AFFINE_ACT;
    step.spec[1] = axes.n_axis;
    step.spec[2] = gpu_axes_width(&axes);
    step.spec[3] = gpu_axes_lane(&axes, 0);
    step.spec[4] = p.act;
    step.spec[5] = gpu_axes_lane(&axes, 3);
    step.spec[6] = gpu_axes_lane(&axes, 1);
    step.spec[7] = gpu_axes_lane(&axes, 2);
    step.operand[0] = dst->place;
    step.operand[1] = x->place;
    step.operand[2] = a->place;
    step.operand[3] = b->place;
    return gpu_emit_step(e, &step, err);
}

/* nodes: ACT, MUL of its result by another value. */
tdm_status gpu_fused_act_mul(gpu_emit *nodes, tdm_error *err) {
    return pair_values_emit(&nodes[1], GPU_PAIR_GLU, (tdm_act)nodes[0].node->params.act.act,
                            &nodes[1].dst[0], &nodes[0].src[0], &nodes[1].src[1], err);
}

/* nodes: ACT, MUL of another value by its result. */
tdm_status gpu_fused_mul_act(gpu_emit *nodes, tdm_error *err) {
    return pair_values_emit(&nodes[1], GPU_PAIR_MUL_ACT, (tdm_act)nodes[0].node->params.act.act,
                            &nodes[1].dst[0], &nodes[1].src[0], &nodes[0].src[0], err);
}

/* nodes: REPEAT, MUL of its result by another value. */
tdm_status gpu_fused_repeat_mul(gpu_emit *nodes, tdm_error *err) {
    const gpu_value *x = &nodes[0].src[0], *dst = &nodes[1].dst[0];
    for (int i = 0; i < TDM_MAX_DIMS; i++)
        if (x->ne[i] != 1 && x->ne[i] != dst->ne[i])
            return gpu_refuse(&nodes[1], err, "a value that is repeated in parts is not fused");
    return pair_values_emit(&nodes[1], GPU_PAIR_MUL, TDM_ACT_NONE, dst, x, &nodes[1].src[1], err);
}

/* Refuses a sum whose n values are not all dense along axis 0, or that has more axes than the
 * kernel. */
static tdm_status sum_check(const gpu_emit *e, const gpu_axes *axes, int n, tdm_error *err) {
    for (int i = 0; i < n; i++)
        if (axes->stride[i][0] != 1)
            return gpu_refuse(e, err, "a sum of strided values is not fused");
    if (axes->n_axis <= 3) return TDM_OK;
    return gpu_refuse(e, err, "a sum of values of %d axes is not fused", (int)axes->n_axis);
}

/* nodes: n_add ADDs, of which each but the first adds to the result of the one before, then a SCALE
 * where is_scaled. */
static tdm_status sum_emit(gpu_emit *nodes, int n_add, bool is_scaled, tdm_error *err) {
    enum { MAX_SRC = GPU_AXES_MAX_VALUE - 1 };
    gpu_emit *last = &nodes[n_add - 1 + is_scaled];
    const gpu_value *dst = &last->dst[0], *values[MAX_SRC + 1] = {&nodes[0].src[0]};
    const int n_src = n_add + 1;
    gpu_step step = gpu_step_make(last, GPU_KERNEL_SUM, GROUP_SIZE);
    gpu_lane lane = GPU_LANE_ALIGNED;
    int64_t n = tdm_shape_count(dst->ne);
    gpu_axes axes;
    if (n == 0) return TDM_OK;
    for (int i = 0; i < n_add; i++) values[1 + i] = &nodes[i].src[1];
    values[n_src] = dst;
    for (int i = 0; i < n_src; i++)
        if (memcmp(values[i]->ne, dst->ne, sizeof dst->ne) != 0)
            return gpu_refuse(last, err, "a sum of repeated values is not fused");
    tdm_status status = gpu_axes_make(last, &axes, dst->ne, values, n_src + 1, err);
    if (status == TDM_OK) status = sum_check(last, &axes, n_src + 1, err);
    if (status == TDM_OK) status = gpu_axes_shape(last, &step.word[0], &axes, err);
    for (int i = 0; i < n_src && status == TDM_OK; i++) {
        status = gpu_word(last, &step.word[7 + 2 * i], axes.stride[i][1], err);
        if (status == TDM_OK)
            status = gpu_word(last, &step.word[8 + 2 * i], axes.stride[i][2], err);
    }
    if (status == TDM_OK)
        status = elements_set(last, &step, &step.word[15], n, gpu_axes_width(&axes), err);
    if (status != TDM_OK) return status;
    for (int i = 0; i <= n_src; i++)
        if (gpu_axes_lane(&axes, i) != GPU_LANE_ALIGNED) lane = GPU_LANE_DENSE;
    if (is_scaled) {
        step.word[16] = word_of_float(last->node->params.scale.scale);
        step.word[17] = word_of_float(last->node->params.scale.bias);
    }
    step.spec[0] = n_src;
    step.spec[1] = axes.n_axis;
    step.spec[2] = gpu_axes_width(&axes);
    step.spec[3] = lane;
    step.spec[4] = is_scaled;
    step.operand[0] = dst->place;
    for (int i = 0; i < n_src; i++) step.operand[1 + i] = values[i]->place;
    return gpu_emit_step(last, &step, err);
}

tdm_status gpu_fused_sum_of_3(gpu_emit *nodes, tdm_error *err) {
    return sum_emit(nodes, 2, false, err);
}

tdm_status gpu_fused_sum_of_4(gpu_emit *nodes, tdm_error *err) {
    return sum_emit(nodes, 3, false, err);
}

tdm_status gpu_fused_scaled_sum_of_4(gpu_emit *nodes, tdm_error *err) {
    return sum_emit(nodes, 3, true, err);
}
