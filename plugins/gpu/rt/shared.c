/* SPDX-License-Identifier: MIT
 *
 * shared.c: bytes of shared memory of each kernel: what its struct takes by Kernel::shared_take
 * (kernels/lang.h). The row of a kernel in GPU_KERNEL_LIST computes them with the functions of this
 * file, which must follow the structs: a launch with too few bytes lets the kernel write behind its
 * shared memory. The emulated driver gives exactly these bytes and reports a kernel that takes
 * more.
 */
#include "plugins/gpu/rt/rt.h"

/* Bytes that shared_take takes for n elements of `size` bytes. */
static uint32_t taken(int32_t n, uint32_t size) {
    return ((uint32_t)n * size + 15) & ~15u;
}

static int32_t or_one(int32_t n) {
    return n > 0 ? n : 1;
}

/* struct AttentionFold */
static uint32_t fold_size(int32_t rows) {
    return taken(8 * rows, 4) + 3 * taken(rows, 4);
}

/* struct PageRow */
static uint32_t page_row_size(int32_t len) {
    return 2 * taken(len, 4) + taken((len + 31) / 32, 4) + 2 * taken(64, 4);
}

/* struct Rank */
static uint32_t rank_size(void) {
    return taken(256, 4) + taken(1024, 8);
}

/* struct AttentionDot */
static uint32_t attention_dot_size(const int32_t *spec) {
    const int32_t rows = or_one(spec[4]), stored = spec[2] > 0 ? spec[2] : 32;
    return fold_size(rows) + taken(rows * stored / 4, 16);
}

/* parts_merge of attention_merge.h, for waves of 32 threads or more. */
static uint32_t parts_merge_size(const gpu_step *step) {
    const int32_t most = 4, n_wave = step->group_size / 32, n = n_wave < most ? n_wave : most;
    if ((step->spec[5] & GPU_ATTENTION_MERGES) == 0) return 0;
    return taken(n * step->spec[3], 4) + taken(n * 5 * 64, 4);
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static uint32_t attention_part_size(const int32_t *spec) {
    return attention_dot_size(spec) + taken(2 * or_one(spec[4]) * 64, 4);
}

/* struct AttentionTile. Scores with rows of V lie in the memory that tiles of Q and K had before;
 * in the entries for 512 elements of o they are larger than these. Without bias and lists such an
 * entry follows the one for 256 elements, with them the one for 128 (kernels/entries.h). */
static uint32_t attention_tile_size(const int32_t *spec) {
    const bool is_wide = spec[3] > ((spec[5] & GPU_ATTENTION_EXTRAS) != 0 ? 128 : 256);
    const int32_t n_vec = is_wide ? 32 * 17 + 4 * (512 / 4 + 1) : (32 + 64) * 9;
    return fold_size(32) + taken(n_vec, 16) + 2 * taken(32, 4) + taken(32, 8);
}

/* struct AttentionHalves: bytes of 64 rows of a type as they lie in a page; f16 is not copied this
 * way. */
static uint32_t attention_raw_size(int32_t type, int32_t dim) {
    if (type == TDM_TYPE_F16) return 0;
    return 64 * (uint32_t)(type == TDM_TYPE_Q8_0 ? dim + dim / 16 : dim / 2 + dim / 4);
}

/* struct AttentionMatrix; `threads` share a row. */
static uint32_t attention_matrix_size(const gpu_step *step, int32_t threads) {
    const int32_t *spec = step->spec, rows = step->group_size / threads;
    const bool is_latent = (spec[5] & GPU_ATTENTION_V_FROM_K) != 0;
    const int32_t n_group = ((spec[2] > 0 ? spec[2] : 32) + 31) / 32;
    const int32_t n_v = is_latent ? 0 : 2 * 4 * ((spec[3] + 15) / 16 * 16);
    const uint32_t raw_k = attention_raw_size(spec[0], spec[2]);
    const uint32_t raw_v = is_latent ? 0 : attention_raw_size(spec[1], spec[3]);
    const uint32_t own = fold_size(rows) + taken(rows, 8) + taken(n_group * 4 * rows, 16) +
                         taken(n_group * 4 * 64, 16) + taken(n_v, 16) + taken(2 * 4 * rows, 16) +
                         taken(rows * (64 + 4), 4) + taken(rows, 4) + taken(2, 4) +
                         larger(raw_k, raw_v);
    return larger(own, parts_merge_size(step));
}

/* struct SelectScore */
static uint32_t select_score_size(const gpu_step *step) {
    return attention_dot_size(step->spec) + taken(step->group_size, 4);
}

/* struct SelectChoose */
static uint32_t select_choose_size(void) {
    return 2 * taken(2 * 256, 4) + taken(2, 4);
}

static uint32_t attention_merge_size(const int32_t *spec) {
    return taken(or_one(spec[0]), 4) + 5 * taken(64, 4);
}

static uint32_t kv_shift_size(const int32_t *spec) {
    return page_row_size(or_one(spec[7])) + 2 * taken(1, 4);
}

static uint32_t product_row_size(const int32_t *spec) {
    return taken(32 * or_one(spec[2]) * or_one(spec[3]), 4);
}

static uint32_t top_k_size(void) {
    return rank_size() + taken(1, 8) + taken(1, 4);
}

static uint32_t route_size(void) {
    return rank_size() + taken(1024, 4) + taken(1024 / 32, 4);
}

/* struct ProductTileDot */
static uint32_t tile_dot_size(int32_t columns) {
    const int32_t n_w = 2 * 64, n_x = 2 * columns;
    return taken(2 * n_w, 16) + taken(n_w, 16) + taken(4 * n_x, 16) + taken(n_x, 4) +
           taken(n_x, 8) + taken(1, 4);
}

/* struct ProductTileMatrix; its sums, 16 columns of each wave, need less. */
static uint32_t tile_matrix_size(int32_t columns) {
    const uint32_t tiles = taken(3 * 4 * 128, 16) + taken(3 * 4 * columns, 16);
    const uint32_t sums = 256 / 32 * 16 * ((columns == 128 ? 64 : 32) + 4) * 4;
    return tiles > sums ? tiles : sums;
}

/* struct ProductTileBlock; its sums, 128 columns at a time, need less. */
static uint32_t tile_block_size(int32_t columns) {
    return taken(8 * 4 * 128, 16) + taken(8 * 4 * columns, 16);
}

uint32_t rt_shared_size(const gpu_step *step) {
    const int32_t *spec = step->spec;
    switch (step->kernel) {
#define RT_SHARED(size) size
#define RT_ONLY(size)   size
#define RT_ABSENT       0
#define KERNEL_ROW(NAME, name, n_operand, writes, rt)                                              \
    case GPU_KERNEL_##NAME: return rt;
        GPU_KERNEL_LIST(KERNEL_ROW)
#undef KERNEL_ROW
#undef RT_ABSENT
#undef RT_ONLY
#undef RT_SHARED
    default: return 0;
    }
}
