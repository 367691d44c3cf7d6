/* SPDX-License-Identifier: MIT
 *
 * product_tile_dot.cu: products of bytes for prompts (bytes.h). A workgroup of 128 threads computes
 * 64 rows for COLUMNS columns from tiles of two groups of k in shared memory: codes of the weight
 * and bytes of x. A wave has 32 rows, two bands of 16, and some of the columns in parts of 16. It
 * multiplies a band by a part with mat_mul, and scales the sums of each group. `low` of x is left
 * out where no column of the tile has any. Weights are planar.
 * Entries for each WEIGHT_TYPE with blocks. See kernel.h.
 */
#ifndef WEIGHT_TYPE
#define WEIGHT_FILE  "product_tile_dot.cu"
#define WEIGHT_TYPES WEIGHT_TYPES_BLOCKS
#define WEIGHT_ALWAYS_PLANAR
#include "each_type.h"
#else
#include "product.h"
#include "bytes.h"

template <uint COLUMNS> struct ProductTileDot : Product {
    inline explicit ProductTileDot(const Args &args_) : Product(args_) {}

    static constexpr uint ROWS = 64, GROUPS = 2, THREADS = 128, BANDS = 2;
    static constexpr uint MAX_PART = COLUMNS / 16; // parts of a wave, at most
    static constexpr uint N_W = GROUPS * ROWS, N_X = GROUPS * COLUMNS;
    // A sum of a group's products without `low` is below 2^19. Added to the bits of 1.5 * 2^23 it
    // is the float of 1.5 * 2^23 plus the sum: an addition instead of a conversion.
    static constexpr int BIAS_BITS = 0x4b400000;

    // [half][group][row], [group][row]: two scales, two offsets
    uvec4 *w_codes = shared_take<uvec4>(2 * N_W);
    vec4 *w_scale = shared_take<vec4>(N_W);
    // [high of both halves, low of both][group][column]
    uvec4 *x_codes = shared_take<uvec4>(4 * N_X);
    float *x_scale = shared_take<float>(N_X);
    vec2 *x_sums = shared_take<vec2>(N_X);
    uint *has_low = shared_take<uint>(1);

    float sum[BANDS][MAX_PART][8];
    bool with_low;

    // As of product_halves.h. Bands of a GLU are of `gate` and of `up` in turn, so that a lane has
    // the sums of both for its rows.
    inline uint row_of(uint i) { return N_PART == 1 ? i : i % 16 + i / 32 * 16; }
    inline int part_of(uint i) { return N_PART == 1 ? 0 : int(i / 16 % 2); }

    // How many parts of the columns this wave has, and the first of them.
    inline uint part_count() { return MAX_PART * wave_size() * BANDS / THREADS; }
    inline uint part_first() { return wave_id() / 2 * part_count(); }

    inline void w_load(WeightRow row, uint g, uint at) {
        WeightGroup group = weight_group(row, g);
        w_codes[at] = group.low;
        w_codes[N_W + at] = group.high;
        w_scale[at] = vec4(group.scale, group.offset);
    }

    // Where no column has `low`, products are of `high` alone, and the scale contains the factor
    // 128. A power of two changes no rounding: the bits of y are the same.
    inline void x_load(const Bytes &x, uint g, uint at) {
        BytesGroup group = bytes_group(x, g, with_low);
        const float unit = with_low ? 1.0f : 128.0f;
        UNROLL for (int h = 0; h < 2; h++) {
            x_codes[h * N_X + at] = group.high[h];
            if (with_low) x_codes[(2 + h) * N_X + at] = group.low[h];
        }
        x_scale[at] = group.scale * unit;
        if (WEIGHT_HAS_OFFSET)
            x_sums[at] = vec2(float(bytes_sum(group, 0)), float(bytes_sum(group, 1))) * (1 / unit);
    }

    // The integer sums of one band and part: dots[h][i] of half h of a group, or, where a group has
    // one scale, dots[0][i] of the whole group. Without low, BIAS_BITS is added.
    template <bool WITH_LOW> inline void dots_get(const Mat *w, uint x_at, int (*dots)[8]) {
        UNROLL for (int h = 0; h < 2; h++) {
            int to = WEIGHT_HAS_HALF_SCALES ? h : 0;
            if (to == h) UNROLL for (uint i = 0; i < 8; i++) dots[h][i] = WITH_LOW ? 0 : BIAS_BITS;
            mat_mul(dots[to], w[h], mat_load(x_codes + h * N_X + x_at));
        }
        if (!WITH_LOW) return;
        UNROLL for (int h = 0; h < 2; h++) {
            int to = WEIGHT_HAS_HALF_SCALES ? h : 0;
            if (to == h) UNROLL for (uint i = 0; i < 8; i++) dots[h][i] *= 128;
            mat_mul(dots[to], w[h], mat_load(x_codes + (2 + h) * N_X + x_at));
        }
    }

    template <bool WITH_LOW> inline float dot_float(int dot) {
        return WITH_LOW ? float(dot) : bits_to_float(uint(dot)) - 12582912.0f;
    }

    template <bool WITH_LOW> inline void group_add(uint s) {
        uint w_at = s * ROWS + wave_id() % 2 * 32;
        Mat w[BANDS][2];
        UNROLL for (uint b = 0; b < BANDS; b++) UNROLL for (int h = 0; h < 2; h++) w[b][h] =
            mat_load(w_codes + h * N_W + w_at + 16 * b);
        UNROLL for (uint p = 0; p < MAX_PART; p++) {
            if (p >= part_count()) break;
            uint x_at = s * COLUMNS + 16 * (part_first() + p);
            UNROLL for (uint b = 0; b < BANDS; b++) {
                int dots[2][8];
                dots_get<WITH_LOW>(w[b], x_at, dots);
                UNROLL for (uint i = 0; i < 8; i++) {
                    if (i >= mat_count()) break;
                    vec4 scale = w_scale[w_at + 16 * b + mat_row(i)];
                    uint column = x_at + mat_column(i);
                    float y = scale.x * dot_float<WITH_LOW>(dots[0][i]);
                    if (WEIGHT_HAS_HALF_SCALES) y += scale.y * dot_float<WITH_LOW>(dots[1][i]);
                    if (WEIGHT_HAS_OFFSET)
                        y += WEIGHT_HAS_HALF_SCALES
                                 ? scale.z * x_sums[column].x + scale.w * x_sums[column].y
                                 : scale.z * (x_sums[column].x + x_sums[column].y);
                    sum[b][p][i] += x_scale[column] * y;
                }
            }
        }
    }

    // Stores y. Sums go through shared memory, so that neighbouring lanes store neighbouring rows.
    inline void sums_store(Tile t) {
        const uint n_row = 2 * 16 / uint(N_PART);
        float *own = (float *)shared_memory() + wave_id() * 2 * 16 * 16; // [column][band][row]
        UNROLL for (uint p = 0; p < MAX_PART; p++) {
            if (p >= part_count()) break;
            barrier();
            UNROLL for (uint b = 0; b < BANDS; b++)
                UNROLL for (uint i = 0; i < 8; i++) if (i < mat_count())
                    own[32 * mat_column(i) + 16 * b + mat_row(i)] = sum[b][p][i];
            barrier();
            DONT_UNROLL for (uint j = lane_id(); j < 16 * n_row; j += wave_size()) {
                uint c = j / n_row, r = j - c * n_row, column = 16 * (part_first() + p) + c;
                if (column >= t.n_column) break;
                column = column_number(t, column);
                y_store(y_at(t, column), column, t.row + wave_id() % 2 * n_row + r, own[32 * c + r],
                        own[32 * c + r % 16 + 16]);
            }
        }
    }

    template <bool WITH_LOW> inline void groups_add(WeightRow row, const Bytes &x, uint x_first) {
        uint thread = thread_id(), n_group = uint(args.word[1]) / 32;
        uint w_of = thread / ROWS, x_of = thread / COLUMNS; // groups that this thread loads
        with_low = WITH_LOW;
        DONT_UNROLL for (uint first = 0; first < n_group; first += GROUPS) {
            barrier();
            if (first + w_of < n_group) w_load(row, first + w_of, thread);
            if (x_of < GROUPS && first + x_of < n_group) x_load(x, x_first + first + x_of, thread);
            barrier();
            DONT_UNROLL for (uint s = 0; s < GROUPS && first + s < n_group; s++)
                group_add<WITH_LOW>(s);
        }
    }

    inline void run() {
        Tile t = tile_get(ROWS / N_PART, COLUMNS);
        if (t.n_column == 0) return;
        uint thread = thread_id(), n_group = uint(args.word[1]) / 32;
        Bytes x(args.address[2], u64(uint(args.word[5])) * n_group);
        uint x_number = x_row(t, column_number(t, min(thread % COLUMNS, t.n_column - 1)));
        WeightRow row = product_row(t, t.row + row_of(thread % ROWS), part_of(thread % ROWS));
        UNROLL for (uint b = 0; b < BANDS; b++) UNROLL for (uint p = 0; p < MAX_PART; p++)
            UNROLL for (uint i = 0; i < 8; i++) sum[b][p][i] = 0;
        if (thread == 0) *has_low = 0;
        barrier();
        if (U32(x.has_low).at[x_number] != 0) *has_low = 1;
        barrier();
        if (*has_low != 0)
            groups_add<true>(row, x, x_number * n_group);
        else
            groups_add<false>(row, x, x_number * n_group);
        sums_store(t);
    }
};

GPU_SIZED_KERNEL(product_tile_dot, 128, 128, 32, ProductTileDot<32>)
GPU_SIZED_KERNEL(product_tile_dot, 128, 128, 64, ProductTileDot<64>)
#endif
