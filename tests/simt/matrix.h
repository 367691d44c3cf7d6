/* SPDX-License-Identifier: MIT
 *
 * matrix.h: the vendors' instructions for products of small matrices of signed bytes, and of f16
 * with f32 sums, executed by an emulated wave. Which register of which lane has an element is
 * written here from the vendors' documents alone, not from the kernels: a kernel that places an
 * element elsewhere gives wrong results.
 */
#ifndef TANDEM_SIMT_MATRIX_H
#define TANDEM_SIMT_MATRIX_H

#include "tests/simt/block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The element of a matrix that lies in place i of a lane's registers. For a and b, i counts bytes
 * or halves; for c it counts words. */
typedef struct simt_place {
    uint32_t row, column;
} simt_place;

/* d = a * b + c; a is [n_row, n_depth], b is [n_depth, n_column]; d lies where c lies. Sums of f16
 * are rounded after each element of the depth, in order; the vendors do not say how devices round
 * theirs. */
typedef struct simt_matrix {
    simt_collective base;
    uint32_t n_row, n_column, n_depth;
    uint32_t a_words, b_words, c_words; /* registers of a lane */
    simt_place (*a)(uint32_t lane, uint32_t i);
    simt_place (*b)(uint32_t lane, uint32_t i);
    simt_place (*c)(uint32_t lane, uint32_t i);
    bool is_f16; /* else bytes */
} simt_matrix;

extern const simt_matrix simt_mma_m8n8k16, simt_mma_m16n8k16, simt_wmma_gfx11, simt_wmma_gfx12,
    simt_mfma_16x16x16, simt_mfma_16x16x32, simt_mma_m16n8k8_f16, simt_mma_m16n8k16_f16,
    simt_wmma_gfx11_f16, simt_wmma_gfx12_f16, simt_mfma_16x16x16_f16;
/* All of them; the last is NULL. */
extern const simt_matrix *const simt_matrices[];

/* Executes the instruction on this lane's registers; c becomes d. The wave's lanes call it
 * together. Where several lanes hold the same element, they must have the same bits there;
 * otherwise all of d becomes a pattern. */
void simt_matrix_execute(const simt_matrix *what, const uint32_t *a, const uint32_t *b, int32_t *c);

#ifdef __cplusplus
}
#endif

#endif
