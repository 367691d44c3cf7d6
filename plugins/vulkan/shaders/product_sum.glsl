// SPDX-License-Identifier: MIT
//
// product_sum.glsl: main() of product_row.comp and product_row_dot.comp. The invocations of a
// workgroup divide k. Each sums its part of k for every row and column of the tile. The sums of all
// invocations are added, and the first one stores y. Include product.glsl first. The includer
// defines sums_fill(t), which sets `sum` of an invocation from its part of k.
#extension GL_KHR_shader_subgroup_arithmetic : require

const int N_SUM = TILE_ROWS * TILE_COLUMNS;
// The emitter makes workgroups of at most 32 subgroups.
shared float sums[32 * N_SUM];

WeightRow rows[TILE_ROWS]; // of the tile
float sum[N_SUM];          // [TILE_ROWS][TILE_COLUMNS] of this invocation

void sums_fill(Tile t);

void main() {
    Tile t = tile_get(TILE_ROWS / N_PART);
    if (t.n_column == 0) return;
    [[unroll]] for (int r = 0; r < TILE_ROWS; r++)
        rows[r] = product_row(t, t.row + r / N_PART, r % N_PART);
    [[unroll]] for (int i = 0; i < N_SUM; i++) sum[i] = 0;
    sums_fill(t);
    [[unroll]] for (int i = 0; i < N_SUM; i++) sum[i] = subgroupAdd(sum[i]);
    if (gl_NumSubgroups > 1) {
        if (subgroupElect()) {
            [[unroll]] for (int i = 0; i < N_SUM; i++) sums[gl_SubgroupID * N_SUM + i] = sum[i];
        }
        barrier();
        if (gl_SubgroupID != 0) return;
        [[unroll]] for (int i = 0; i < N_SUM; i++) {
            float total = 0;
            for (uint s = gl_SubgroupInvocationID; s < gl_NumSubgroups; s += gl_SubgroupSize)
                total += sums[s * N_SUM + i];
            sum[i] = subgroupAdd(total);
        }
    }
    if (!subgroupElect()) return;
    [[unroll]] for (int c = 0; c < TILE_COLUMNS; c++) {
        if (c >= t.n_column) break;
        uint at = y_at(t, column_number(t, c));
        [[unroll]] for (int r = 0; r < TILE_ROWS; r += N_PART)
            y_store(at, t.row + r / N_PART, sum[r * TILE_COLUMNS + c],
                    sum[(r + N_PART - 1) * TILE_COLUMNS + c]);
    }
}
