/* SPDX-License-Identifier: MIT
 *
 * rope_avx2.c: the kernels of rope.h for AVX2; what they do is in rope_lanes.h.
 */
#include "plugins/cpu/x86/floats_avx2.h"
#include "plugins/cpu/x86/rope_lanes.h"

const cpu_rope_kernels cpu_rope_avx2 = ROPE_KERNELS;
