/* SPDX-License-Identifier: MIT
 *
 * matmul.h: the matmul kernels as their callers (matmul.c, moe.c) see them. Kernels are in
 * vector/matmul_tile.h and matmul_grid.h, and in plain C in matmul_plain.c and matmul_reference.c;
 * the layouts they read are in weight.h, the activations in quantize_row.h.
 *
 * A kernel computes a tile: the rows of one group of weights times up to CPU_MATMUL_TOK tokens. A
 * caller walks over groups and tiles; each output is the work of one call, so results do not depend
 * on the number of threads.
 *
 * Where a processor has a matrix unit, MATMUL multiplies the tokens of prompts there: see panel.h.
 *
 * Accuracy. Weights are used exactly as stored. Float kernels multiply f32 activations and sum in
 * f32. Integer kernels round activations to 15 or 8 bits with a scale for each 32 elements: an
 * error of at most max |x| / 32512 or max |x| / 254 in each, the maximum taken over the 32. They
 * multiply and sum the codes of 16 or 32 elements exactly; only those sums are scaled and added in
 * f32.
 *
 * The role of a token chooses between 15 and 8 bits (cpu_device.has_q8). All tokens of a tile have
 * the same role: a step with tokens of both roles takes more tiles, and the results are the same.
 */
#ifndef TANDEM_CPU_MATMUL_H
#define TANDEM_CPU_MATMUL_H

#include "plugins/cpu/ops/quantize_row.h"
#include "plugins/cpu/ops/weight.h"

enum {
    CPU_MATMUL_TOK = 8,  /* most tokens in a tile */
    CPU_MATMUL_LANE = 16 /* most rows in a group */
};

/* How a kernel prefetches weights. */
typedef enum cpu_ahead {
    CPU_AHEAD_NONE, /* not at all: they are in a cache */
    CPU_AHEAD_SOME, /* one line in four; the hardware prefetches the others */
    CPU_AHEAD_EACH  /* each line; for processors that can wait for many lines at once */
} cpu_ahead;

typedef struct cpu_matmul_tile {
    tdm_type type;                 /* of the weights */
    int32_t n_row;                 /* rows of the group that exist: 1 .. n_lane */
    int32_t n_tok;                 /* 1 .. CPU_MATMUL_TOK */
    cpu_ahead ahead;               /* changes no result */
    int64_t n_block;               /* blocks of a row */
    const uint8_t *group;          /* weights of n_lane rows in the kernel's layout */
    const void *x[CPU_MATMUL_TOK]; /* per token: float[k], or blocks[k / 32] of its format */
    float *y[CPU_MATMUL_TOK];      /* per token: n_row outputs are written, nothing else */
} cpu_matmul_tile;

struct cpu_panel_step; /* panel.h */
struct cpu_panel_unit;

typedef struct cpu_matmul_kernel {
    const char *name;    /* matmul_TYPE_ISA */
    uint32_t isa;        /* CPU_ISA_*: all that it needs */
    tdm_type type;       /* of the weights */
    int32_t n_lane;      /* rows of a group */
    cpu_x_format format; /* of activations */
    int32_t code_offset; /* see cpu_quantize_row_fn */
    void (*run)(const cpu_matmul_tile *tile); /* NULL for panels */
    /* For panels (panel.h), else NULL: unpacks n_block blocks of every row of a group to place
     * i_group, 0 or 1, of a panel. */
    void (*unpack)(const uint8_t *group, int64_t n_block, int32_t code_offset, int i_group,
                   struct cpu_panel_step *panel);
    const struct cpu_panel_unit *unit; /* that multiplies them */
} cpu_matmul_kernel;

/* Fills device->matmul_kernels and panel_kernels, which are zeroed before, by what the device may
 * use: isa, is_reference, has_q8. */
void cpu_matmul_kernels_choose(cpu_device *device);

/* The kernel that `device` uses for weights of that type kept for matmul and tokens of that role,
 * NULL for a type of integers. The layout of private weights follows from it, and is the same for
 * every role. [any-thread] */
static inline const cpu_matmul_kernel *cpu_matmul_kernel_get(const cpu_device *device,
                                                             tdm_type type, tdm_role role) {
    return (unsigned)type < TDM_TYPE_LIMIT_ ? device->matmul_kernels[role][type] : NULL;
}

/* The kernels of a type, by role of the token. */
typedef struct cpu_matmul_kernels {
    const cpu_matmul_kernel *of[CPU_N_ROLE];
} cpu_matmul_kernels;

static inline cpu_matmul_kernels cpu_matmul_kernels_get(const cpu_device *device, tdm_type type) {
    return (cpu_matmul_kernels){{cpu_matmul_kernel_get(device, type, TDM_ROLE_GENERATED),
                                 cpu_matmul_kernel_get(device, type, TDM_ROLE_PROMPT)}};
}

/* The roles of a node's tokens: an optional i32 source (op.h, MATMUL). */
typedef struct cpu_roles {
    const uint8_t *data; /* NULL: every row is TDM_ROLE_GENERATED */
    int64_t pitch;       /* bytes */
    int64_t n_row;       /* rows of x that each token has */
} cpu_roles;

