/* SPDX-License-Identifier: MIT
 *
 * product.h: what the kernels of products share: which matrix, rows and columns a workgroup has,
 * where the x and y of a column lie, loads of x, and what is done with a sum before it is stored.
 * Words and specialisation: kernel.h, PRODUCT.
 *
 * A column is a vector of k elements, stored as a row of x. Its y is the matrix times the vector.
 */
#include "dequant.h"

// A kernel defines these before it includes the file. Fewer ends take fewer registers.
// 0: of gpu_product_end, the kernel knows an addend, a bias and GLU without scales only.
#ifndef PRODUCT_HAS_ENDS
#define PRODUCT_HAS_ENDS 1
#endif
// 0: the kernel knows no factor that is loaded (END_EACH, END_ROWS, END_COLUMNS) and no OTHER_ACT.
#ifndef PRODUCT_HAS_FACTOR
#define PRODUCT_HAS_FACTOR 1
#endif

struct Product : Weight {
    inline explicit Product(const Args &args_) : Weight(args_) {}

    // gpu_product_mode: columns of each matrix by number; columns are pairs of a token and one of
    // its experts, in the order of tokens; pairs sorted by expert, where operand 4 is the table of
    // moe_sort.cu.
    static constexpr int MODE_PLAIN = 0;
    static constexpr int MODE_PAIRS = 1;
    static constexpr int MODE_SORTED = 2;

    // x is dense and begins at multiples of 16 bytes in every column; k is a multiple of 32.
    const bool X_IS_WIDE = (SPEC1 & 4) != 0;
    const int MODE = SPEC4;

    // What is done with a sum before it is stored: gpu_product_end.
    // 1: strides of y; 2: a value for each row, added first
    const int ADDEND = PRODUCT_HAS_ENDS ? SPEC7 & 3 : SPEC7 == 1 ? 1 : SPEC7 == 2 ? 2 : 0;
    const bool IS_GLU = PRODUCT_HAS_ENDS ? (SPEC7 & 4) != 0 : SPEC7 >= 4;
    // 1: strides of y; 2: a value for each row; 3: for each column
    const int FACTOR = PRODUCT_HAS_FACTOR ? SPEC7 >> 3 & 3 : 0;
    const bool HAS_OTHER_ACT = PRODUCT_HAS_FACTOR && (SPEC7 & 32) != 0;
    const bool IS_SCALED = PRODUCT_HAS_ENDS && (SPEC7 & 64) != 0;
    const int ACT = SPEC7 >> 8;
    // Matrices of which a tile has rows. A tile of GLU has as many rows of `gate` as of `up`.
    const int N_PART = IS_GLU ? 2 : 1;

    struct Tile {
        uint row;      // first of the tile
        uint column;   // first of the tile; sorted: slot
        uint n_column; // of the tile; 0 = there is no work
        uint matrix;
    };

    // The tile of this workgroup, which computes tile_rows rows for tile_columns columns.
    inline Tile tile_get(uint tile_rows, uint tile_columns) {
        Tile t;
        uint n_row_tile = (uint(args.word[0]) + tile_rows - 1) / tile_rows;
        uint number = group_number(), rest = number / n_row_tile;
        t.row = (number - rest * n_row_tile) * tile_rows;
        t.n_column = 0;
        t.matrix = 0;
        t.column = 0;
        if (number >= uint(args.word[19])) return t;
        if (MODE == MODE_PLAIN) {
            uint n_tile = (uint(args.word[2]) + tile_columns - 1) / tile_columns;
            t.matrix = rest / n_tile;
            t.column = (rest - t.matrix * n_tile) * tile_columns;
            t.n_column = min(uint(args.word[2]) - t.column, tile_columns);
        } else if (MODE == MODE_PAIRS) {
            uint n_used = uint(args.word[3]), token = rest / n_used;
            int id = I32(args.address[4])
                         .at[(rest - token * n_used) * args.word[17] + token * args.word[18]];
            // There is no work for an expert that this device does not hold. In 64 bits, so that no
            // id overflows.
            i64 matrix = i64(id) - args.word[15];
            t.matrix = uint(matrix);
            t.column = rest;
            t.n_column = matrix >= 0 && matrix < i64(args.word[16]) ? 1 : 0;
        } else {
            U32 tiles = U32(args.address[4] + u64(12) * rest);
            t.matrix = tiles.at[0];
            t.column = tiles.at[1];
            t.n_column = tiles.at[2];
        }
        return t;
    }

