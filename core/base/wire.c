/* SPDX-License-Identifier: MIT
 *
 * wire.c: see wire.h. Compiled without contraction, as all of core/base.
 */
#include <math.h>
#include <string.h>

#include "core/base/wire.h"

enum { TILE_LEN = 256 }; /* a multiple of every block */

static int64_t round_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

void tdm_wire_store(tdm_type type, const float *x, void *wire, int64_t n) {
    tdm_wire_store_by(tdm_row_codec_get(type).quantize, type, x, wire, n);
}

void tdm_wire_store_by(tdm_row_quantize_fn quantize, tdm_type type, const float *x, void *wire,
                       int64_t n) {
    int64_t block_len = tdm_type_get_info(type).block_len, whole = n / block_len * block_len;
    quantize(x, wire, whole, NULL);
    if (whole < n) {
        float rest[TDM_BLOCK_LEN] = {0};
        memcpy(rest, x + whole, (size_t)(n - whole) * sizeof x[0]);
        quantize(rest, (uint8_t *)wire + tdm_type_row_size(type, whole), block_len, NULL);
    }
}

/* Denormal numbers and -0 count as +0. */
static float flush(float x) {
    return fabsf(x) < 0x1p-126f ? 0.0f : x;
}

static float finish(float sum) {
    return sum != sum ? tdm_f32_from_bits(0x7fc00000) : sum;
}

void tdm_wire_sum(tdm_type type, const void *const *addends, int32_t n_addend, int64_t first,
                  int64_t n, const float *residual, float *y) {
    int64_t block_len = tdm_type_get_info(type).block_len;
    tdm_row_dequantize_fn dequantize = tdm_row_codec_get(type).dequantize;
    float sums[TILE_LEN], next[TILE_LEN];
    while (n > 0) {
        /* Whole blocks are read; only the requested elements of the first and last are used. */
        int64_t skip = first % block_len, start = first - skip;
        int64_t count = n < TILE_LEN - skip ? n : TILE_LEN - skip;
        int64_t len = round_up(skip + count, block_len), i;
        size_t off = tdm_type_row_size(type, start);
        int32_t k;
        if (n_addend == 0) memset(sums, 0, sizeof sums);
        for (k = 0; k < n_addend; k++) {
            dequantize((const uint8_t *)addends[k] + off, k == 0 ? sums : next, len);
            for (i = 0; k == 0 && i < len; i++) sums[i] = flush(sums[i]);
            for (i = 0; k > 0 && i < len; i++) sums[i] = flush(sums[i] + flush(next[i]));
        }
        /* Without an addend the sum starts from zeros. */
        for (i = 0; i < count && residual != NULL; i++)
            sums[skip + i] = flush(sums[skip + i] + flush(residual[i]));
        for (i = 0; i < count; i++) y[i] = finish(sums[skip + i]);
        first += count;
        n -= count;
        y += count;
        if (residual != NULL) residual += count;
    }
}
