/* SPDX-License-Identifier: MIT
 *
 * norm_avx2.c: the kernels of norm.h for AVX2; what they do is in norm_lanes.h.
 */
#include "plugins/cpu/x86/floats_avx2.h"
#include "plugins/cpu/x86/norm_lanes.h"

const cpu_norm_kernels cpu_norm_avx2 = NORM_KERNELS;
