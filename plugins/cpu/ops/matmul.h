/* SPDX-License-Identifier: MIT
 *
 * matmul.h: the matmul kernels as their callers (matmul.c, moe.c) see them. Kernels are in
 * matmul_*.c, the layouts they read in weight.h, the activations in quantize_row.h.
 *
 * A kernel computes a tile: the rows of one group of weights times up to CPU_MATMUL_TOK tokens.
 * A caller walks over groups and tiles; each output is the work of one call, so results do not
 * depend on the number of threads.
 *
 * Accuracy. Weights are used exactly as stored. Float kernels multiply f32 activations and sum in
 * f32. Integer kernels round activations to 15 bits with a scale for each 32 elements (an error of
 * at most max |x| / 32512 in each, the maximum taken over the 32) and multiply and sum the codes of
 * 16 or 32 elements exactly; only those sums are scaled and added in f32.
 */
#ifndef TANDEM_CPU_MATMUL_H
#define TANDEM_CPU_MATMUL_H

#include "plugins/cpu/ops/quantize_row.h"
#include "plugins/cpu/ops/weight.h"

enum {
    CPU_MATMUL_TOK = 8,  /* most tokens in a tile */
    CPU_MATMUL_LANE = 16 /* most rows in a group */
};

/* How a kernel asks for weights before it comes to them. */
typedef enum cpu_ahead {
    CPU_AHEAD_NONE, /* not: a cache has them */
    CPU_AHEAD_SOME, /* one line in four, and the processor finds the others by itself */
    CPU_AHEAD_EACH  /* each line; for processors that wait for many lines at once */
} cpu_ahead;

typedef struct cpu_matmul_tile {
    tdm_type type;                 /* of the weights */
    int32_t n_row;                 /* rows of the group that exist: 1 .. n_lane */
    int32_t n_tok;                 /* 1 .. CPU_MATMUL_TOK */
    cpu_ahead ahead;               /* changes no result */
    int64_t n_block;               /* blocks of a row */
    const uint8_t *group;          /* weights of n_lane rows in the kernel's layout */
    const void *x[CPU_MATMUL_TOK]; /* per token: float[k], or blocks[k / 32] of its form */
    float *y[CPU_MATMUL_TOK];      /* per token: n_row outputs are written, nothing else */
} cpu_matmul_tile;

typedef struct cpu_matmul_kernel {
    const char *name;    /* matmul_TYPE_ISA */
    uint32_t isa;        /* CPU_ISA_*: all that it needs */
    tdm_type type;       /* of the weights */
    int32_t n_lane;      /* rows of a group */
    cpu_x_form form;     /* of activations */
    int32_t code_offset; /* see cpu_quantize_row_fn */
    void (*run)(const cpu_matmul_tile *tile);
} cpu_matmul_kernel;

/* Chooses device->matmul_kernels by what the device may use: isa, is_reference, has_q8. */
void cpu_matmul_kernels_choose(cpu_device *device);

/* The kernel that `device` uses for weights of that type kept for matmul, NULL for a type that is
 * no number. The layout of private weights follows from it. [any-thread] */
static inline const cpu_matmul_kernel *cpu_matmul_kernel_get(const cpu_device *device,
                                                             tdm_type type) {
    return (unsigned)type < TDM_TYPE_LIMIT_ ? device->matmul_kernels[type] : NULL;
}

/* The kernel for canonical rows and float activations, any type: the reference, and what plain
 * weights are multiplied with everywhere. [any-thread] */
const cpu_matmul_kernel *cpu_matmul_kernel_reference(void);

/* A matrix as a kernel walks over it. */
typedef struct cpu_matmul_matrix {
    const cpu_matmul_kernel *kernel;
    tdm_type type;
    const uint8_t *data;
    size_t group_pitch; /* bytes from one group to the next */
    int64_t n_block;    /* blocks of a row */
    int64_t n_row;
    int64_t n_group;
    bool asks_each; /* cpu_device.asks_each */
} cpu_matmul_matrix;

/* Matrix number `i` of weights kept in the layout `l` at `data`. */
cpu_matmul_matrix cpu_matmul_matrix_get(const cpu_device *device, const cpu_weight_layout *l,
                                        const uint8_t *data, int64_t i);