/* The roles in `source`, of n_row rows in all; none where the kernels do not differ by role. */
static inline cpu_roles cpu_roles_get(const cpu_view *source, int64_t n_row,
                                      const cpu_matmul_kernels *kernels) {
    bool is_same = kernels->of[TDM_ROLE_GENERATED] == kernels->of[TDM_ROLE_PROMPT];
    if (source->data == NULL || source->ne[0] == 0 || is_same) return (cpu_roles){0};
    return (cpu_roles){source->data, source->nb[0], n_row / source->ne[0]};
}

/* The role of the token of row `row` of x. Padding, whose results are not used, has that of the
 * first token. */
static inline tdm_role cpu_role_of(const cpu_roles *r, int64_t row) {
    int32_t role;
    if (r->data == NULL) return TDM_ROLE_GENERATED;
    memcpy(&role, r->data + row / r->n_row * r->pitch, sizeof role);
    if (role < 0) memcpy(&role, r->data, sizeof role);
    return role == TDM_ROLE_PROMPT ? TDM_ROLE_PROMPT : TDM_ROLE_GENERATED;
}

/* The kernel for canonical rows and float activations, any type: the reference, and what plain
 * weights are multiplied with everywhere. [any-thread] */
const cpu_matmul_kernel *cpu_matmul_kernel_reference(void);

/* A matrix as kernels walk over it. */
typedef struct cpu_matmul_matrix {
    cpu_matmul_kernels kernels;
    int32_t n_lane; /* of every kernel */
    tdm_type type;
    const uint8_t *data;
    size_t group_pitch; /* bytes from one group to the next */
    int64_t n_block;    /* blocks of a row */
    int64_t n_row;
    int64_t n_group;
    bool prefetch_each; /* cpu_device.prefetch_each */
} cpu_matmul_matrix;

/* Matrix number `i` of weights kept in the layout `l` at `data`. */
cpu_matmul_matrix cpu_matmul_matrix_get(const cpu_device *device, const cpu_weight_layout *l,
                                        const uint8_t *data, int64_t i);

/* Bytes that one token's activations of k elements take for the kernel of any role, a multiple of
 * 64; 0 where floats are read in place. */
size_t cpu_matmul_x_size(const cpu_matmul_kernels *kernels, int64_t k);

/* Whether both take the same bytes for the same activations, in every role. */
bool cpu_matmul_x_is_same(const cpu_matmul_kernels *a, const cpu_matmul_kernels *b);

/* Converts elements first .. last-1 of one token (row `token` of x) to the kernel's format, or
 * copies them where it takes floats. `out` is where the token begins: they are written to their
 * place in it. `first` is a multiple of CPU_SHARE_UNIT, and so is `last`, except at the row's end.
 * x may be strided. */
void cpu_matmul_x_prepare(const cpu_matmul_kernel *kernel, uint32_t isa, const cpu_view *x,
                          int64_t token, int64_t first, int64_t last, uint8_t *out);

/* Multiplies groups first .. last-1 with the tokens of a tile, which all have that role. The caller
 * has set n_tok, x and y of the tile: y[t] is where token t's output for the first row of the first
 * group goes, and points behind the last output afterwards. is_first: true for the first tile that
 * is multiplied with these groups, which are not in a cache yet. The tile is changed in place
 * instead of being copied for each group: a kernel that read a fresh copy waited until the copy had
 * left the store buffer, behind outputs that wait for memory. */
void cpu_matmul_groups(const cpu_matmul_matrix *m, tdm_role role, int64_t first, int64_t last,
                       bool is_first, cpu_matmul_tile *tile);

/* Kernels. */
void cpu_matmul_run_reference(const cpu_matmul_tile *tile); /* matmul_reference.c */
void cpu_matmul_run_plain(const cpu_matmul_tile *tile);     /* matmul_plain.c: quantised types */
void cpu_matmul_run_q8_plain(const cpu_matmul_tile *tile);

/* vector/matmul_tile.h and matmul_grid.h, compiled for each instruction set. */
#define CPU_MATMUL_UNPACK_(name)                                                                   \
    void cpu_matmul_unpack_##name##_amx(const uint8_t *group, int64_t n_block,                     \
                                        int32_t code_offset, int i_group,                          \
                                        struct cpu_panel_step *panel);
#define CPU_MATMUL_RUN_FLOAT_(name)                                                                \
    void cpu_matmul_run_##name##_avx2(const cpu_matmul_tile *tile);                                \
    void cpu_matmul_run_##name##_avx512(const cpu_matmul_tile *tile);                              \
    void cpu_matmul_run_##name##_neon(const cpu_matmul_tile *tile);
#define CPU_MATMUL_RUN_BLOCK_(name)                                                                \
    CPU_MATMUL_RUN_FLOAT_(name)                                                                    \
    CPU_MATMUL_RUN_FLOAT_(name##_q8)                                                               \
    CPU_MATMUL_UNPACK_(name)
#define CPU_MATMUL_RUN_INTEGER_(name)
#define CPU_MATMUL_RUN_(ID, name, number, kind, ...) CPU_MATMUL_RUN_##kind##_(name)
TDM_TYPE_LIST(CPU_MATMUL_RUN_)
#undef CPU_MATMUL_RUN_
#undef CPU_MATMUL_RUN_INTEGER_
#undef CPU_MATMUL_RUN_FLOAT_
#undef CPU_MATMUL_RUN_BLOCK_
#undef CPU_MATMUL_UNPACK_

#endif
