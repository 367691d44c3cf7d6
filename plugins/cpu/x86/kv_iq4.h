/* SPDX-License-Identifier: MIT
 *
 * x86/kv_iq4.h: the search for the scale of an iq4_nl block: search_scale of quant/fit.c for the
 * codebook, with the same additions in the same order. The including file chooses its vectors and
 * how many candidates are summed at once.
 *
 * Candidates do not depend on each other, so all of them are summed first, then their partial sums
 * are added up for eight candidates at a time, then they are compared in their order.
 */
#ifndef TANDEM_CPU_X86_KV_IQ4_H
#define TANDEM_CPU_X86_KV_IQ4_H

#include "quant/fit.h"
#include "plugins/cpu/x86/kv_block.h"

/* Room for whole groups of eight. */
enum { IQ4_STEPS = 8, IQ4_CANDIDATES = 2 * (2 * IQ4_STEPS + 1), IQ4_ROOM = 40 };

/* Partial sums w x v and w v^2 of the levels v nearest to x * inverse, lane k those of elements k,
 * k + 8 and so on: a row for each of the few inverses that the function takes at once. */
typedef void (*iq4_sum_fn)(const block32 *b, const block32 *weights, const float *inverse,
                           float (*xv)[8], float (*vv)[8]);

/* out[i] = the lanes of rows[i], one after the other, for eight rows. */
static inline void iq4_add_lanes(float (*rows)[8], float *out) {
    __m256 x[8], t[8], sum = _mm256_setzero_ps();
    for (int i = 0; i < 8; i++) x[i] = _mm256_load_ps(rows[i]);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        x[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        x[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        x[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        x[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++)
        sum = _mm256_add_ps(sum, _mm256_permute2f128_ps(x[i], x[i + 4], 0x20));
    for (int i = 0; i < 4; i++)
        sum = _mm256_add_ps(sum, _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));
    _mm256_storeu_ps(out, sum);
}

static inline float iq4_reciprocal(float scale) {
    return fabsf(scale) > 1e-30f ? 1 / scale : 0;
}

typedef struct iq4_best {
    float gain, scale;
} iq4_best;

static inline bool iq4_compare(float xv, float vv, iq4_best *best) {
    if (vv <= 0 || xv * xv <= best->gain * vv) return false;
    *best = (iq4_best){xv * xv / vv, xv / vv};
    return true;
}

static inline float iq4_search(const block32 *b, const block32 *weights, iq4_sum_fn sum,
                               int n_at_once) {
    _Alignas(64) float xv_lanes[IQ4_ROOM][8], vv_lanes[IQ4_ROOM][8], inverse[IQ4_ROOM];
    float peak = find_peak(b), xv[IQ4_ROOM], vv[IQ4_ROOM];
    if (fabsf(peak) <= 1e-30f) return 0;
    /* The peak is mapped to places around either end of the levels. */
    for (int i = 0; i < IQ4_ROOM; i++) {
        int end = i / (2 * IQ4_STEPS + 1), step = i % (2 * IQ4_STEPS + 1) - IQ4_STEPS;
        inverse[i] = (end == 0 ? -127 : 113) + 12.0f * (float)step / IQ4_STEPS;
    }
    for (int i = 0; i < IQ4_ROOM; i += 8)
        _mm256_store_ps(inverse + i,
                        _mm256_div_ps(_mm256_load_ps(inverse + i), _mm256_set1_ps(peak)));
    memset(xv_lanes[IQ4_CANDIDATES], 0, sizeof xv_lanes - IQ4_CANDIDATES * sizeof *xv_lanes);
    memset(vv_lanes[IQ4_CANDIDATES], 0, sizeof vv_lanes - IQ4_CANDIDATES * sizeof *vv_lanes);
    for (int i = 0; i < IQ4_CANDIDATES; i += n_at_once)
        sum(b, weights, inverse + i, xv_lanes + i, vv_lanes + i);
    for (int i = 0; i < IQ4_ROOM; i += 8) {
        iq4_add_lanes(xv_lanes + i, xv + i);
        iq4_add_lanes(vv_lanes + i, vv + i);
    }
    iq4_best best = {0, peak / -127};
    for (int i = 0; i < IQ4_CANDIDATES; i++) (void)iq4_compare(xv[i], vv[i], &best);
    for (int turn = 0; turn < 2; turn++) { /* codes for the solved scale, then solved again */
        inverse[0] = iq4_reciprocal(best.scale);
        sum(b, weights, inverse, xv_lanes, vv_lanes);
        iq4_add_lanes(xv_lanes, xv);
        iq4_add_lanes(vv_lanes, vv);
        if (!iq4_compare(xv[0], vv[0], &best)) break;
    }
    return best.scale;
}

/* The block's scale as f16, and what its elements are multiplied with to find their levels. */
static inline float iq4_inverse(const block32 *b, iq4_sum_fn sum, int n_at_once, uint16_t *d_out) {
    block32 weights;
    float x[LEN], w[LEN];
    for (int i = 0; i < PARTS; i++) _mm256_storeu_ps(x + 8 * i, b->x[i]);
    tdm_fit_weigh(x, NULL, w, LEN);
    for (int i = 0; i < PARTS; i++) weights.x[i] = _mm256_loadu_ps(w + 8 * i);
    float scale = iq4_search(b, &weights, sum, n_at_once);
    scale = scale < -f16_max ? -f16_max : scale;
    *d_out = tdm_f32_to_f16(scale > f16_max ? f16_max : scale);
    return iq4_reciprocal(tdm_f16_to_f32(*d_out));
}

#endif
