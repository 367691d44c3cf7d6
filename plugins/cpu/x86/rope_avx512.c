/* SPDX-License-Identifier: MIT
 *
 * rope_avx512.c: the kernels of rope.h for AVX-512; what they do is in rope_lanes.h.
 */
#include "plugins/cpu/x86/floats_avx512.h"
#include "plugins/cpu/x86/rope_lanes.h"

const cpu_rope_kernels cpu_rope_avx512 = ROPE_KERNELS;
