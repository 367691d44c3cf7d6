/* SPDX-License-Identifier: MIT
 *
 * arith_avx512.c: the kernels of arith.h for AVX-512; what they do is in arith_lanes.h.
 */
#include "plugins/cpu/x86/floats_avx512.h"
#include "plugins/cpu/x86/arith_lanes.h"

const cpu_arith_kernels cpu_arith_avx512 = ARITH_KERNELS;