    // Column i of a tile as a column of its matrix, or as a pair.
    inline uint column_number(Tile t, uint i) {
        if (MODE != MODE_SORTED) return t.column + i;
        // The list of pairs follows the tiles.
        return U32(args.address[4]).at[3 * args.word[2] + t.column + i];
    }

    inline u64 x_address(Tile t, uint column) {
        uint at;
        if (MODE == MODE_PLAIN) {
            uint rest = column / uint(args.word[3]), c2 = rest / uint(args.word[4]);
            at = (column - rest * uint(args.word[3])) * uint(args.word[5]) +
                 (rest - c2 * uint(args.word[4])) * uint(args.word[6]) + c2 * uint(args.word[7]) +
                 t.matrix * uint(args.word[8]);
        } else {
            at = column / uint(args.word[4]) * uint(args.word[5]);
        }
        return args.address[2] + 4 * u64(at);
    }

    // The row that a column has in x as QUANTIZE or HALVES writes it.
    inline uint x_row(Tile t, uint column) {
        if (MODE == MODE_PLAIN) return t.matrix * uint(args.word[2]) + column;
        return column / uint(args.word[4]);
    }

    // Where a column of y begins, in elements of dst.
    inline uint y_at(Tile t, uint column) {
        uint at = column * uint(args.word[10]);
        if (MODE == MODE_PLAIN) at += t.matrix * uint(args.word[9]);
        return at;
    }

    // What is added to a row's sum, or to its y; at: y_at() of the column. 0 where nothing is.
    inline float y_addend(uint at, uint row) {
        if (ADDEND == 0 || row >= uint(args.word[0])) return 0.0f;
        return F32(args.address[3] + 4 * u64(ADDEND == 1 ? at : 0)).at[row * args.word[15]];
    }

    // What a sum is multiplied by; `up` is the sum of the second matrix.
    inline float y_factor(uint at, uint column, uint row, float up) {
        if (FACTOR == 0) return IS_GLU ? up : 1.0f;
        return F32(args.address[4]).at[FACTOR == 1 ? at + row : FACTOR == 2 ? row : column];
    }

    // y of a sum, before y_addend() is added.
    inline float y_end(uint at, uint column, uint row, float sum, float up) {
        if (SPEC7 <= 3) return sum;
        float factor = y_factor(at, column, row, up), x = HAS_OTHER_ACT ? factor : sum;
        if (IS_SCALED) x *= bits_to_float(args.word[17]);
        float y = act_of(ACT, x) * (HAS_OTHER_ACT ? sum : factor);
        return IS_SCALED ? y * bits_to_float(args.word[18]) : y;
    }

    // Stores y of a row of a column whose y_at() is `at`; does nothing where there is no such row.
    // y_put is given what y_addend() returned, y_store calls it.
    inline void y_put(uint at, uint column, uint row, float sum, float up, float addend) {
        if (row >= uint(args.word[0])) return;
        float y = y_end(at, column, row, ADDEND == 2 ? sum + addend : sum, up);
        F32(args.address[0] + 4 * u64(at)).at[row] = ADDEND == 1 ? y + addend : y;
    }
    inline void y_store(uint at, uint column, uint row, float sum, float up) {
        if (row >= uint(args.word[0])) return;
        if (ADDEND == 2) sum += y_addend(at, row);
        float y = y_end(at, column, row, sum, up);
        if (ADDEND == 1) y += y_addend(at, row);
        F32(args.address[0] + 4 * u64(at)).at[row] = y;
    }

    // Row `row` of the tile's matrix, of `up` where part is 1. Beyond the last row it is the last
    // one, so that every load is inside the weight.
    inline WeightRow product_row(Tile t, uint row, int part) {
        row = min(row, uint(args.word[0]) - 1);
        u64 block = u64(t.matrix) * uint(args.word[13]) + u64(row) * uint(args.word[12]);
        return weight_row(args.address[part == 0 ? 1 : 3], u64(args.word[13]) * uint(args.word[16]),
                          block, uint(args.word[11]));
    }

    inline float x_one(u64 x, uint i) {
        return i < uint(args.word[1]) ? F32(x).at[i * args.word[14]] : 0;
    }

    // Elements i and i + 1 of a column, i even; 0 beyond its end.
    inline vec2 x_two(u64 x, uint i) {
        if (X_IS_WIDE) return bits_to_float(unpack32(U64(x + 4 * i).at[0]));
        return vec2(x_one(x, i), x_one(x, i + 1));
    }

    // Elements i to i + 3, i a multiple of 4.
    inline vec4 x_four(u64 x, uint i) { return vec4(x_two(x, i), x_two(x, i + 2)); }
};