/* Bytes that one token's activations of k elements take for this kernel, a multiple of 64; 0 where
 * floats are read in place. */
size_t cpu_matmul_x_size(const cpu_matmul_kernel *kernel, int64_t k);

/* Do both kernels take the same bytes for the same activations? */
bool cpu_matmul_x_is_same(const cpu_matmul_kernel *a, const cpu_matmul_kernel *b);

/* Elements first .. last-1 of one token (row `token` of x) in the kernel's form, to their place in
 * `out`, which is where the token begins: floats are copied. `first` is a multiple of
 * CPU_DEAL_UNIT, as is `last` but at the row's end. x may be strided. */
void cpu_matmul_x_prepare(const cpu_matmul_kernel *kernel, uint32_t isa, const cpu_view *x,
                          int64_t token, int64_t first, int64_t last, uint8_t *out);

/* Multiplies groups first .. last-1: tile->x, n_tok and y are set, y[t] pointing at the output of the
 * first group's first row; afterwards it points behind that of the last group's. `is_first`: no tile
 * before had these groups, so they come from memory. The tile is changed where it lies: copied for
 * each group, it was read before what had just been written of it had left the store buffer, behind
 * outputs that wait for memory. */
void cpu_matmul_groups(const cpu_matmul_matrix *m, int64_t first, int64_t last, bool is_first,
                       cpu_matmul_tile *tile);

/* Kernels. */
void cpu_matmul_run_reference(const cpu_matmul_tile *tile); /* matmul_reference.c */
void cpu_matmul_run_plain(const cpu_matmul_tile *tile);     /* matmul_plain.c: quantised types */
void cpu_matmul_run_q8_plain(const cpu_matmul_tile *tile);

/* x86/matmul_tile.h and matmul_grid.h, compiled for each instruction set. */
#define CPU_MATMUL_RUN_(isa)                                                                       \
    void cpu_matmul_run_q4_0_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_q4_1_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_q5_0_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_q5_1_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_q8_0_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_q2_K_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_q3_K_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_q4_K_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_q5_K_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_q6_K_##isa(const cpu_matmul_tile *tile);                                   \
    void cpu_matmul_run_iq4_nl_##isa(const cpu_matmul_tile *tile);                                 \
    void cpu_matmul_run_iq4_xs_##isa(const cpu_matmul_tile *tile);                                 \
    void cpu_matmul_run_mxfp4_##isa(const cpu_matmul_tile *tile);                                  \
    void cpu_matmul_run_iq2_xxs_##isa(const cpu_matmul_tile *tile);                                \
    void cpu_matmul_run_iq2_xs_##isa(const cpu_matmul_tile *tile);                                 \
    void cpu_matmul_run_iq2_s_##isa(const cpu_matmul_tile *tile);                                  \
    void cpu_matmul_run_iq3_xxs_##isa(const cpu_matmul_tile *tile);                                \
    void cpu_matmul_run_iq3_s_##isa(const cpu_matmul_tile *tile);                                  \
    void cpu_matmul_run_iq1_s_##isa(const cpu_matmul_tile *tile);                                  \
    void cpu_matmul_run_iq1_m_##isa(const cpu_matmul_tile *tile);                                  \
    void cpu_matmul_run_tq1_0_##isa(const cpu_matmul_tile *tile);                                  \
    void cpu_matmul_run_tq2_0_##isa(const cpu_matmul_tile *tile)
#define CPU_MATMUL_RUN_FLOATS_(isa)                                                                \
    void cpu_matmul_run_f32_##isa(const cpu_matmul_tile *tile);                                    \
    void cpu_matmul_run_f16_##isa(const cpu_matmul_tile *tile);                                    \
    void cpu_matmul_run_bf16_##isa(const cpu_matmul_tile *tile)
CPU_MATMUL_RUN_FLOATS_(avx2);
CPU_MATMUL_RUN_FLOATS_(avx512);
CPU_MATMUL_RUN_(avx2);
CPU_MATMUL_RUN_(avx512);
CPU_MATMUL_RUN_(q8_avx2);
CPU_MATMUL_RUN_(q8_avx512);
#undef CPU_MATMUL_RUN_FLOATS_
#undef CPU_MATMUL_RUN_

#endif
