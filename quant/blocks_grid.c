/* SPDX-License-Identifier: MIT
 *
 * blocks_grid.c: f32 to iq2, iq3 and iq1, points of a grid (tandem/grid.h) with a scale. Layouts
 * and formulas: tandem/block.h. codes.c reads them.
 *
 * The search. For a given scale each eight (iq3: four) elements take the nearest of all points; the
 * scale that is best for these points follows by least squares. A few scales are tried for each
 * sub-block, the best ones are rounded to the type's integers times one d, and then the nearest
 * points are searched again. It weighs errors (fit.h); without `importance` these types lose more
 * accuracy than necessary.
 *
 * The nearest point. The costs (weighted squared errors) of all patterns of half a point, 81 or 64,
 * are added up first from the costs of the levels of each coordinate. The cost of a point is then
 * one addition, and most second halves can be skipped: they cost too much with any first half.
 */
#include <math.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/grids.h"
#include "quant/half.h"
#include "quant/vector.h"
#include "tandem/block.h"

enum {
    SUPER = TDM_SUPERBLOCK_LEN,
    MAX_DIM = 8,
    LEVELS_SIZE = 2 * VECTOR_LEN, /* at most so many levels */
    MAX_PATTERNS = 81,
    PATTERNS_SIZE = MAX_PATTERNS + 2 * VECTOR_LEN,
    N_TRY = 4
};

/* Inputs are limited to f16's range: see convert.h. */
static const float input_limit = 65504;

/* What a type stores beside indices. */
typedef enum sign_kind {
    SIGNS_7,   /* of eight elements: an even number of minus signs */
    SIGNS_8,   /* of eight elements */
    OFFSET_32, /* one offset of plus or minus an eighth for 32 elements */
    OFFSET_8,  /* for eight */
} sign_kind;

typedef struct form {
    const tdm_grid *grid;
    sign_kind signs;
    int sub_len;      /* elements that share a scale */
    int n_scale;      /* scale s, 0 .. n_scale - 1, is d * (base + step * s) */
    float base, step; /* of iq1: eighths, since its levels are in eighths */
    tdm_grid_search search;
} form;

/* A quantised superblock before it is packed. */
typedef struct fitted {
    tdm_f16 d;
    uint8_t scale[SUPER / 16]; /* for each sub-block */
    uint16_t index[SUPER / 4]; /* for each point */
    uint8_t signs[SUPER / 8];  /* for eight elements: bits, or 1 where the offset is negative */
} fitted;

static bool has_offset(const form *f) {
    return f->signs == OFFSET_32 || f->signs == OFFSET_8;
}

/* The value of a level without the scale: magnitudes for iq2 and iq3, v + o in eighths for iq1. */
static float level_value(const form *f, int level, bool is_minus) {
    float value = f->grid->levels[level];
    if (!has_offset(f)) return value;
    return value - 8 + (is_minus ? -1 : 1);
}

typedef struct nearest {
    float cost;
    int index;
} nearest;

/* Among the points with the second half `h`. */
static void half_search(const tdm_grid_search *q, int h, float pattern[2][PATTERNS_SIZE],
                        nearest *found) {
    for (int i = q->first[h]; i < q->first[h + 1]; i++) {
        float cost = pattern[0][q->lo[i]] + pattern[1][h];
        if (cost < found->cost) *found = (nearest){cost, i};
    }
}

/* sums[p]: the cost of pattern p of half a point. The first coordinate is the least significant
 * digit of p and is added last. A vector stores sums for four levels; where a coordinate has fewer,
 * the sums of the next pattern overwrite the excess, and infinities do behind the last pattern.
 * `sums` has room for PATTERNS_SIZE. */
static void patterns_sum(float costs[][LEVELS_SIZE], int half, int n_level, float *sums) {
    float before[PATTERNS_SIZE];
    int n = 1;
    sums[0] = 0;
    for (int c = half - 1; c >= 0; c--) {
        memcpy(before, sums, (size_t)n * sizeof *before);
        /* Two vectors hold all levels of any grid. */
        const vector some = vector_load(costs[c]), others = vector_load(costs[c] + VECTOR_LEN);
        for (int p = 0; p < n; p++) {
            vector_store(sums + p * n_level, before[p] + some);
            if (n_level > VECTOR_LEN)
                vector_store(sums + p * n_level + VECTOR_LEN, before[p] + others);
        }
        n *= n_level;
    }
    vector_store(sums + n, vector_of(INFINITY));
}

