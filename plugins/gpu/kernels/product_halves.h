/* SPDX-License-Identifier: MIT
 *
 * product_halves.h: what the products of prompts on matrix hardware share: filling tiles of f16 in
 * shared memory. A tile of the weight has 128 rows, whose elements are multiplied by W_UNIT; a tile
 * of x has COLUMNS rows, as halves.cu wrote them. Both have one group of k, 32 elements of each
 * row.
 *
 * x, and a weight of f16, is copied. A weight with blocks is decoded. Each of 256 threads decodes
 * for one of the 128 rows: the first 128 threads the groups of k with even numbers, the others
 * those with odd numbers; or, where two groups share their bytes, the even and the odd pairs of
 * groups.
 *
 * f16 holds 11 bits of numbers between 2^-14 and 65504. W_UNIT, 16, keeps small elements of weights
 * above 2^-14; elements below 4094 still fit. halves.cu scales x.
 *
 * A file that includes it has entries for each type of weights (each_type.h). Weights with blocks
 * are planar, those of f16 have wide rows.
 */
// A thread has no registers left for a factor.
#define PRODUCT_HAS_FACTOR 0
#include "product.h"

// TILES: how many there are of each operand. PART_ROWS: in a tile of a GLU, so many rows of `gate`
// and so many of `up` follow each other in turn.
template <uint COLUMNS, uint TILES, uint PART_ROWS> struct ProductHalves : Product {
    inline explicit ProductHalves(const Args &args_) : Product(args_) {}

    static constexpr uint THREADS = 256, ROWS = 128;
    static constexpr uint W_TILE = 4 * ROWS, X_TILE = 4 * COLUMNS; // chunks
    static constexpr float W_UNIT = WEIGHT_IS_PLAIN ? 1.0f : 16.0f;
    uvec4 *w_tiles = shared_take<uvec4>(TILES * W_TILE);
    uvec4 *x_tiles = shared_take<uvec4>(TILES * X_TILE);

    // Which row of y row i of the tile is for, from the tile's first on; and its matrix: 0, or 1
    // for `up` of a GLU.
    inline uint row_of(uint i) {
        return N_PART == 1 ? i : i % PART_ROWS + i / (2 * PART_ROWS) * PART_ROWS;
    }
    inline int part_of(uint i) { return N_PART == 1 ? 0 : int(i / PART_ROWS % 2); }

#if WEIGHT_IS_PLAIN
    // A thread copies two chunks of each tile of the weight: of a row, and of the row 64 further
    // on.
    u64 w_from[2];
    inline void w_begin(Tile t) {
        UNROLL for (uint i = 0; i < 2; i++) {
            uint r = thread_id() / 4 + 64 * i;
            w_from[i] = product_row(t, t.row + row_of(r), part_of(r)).at_0 + 16 * (thread_id() % 4);
        }
    }
    inline void w_copy(u64 off, uint tile) {
        UNROLL for (uint i = 0; i < 2; i++) copy_16(
            w_tiles + tile * W_TILE + half_tile_at(thread_id() / 4 + 64 * i, thread_id() % 4),
            w_from[i] + off);
    }
#else
    static constexpr uint RUN = WEIGHT_RAW_GROUPS; // groups that are decoded from one load
    WeightRow w_row;

    // A thread decodes every second run of RUN groups of its row: those whose number has this
    // parity.
    inline uint parity() {
        return thread_id() / ROWS;
    }
    inline void w_begin(Tile t) {
        uint i = thread_id() % ROWS;
        w_row = product_row(t, t.row + row_of(i), part_of(i));
    }

    // scale * code + offset of four codes, as f16. A byte becomes a float without a conversion: it
    // is inserted into the mantissa of a power of two, which is subtracted.
    inline uvec2 codes_pack(uint codes, float scale, float offset) {
        float w[4];
        UNROLL for (uint i = 0; i < 4; i++) {
            if (WEIGHT_HAS_LARGE_CODES) {
                uint bits = bytes_pick(codes ^ 0x80808080u, 0x47000000u, 0x07040004u | i << 8);
                w[i] = fma(bits_to_float(bits) - 32896.0f, scale, offset); // 2^15 + 128 + code
            } else {
                uint bits = bytes_pick((codes ^ 0x40404040u) & 0x7f7f7f7fu, 0x43000000u,
                                       0x07000404u | i << 16);
                w[i] = fma(bits_to_float(bits), scale, offset - 192.0f * scale); // 2^7 + 64 + code
            }
        }
        return uvec2(pack_half2(w[0], w[1]), pack_half2(w[2], w[3]));
    }

    inline void w_store(const WeightRaw &raw, uint g, uint tile) {
        WeightGroup group = weight_decode(raw, g);
        uint row = thread_id() % ROWS;
        UNROLL for (uint c = 0; c < 4; c++) {
            uvec4 codes = c < 2 ? group.low : group.high;
            float scale = group.scale[c / 2] * W_UNIT, offset = group.offset[c / 2] * W_UNIT;
            uint first = c % 2 == 0 ? codes.x : codes.z, second = c % 2 == 0 ? codes.y : codes.w;
            shared_store_16(
                w_tiles + tile * W_TILE + half_tile_at(row, c),
                uvec4(codes_pack(first, scale, offset), codes_pack(second, scale, offset)));
        }
    }
#endif

    // Chunks of a tile of x that a thread copies: of every 64th column.
    static constexpr uint N_X = X_TILE < THREADS ? 1 : X_TILE / THREADS;
    u64 x_from[N_X];

    inline void x_begin(Tile t, uint n_group) {
        UNROLL for (uint i = 0; i < N_X; i++) {
            uint column = min(thread_id() / 4 + 64 * i, t.n_column - 1);
            u64 row = x_row(t, column_number(t, column));
            x_from[i] = args.address[2] + 64 * row * n_group + 16 * (thread_id() % 4);
        }
    }

    inline void x_copy(u64 off, uint tile) {
        if (!has_x()) return;
        UNROLL for (uint i = 0; i < N_X; i++) copy_16(
            x_tiles + tile * X_TILE + half_tile_at(thread_id() / 4 + 64 * i, thread_id() % 4),
            x_from[i] + off);
    }

    // Starts to copy one group of k, 64 bytes of each row, into tile `tile` of x, and of the weight
    // where it is f16. off: bytes from the start of a row to the group.
    inline void copies_begin(u64 off, uint tile) {
        x_copy(off, tile);
#if WEIGHT_IS_PLAIN
        w_copy(off, tile);
#endif
    }

    // The same as copies_begin() in two steps, by way of registers. Where COPIES_WAIT is true,
    // products are computed between held_load() and held_store().
    uvec4 x_held[N_X], w_held[WEIGHT_IS_PLAIN ? 2 : 1];
    inline bool has_x() {
        return X_TILE >= THREADS || thread_id() < X_TILE;
    }
    inline void held_load(u64 off) {
        if (has_x()) UNROLL for (uint i = 0; i < N_X; i++) x_held[i] = load_16(x_from[i] + off);
#if WEIGHT_IS_PLAIN
        UNROLL for (uint i = 0; i < 2; i++) w_held[i] = load_16(w_from[i] + off);
#endif
    }
    inline void held_store(uint tile) {
        const uint row = thread_id() / 4, chunk = thread_id() % 4;
        if (has_x())
            UNROLL for (uint i = 0; i < N_X; i++) shared_store_16(
                x_tiles + tile * X_TILE + half_tile_at(row + 64 * i, chunk), x_held[i]);
#if WEIGHT_IS_PLAIN
        UNROLL for (uint i = 0; i < 2; i++)
            shared_store_16(w_tiles + tile * W_TILE + half_tile_at(row + 64 * i, chunk), w_held[i]);
#endif
    }

    // The f32 factors of the rows of x, which lie after them.
    inline u64 factors_address(uint n_group) {
        return args.address[2] + u64(64) * n_group * uint(args.word[5]);
    }
};
