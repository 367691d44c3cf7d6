/* SPDX-License-Identifier: MIT
 *
 * weight.h: how GPU plugins keep a weight that has usage flags. Canonical bytes come in and go out
 * through it; kernels know the same layout.
 */
#ifndef TANDEM_GPU_WEIGHT_H
#define TANDEM_GPU_WEIGHT_H

#include "tandem/tensor.h"

/* Bytes of a weight in this layout. TDM_UNSUPPORTED with the reason for a type that has no kernel.
 * [any-thread] */
tdm_status gpu_weight_size(tdm_type type, const int64_t ne[TDM_MAX_DIMS], uint32_t usage,
                           uint64_t *size_out, tdm_error *err);

#endif