/* The smallest sum. A sum does not decrease where a term increases, with rounding too. */
static float patterns_least(float costs[][LEVELS_SIZE], int half, int n_level) {
    float sum = 0;
    for (int c = half - 1; c >= 0; c--) {
        float least = costs[c][0];
        for (int l = 1; l < n_level; l++) least = costs[c][l] < least ? costs[c][l] : least;
        sum += least;
    }
    return sum;
}

/* The index of the point that is nearest to t / scale, errors weighted by w; its cost is added to
 * *cost. With offsets, is_minus gives the sign of the offset. */
static int nearest_find(const form *f, const float *t, const float *w, float scale, bool is_minus,
                        float *cost) {
    const tdm_grid *g = f->grid;
    const int half = g->dim / 2, n_level = g->n_level;
    float pattern[2][PATTERNS_SIZE], costs[MAX_DIM][LEVELS_SIZE], levels[LEVELS_SIZE] = {0};
    for (int l = 0; l < n_level; l++) levels[l] = scale * level_value(f, l, is_minus);
    for (int c = 0; c < 2 * half; c++) {
        for (int l = 0; l < LEVELS_SIZE; l += VECTOR_LEN) {
            const vector rest = t[c] - vector_load(levels + l);
            vector_store(&costs[c][l], w[c] * rest * rest);
        }
    }
    for (int side = 0; side < 2; side++)
        patterns_sum(costs + side * half, half, n_level, pattern[side]);
    /* Beside the cheapest second half few others can be part of the nearest point. */
    const tdm_grid_search *q = &f->search;
    const float least_lo = patterns_least(costs, half, n_level);
    const float least_hi = patterns_least(costs + half, half, n_level);
    nearest found = {INFINITY, 0};
    int cheapest = 0;
    while (cheapest + 1 < q->n_half && pattern[1][cheapest] > least_hi) cheapest++;
    half_search(q, cheapest, pattern, &found);
    for (int first = 0; first < q->n_half; first += VECTOR_LEN) {
        const vector some = vector_load(&pattern[1][first]) + least_lo;
        if (!vector_any(some < vector_of(found.cost))) continue;
        for (int h = first; h < first + VECTOR_LEN; h++) {
            if (pattern[1][h] + least_lo < found.cost) half_search(q, h, pattern, &found);
        }
    }
    *cost += found.cost;
    return found.index;
}

/* Returns the signs of eight elements and stores in t[8] the magnitudes that the point is to
 * approximate. SIGNS_7 can express an even number of minus signs only: where it is odd, the sign of
 * the element for which that costs least is inverted, and its t is negative. */
static uint8_t signs_take(const form *f, const float *x, const float *w, float *t) {
    int signs = 0, n_minus = 0, cheapest = 0;
    for (int i = 0; i < 8; i++) {
        bool is_minus = x[i] < 0;
        signs |= is_minus << i;
        n_minus += is_minus;
        t[i] = fabsf(x[i]);
        if (w[i] * t[i] < w[cheapest] * t[cheapest]) cheapest = i;
    }
    if (f->signs == SIGNS_7 && n_minus % 2 != 0) {
        signs ^= 1 << cheapest;
        t[cheapest] = -t[cheapest];
    }
    return (uint8_t)signs;
}

/* Finds points and signs of n elements from `at` on, for a given scale. `o`: the sign of all
 * offsets, 0 = each group of eight has the better one. Returns the error. */
static float points_choose(const form *f, const float *x, const float *w, int at, int n,
                           float scale, int o, fitted *out) {
    int dim = f->grid->dim;
    float cost = 0;
    for (int i = at; i < at + n; i += 8) {
        float t[8];
        if (has_offset(f)) {
            float minus_cost = 0, plus_cost = 0;
            int minus = o > 0 ? -1 : nearest_find(f, x + i, w + i, scale, true, &minus_cost);
            int plus = o < 0 ? -1 : nearest_find(f, x + i, w + i, scale, false, &plus_cost);
            bool is_minus = plus < 0 || (minus >= 0 && minus_cost < plus_cost);
            out->signs[i / 8] = is_minus;
            out->index[i / 8] = (uint16_t)(is_minus ? minus : plus);
            cost += is_minus ? minus_cost : plus_cost;
            continue;
        }
        out->signs[i / 8] = signs_take(f, x + i, w + i, t);
        for (int c = 0; c < 8; c += dim) {
            out->index[(i + c) / dim] =
                (uint16_t)nearest_find(f, t + c, w + i + c, scale, false, &cost);
        }
    }
    return cost;
}

