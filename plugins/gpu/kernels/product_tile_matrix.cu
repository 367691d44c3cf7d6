/* SPDX-License-Identifier: MIT
 *
 * product_tile_matrix.cu: products for prompts on matrix hardware that multiplies small matrices of
 * a wave. A workgroup of 256 threads computes 128 rows for COLUMNS columns from the tiles of
 * product_halves.h. Sums are f32.
 *
 * There are three tiles of each operand: one is multiplied, one is ready, and one is filled.
 *
 * Entries for f16 and each type with blocks. See kernel.h.
 */
#ifndef WEIGHT_TYPE
#define WEIGHT_FILE  "product_tile_matrix.cu"
#define WEIGHT_TYPES WEIGHT_TYPES_HALVES
#define WEIGHT_ALWAYS_PLANAR
#include "each_type.h"
#else
#ifdef HAS_HALF_MATS
#include "product_halves.h"

template <uint COLUMNS> struct ProductTileMatrix : ProductHalves<COLUMNS, 3, 16> {
    typedef ProductHalves<COLUMNS, 3, 16> Halves;
    typedef typename Halves::Tile Tile;
    using Halves::args, Halves::N_PART, Halves::THREADS, Halves::ROWS, Halves::W_TILE,
        Halves::X_TILE;
    using Halves::w_tiles, Halves::x_tiles;
    inline explicit ProductTileMatrix(const Args &args_) : Halves(args_) {}

    static constexpr uint STAGES = 3;
    // ROW_WAVES waves divide the tile's rows; the others have other columns. A wave's sums are
    // bands of 16 rows and parts of 16 columns.
    static constexpr uint ROW_WAVES = COLUMNS == 128 ? 2 : 4;
    static constexpr uint WAVE_ROWS = ROWS / ROW_WAVES, BANDS = WAVE_ROWS / 16;
    static constexpr uint MAX_PART = COLUMNS / 16 / (THREADS / 64 / ROW_WAVES); // of waves of 64
    // Floats from column to column of a wave's sums in shared memory, so that lanes write to
    // different banks.
    static constexpr uint PITCH = WAVE_ROWS + 4;

    float sum[BANDS][MAX_PART][8];
#if !WEIGHT_IS_PLAIN
    static constexpr uint RUN = Halves::RUN;
    typename Halves::WeightRaw w_raw;
#endif

    // How many parts this wave has, the first of them, and its first row of the tile.
    inline uint part_count() {
        return COLUMNS / 16 * ROW_WAVES * wave_size() / THREADS;
    }
    inline uint part_first() {
        return wave_id() / ROW_WAVES * part_count();
    }
    inline uint row_first() {
        return wave_id() % ROW_WAVES * WAVE_ROWS;
    }

    // Adds the products of the tiles number `stage`, one group of k.
    inline void group_add(uint stage) {
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

    // Stores y. Sums go through shared memory, so that neighbouring lanes store neighbouring rows.
    // factors: factors_address().
    inline void sums_store(Tile t, u64 factors) {
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
                uint number = this->column_number(t, column);
                float factor = F32(factors).at[this->x_row(t, number)] * (1 / Halves::W_UNIT);
                uint at = PITCH * c + (N_PART == 1 ? r : r / 16 * 32 + r % 16);
                this->y_store(this->y_at(t, number), number, t.row + row_first() / uint(N_PART) + r,
                              own[at] * factor, own[at + 16 * (N_PART - 1)] * factor);
            }
        }
    }

    // Fills the first two tiles of each operand, and loads what is decoded next. From then on, one
    // half of the threads decodes in each step, from what it loaded two steps earlier, while the
    // other half starts with the products.
    inline void tiles_begin(Tile t, uint n_group) {
        this->x_begin(t, n_group);
        this->w_begin(t);
#if !WEIGHT_IS_PLAIN
        uint parity = this->parity();
        if (parity < 2 / RUN && parity < n_group) {
            w_raw = this->weight_load(this->w_row, parity);
            this->w_store(w_raw, parity, parity);
            if (RUN == 2 && n_group > 1) this->w_store(w_raw, 1, 1);
        }
        w_raw = this->weight_load(this->w_row,
                                  min(RUN == 1 ? parity + 2 : 4 - 2 * parity, n_group - 1));
#endif
        UNROLL for (uint g = 0; g < 2; g++) {
            if (g < n_group) this->copies_begin(64 * g, g);
            copies_mark();
        }
        if (COPIES_WAIT) this->held_load(64 * min(2u, n_group - 1));
    }

    // Fills the tiles number `stage` with group g, where there is one. Of a weight with blocks,
    // only the threads whose turn it is decode (parity()).
    inline void tiles_fill(uint g, uint stage, uint n_group) {
        if (g < n_group) {
            if (COPIES_WAIT) {
                this->held_store(stage);
                this->held_load(u64(64) * min(g + 1, n_group - 1));
            } else {
                this->copies_begin(u64(64) * g, stage);
            }
#if !WEIGHT_IS_PLAIN
            if (g / RUN % 2 == this->parity()) {
                this->w_store(w_raw, g, stage);
                if (g % RUN == RUN - 1)
                    w_raw = this->weight_load(this->w_row, min(g + RUN + 1, n_group - 1));
            }
#endif
        }
        copies_mark();
    }

    inline void run() {
        Tile t = this->tile_get(ROWS / N_PART, COLUMNS);
        if (t.n_column == 0) return;
        uint n_group = (uint(args.word[1]) + 31) / 32;
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint p = 0; p < MAX_PART; p++)
            UNROLL for (uint i = 0; i < 8; i++) sum[r][p][i] = 0;
        tiles_begin(t, n_group);
        uint now = 0, next = 2; // tiles that are multiplied, and filled
        DONT_UNROLL for (uint g = 0; g < n_group; g++) {
            copies_wait<1>();
            barrier();
            tiles_fill(g + 2, next, n_group);
            group_add(now);
            now = now == STAGES - 1 ? 0 : now + 1;
            next = next == STAGES - 1 ? 0 : next + 1;
        }
        sums_store(t, this->factors_address(n_group));
    }
};

GPU_SIZED_KERNEL(product_tile_matrix, 256, 128, 32, ProductTileMatrix<32>)
GPU_SIZED_KERNEL(product_tile_matrix, 256, 128, 64, ProductTileMatrix<64>)
GPU_SIZED_KERNEL(product_tile_matrix, 256, 128, 128, ProductTileMatrix<128>)
#endif
#endif
