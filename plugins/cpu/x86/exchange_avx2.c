/* SPDX-License-Identifier: MIT
 *
 * x86/exchange_avx2.c: tdm_wire_sum (core/base/wire.h) with AVX2, bit for bit. An array separates
 * the multiplications of q8_0 from the additions, so that the compiler does not contract them.
 *
 * Intrinsics instead of the words of vector/: denormals and NaN are replaced by compare masks,
 * which those words do not have.
 */
#include <immintrin.h>
#include <string.h>

#include "quant/half.h"
#include "plugins/cpu/ops/exchange.h"

enum { LANES = 8, TILE_LEN = 256 };

/* Below 2^-126 in magnitude: +0. */
static inline __m256 flush(__m256 x) {
    __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    return _mm256_and_ps(x, _mm256_cmp_ps(magnitude, _mm256_set1_ps(0x1p-126f), _CMP_NLT_UQ));
}

static inline __m256 flushed_sum(__m256 sum, __m256 x) {
    return flush(_mm256_add_ps(sum, flush(x)));
}

/* NaN: 0x7fc00000. */
static inline __m256 finish(__m256 sum) {
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(sum, nan, _mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
}

static inline __m256i part_mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* n_vector vectors from element i on; n_addend >= 1. */
static inline void f32_vectors(const float *const *addends, int32_t n_addend, int64_t i,
                               const float *residual, float *y, int n_vector) {
    __m256 sum[4];
    for (int v = 0; v < n_vector; v++) sum[v] = flush(_mm256_loadu_ps(addends[0] + i + v * LANES));
    for (int32_t k = 1; k < n_addend; k++)
        for (int v = 0; v < n_vector; v++)
            sum[v] = flushed_sum(sum[v], _mm256_loadu_ps(addends[k] + i + v * LANES));
    for (int v = 0; v < n_vector; v++) {
        if (residual != NULL)
            sum[v] = flushed_sum(sum[v], _mm256_loadu_ps(residual + i + v * LANES));
        _mm256_storeu_ps(y + i + v * LANES, finish(sum[v]));
    }
}

static void f32_sum(const float *const *addends, int32_t n_addend, int64_t n, const float *residual,
                    float *y) {
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) f32_vectors(addends, n_addend, i, residual, y, 4);
    for (; i + LANES <= n; i += LANES) f32_vectors(addends, n_addend, i, residual, y, 1);
    if (i < n) {
        __m256i mask = part_mask(n - i);
        __m256 sum = flush(_mm256_maskload_ps(addends[0] + i, mask));
        for (int32_t k = 1; k < n_addend; k++)
            sum = flushed_sum(sum, _mm256_maskload_ps(addends[k] + i, mask));
        if (residual != NULL) sum = flushed_sum(sum, _mm256_maskload_ps(residual + i, mask));
        _mm256_maskstore_ps(y + i, mask, finish(sum));
    }
}

static void f16_read(const uint16_t *half, float *out, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(
            out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(half + i))));
    for (; i < n; i++) out[i] = tdm_f16_to_f32(half[i]);
}

static void bf16_read(const uint16_t *half, float *out, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)(half + i));
        _mm256_storeu_ps(out + i,
                         _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
    }
    for (; i < n; i++) out[i] = tdm_bf16_to_f32(half[i]);
}

/* Whole blocks. */
static void q8_0_read(const tdm_block_q8_0 *block, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i += TDM_BLOCK_LEN, block++) {
        __m256 d = _mm256_set1_ps(tdm_f16_to_f32(block->d));
        for (int v = 0; v < TDM_BLOCK_LEN; v += LANES) {
            __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(block->qs + v));
            __m256 q = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
            _mm256_storeu_ps(out + i + v, _mm256_mul_ps(q, d));
        }
    }
}

static void wire_read(tdm_type type, const uint8_t *wire, float *out, int64_t n) {
    if (type == TDM_TYPE_F16)
        f16_read((const void *)wire, out, n);
    else if (type == TDM_TYPE_BF16)
        bf16_read((const void *)wire, out, n);
    else
        q8_0_read((const void *)wire, out, n);
}

/* Most addends that are summed here: a tile of each is converted to f32, then they are added. */
enum { MAX_TILES = 8 };

void cpu_wire_sum_avx2(tdm_type type, const void *const *addends, int32_t n_addend, int64_t first,
                       int64_t n, const float *residual, float *y) {
    float tiles[MAX_TILES][TILE_LEN];
    int64_t block_len = tdm_type_get_info(type).block_len;
    if (n_addend == 0 || n_addend > MAX_TILES) {
        tdm_wire_sum(type, addends, n_addend, first, n, residual, y);
        return;
    }
    if (type == TDM_TYPE_F32) {
        const float *at[MAX_TILES];
        for (int32_t k = 0; k < n_addend; k++) at[k] = (const float *)addends[k] + first;
        f32_sum(at, n_addend, n, residual, y);
        return;
    }
    for (int64_t done = 0, count; done < n; done += count) {
        const float *at[MAX_TILES];
        int64_t skip = (first + done) % block_len;
        size_t off = tdm_type_row_size(type, first + done - skip);
        count = n - done < TILE_LEN - skip ? n - done : TILE_LEN - skip;
        for (int32_t k = 0; k < n_addend; k++) {
            int64_t len = (skip + count + block_len - 1) / block_len * block_len;
            wire_read(type, (const uint8_t *)addends[k] + off, tiles[k], len);
            at[k] = tiles[k] + skip;
        }
        f32_sum(at, n_addend, count, residual != NULL ? residual + done : NULL, y + done);
    }
}
