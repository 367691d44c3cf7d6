/* SPDX-License-Identifier: MIT
 *
 * matmul_q8_avx2.c: the integer kernels of matmul_avx2.c once more, for activations of 8 bits.
 */
#define V_IS_Q8 1
#include "plugins/cpu/x86/matmul_avx2.c"
#include "plugins/cpu/x86/matmul_grid.h"
