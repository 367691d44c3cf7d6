/* SPDX-License-Identifier: MIT
 *
 * move.c: steps of ops that move elements: COPY, CONCAT, REPEAT.
 */
#include "plugins/gpu/ops/axes.h"
#include "plugins/gpu/ops/ops.h"

enum { GROUP_SIZE = 128 };

/* The kernel's number of a type; -1 where it has none. */
static int32_t copy_type(tdm_type type) {
    switch ((int)type) {
    case TDM_TYPE_F32:
    case TDM_TYPE_I32: return GPU_COPY_WORD;
    case TDM_TYPE_F16: return GPU_COPY_F16;
    case TDM_TYPE_BF16: return GPU_COPY_BF16;
    default: return -1;
    }
}

/* Sets types, operands, the number of elements and the grid of a step of COPY, and appends it.
 * Refuses types without a conversion. */
static tdm_status copy_finish(gpu_emit *e, gpu_step *step, const gpu_value *to,
                              const gpu_value *from, int32_t width, tdm_error *err) {
    int64_t n = tdm_shape_count(to->ne), per_group = (int64_t)width * GROUP_SIZE;
    tdm_status status = gpu_word(e, &step->word[15], n, err);
    if (status == TDM_OK) status = gpu_step_grid(e, step, (n + per_group - 1) / per_group, err);
    if (status != TDM_OK) return status;
    step->spec[0] = copy_type(from->type);
    step->spec[1] = copy_type(to->type);
    step->spec[3] = width;
    step->operand[0] = to->place;
    step->operand[1] = from->place;
    if (step->spec[0] < 0 || step->spec[1] < 0)
        return gpu_refuse(e, err, "no conversion from %s to %s", tdm_type_name(from->type),
                          tdm_type_name(to->type));
    return gpu_emit_step(e, step, err);
}

tdm_status gpu_emit_copy(gpu_emit *e, const gpu_value *to, const gpu_value *from, tdm_error *err) {
    const gpu_value *values[] = {from, to};
    gpu_step step = gpu_step_make(e, GPU_KERNEL_COPY, GROUP_SIZE);
    gpu_axes axes;
    if (tdm_shape_count(to->ne) == 0) return TDM_OK;
    tdm_status status = gpu_axes_make(e, &axes, to->ne, values, 2, err);
    if (status == TDM_OK) status = gpu_axes_shape(e, &step.word[0], &axes, err);
    if (status == TDM_OK) status = gpu_axes_strides(e, &step.word[7], &axes, 0, err);
    if (status == TDM_OK) status = gpu_axes_strides(e, &step.word[11], &axes, 1, err);
    if (status != TDM_OK) return status;
    gpu_lane from_lane = gpu_axes_lane(&axes, 0), to_lane = gpu_axes_lane(&axes, 1);
    bool is_dense = (from_lane == GPU_LANE_DENSE || from_lane == GPU_LANE_ALIGNED) &&
                    (to_lane == GPU_LANE_DENSE || to_lane == GPU_LANE_ALIGNED);
    step.spec[2] = axes.n_axis;
    step.spec[5] = from_lane == GPU_LANE_ALIGNED;
    step.spec[6] = to_lane == GPU_LANE_ALIGNED;
    return copy_finish(e, &step, to, from, is_dense ? gpu_axes_width(&axes) : 1, err);
}

tdm_status gpu_op_copy(gpu_emit *e, tdm_error *err) {
    return gpu_emit_copy(e, &e->dst[0], &e->src[0], err);
}

/* Bytes from the first element of a view of a plain type to the end of its last. */
static uint64_t extent(const gpu_value *v) {
    int64_t end = tdm_type_get_info(v->type).block_size;
    for (int i = 0; i < TDM_MAX_DIMS; i++)
        if (v->ne[i] > 0) end += (v->ne[i] - 1) * v->nb[i];
    return (uint64_t)end;
}

/* A step for each source, which fills its part of the destination. */
tdm_status gpu_op_concat(gpu_emit *e, tdm_error *err) {
    int axis = e->node->params.concat.axis;
    uint64_t off = 0;
    tdm_status status = TDM_OK;
    for (int i = 0; i < 2 && status == TDM_OK; i++) {
        gpu_value part = e->dst[0];
        part.ne[axis] = e->src[i].ne[axis];
        part.place.off += off;
        part.place.size = extent(&part);
        off += (uint64_t)(e->src[i].ne[axis] * e->dst[0].nb[axis]);
        status = gpu_emit_copy(e, &part, &e->src[i], err);
    }
    return status;
}

tdm_status gpu_op_repeat(gpu_emit *e, tdm_error *err) {
    const gpu_value *x = &e->src[0], *dst = &e->dst[0];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_COPY, GROUP_SIZE);
    if (tdm_shape_count(dst->ne) == 0) return TDM_OK;
    tdm_status status = gpu_words_split(e, &step.word[0], dst->ne, err);
    if (status == TDM_OK) status = gpu_words_strides(e, &step.word[7], x, x->ne, err);
    if (status == TDM_OK) status = gpu_words_strides(e, &step.word[11], dst, dst->ne, err);
    if (status == TDM_OK) status = gpu_words_shape(e, &step.word[16], x->ne, err);
    if (status != TDM_OK) return status;
    bool is_wide = x->ne[0] % 4 == 0 && gpu_value_has_dense_rows(x);
    step.spec[2] = TDM_MAX_DIMS;
    step.spec[4] = 1;
    step.spec[5] = gpu_value_lane(x) == GPU_LANE_ALIGNED;
    step.spec[6] = gpu_value_lane(dst) == GPU_LANE_ALIGNED;
    return copy_finish(e, &step, dst, x, is_wide ? 4 : 1, err);
}