/* The same, with the offsets that the type stores. */
static float points_find(const form *f, const float *x, const float *w, int at, int n, float scale,
                         fitted *out) {
    if (f->signs != OFFSET_32) return points_choose(f, x, w, at, n, scale, 0, out);
    float minus = points_choose(f, x, w, at, n, scale, -1, out);
    float plus = points_choose(f, x, w, at, n, scale, 1, out);
    return minus < plus ? points_choose(f, x, w, at, n, scale, -1, out) : plus;
}

/* The value of element i, without the scale. */
static float value_get(const form *f, const fitted *out, int i) {
    int dim = f->grid->dim;
    float value = f->search.points[out->index[i / dim] * dim + i % dim];
    if (has_offset(f)) return value - 8 + (out->signs[i / 8] ? -1 : 1);
    return out->signs[i / 8] >> i % 8 & 1 ? -value : value;
}

/* The scale of a sub-block. For each tried scale the nearest points are found, then the scale that
 * is best for these points by least squares. Returns that which leaves the least error, that is,
 * has the largest gain. */
static float scale_find(const form *f, const float *x, const float *w, int at, fitted *out) {
    static const float tries[N_TRY] = {1.0f, 0.85f, 0.7f, 1.2f};
    float peak = 0, best_gain = 0, best = 0;
    float largest = level_value(f, f->grid->n_level - 1, false);
    for (int i = at; i < at + f->sub_len; i++) peak = fmaxf(peak, fabsf(x[i]));
    for (int k = 0; k < N_TRY && peak > 0; k++) {
        float xv = 0, vv = 0;
        points_find(f, x, w, at, f->sub_len, peak / largest * tries[k], out);
        for (int i = at; i < at + f->sub_len; i++) {
            float value = value_get(f, out, i);
            xv += w[i] * x[i] * value;
            vv += w[i] * value * value;
        }
        if (vv > 0 && xv > 0 && xv / vv * xv > best_gain) best_gain = xv / vv * xv, best = xv / vv;
    }
    return best;
}

static void superblock_fit(const form *f, const float *src, const float *importance, fitted *out) {
    float x[SUPER], w[SUPER], scales[SUPER / 16], peak = 0;
    int n_sub = SUPER / f->sub_len;
    memset(out, 0, sizeof *out);
    tdm_fit_load(src, x, SUPER, input_limit);
    tdm_fit_weigh(x, importance, w, SUPER);
    for (int s = 0; s < n_sub; s++) {
        scales[s] = scale_find(f, x, w, s * f->sub_len, out);
        peak = fmaxf(peak, scales[s]);
    }
    out->d = tdm_f32_to_f16(peak / (f->base + f->step * (float)(f->n_scale - 1)));
    float d = tdm_f16_to_f32(out->d);
    for (int s = 0; s < n_sub; s++) {
        float whole = d > 0 ? roundf((scales[s] / d - f->base) / f->step) : 0;
        whole = fminf(fmaxf(whole, 0), (float)(f->n_scale - 1));
        out->scale[s] = (uint8_t)whole;
        points_find(f, x, w, s * f->sub_len, f->sub_len, d * (f->base + f->step * whole), out);
    }
}

/* ---- Packing --------------------------------------------------------------------------------- */

static void word_put(uint32_t word, uint8_t *p) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(word >> 8 * i);
}

/* Four sets of seven signs, and a scale on top. */
static uint32_t signs_word(const fitted *q, int s) {
    uint32_t word = (uint32_t)q->scale[s] << 28;
    for (int g = 0; g < 4; g++) word |= (uint32_t)(q->signs[4 * s + g] & 127) << 7 * g;
    return word;
}

static void nibbles_pack(const uint8_t *scale, int n, uint8_t *bytes) {
    for (int i = 0; i < n; i += 2) bytes[i / 2] = (uint8_t)(scale[i] | scale[i + 1] << 4);
}

static void iq2_xxs_pack(const fitted *q, void *to) {
    tdm_block_iq2_xxs *block = to;
    block->d = q->d;
    for (int s = 0; s < 8; s++) {
        for (int g = 0; g < 4; g++) block->qs[8 * s + g] = (uint8_t)q->index[4 * s + g];
        word_put(signs_word(q, s), block->qs + 8 * s + 4);
    }
}

static void iq2_xs_pack(const fitted *q, void *to) {
    tdm_block_iq2_xs *block = to;
    block->d = q->d;
    for (int g = 0; g < 32; g++) {
        block->qs[g] = (uint16_t)(q->index[g] | (q->signs[g] & 127) << 9);
    }
    nibbles_pack(q->scale, 16, block->scales);
}

