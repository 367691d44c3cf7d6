/* SPDX-License-Identifier: MIT
 *
 * rope.c: steps of ROPE: the angles of all tokens and pairs, computed once for all nodes of a plan
 * that use the same; then the turns.
 */
#include <string.h>

#include "plugins/gpu/ops/angle.h"
#include "plugins/gpu/ops/axes.h"
#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/ops/rope.h"

enum { GROUP_SIZE = 64 };

static int32_t word_of_float(float x) {
    int32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}

/* The number of invocations as a word, and the grid for them. */
static tdm_status invocations_set(const gpu_emit *e, gpu_step *step, int32_t *word, int64_t n,
                                  tdm_error *err) {
    tdm_status status = gpu_word(e, word, n, err);
    return status != TDM_OK
               ? status
               : gpu_step_grid(e, step, (n + step->group_size - 1) / step->group_size, err);
}

/* *angles_out: cos and sin of each pair and token, [2, n_rot / 2, n_tok] f32. Nodes share them
 * where positions, factors, frequencies, mscale and direction are the same; the first node appends
 * the step. */
static tdm_status angles_emit(gpu_emit *e, gpu_operand *angles_out, tdm_error *err) {
    const tdm_rope_params *p = &e->node->params.rope;
    const gpu_value *pos = &e->src[1], *factor = &e->src[2];
    int64_t n_pair = p->n_rot / 2, n_tok = e->src[0].ne[2];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_ANGLE, GROUP_SIZE);
    gpu_operand table;
    bool is_new;
    tdm_status status = gpu_angle_constant(e, p, factor->is_present, &table, err);
    if (status != TDM_OK) return status;
    float mscale = gpu_angle_mscale(p);
    *angles_out =
        gpu_emit_form(e, 1, factor->is_present ? 2 : -1,
                      &(gpu_form_key){.form = GPU_FORM_ANGLE,
                                      .number = {(int32_t)(table.off / 16), word_of_float(mscale),
                                                 2 * p->pos_add + p->is_inverse}},
                      (uint64_t)(n_pair * n_tok) * 2 * sizeof(float), &is_new);
    if (!is_new) return TDM_OK;
    status = gpu_word(e, &step.word[0], n_pair, err);
    if (status == TDM_OK && n_tok > 1)
        status = gpu_word(e, &step.word[1], pos->nb[0] / (int64_t)sizeof(int32_t), err);
    if (status == TDM_OK && factor->is_present && n_pair > 1)
        status = gpu_word(e, &step.word[2], factor->nb[0] / (int64_t)sizeof(float), err);
    if (status == TDM_OK) status = invocations_set(e, &step, &step.word[4], n_pair * n_tok, err);
    if (status != TDM_OK) return status;
    step.word[3] = word_of_float(mscale);
    step.word[5] = p->pos_add;
    step.word[6] = p->is_inverse;
    step.spec[0] = factor->is_present;
    step.operand[0] = *angles_out;
    step.operand[1] = pos->place;
    step.operand[2] = table;
    if (factor->is_present) step.operand[3] = factor->place;
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_rope_get(gpu_emit *e, gpu_rope *out, tdm_error *err) {
    const tdm_rope_params *p = &e->node->params.rope;
    const gpu_value *pos = &e->src[1];
    *out = (gpu_rope){.word = {p->n_rot / 2, p->rope_offset, p->mode}};
    if (p->n_rot == 0) return TDM_OK;
    out->pos = pos->place;
    tdm_status status = angles_emit(e, &out->angles, err);
    if (status == TDM_OK && e->src[0].ne[2] > 1)
        status = gpu_word(e, &out->word[3], pos->nb[0] / (int64_t)sizeof(int32_t), err);
    return status;
}

tdm_status gpu_op_rope(gpu_emit *e, tdm_error *err) {
    const tdm_rope_params *p = &e->node->params.rope;
    const gpu_value *x = &e->src[0], *pos = &e->src[1], *dst = &e->dst[0];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_ROPE, GROUP_SIZE);
    int64_t n_unit = x->ne[0] - p->n_rot / 2;
    if (tdm_shape_count(dst->ne) == 0) return TDM_OK;
    tdm_status status = TDM_OK;
    if (p->n_rot > 0) status = angles_emit(e, &step.operand[3], err);
    if (status == TDM_OK) status = gpu_words_shape(e, &step.word[0], x->ne, err);
    if (status == TDM_OK) status = gpu_words_strides(e, &step.word[3], x, x->ne, err);
    if (status == TDM_OK && x->ne[2] > 1)
        status = gpu_word(e, &step.word[6], pos->nb[0] / (int64_t)sizeof(int32_t), err);
    if (status == TDM_OK)
        status = gpu_word(e, &step.word[11], (int64_t)(x->place.size / sizeof(float)), err);
    if (status == TDM_OK)
        status = invocations_set(e, &step, &step.word[9], n_unit * x->ne[1] * x->ne[2], err);
    if (status != TDM_OK) return status;
    step.word[7] = p->n_rot;
    step.word[8] = p->rope_offset;
    step.word[10] = (int32_t)n_unit;
    gpu_divisor unit = gpu_divisor_make(n_unit), head = gpu_divisor_make(x->ne[1]);
    step.word[11] = (int32_t)unit.multiplier;
    step.word[12] = unit.shift;
    step.word[13] = (int32_t)head.multiplier;
    step.word[14] = head.shift;
    step.spec[0] = p->mode;
    step.spec[1] = p->n_rot != x->ne[0];
    step.operand[0] = dst->place;
    step.operand[1] = x->place;
    step.operand[2] = pos->place;
    return gpu_emit_step(e, &step, err);
}
