/* SPDX-License-Identifier: MIT
 *
 * matmul_avx2.c: the kernels of matmul_tile.h and matmul_grid.h for AVX2, eight rows at a time.
 */
#ifndef V_IS_Q8
#define V_IS_Q8 0
#endif
#include "plugins/cpu/x86/tile_vec_avx2.h"
#include "plugins/cpu/x86/matmul_tile.h"
#include "plugins/cpu/x86/matmul_grid.h"
