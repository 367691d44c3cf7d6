/* SPDX-License-Identifier: MIT
 *
 * product_tile_block.cu: products for prompts on matrix hardware that four waves use together and
 * that reads its operands from shared memory (HalfBlocks of lang.h). A workgroup of eight waves of
 * 32 threads computes 128 rows for COLUMNS columns from the tiles of product_halves.h: a wave has
 * 16 rows and all columns. Sums are f32.
 *
 * A step has four groups of k. While the hardware works on the tiles of one step, the threads fill
 * those of the next: of weights with blocks, each thread decodes two groups of its row, whose bytes
 * it loaded a step earlier.
 *
 * Entries for f16 and each type with blocks. See kernel.h.
 */
#ifndef WEIGHT_TYPE
#define WEIGHT_FILE  "product_tile_block.cu"
#define WEIGHT_TYPES WEIGHT_TYPES_HALVES
#define WEIGHT_ALWAYS_PLANAR
#include "each_type.h"
#else
#ifdef HAS_HALF_BLOCKS
// A thread has registers left for an addend, a bias or GLU, and for no other end of products.
#define PRODUCT_HAS_ENDS 0
#include "product_halves.h"

template <uint COLUMNS> struct ProductTileBlock : ProductHalves<COLUMNS, 8, 8> {
    typedef ProductHalves<COLUMNS, 8, 8> Halves;
    typedef typename Halves::Tile Tile;
    using Halves::args, Halves::N_PART, Halves::ROWS, Halves::W_TILE, Halves::X_TILE;
    inline explicit ProductTileBlock(const Args &args_) : Halves(args_) {}

    static constexpr uint GROUPS = 4, PARTS = COLUMNS / 16; // of a step; of a tile, 16 columns each
    // PASS: parts that go through shared memory together. PITCH: floats from column to column
    // there, so that lanes write to different banks. BATCH: columns of a wave that are loaded
    // together.
    static constexpr uint PASS = 8, PITCH = ROWS + 4, BATCH = 2;

    float sum[PARTS][8];
    HalfBlocks<PARTS> blocks = HalfBlocks<PARTS>(this->w_tiles, this->x_tiles);

    // Stores y. Sums go through the shared memory of the tiles, PASS parts at a time, so that
    // neighbouring lanes store neighbouring rows. factors: factors_address().
    inline void sums_store(Tile t, u64 factors) {
        const uint n_row = ROWS / uint(N_PART);
        float *shared = (float *)shared_memory(); // [column][row]
        UNROLL for (uint first = 0; first < PARTS; first += PASS) {
            barrier();
            UNROLL for (uint p = 0; p < PASS; p++) UNROLL for (uint i = 0; i < 8; i++)
                shared[PITCH * (16 * p + mat_column(i)) + 16 * wave_id() + mat_row(i)] =
                    sum[first + p][i];
            barrier();
            // A wave stores BATCH columns at a time. It first loads the addends of all of them.
            DONT_UNROLL for (uint c = BATCH * wave_id(); c < 16 * PASS; c += 8 * BATCH) {
                uint at[BATCH], numbers[BATCH];
                float factor[BATCH], addend[BATCH][4]; // a lane has up to four rows
                UNROLL for (uint b = 0; b < BATCH; b++) {
                    uint column = min(16 * first + c + b, t.n_column - 1);
                    uint number = this->column_number(t, column);
                    at[b] = this->y_at(t, number);
                    numbers[b] = number;
                    factor[b] = F32(factors).at[this->x_row(t, number)] * (1 / Halves::W_UNIT);
                    UNROLL for (uint k = 0; k < 4; k++) if (32 * k < n_row) addend[b][k] =
                        this->y_addend(at[b], t.row + lane_id() + 32 * k);
                }
                UNROLL for (uint b = 0; b < BATCH; b++) {
                    if (16 * first + c + b >= t.n_column) break;
                    const float *own = shared + PITCH * (c + b);
                    UNROLL for (uint k = 0; k < 4; k++) {
                        if (32 * k >= n_row) break;
                        uint r = lane_id() + 32 * k, i = N_PART == 1 ? r : r / 8 * 16 + r % 8;
                        this->y_put(at[b], numbers[b], t.row + r, own[i] * factor[b],
                                    own[i + 8 * (N_PART - 1)] * factor[b], addend[b][k]);
                    }
                }
            }
        }
    }

#if !WEIGHT_IS_PLAIN
    static constexpr uint RUN = Halves::RUN, N_RAW = 2 / RUN;
    // With 128 columns, even and odd steps have registers of their own. So a step can load what the
    // next step decodes before it decodes itself, and no register that a load still writes is
    // moved, which would wait for the load. With 256 columns the products of a step take longer
    // than a load, and the sums need the registers.
    static constexpr bool LOADS_EARLY = COLUMNS == 128;
    typename Halves::WeightRaw raw[LOADS_EARLY ? 2 : 1][N_RAW];

    // The first group of the i-th run of this thread in a step.
    inline uint run_first(uint i) {
        return RUN * (2 * i + this->parity());
    }

    template <uint ODD> inline void raw_load(uint g, uint n_group) {
        UNROLL for (uint i = 0; i < N_RAW; i++) raw[LOADS_EARLY ? ODD : 0][i] =
            this->weight_load(this->w_row, min(g + run_first(i), n_group - 1));
    }
#endif

    // Fills the tiles of the step that begins with group g. ODD: 1 where the step has an odd
    // number; even and odd steps have different tiles.
    template <uint ODD> inline void step_fill(uint g, uint n_group) {
        constexpr uint TILE = ODD * GROUPS;
        UNROLL for (uint j = 0; j < GROUPS; j++) {
            if (g + j >= n_group) break;
            this->copies_begin(u64(64) * g + 64 * j, TILE + j);
        }
        copies_mark();
#if !WEIGHT_IS_PLAIN
        if (LOADS_EARLY) raw_load<1 - ODD>(g + GROUPS, n_group);
        UNROLL for (uint i = 0; i < N_RAW; i++) UNROLL for (uint j = 0; j < RUN; j++) {
            uint own = run_first(i) + j;
            if (g + own < n_group)
                this->w_store(raw[LOADS_EARLY ? ODD : 0][i], g + own, TILE + own);
        }
        if (!LOADS_EARLY) raw_load<1 - ODD>(g + GROUPS, n_group);
#endif
    }

    // Multiplies the tiles of the step that begins with group g, and fills those of the next.
    template <uint ODD> inline void step_run(uint g, uint n_group) {
        copies_wait<0>();
        blocks.fence();
        barrier();
        UNROLL for (uint j = 0; j < GROUPS; j++) {
            if (g + j >= n_group) break;
            blocks.multiply(sum, ODD * GROUPS + j);
        }
        if (g + GROUPS < n_group) step_fill<1 - ODD>(g + GROUPS, n_group);
        blocks.wait();
    }

    inline void run() {
        Tile t = this->tile_get(ROWS / N_PART, COLUMNS);
        if (t.n_column == 0) return;
        uint n_group = (uint(args.word[1]) + 31) / 32;
        UNROLL for (uint p = 0; p < PARTS; p++) UNROLL for (uint i = 0; i < 8; i++) sum[p][i] = 0;
        this->x_begin(t, n_group);
        this->w_begin(t);
#if !WEIGHT_IS_PLAIN
        raw_load<0>(0, n_group);
#endif
        step_fill<0>(0, n_group);
        DONT_UNROLL for (uint g = 0; g < n_group; g += 2 * GROUPS) {
            step_run<0>(g, n_group);
            if (g + GROUPS < n_group) step_run<1>(g + GROUPS, n_group);
        }
        sums_store(t, this->factors_address(n_group));
    }
};

GPU_SIZED_KERNEL(product_tile_block, 256, 255, 128, ProductTileBlock<128>)
GPU_SIZED_KERNEL(product_tile_block, 256, 255, 256, ProductTileBlock<256>)
#endif
#endif