static void iq2_s_pack(const fitted *q, void *to) {
    tdm_block_iq2_s *block = to;
    memset(block, 0, sizeof *block);
    block->d = q->d;
    for (int g = 0; g < 32; g++) {
        block->qs[g] = (uint8_t)q->index[g];
        block->qh[g / 4] |= (uint8_t)(q->index[g] >> 8 << g % 4 * 2);
        block->signs[g] = q->signs[g];
    }
    nibbles_pack(q->scale, 16, block->scales);
}

static void iq3_xxs_pack(const fitted *q, void *to) {
    tdm_block_iq3_xxs *block = to;
    block->d = q->d;
    for (int i = 0; i < 64; i++) block->qs[i] = (uint8_t)q->index[i];
    for (int s = 0; s < 8; s++) word_put(signs_word(q, s), block->words + 4 * s);
}

static void iq3_s_pack(const fitted *q, void *to) {
    tdm_block_iq3_s *block = to;
    memset(block, 0, sizeof *block);
    block->d = q->d;
    for (int i = 0; i < 64; i++) {
        block->qs[i] = (uint8_t)q->index[i];
        block->qh[i / 8] |= (uint8_t)(q->index[i] >> 8 << i % 8);
    }
    memcpy(block->signs, q->signs, sizeof block->signs);
    nibbles_pack(q->scale, 8, block->scales);
}

static void iq1_s_pack(const fitted *q, void *to) {
    tdm_block_iq1_s *block = to;
    block->d = q->d;
    for (int s = 0; s < 8; s++) {
        int high = q->scale[s] << 12 | q->signs[4 * s] << 15;
        for (int g = 0; g < 4; g++) {
            block->qs[4 * s + g] = (uint8_t)q->index[4 * s + g];
            high |= q->index[4 * s + g] >> 8 << 3 * g;
        }
        block->qh[s] = (uint16_t)high;
    }
}

static void iq1_m_pack(const fitted *q, void *to) {
    tdm_block_iq1_m *block = to;
    memset(block, 0, sizeof *block);
    for (int g = 0; g < 32; g++) {
        block->qs[g] = (uint8_t)q->index[g];
        block->qh[g / 2] |= (uint8_t)((q->index[g] >> 8 | q->signs[g] << 3) << g % 2 * 4);
    }
    for (int k = 0; k < 4; k++) {
        int word = (q->d >> 4 * k & 15) << 12;
        for (int i = 0; i < 4; i++) word |= q->scale[4 * k + i] << 3 * i;
        block->scales[2 * k] = (uint8_t)word;
        block->scales[2 * k + 1] = (uint8_t)(word >> 8);
    }
}

static void quantize(const form *f, void (*pack)(const fitted *, void *), size_t size,
                     const float *src, uint8_t *block, int64_t n, const float *importance) {
    for (int64_t start = 0; start < n; start += SUPER, block += size) {
        fitted q;
        superblock_fit(f, src + start, importance ? importance + start : NULL, &q);
        pack(&q, block);
    }
}

#define QUANTIZE_(name, grid, signs, sub_len, n_scale, base, step)                                 \
    void tdm_##name##_quantize(const float *src, void *blocks, int64_t n,                          \
                               const float *importance) {                                          \
        form f = {&tdm_grid_##grid, signs, sub_len, n_scale, base, step, {NULL}};                  \
        f.search = tdm_grid_search_get(&tdm_grid_##grid);                                          \
        quantize(&f, name##_pack, sizeof(tdm_block_##name), src, blocks, n, importance);           \
    }
QUANTIZE_(iq2_xxs, iq2_xxs, SIGNS_7, 32, 16, 0.125f, 0.25f)
QUANTIZE_(iq2_xs, iq2_xs, SIGNS_7, 16, 16, 0.125f, 0.25f)
QUANTIZE_(iq2_s, iq2_s, SIGNS_8, 16, 16, 0.125f, 0.25f)
QUANTIZE_(iq3_xxs, iq3_xxs, SIGNS_7, 32, 16, 0.25f, 0.5f)
QUANTIZE_(iq3_s, iq3_s, SIGNS_8, 32, 16, 1, 2)
QUANTIZE_(iq1_s, iq1, OFFSET_32, 32, 8, 0.125f, 0.25f)
QUANTIZE_(iq1_m, iq1, OFFSET_8, 16, 8, 0.125f, 0.25f)
#undef QUANTIZE_
