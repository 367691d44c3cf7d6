/* SPDX-License-Identifier: MIT
 *
 * attention_tile_matrix.cu: attention_matrix.h for caches that hold V apart from K. A workgroup has
 * 32 query rows; for up to 128 elements there are entries with 64 rows too. See kernel.h.
 */
#include "attention_matrix.h"
#include "entries.h"

#ifdef HAS_HALF_MATS
#define ENTRY(elements, is_plain, rows, registers)                                                 \
    GPU_KERNEL_OF(attention_tile_matrix_##elements##_##is_plain##_##rows, 4 * rows, registers,     \
                  AttentionMatrix<elements, is_plain != 0, false, 128, rows>)
GPU_TILE_MATRIX_ENTRIES(ENTRY)
#endif
