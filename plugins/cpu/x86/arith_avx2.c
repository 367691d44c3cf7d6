/* SPDX-License-Identifier: MIT
 *
 * arith_avx2.c: the kernels of arith.h for AVX2; what they do is in arith_lanes.h.
 */
#include "plugins/cpu/x86/floats_avx2.h"
#include "plugins/cpu/x86/arith_lanes.h"

const cpu_arith_kernels cpu_arith_avx2 = ARITH_KERNELS;
