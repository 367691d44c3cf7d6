// SPDX-License-Identifier: MIT
//
// product.glsl: what the kernels of products share: which matrix, rows and columns a workgroup has,
// where the x and y of a column lie, and loads of x. Words and specialisation: kernel.h, PRODUCT.
//
// A column is a row of x: y of a column is the matrix times it.
#include "dequant.glsl"
#include "math.glsl"

const int MODE_PLAIN = 0;  // columns of a matrix by number
const int MODE_PAIRS = 1;  // a column is a pair of a token and one of its experts, in their order
const int MODE_SORTED = 2; // pairs sorted by expert: operand 4 is the table of moe_sort.comp

// x is dense and begins at multiples of 16 bytes in every column; k is a multiple of 32.
const bool X_IS_WIDE = (SPEC1 & 4) != 0;
const int TILE_ROWS = SPEC2 < 1 ? 1 : SPEC2;
const int TILE_COLUMNS = SPEC3 < 1 ? 1 : SPEC3;
const int MODE = SPEC4;

// What is done with a sum before it is stored: gpu_product_end.
const int ADDEND = SPEC7 & 3; // 1: strides of y; 2: a value for each row, added first
const bool IS_GLU = (SPEC7 & 4) != 0;
const int FACTOR = SPEC7 >> 3 & 3; // 1: strides of y; 2: a value for each row; 3: for each column
const bool HAS_OTHER_ACT = (SPEC7 & 32) != 0, IS_SCALED = (SPEC7 & 64) != 0;
const int ACT = SPEC7 >> 8;
// Matrices whose rows a tile has in turn: of GLU the second is `up`.
const int N_PART = IS_GLU ? 2 : 1;

struct Tile {
    uint row;      // first of the tile
    uint column;   // first of the tile; sorted: slot
    uint n_column; // of the tile; 0 = there is no work
    uint matrix;
};

// The tile of this workgroup, which computes tile_rows rows.
Tile tile_get(uint tile_rows) {
    Tile t;
    uint n_row_tile = (uint(args.word[0]) + tile_rows - 1) / tile_rows;
    uint number = group_number(), rest = number / n_row_tile;
    t.row = (number - rest * n_row_tile) * tile_rows;
    t.n_column = 0;
    t.matrix = 0;
    t.column = 0;
    if (number >= uint(args.word[19])) return t;
    if (MODE == MODE_PLAIN) {
        uint n_tile = (uint(args.word[2]) + TILE_COLUMNS - 1) / TILE_COLUMNS;
        t.matrix = rest / n_tile;
        t.column = (rest - t.matrix * n_tile) * TILE_COLUMNS;
        t.n_column = min(uint(args.word[2]) - t.column, uint(TILE_COLUMNS));
    } else if (MODE == MODE_PAIRS) {
        uint n_used = uint(args.word[3]), token = rest / n_used;
        int id = I32(args.address[4])
                     .at[(rest - token * n_used) * args.word[17] + token * args.word[18]];
        // A foreign expert has no work. Without overflow, whatever the id is.
        int64_t matrix = int64_t(id) - args.word[15];
        t.matrix = uint(matrix);
        t.column = rest;
        t.n_column = matrix >= 0 && matrix < int64_t(args.word[16]) ? 1 : 0;
    } else {
        U32 tiles = U32(args.address[4] + 12ul * rest);
        t.matrix = tiles.at[0];
        t.column = tiles.at[1];
        t.n_column = tiles.at[2];
    }
    return t;
}

// Column i of a tile as the number of a column, or pair.
uint column_number(Tile t, uint i) {
    if (MODE != MODE_SORTED) return t.column + i;
    // The list of pairs follows the tiles.
    return U32(args.address[4]).at[3 * args.word[2] + t.column + i];
}

uint64_t x_address(Tile t, uint column) {
    uint at;
    if (MODE == MODE_PLAIN) {
        uint rest = column / uint(args.word[3]), c2 = rest / uint(args.word[4]);
        at = (column - rest * uint(args.word[3])) * uint(args.word[5]) +
             (rest - c2 * uint(args.word[4])) * uint(args.word[6]) + c2 * uint(args.word[7]) +
             t.matrix * uint(args.word[8]);
    } else {
        at = column / uint(args.word[4]) * uint(args.word[5]);
    }
    return args.address[2] + 4 * uint64_t(at);
}

// The row that a column has in x as QUANTIZE or HALVES writes it.
uint x_row(Tile t, uint column) {
    if (MODE == MODE_PLAIN) return t.matrix * uint(args.word[2]) + column;
    return column / uint(args.word[4]);
}

// The elements of y before those of a column.
uint y_at(Tile t, uint column) {
    uint at = column * uint(args.word[10]);
    if (MODE == MODE_PLAIN) at += t.matrix * uint(args.word[9]);
    return at;
}

// What a sum is multiplied by; `up` is the sum of the second matrix.
float y_factor(uint at, uint row, float up) {
    if (FACTOR == 0) return IS_GLU ? up : 1.0;
    uint from = FACTOR == 1 ? at + row : FACTOR == 2 ? row : at / uint(args.word[10]);
    return F32(args.address[4]).at[from];
}

// Stores y of a row of the column at `at`. Nothing where there is no such row.
void y_store(uint at, uint row, float sum, float up) {
    if (row >= uint(args.word[0])) return;
    float y = sum, addend = 0.0;
    if (ADDEND != 0)
        addend = F32(args.address[3] + 4 * uint64_t(ADDEND == 1 ? at : 0)).at[row * args.word[15]];
    if (ADDEND == 2) y += addend;
    if (SPEC7 > 3) {
        float factor = y_factor(at, row, up), x = HAS_OTHER_ACT ? factor : y;
        if (IS_SCALED) x *= intBitsToFloat(args.word[17]);
        y = act_of(ACT, x) * (HAS_OTHER_ACT ? y : factor);
        if (IS_SCALED) y *= intBitsToFloat(args.word[18]);
    }
    if (ADDEND == 1) y += addend;
    F32(args.address[0] + 4 * uint64_t(at)).at[row] = y;
}

// Row `row` of the tile's matrix, of `up` where part is 1; the last row where there is none.
WeightRow product_row(Tile t, uint row, int part) {
    row = min(row, uint(args.word[0]) - 1);
    uint64_t block = uint64_t(t.matrix) * uint(args.word[13]) + uint64_t(row) * uint(args.word[12]);
    return weight_row(args.address[part == 0 ? 1 : 3], uint64_t(args.word[13]) * uint(args.word[16]), block,
                      uint(args.word[11]));
}

float x_one(uint64_t x, uint i) {
    return i < uint(args.word[1]) ? F32(x).at[i * args.word[14]] : 0;
}

// Elements i to i + 3 of a column where X_IS_WIDE, i a multiple of 4.
vec4 x_four_wide(uint64_t x, uint i) {
    return uintBitsToFloat(U32x4(x + 4 * i).at[0]);
}

// Elements i to i + 3 of a column, i a multiple of 4; 0 beyond its end.
vec4 x_four(uint64_t x, uint i) {
    if (X_IS_WIDE) return x_four_wide(x, i);
    return vec4(x_one(x, i), x_one(x, i + 1), x_one(x, i + 2), x_one(x, i + 3));
}
