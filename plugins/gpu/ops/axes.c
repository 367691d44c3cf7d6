/* SPDX-License-Identifier: MIT
 *
 * axes.c: joins the axes of elementwise ops.
 */
#include "plugins/gpu/ops/axes.h"

/* Whether axis i of the shape goes on where the last axis so far ends, in all values. */
static bool axis_continues(const gpu_axes *axes, const int64_t stride[GPU_AXES_MAX_VALUE], int n) {
    int last = axes->n_axis - 1;
    for (int v = 0; v < n; v++)
        if (stride[v] != axes->stride[v][last] * axes->ne[last]) return false;
    return true;
}

static tdm_status extent_check(const gpu_emit *e, const gpu_value *v, tdm_error *err) {
    int32_t word;
    return gpu_word(e, &word, (int64_t)v->place.size / tdm_type_get_info(v->type).block_size, err);
}

tdm_status gpu_axes_make(const gpu_emit *e, gpu_axes *axes, const int64_t ne[TDM_MAX_DIMS],
                         const gpu_value *const values[], int n, tdm_error *err) {
    *axes = (gpu_axes){.n_axis = 0, .ne = {1, 1, 1, 1}};
    for (int v = 0; v < n; v++) {
        tdm_status status = extent_check(e, values[v], err);
        if (status != TDM_OK) return status;
    }
    for (int i = 0; i < TDM_MAX_DIMS; i++) {
        int64_t stride[GPU_AXES_MAX_VALUE] = {0};
        if (ne[i] == 1) continue;
        for (int v = 0; v < n; v++)
            if (values[v]->ne[i] != 1)
                stride[v] = values[v]->nb[i] / tdm_type_get_info(values[v]->type).block_size;
        if (axes->n_axis > 0 && axis_continues(axes, stride, n)) {
            axes->ne[axes->n_axis - 1] *= ne[i];
            continue;
        }
        axes->ne[axes->n_axis] = ne[i];
        for (int v = 0; v < n; v++) axes->stride[v][axes->n_axis] = stride[v];
        axes->n_axis++;
    }
    if (axes->n_axis == 0) axes->n_axis = 1;
    return TDM_OK;
}

tdm_status gpu_axes_shape(const gpu_emit *e, int32_t word[4], const gpu_axes *axes,
                          tdm_error *err) {
    return gpu_words_shape(e, word, axes->ne, err);
}

tdm_status gpu_axes_strides(const gpu_emit *e, int32_t word[4], const gpu_axes *axes, int i,
                            tdm_error *err) {
    return gpu_words_shape(e, word, axes->stride[i], err);
}

gpu_lane gpu_axes_lane(const gpu_axes *axes, int i) {
    int64_t stride = axes->stride[i][0];
    if (stride == 1 || axes->ne[0] == 1) return GPU_LANE_DENSE;
    return stride == 0 ? GPU_LANE_REPEATED : GPU_LANE_STRIDED;
}

int32_t gpu_axes_width(const gpu_axes *axes) {
    return axes->n_axis == 1 || axes->ne[0] % 4 == 0 ? 4 : 1;
}
