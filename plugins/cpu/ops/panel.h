/* SPDX-License-Identifier: MIT
 *
 * panel.h: products of prompts on a processor's matrix unit (AMX), as MATMUL (matmul.c) sees them.
 * The weights and their layout are those of the other kernels (weight.h). panel.c walks over groups
 * and tokens, x86/matmul_amx.h unpacks, and x86/panel_amx.c multiplies.
 *
 * The unit multiplies bf16 and adds in f32. Activations are rounded to bf16, and so are weights:
 * those of two groups of rows are unpacked into a panel, which is then multiplied with all tokens,
 * 32 at a time. Each number is off by at most 2^-9 of itself; a block of 32 activations with codes
 * of 8 bits, as the vector kernels take them for prompts, has errors of 2^-8 of its largest. The
 * unit takes numbers below 2^-126 as zeros.
 *
 * Rationale. The unit multiplies codes of 8 bits twice as fast. But each block of 32 elements has
 * scales of its own: the sums of a block would have to leave the unit, be scaled and be added
 * elsewhere, which takes longer. Experts (moe.c) keep the vector kernels: few of them have enough
 * tokens for what unpacking takes.
 *
 * The order of the sums depends on nothing but the number of elements, so a token's result does not
 * depend on its neighbours, nor on how many there are.
 */
#ifndef TANDEM_CPU_PANEL_H
#define TANDEM_CPU_PANEL_H

#include "plugins/cpu/ops/matmul.h"

enum {
    CPU_PANEL_LANE = 2 * CPU_MATMUL_LANE, /* rows of a panel: two groups */
    CPU_PANEL_K = 2048, /* most elements of a row in a panel; whole chunks of weights (weight.h) */
    CPU_PANEL_N = 8,    /* most panels that a tile of tokens is multiplied with: together 1 MiB,
                           which a core's second-level cache holds beside the tokens */
    CPU_PANEL_TOK = 32  /* most tokens of a tile */
};

/* 32 elements of a panel's groups: pairs of neighbours, those of each row side by side. */
typedef struct cpu_panel_step {
    uint16_t w[2][CPU_X_LEN / 2][CPU_MATMUL_LANE][2];
} cpu_panel_step;

/* 32 elements of a tile's tokens. */
typedef struct cpu_panel_x {
    cpu_bf16_block token[CPU_PANEL_TOK];
} cpu_panel_x;

/* Up to 32 tokens. */
typedef struct cpu_panel_tile {
    int32_t n_tok;           /* 1 .. CPU_PANEL_TOK */
    const cpu_panel_x *x;    /* [elements / 32] */
    float *y[CPU_PANEL_TOK]; /* of each token, the output of the matrix's first row; NULL: the
                                 token's products are not wanted, and its x may be anything */
} cpu_panel_tile;

/* Bytes of the x of all tokens of a matrix, n_tok tokens of k elements. */
size_t cpu_panel_x_size(int64_t n_tok, int64_t k);

/* Writes n elements of token number `token` of x, which has k elements for each, from element
 * `first` on; both are multiples of 32. `isa` chooses the function that rounds. */
void cpu_panel_x_write(cpu_panel_x *x, int64_t token, int64_t k, uint32_t isa, const float *src,
                       int64_t first, int64_t n);

/* Bytes that one worker needs for panels of rows of k elements, a multiple of 64. */
size_t cpu_panel_scratch_size(int64_t k);

/* Multiplies groups first .. last-1 with n_tile tiles. The kernel is one of device->panel_kernels.
 * `scratch` has cpu_panel_scratch_size bytes for this thread alone. */
void cpu_panel_groups(const cpu_matmul_matrix *m, const cpu_matmul_kernel *kernel, int64_t first,
                      int64_t last, const cpu_panel_tile *tiles, int32_t n_tile, uint8_t *scratch);

/* What a matrix unit does. */
typedef struct cpu_panel_unit {
    /* Prepares the unit for products by this thread, and gives it back: otherwise each switch of
     * threads would save its content. */
    void (*begin)(void);
    void (*end)(void);
    /* Multiplies n_step steps of a panel with the tokens of a tile, whose x begins x_first steps
     * from its start. `first` is the matrix's row that is the panel's first; n_row outputs of each
     * token from there on, 1 .. CPU_PANEL_LANE, are written, with is_first, or added to. With at
     * most CPU_MATMUL_LANE of them the panel's second group is not read. */
    void (*multiply)(const cpu_panel_step *panel, int64_t n_step, const cpu_panel_tile *tile,
                     int64_t x_first, int64_t first, int32_t n_row, bool is_first);
} cpu_panel_unit;

extern const cpu_panel_unit cpu_panel_unit_amx; /* x86/panel_amx.c */

#endif
