// SPDX-License-Identifier: MIT
//
// product_matrix.glsl: products for prompts on matrix.glsl. A workgroup of four subgroups computes
// 64 rows for SPEC3 columns from tiles of a group of k in shared memory: elements of the weight,
// times W_UNIT, and rows of x that HALVES wrote, both f16. A subgroup has 32 rows and half of the
// columns. An invocation loads half a group of SPEC2 rows. Sums are f32. Weights are of f16 or of
// types with blocks. See kernel.h.
//
// f16 holds 11 bits between 2^-14 and 65504. Elements of weights below 4094 fit with W_UNIT, which
// keeps small ones above 2^-14; HALVES scales x.
#define SPEC5_DEFAULT 16
#define SPEC6_DEFAULT 16
#include "args.glsl"
#include "product.glsl"
const int MATRIX_ROWS = SPEC5, MATRIX_COLUMNS = SPEC6;
#include "matrix.glsl"

const uint ROWS = 64, SUB_ROWS = 32, SUB_COLUMNS = TILE_COLUMNS / 2;
// Rows of which an invocation loads half a group. The planner makes it 128 / invocations, which are
// at most 128, so that all 64 rows are loaded.
const int N_ROW = TILE_ROWS;
// Words of two f16 from a row of a tile to the next. Rows of 32 elements begin in different banks.
const uint PITCH = 16 + 4;
const float W_UNIT = 16;
const uint N_ACROSS = SUB_COLUMNS / MATRIX_COLUMNS > 0 ? SUB_COLUMNS / MATRIX_COLUMNS : 1;
const uint N_DOWN = SUB_ROWS / MATRIX_ROWS;

shared uint w_tile[ROWS * PITCH];
shared uint x_tile[TILE_COLUMNS * PITCH];
shared float stage[4 * MATRIX_ROWS * MATRIX_COLUMNS]; // a matrix of sums of each subgroup

// Row i of the tile: of a GLU, four rows of gate and four of up in turn, so that a matrix of sums
// has both of a row.
uint row_of(uint i) {
    return N_PART == 1 ? i : i / 8 * 4 + i % 4;
}
int part_of(uint i) {
    return N_PART == 1 ? 0 : int(i / 4 % 2);
}

void w_load(WeightRow row, uint g, uint k, uint i, uint part) {
    WeightGroup group = weight_group(row, g);
    float scale = group.scale[part] * W_UNIT, offset = group.offset[part] * W_UNIT;
    uint to = i * PITCH + 8 * part;
    [[unroll]] for (uint q = 0; q < 4; q++) {
        vec4 w = weight_quad(row, group, g, 4 * part + q, k) * scale + offset;
        w_tile[to + 2 * q] = halves_pack(w.xy);
        w_tile[to + 2 * q + 1] = halves_pack(w.zw);
    }
}

// Quarter q of a group of column c.
void x_load(uint64_t from, uint c, uint q) {
    uvec4 words = U32x4(from).at[q];
    uint to = c * PITCH + 4 * q;
    [[unroll]] for (int i = 0; i < 4; i++) x_tile[to + i] = words[i];
}

// The sums of a matrix whose first row and column of the tile are given; stage_at: of the subgroup.
void sums_store(Tile t, uint row_first, uint column_first, uint stage_at, uint64_t factors) {
    uint n_row = MATRIX_ROWS / N_PART;
    for (uint e = gl_SubgroupInvocationID; e < n_row * MATRIX_COLUMNS; e += gl_SubgroupSize) {
        uint c = e / n_row, n = e - c * n_row, r = N_PART == 1 ? n : n / 4 * 8 + n % 4;
        if (column_first + c >= t.n_column) break;
        uint column = column_number(t, column_first + c), at = stage_at + c * MATRIX_ROWS + r;
        float factor = F32(factors).at[x_row(t, column)] * (1 / W_UNIT);
        y_store(y_at(t, column), t.row + row_of(row_first + r), stage[at] * factor,
                stage[at + 4 * (N_PART - 1)] * factor);
    }
}

void main() {
    Tile t = tile_get(ROWS / N_PART);
    if (t.n_column == 0) return;
    uint thread = gl_LocalInvocationID.x, n_thread = gl_WorkGroupSize.x;
    uint k = uint(args.word[1]), n_group = (k + 31) / 32;
    uint64_t factors = args.address[2] + 64ul * n_group * uint(args.word[5]);
    WeightRow rows[N_ROW];
    [[unroll]] for (int i = 0; i < N_ROW; i++) {
        uint unit = thread + i * n_thread;
        rows[i] = product_row(t, t.row + row_of(unit % ROWS), part_of(unit % ROWS));
    }
    uint sub = gl_SubgroupID, sub_row = sub % 2 * SUB_ROWS, sub_column = sub / 2 * SUB_COLUMNS;
    MatrixSum sum[N_DOWN * N_ACROSS];
    [[unroll]] for (uint i = 0; i < N_DOWN * N_ACROSS; i++) MATRIX_ZERO(sum[i]);
    [[dont_unroll]] for (uint g = 0; g < n_group; g++) {
        barrier();
        [[unroll]] for (int i = 0; i < N_ROW; i++) {
            uint unit = thread + i * n_thread;
            w_load(rows[i], g, k, unit % ROWS, unit / ROWS);
        }
        for (uint i = thread; i < 4 * TILE_COLUMNS; i += n_thread) {
            uint c = i / 4, column = column_number(t, min(c, t.n_column - 1));
            x_load(args.address[2] + 64ul * (uint64_t(x_row(t, column)) * n_group + g), c, i % 4);
        }
        barrier();
        [[unroll]] for (uint step = 0; step < 2; step++) {
            MatrixB b[N_ACROSS];
            [[unroll]] for (uint j = 0; j < N_ACROSS; j++)
                MATRIX_B_LOAD(b[j], x_tile, (sub_column + j * MATRIX_COLUMNS) * PITCH + 8 * step,
                              PITCH);
            [[unroll]] for (uint i = 0; i < N_DOWN; i++) {
                MatrixA a;
                MATRIX_A_LOAD(a, w_tile, (sub_row + i * MATRIX_ROWS) * PITCH + 8 * step, PITCH);
                [[unroll]] for (uint j = 0; j < N_ACROSS; j++)
                    MATRIX_MULTIPLY_ADD(sum[i * N_ACROSS + j], a, w_tile, b[j], x_tile);
            }
        }
    }
    uint stage_at = sub * MATRIX_ROWS * MATRIX_COLUMNS;
    [[unroll]] for (uint i = 0; i < N_DOWN * N_ACROSS; i++) {
        barrier();
        MATRIX_STORE(sum[i], stage, stage_at);
        barrier();
        sums_store(t, sub_row + i / N_ACROSS * MATRIX_ROWS,
                   sub_column + i % N_ACROSS * MATRIX_COLUMNS, stage_at, factors);
    }
}
