/* SPDX-License-Identifier: MIT
 *
 * axes.h: the shape that the values of an elementwise op share, with as few axes as possible: axes
 * of one element are left out, and two axes are joined where the second continues the first in all
 * values. Fewer axes mean fewer divisions in the kernels.
 */
#ifndef TANDEM_GPU_AXES_H
#define TANDEM_GPU_AXES_H

#include "plugins/gpu/plan/emit.h"

enum { GPU_AXES_MAX_VALUE = 5 };

typedef struct gpu_axes {
    int32_t n_axis;                                   /* 1 .. 4 */
    int64_t ne[TDM_MAX_DIMS];                         /* 1 from n_axis on */
    int64_t stride[GPU_AXES_MAX_VALUE][TDM_MAX_DIMS]; /* of each value, in elements; 0 where the
                                                         value has one element or is repeated */
    bool is_aligned[GPU_AXES_MAX_VALUE]; /* elements 0, 4, 8 .. of axis 0 lie at multiples of the
                                            size of four elements */
} gpu_axes;

/* Sets *axes for n values over the shape ne, which is not empty. A value has ne or 1 along each
 * axis. TDM_UNSUPPORTED where a value spans more than 2^31 - 1 elements. */
tdm_status gpu_axes_make(const gpu_emit *e, gpu_axes *axes, const int64_t ne[TDM_MAX_DIMS],
                         const gpu_value *const values[], int n, tdm_error *err);

/* Numbers by which a kernel divides by ne, 1 to 2^31 - 1, without a division: for n below 2^31, n /
 * ne is the upper 32 bits of n * multiplier, shifted right by `shift`. multiplier 0 means n / 1.
 * (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994,
 * section 4, with one bit less to divide.) [any-thread] */
typedef struct gpu_divisor {
    uint32_t multiplier;
    int32_t shift; /* 0 .. 30 */
} gpu_divisor;
gpu_divisor gpu_divisor_make(int64_t ne);

enum { GPU_SPLIT_WORDS = 7 };

/* Words by which a kernel splits the number of an element into coordinates: ne[0 .. 2], their
 * multipliers (gpu_divisor), and in one word their shifts, a byte each, that of ne[0] lowest.
 * TDM_UNSUPPORTED where a number is above 2^31 - 1. */
tdm_status gpu_words_split(const gpu_emit *e, int32_t word[GPU_SPLIT_WORDS], const int64_t ne[3],
                           tdm_error *err);

/* The split of axes->ne; the strides of value i as four words. */
tdm_status gpu_axes_shape(const gpu_emit *e, int32_t word[GPU_SPLIT_WORDS], const gpu_axes *axes,
                          tdm_error *err);
tdm_status gpu_axes_strides(const gpu_emit *e, int32_t word[4], const gpu_axes *axes, int i,
                            tdm_error *err);

/* How the elements of value i follow each other along axis 0 of the joined shape. */
gpu_lane gpu_axes_lane(const gpu_axes *axes, int i);

/* Elements that an invocation computes: 4 where axis 0 has a multiple of 4, else 1. */
int32_t gpu_axes_width(const gpu_axes *axes);

/* How the elements of each row (axis 0) of a value itself follow each other. [any-thread] */
gpu_lane gpu_value_lane(const gpu_value *v);

#endif
