/* SPDX-License-Identifier: MIT
 *
 * attention_latent_matrix.cu: attention_matrix.h for caches in which V is the first part of K's
 * row, of up to 512 elements. A workgroup has 32 or 64 query rows. See kernel.h.
 */
#include "attention_matrix.h"
#include "entries.h"

#ifdef HAS_HALF_MATS
#define ENTRY(rows, registers)                                                                     \
    GPU_KERNEL_OF(attention_latent_matrix_##rows, 8 * rows, registers,                             \
                  AttentionMatrix<512, false, true, 256, rows>)
GPU_LATENT_ENTRIES(ENTRY)
#endif
