/* SPDX-License-Identifier: MIT
 *
 * vector/matmul.c: the matmul kernels of all types of weights. With CPU_IS_Q8 the integer kernels
 * are compiled once more, for activations of 8 bits, and with CPU_IS_PANEL as unpackers (panel.h).
 */
#include "plugins/cpu/vector/matmul_tile.h"
#include "plugins/cpu/vector/matmul_grid.h"
