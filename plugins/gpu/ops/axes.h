/* SPDX-License-Identifier: MIT
 *
 * axes.h: the shape that the values of an elementwise op share, with as few axes as possible: axes
 * of one element are left out, and axes that follow each other in all values are joined.
 */
#ifndef TANDEM_GPU_AXES_H
#define TANDEM_GPU_AXES_H

#include "plugins/gpu/plan/emit.h"

enum { GPU_AXES_MAX_VALUE = 3 };

typedef struct gpu_axes {
    int32_t n_axis;                                   /* 1 .. 4 */
    int64_t ne[TDM_MAX_DIMS];                         /* 1 from n_axis on */
    int64_t stride[GPU_AXES_MAX_VALUE][TDM_MAX_DIMS]; /* of each value, in elements; 0 where the
                                                         value has one element or is repeated */
} gpu_axes;

/* Of n values over the shape ne, which has elements. A value has ne or 1 along each axis. Fails
 * with a message where a value spans more elements than a kernel counts. */
tdm_status gpu_axes_make(const gpu_emit *e, gpu_axes *axes, const int64_t ne[TDM_MAX_DIMS],
                         const gpu_value *const values[], int n, tdm_error *err);

/* The shape, or the strides of value i, as four words. */
tdm_status gpu_axes_shape(const gpu_emit *e, int32_t word[4], const gpu_axes *axes, tdm_error *err);
tdm_status gpu_axes_strides(const gpu_emit *e, int32_t word[4], const gpu_axes *axes, int i,
                            tdm_error *err);

/* How value i goes along axis 0. */
gpu_lane gpu_axes_lane(const gpu_axes *axes, int i);

/* Elements that an invocation computes: 4 where each four lie along axis 0 (the last ones of a
 * single axis may be fewer), else 1. */
int32_t gpu_axes_width(const gpu_axes *axes);

#endif
