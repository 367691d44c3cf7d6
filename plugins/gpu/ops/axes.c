/* SPDX-License-Identifier: MIT
 *
 * axes.c: joins the axes of elementwise ops; the words by which kernels divide.
 */
#include "plugins/gpu/ops/axes.h"

/* True where elements 0, 4, 8 .. of each row lie at multiples of the size of four elements. It is
 * enough to check offsets: bindings and areas begin at multiples of 256. */
static bool is_aligned(const gpu_value *v) {
    int64_t four = 4 * (int64_t)tdm_type_get_info(v->type).block_size;
    if (v->place.off % (uint64_t)four != 0) return false;
    for (int i = 1; i < TDM_MAX_DIMS; i++)
        if (v->ne[i] != 1 && v->nb[i] % four != 0) return false;
    return true;
}

gpu_lane gpu_value_lane(const gpu_value *v) {
    if (!gpu_value_has_dense_rows(v)) return GPU_LANE_STRIDED;
    return is_aligned(v) ? GPU_LANE_ALIGNED : GPU_LANE_DENSE;
}

/* True where an axis with these strides continues the last axis of `axes` in all n values, so that
 * both can be joined. */
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
        axes->is_aligned[v] = is_aligned(values[v]);
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

/* With l = ceil(log2 ne), m = ceil(2^(31 + l) / ne) is below 2^32 and n * m / 2^(31 + l) rounds
 * down to n / ne for n below 2^31. A divisor of 1 would need m = 2^32. */
gpu_divisor gpu_divisor_make(int64_t ne) {
    int l = 0;
    while (((int64_t)1 << l) < ne) l++;
    if (ne <= 1) return (gpu_divisor){0, 0};
    return (gpu_divisor){(uint32_t)((((uint64_t)1 << (31 + l)) + (uint64_t)ne - 1) / (uint64_t)ne),
                         l - 1};
}

tdm_status gpu_words_split(const gpu_emit *e, int32_t word[GPU_SPLIT_WORDS], const int64_t ne[3],
                           tdm_error *err) {
    tdm_status status = TDM_OK;
    word[6] = 0;
    for (int i = 0; i < 3 && status == TDM_OK; i++) {
        gpu_divisor divisor = gpu_divisor_make(ne[i]);
        status = gpu_word(e, &word[i], ne[i], err);
        word[3 + i] = (int32_t)divisor.multiplier;
        word[6] |= divisor.shift << (8 * i);
    }
    return status;
}

tdm_status gpu_axes_shape(const gpu_emit *e, int32_t word[GPU_SPLIT_WORDS], const gpu_axes *axes,
                          tdm_error *err) {
    return gpu_words_split(e, word, axes->ne, err);
}

tdm_status gpu_axes_strides(const gpu_emit *e, int32_t word[4], const gpu_axes *axes, int i,
                            tdm_error *err) {
    return gpu_words_shape(e, word, axes->stride[i], err);
}

gpu_lane gpu_axes_lane(const gpu_axes *axes, int i) {
    int64_t stride = axes->stride[i][0];
    if (stride == 1 || axes->ne[0] == 1)
        return axes->is_aligned[i] ? GPU_LANE_ALIGNED : GPU_LANE_DENSE;
    return stride == 0 ? GPU_LANE_REPEATED : GPU_LANE_STRIDED;
}

int32_t gpu_axes_width(const gpu_axes *axes) {
    return axes->ne[0] % 4 == 0 ? 4 : 1;
}
