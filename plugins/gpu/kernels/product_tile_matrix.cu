/* SPDX-License-Identifier: MIT
 *
 * product_tile_matrix.cu: products for prompts on matrix hardware. A workgroup of 256 threads computes
 * 128 rows for COLUMNS columns from tiles of a group of k in shared memory, all f16: elements of the
 * weight, times W_UNIT, and rows of x that halves.cu wrote. Sums are f32.
 *
 * There are three tiles of each operand: one is multiplied, one is ready, and one is filled. x, and a
 * weight of f16, is copied. A weight with blocks is decoded: half of the threads have the even groups of
 * k, or the even pairs of groups where two share their bytes, a row each, and the other half the odd ones,
 * so that in each step one half decodes while the other begins with the products. What a thread decodes
 * it has loaded two steps before.
 *
 * f16 holds 11 bits between 2^-14 and 65504. Elements of weights below 4094 fit with W_UNIT, which
 * keeps small ones above 2^-14; halves.cu scales x.
 *
 * Weights have planes, or are f16 in wide rows. Entries for each such type. See kernel.h.
 */
#ifndef WEIGHT_TYPE
#define WEIGHT_FILE  "product_tile_matrix.cu"
#define WEIGHT_TYPES WEIGHT_TYPES_HALVES
#define WEIGHT_ALWAYS_PLANAR
#include "each_type.h"
#else
#include "product.h"

