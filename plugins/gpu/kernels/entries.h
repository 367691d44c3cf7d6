/* SPDX-License-Identifier: MIT
 *
 * entries.h: the sizes for which a kernel has entries, <kernel>_<size>. The kernels expand the
 * lists, and plugins/gpu/rt/module.c chooses from them. C and C++.
 */
#ifndef TANDEM_GPU_ENTRIES_H
#define TANDEM_GPU_ENTRIES_H

/* attention_part. ENTRY(rows, own, 1 where it takes bias and lists, registers): for threads with up
 * to `rows` query heads and up to `own` elements of o of each. The last entry without bias and
 * lists, and the last with them, compute longer rows in slices. */
#define GPU_PART_ENTRIES(ENTRY)                                                                    \
    ENTRY(1, 2, 0, 128) ENTRY(2, 2, 0, 128) ENTRY(2, 8, 0, 255) ENTRY(2, 8, 1, 255)

/* attention_tile. ENTRY(elements, 1 where it takes bias and lists, registers): for up to `elements`
 * elements of o. */
/* clang-format off */
#define GPU_TILE_ENTRIES(ENTRY) \
    ENTRY(64, 0, 128) ENTRY(128, 0, 128) ENTRY(256, 0, 255) ENTRY(512, 0, 255) \
    ENTRY(128, 1, 168) ENTRY(512, 1, 255)
/* clang-format on */

/* attention_tile_matrix. ENTRY(elements, 1 for K and V of f16, rows, registers): for up to
 * `elements` elements of K and of o; query rows of a workgroup, with four threads each. */
/* clang-format off */
#define GPU_TILE_MATRIX_ENTRIES(ENTRY) \
    ENTRY(64, 0, 32, 168) ENTRY(64, 1, 32, 128) \
    ENTRY(128, 0, 32, 168) ENTRY(128, 1, 32, 128) \
    ENTRY(256, 0, 32, 255) ENTRY(256, 1, 32, 168) \
    ENTRY(128, 0, 64, 128) ENTRY(128, 1, 64, 128)
/* clang-format on */

/* attention_latent_matrix. ENTRY(rows, registers): query rows of a workgroup, with eight threads
 * each. */
#define GPU_LATENT_ENTRIES(ENTRY) ENTRY(32, 255) ENTRY(64, 128)

/* linear_scan. ENTRY(steps, rows): a thread has 4 * steps elements of each of `rows` rows. */
#define GPU_SCAN_ENTRIES(ENTRY) ENTRY(1, 1) ENTRY(1, 4) ENTRY(4, 1) ENTRY(4, 4)

#endif
