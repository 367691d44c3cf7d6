/* SPDX-License-Identifier: MIT
 *
 * entries.h: the sizes for which a kernel has entries, <kernel>_<size>. The kernels expand the lists,
 * and plugins/gpu/rt/module.c chooses from them. C and C++.
 */
#ifndef TANDEM_GPU_ENTRIES_H
#define TANDEM_GPU_ENTRIES_H

/* ENTRY(rows, own, 1 where it takes bias and lists, registers): up to so many heads of a thread, and
 * elements of o of each. The last of each sort computes longer rows in slices. */
#define GPU_PART_ENTRIES(ENTRY)                                                                    \
    ENTRY(1, 2, 0, 128) ENTRY(2, 2, 0, 128) ENTRY(2, 8, 0, 255) ENTRY(2, 8, 1, 255)

/* ENTRY(elements, 1 where it takes bias and lists, registers): up to so many elements of o. */
/* clang-format off */
#define GPU_TILE_ENTRIES(ENTRY) \
    ENTRY(64, 0, 128) ENTRY(128, 0, 128) ENTRY(256, 0, 255) ENTRY(512, 0, 255) \
    ENTRY(128, 1, 168) ENTRY(512, 1, 255)
/* clang-format on */

/* ENTRY(elements, 1 for K and V of f16, rows, registers): up to so many elements of K and of o, and the query
 * rows of a workgroup, four threads each, on matrix hardware. */
/* clang-format off */
#define GPU_TILE_MATRIX_ENTRIES(ENTRY) \
    ENTRY(64, 0, 32, 168) ENTRY(64, 1, 32, 128) \
    ENTRY(128, 0, 32, 168) ENTRY(128, 1, 32, 128) \
    ENTRY(256, 0, 32, 255) ENTRY(256, 1, 32, 168) \
    ENTRY(128, 0, 64, 128) ENTRY(128, 1, 64, 128)
/* clang-format on */

/* ENTRY(rows, registers): query rows of a workgroup, eight threads each, where V is part of K. */
#define GPU_LATENT_ENTRIES(ENTRY) ENTRY(32, 255) ENTRY(64, 128)

/* ENTRY(steps, rows): steps of 4 elements of a thread, and rows. */
#define GPU_SCAN_ENTRIES(ENTRY) ENTRY(1, 1) ENTRY(1, 4) ENTRY(4, 1) ENTRY(4, 4)

#endif
