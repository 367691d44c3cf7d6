/* SPDX-License-Identifier: MIT
 *
 * norm_avx512.c: the kernels of norm.h for AVX-512; what they do is in norm_lanes.h.
 */
#include "plugins/cpu/x86/floats_avx512.h"
#include "plugins/cpu/x86/norm_lanes.h"

const cpu_norm_kernels cpu_norm_avx512 = NORM_KERNELS;
