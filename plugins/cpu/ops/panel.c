/* SPDX-License-Identifier: MIT
 *
 * panel.c: the walk over groups, elements and tokens of products on a matrix unit. What is unpacked
 * stays in a core's cache while all tokens pass.
 */
#include "plugins/cpu/ops/panel.h"

_Static_assert(CPU_PANEL_K % CPU_X_LEN == 0 && CPU_MATMUL_LANE == 16,
               "a panel has whole steps, of as many rows as the unit's tiles");

static int64_t step_count(int64_t k) {
    return (k < CPU_PANEL_K ? k : CPU_PANEL_K) / CPU_X_LEN;
}

size_t cpu_panel_scratch_size(int64_t k) {
    return (size_t)(CPU_PANEL_N * step_count(k)) * sizeof(cpu_panel_step);
}

size_t cpu_panel_x_size(int64_t n_tok, int64_t k) {
    int64_t n_tile = (n_tok + CPU_PANEL_TOK - 1) / CPU_PANEL_TOK;
    return (size_t)(n_tile * (k / CPU_X_LEN)) * sizeof(cpu_panel_x);
}

void cpu_panel_x_write(cpu_panel_x *x, int64_t token, int64_t k, uint32_t isa, const float *src,
                       int64_t first, int64_t n) {
    cpu_quantize_row_fn round = cpu_quantize_row_get(isa, CPU_X_BF16);
    x += token / CPU_PANEL_TOK * (k / CPU_X_LEN) + first / CPU_X_LEN;
    for (int64_t i = 0; i < n; i += CPU_X_LEN, x++)
        round(src + i, CPU_X_LEN, 0, &x->token[token % CPU_PANEL_TOK]);
}

/* Unpacks elements k .. k + n_step * 32 - 1 of groups first .. last-1, two for each panel. */
static void panels_unpack(const cpu_matmul_matrix *m, const cpu_matmul_kernel *kernel, int64_t k,
                          int64_t n_step, int64_t first, int64_t last, cpu_panel_step *panels) {
    const tdm_type_info info = tdm_type_get_info(m->type);
    const size_t block = (size_t)info.block_size * CPU_MATMUL_LANE; /* of all rows of a group */
    const uint8_t *data = m->data + (size_t)(k / info.block_len) * block;
    for (int64_t g = first; g < last; g++)
        kernel->unpack(data + (size_t)g * m->group_pitch, n_step * CPU_X_LEN / info.block_len,
                       kernel->code_offset, (int)((g - first) % 2),
                       panels + (g - first) / 2 * n_step);
}

void cpu_panel_groups(const cpu_matmul_matrix *m, const cpu_matmul_kernel *kernel, int64_t first,
                      int64_t last, const cpu_panel_tile *tiles, int32_t n_tile, uint8_t *scratch) {
    const int64_t n_k = m->n_block * tdm_type_get_info(m->type).block_len;
    cpu_panel_step *panels = (cpu_panel_step *)(void *)scratch;
    kernel->unit->begin();
    for (int64_t g = first, end; g < last; g = end) {
        end = last - g < 2 * CPU_PANEL_N ? last : g + 2 * CPU_PANEL_N;
        const int64_t row = g * CPU_MATMUL_LANE, row_end = end * CPU_MATMUL_LANE;
        const int64_t n_row = (row_end < m->n_row ? row_end : m->n_row) - row;
        for (int64_t k = 0; k < n_k; k += CPU_PANEL_K) {
            const int64_t n_step = step_count(n_k - k);
            panels_unpack(m, kernel, k, n_step, g, end, panels);
            for (int32_t t = 0; t < n_tile; t++)
                for (int64_t i = 0; i < n_row; i += CPU_PANEL_LANE)
                    kernel->unit->multiply(
                        panels + i / CPU_PANEL_LANE * n_step, n_step, &tiles[t], k / CPU_X_LEN,
                        row + i, n_row - i < CPU_PANEL_LANE ? (int32_t)(n_row - i) : CPU_PANEL_LANE,
                        k == 0);
        }
    }
    kernel->unit->end();
}
