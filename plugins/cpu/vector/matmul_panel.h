/* SPDX-License-Identifier: MIT
 *
 * matmul_panel.h: the bodies of matmul_tile.h as unpackers: a step writes 32 elements of each row
 * into a panel (panel.h) instead of multiplying them. matmul_tile.h includes it where CPU_IS_PANEL
 * is set, after LANES_MATMUL_H, which has the words for pairs of bf16.
 */
#ifndef TANDEM_CPU_VECTOR_MATMUL_PANEL_H
#define TANDEM_CPU_VECTOR_MATMUL_PANEL_H

/* What a body is called with. The tile has weights and no tokens. */
typedef struct tile_cut {
    const cpu_matmul_tile *tile;
    int32_t code_offset;
    int i_group; /* 0 or 1: the place in the panel */
    cpu_panel_step *panel;
} tile_cut;

INLINE void tile_clear(lanes *acc, int n_tok) {
    (void)acc, (void)n_tok;
}
INLINE void tile_store(tile_cut cut, int n_tok, const lanes *acc) {
    (void)cut, (void)n_tok, (void)acc;
}

/* Elements 4 * c .. 4 * c + 3 of each row, whose codes are `codes`. */
INLINE void quad_unpack(int kind, ints codes, ints offset, lanes scale, lanes min, int c,
                        uint16_t (*out)[CPU_MATMUL_LANE][2]) {
    lanes x[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        ints code = code_get(codes, i);
        if (kind & HAS_BIAS) code = ints_sub(code, offset);
        x[i] = lanes_mul(lanes_from_ints(code), scale);
        if (kind & HAS_MIN) x[i] = lanes_sub(x[i], min);
    }
    UNROLL
    for (int i = 0; i < 4; i += 2) pair_store(x[i], x[i + 1], out[2 * c + i / 2]);
}

/* Step number ix of the panel. `scale` and `min` have one or two elements. */
INLINE void step_unpack(tile_cut cut, int kind, const ints *codes, const lanes *scale,
                        const lanes *min, int64_t ix) {
    const ints offset = ints_set(cut.code_offset);
    UNROLL
    for (int c = 0; c < N_VEC; c++) {
        const int half = (kind & TWO_SCALES) && c >= N_VEC / 2;
        quad_unpack(kind, codes[c], offset, scale[half], kind & HAS_MIN ? min[half] : lanes_zero(),
                    c, cut.panel[ix].w[cut.i_group]);
    }
}

#define KERNEL_(name, body)                                                                        \
    void KERNEL_NAME(name)(const uint8_t *group, int64_t n_block, int32_t code_offset,             \
                           int i_group, cpu_panel_step *panel) {                                   \
        cpu_matmul_tile tile = {.group = group, .n_block = n_block, .ahead = CPU_AHEAD_NONE};      \
        body((tile_cut){&tile, code_offset, i_group, panel}, 1);                                   \
    }
#define KERNEL_TESTING_(name, body) KERNEL_(name, body)

#endif