#ifdef HAS_HALF_MATS
template <uint COLUMNS> struct ProductTileMatrix : Product {
    explicit ProductTileMatrix(const Args &args_) : Product(args_) {}

    static constexpr uint THREADS = 256, ROWS = 128, STAGES = 3;
    // Waves side by side along the rows. Bands are 16 rows, parts are 16 columns, of a wave's sums.
    static constexpr uint ROW_WAVES = COLUMNS == 128 ? 2 : 4;
    static constexpr uint WAVE_ROWS = ROWS / ROW_WAVES, BANDS = WAVE_ROWS / 16;
    static constexpr uint MAX_PART = COLUMNS / 16 / (THREADS / 64 / ROW_WAVES); // of waves of 64
    static constexpr uint W_TILE = 4 * ROWS, X_TILE = 4 * COLUMNS;              // chunks
    static constexpr float W_UNIT = WEIGHT_IS_PLAIN ? 1.0f : 16.0f;
    // Floats of a column of the sums of a wave, so that lanes write different banks.
    static constexpr uint PITCH = WAVE_ROWS + 4;

    uvec4 *w_tiles = shared_take<uvec4>(STAGES * W_TILE);
    uvec4 *x_tiles = shared_take<uvec4>(STAGES * X_TILE);

    float sum[BANDS][MAX_PART][8];

    // Row i of the tile, a band after the other: of a GLU, bands are of gate and of up in turn.
    uint row_of(uint i) { return N_PART == 1 ? i : i % 16 + i / 32 * 16; }
    int part_of(uint i) { return N_PART == 1 ? 0 : int(i / 16 % 2); }

    uint part_count() { return COLUMNS / 16 * ROW_WAVES * wave_size() / THREADS; }
    uint part_first() { return wave_id() / ROW_WAVES * part_count(); }
    uint row_first() { return wave_id() % ROW_WAVES * WAVE_ROWS; }

#if WEIGHT_IS_PLAIN
    // Two chunks of a tile of the weight are copied by a thread: of a row, and of that 64 further on.
    u64 w_from[2];
    void w_begin(Tile t) {
        UNROLL for (uint i = 0; i < 2; i++) {
            uint r = thread_id() / 4 + 64 * i;
            w_from[i] = product_row(t, t.row + row_of(r), part_of(r)).at_0 + 16 * (thread_id() % 4);
        }
    }
    void w_copy(uint g, uint stage) {
        UNROLL for (uint i = 0; i < 2; i++) copy_16(
            w_tiles + stage * W_TILE + half_tile_at(thread_id() / 4 + 64 * i, thread_id() % 4),
            w_from[i] + 64 * g);
    }
#else
    WeightRow w_row;
    WeightRaw w_raw;

    // Four codes, times the scale and with the offset, as f16. A byte becomes a float without a
    // conversion: it is put among the bits of a power of two.
    uvec2 codes_pack(uint codes, float scale, float offset) {
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

    void w_store(uint g, uint stage) {
        WeightGroup group = weight_decode(w_raw, g);
        uint row = thread_id() % ROWS;
        UNROLL for (uint c = 0; c < 4; c++) {
            uvec4 codes = c < 2 ? group.low : group.high;
            float scale = group.scale[c / 2] * W_UNIT, offset = group.offset[c / 2] * W_UNIT;
            uint first = c % 2 == 0 ? codes.x : codes.z, second = c % 2 == 0 ? codes.y : codes.w;
            shared_store_16(
                w_tiles + stage * W_TILE + half_tile_at(row, c),
                uvec4(codes_pack(first, scale, offset), codes_pack(second, scale, offset)));
        }
    }
#endif

    // Chunks of a tile of x that a thread copies: 64 columns from one to the next.
    static constexpr uint N_X = X_TILE < THREADS ? 1 : X_TILE / THREADS;
    u64 x_from[N_X];

    void x_begin(Tile t, uint n_group) {
        UNROLL for (uint i = 0; i < N_X; i++) {
            uint column = min(thread_id() / 4 + 64 * i, t.n_column - 1);
            u64 row = x_row(t, column_number(t, column));
            x_from[i] = args.address[2] + 64 * row * n_group + 16 * (thread_id() % 4);
        }
    }

    void x_copy(uint g, uint stage) {
        if (X_TILE < THREADS && thread_id() >= X_TILE) return;
        UNROLL for (uint i = 0; i < N_X; i++) copy_16(
            x_tiles + stage * X_TILE + half_tile_at(thread_id() / 4 + 64 * i, thread_id() % 4),
            x_from[i] + 64 * g);
    }

    void group_add(uint stage) {
        const uvec4 *w = w_tiles + stage * W_TILE, *x = x_tiles + stage * X_TILE;
        UNROLL for (uint step = 0; step < 2; step++) {
            HalfMat b[MAX_PART];
            UNROLL for (uint p = 0; p < MAX_PART; p++) {
                if (p >= part_count()) break;
                b[p] = half_mat_load(x, 16 * (part_first() + p), step);
            }
            UNROLL for (uint r = 0; r < BANDS; r++) {
                HalfMat a = half_mat_load(w, row_first() + 16 * r, step);
                UNROLL for (uint p = 0; p < MAX_PART; p++) {
                    if (p >= part_count()) break;
                    half_mat_mul(sum[r][p], a, b[p]);
                }
            }
        }
    }

    // By way of shared memory, so that neighbouring lanes store neighbouring rows.
    void sums_store(Tile t, u64 factors) {
        const uint n_row = WAVE_ROWS / uint(N_PART);
        float *own = (float *)shared_memory() + wave_id() * 16 * PITCH; // [column][row]
        UNROLL for (uint p = 0; p < MAX_PART; p++) {
            if (p >= part_count()) break;
            barrier();
            UNROLL for (uint r = 0; r < BANDS; r++)
                UNROLL for (uint i = 0; i < 8; i++) if (i < mat_count())
                    own[PITCH * mat_column(i) + 16 * r + mat_row(i)] = sum[r][p][i];
            barrier();
            DONT_UNROLL for (uint j = lane_id(); j < 16 * n_row; j += wave_size()) {
                uint c = j / n_row, r = j - c * n_row, column = 16 * (part_first() + p) + c;
                if (column >= t.n_column) break;
                uint number = column_number(t, column);
                float factor = F32(factors).at[x_row(t, number)] * (1 / W_UNIT);
                uint at = PITCH * c + (N_PART == 1 ? r : r / 16 * 32 + r % 16);
                y_store(y_at(t, number), t.row + row_first() / uint(N_PART) + r, own[at] * factor,
                        own[at + 16 * (N_PART - 1)] * factor);
            }
        }
    }

    void run() {
        Tile t = tile_get(ROWS / N_PART, COLUMNS);
        if (t.n_column == 0) return;
        uint n_group = (uint(args.word[1]) + 31) / 32;
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint p = 0; p < MAX_PART; p++)
            UNROLL for (uint i = 0; i < 8; i++) sum[r][p][i] = 0;
        x_begin(t, n_group);
#if WEIGHT_IS_PLAIN
        w_begin(t);
#else
        constexpr uint RUN = WEIGHT_RAW_GROUPS; // groups that a thread decodes one after the other
        uint parity = thread_id() / ROWS, i = thread_id() % ROWS;
        w_row = product_row(t, t.row + row_of(i), part_of(i));
        if (parity < 2 / RUN && parity < n_group) {
            w_raw = weight_load(w_row, parity);
            w_store(parity, parity);
            if (RUN == 2 && n_group > 1) w_store(1, 1);
        }
        w_raw = weight_load(w_row, min(RUN == 1 ? parity + 2 : 4 - 2 * parity, n_group - 1));
#endif
        UNROLL for (uint g = 0; g < 2; g++) {
            if (g < n_group) {
                x_copy(g, g);
#if WEIGHT_IS_PLAIN
                w_copy(g, g);
#endif
            }
            copies_mark();
        }
        uint now = 0, next = 2; // tiles that are multiplied, and filled
        DONT_UNROLL for (uint g = 0; g < n_group; g++) {
            copies_wait<1>();
            barrier();
            if (g + 2 < n_group) {
                x_copy(g + 2, next);
#if WEIGHT_IS_PLAIN
                w_copy(g + 2, next);
#else
                uint ahead = g + 2;
                if (ahead / RUN % 2 == parity) {
                    w_store(ahead, next);
                    if (ahead % RUN == RUN - 1)
                        w_raw = weight_load(w_row, min(ahead + RUN + 1, n_group - 1));
                }
#endif
            }
            copies_mark();
            group_add(now);
            now = now == STAGES - 1 ? 0 : now + 1;
            next = next == STAGES - 1 ? 0 : next + 1;
        }
        sums_store(t, args.address[2] + u64(64) * n_group * uint(args.word[5]));
    }
};

GPU_SIZED_KERNEL(product_tile_matrix, 256, 128, 32, ProductTileMatrix<32>)
GPU_SIZED_KERNEL(product_tile_matrix, 256, 128, 64, ProductTileMatrix<64>)
GPU_SIZED_KERNEL(product_tile_matrix, 256, 128, 128, ProductTileMatrix<128>)
#endif
#endif
