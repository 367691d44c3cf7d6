/* SPDX-License-Identifier: MIT
 *
 * made_weight.c: see made_weight.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/kernels/block_facts.h"
#include "tests/kernels/made_weight.h"
#include "tests/kernels/op_run.h"

#define MADE_FLOAT(ID) TDM_TYPE_##ID,
#define MADE_BLOCK     MADE_FLOAT
#define MADE_INTEGER(ID)
#define MADE_(ID, name, number, kind, ...) MADE_##kind(ID)
const tdm_type made_types[MADE_TYPES] = {TDM_TYPE_LIST(MADE_)};

void *made_alloc(size_t size) {
    void *p = malloc(size + 1);
    if (p == NULL) fail_msg("no memory for %zu bytes", size);
    return p;
}

static float random_unit(uint64_t *seed) {
    float x;
    op_random_fill(seed, &x, 1, 1.0f);
    return x;
}

static uint16_t scale_make(uint64_t *seed, made_kind kind) {
    switch ((int)kind) {
    case MADE_LARGEST:
    case MADE_SMALLEST: return 0x7bff; /* 65504 */
    case MADE_SUBNORMAL: return (uint16_t)(op_random_next(seed) & 0x83ff);
    case MADE_ZERO: return 0;
    default: return tdm_f32_to_f16(0.05f * random_unit(seed));
    }
}

/* The types whose scale is no f16 at an offset. */
static void mxfp4_scale_make(uint64_t *seed, made_kind kind, tdm_block_mxfp4 *block) {
    int random = (int)(op_random_next(seed) >> 40 & 3);
    switch ((int)kind) {
    case MADE_LARGEST: block->e = 127 + 14; break;
    case MADE_SMALLEST:
        block->e = 127 + 14;
        memset(block->qs, 0x77, sizeof block->qs); /* all bits clear would be zeros */
        break;
    case MADE_SUBNORMAL: block->e = (uint8_t)random; break;
    case MADE_ZERO:
        block->e = (uint8_t)(127 + random);
        memset(block->qs, 0x80, sizeof block->qs); /* zeros of both signs */
        break;
    default: block->e = (uint8_t)(127 - 6 + random);
    }
}

static void nvfp4_scales_make(uint64_t *seed, made_kind kind, tdm_block_nvfp4 *block) {
    for (int s = 0; s < 4; s++) {
        int random = (int)(op_random_next(seed) >> 40 & 7);
        switch ((int)kind) {
        case MADE_LARGEST: block->scales[s] = 0x7e; break;
        case MADE_SMALLEST:
            block->scales[s] = 0xff; /* the sign is not read, and this is no NaN */
            memset(block->qs, 0x77, sizeof block->qs);
            break;
        case MADE_SUBNORMAL: block->scales[s] = (uint8_t)random; break;
        case MADE_ZERO: block->scales[s] = random < 4 ? 0x7f : 0; break;
        default: block->scales[s] = (uint8_t)(8 + random);
        }
    }
}

static void iq1_m_scale_make(uint64_t *seed, made_kind kind, tdm_block_iq1_m *block) {
    uint16_t d = scale_make(seed, kind);
    for (int k = 0; k < 4; k++) {
        uint8_t *byte = &block->scales[2 * k + 1];
        *byte = (uint8_t)((*byte & 15) | (d >> 4 * k & 15) << 4);
    }
}

static float plain_make(uint64_t *seed, made_kind kind) {
    switch ((int)kind) {
    case MADE_LARGEST: return 65504.0f;
    case MADE_SMALLEST: return -65504.0f;
    case MADE_SUBNORMAL: return 0x1p-15f * random_unit(seed);
    case MADE_ZERO: return 0;
    default: return random_unit(seed);
    }
}

void made_weight_fill(uint64_t *seed, tdm_type type, made_kind kind, int64_t k, int64_t n_row,
                      uint8_t *rows) {
    tdm_type_info info = tdm_type_get_info(type);
    int64_t n_block = k / info.block_len * n_row;
    const made_block_facts facts = made_block_facts_of(type);
    const int *off = facts.scale_off;
    for (int64_t b = 0; b < n_block; b++, rows += info.block_size) {
        if (!info.is_quantized) {
            float x = plain_make(seed, kind);
            tdm_row_quantize(type, &x, rows, 1, NULL);
            continue;
        }
        for (int i = 0; i < info.block_size; i++) {
            uint8_t random = (uint8_t)(op_random_next(seed) >> 32);
            rows[i] = kind == MADE_LARGEST ? 0xff : kind == MADE_SMALLEST ? 0 : random;
        }
        if (kind == MADE_SMALLEST) {
            /* Codes alone are the smallest; scales keep their largest patterns. */
            if (type == TDM_TYPE_Q2_K) memset(rows, 0x0f, 16);
            if (type == TDM_TYPE_Q3_K) memset(rows + 96, 0xff, 12);
            if (type == TDM_TYPE_Q4_K || type == TDM_TYPE_Q5_K) memset(rows + 4, 0xff, 12);
            if (type == TDM_TYPE_Q6_K) memset(rows + 192, 0x80, 16);
            if (type == TDM_TYPE_Q8_0) memset(rows + 2, 0x80, 32);
        }
        if (type == TDM_TYPE_MXFP4) mxfp4_scale_make(seed, kind, (tdm_block_mxfp4 *)rows);
        if (type == TDM_TYPE_NVFP4) nvfp4_scales_make(seed, kind, (tdm_block_nvfp4 *)rows);
        if (type == TDM_TYPE_IQ1_M) iq1_m_scale_make(seed, kind, (tdm_block_iq1_m *)rows);
        for (int i = 0; i < 2 && off[i] >= 0; i++) {
            uint16_t scale = scale_make(seed, kind);
            memcpy(rows + off[i], &scale, sizeof scale);
        }
    }
}

uint8_t *made_weight_create(uint64_t *seed, tdm_type type, made_kind kind, int64_t k,
                            int64_t n_row) {
    uint8_t *rows = made_alloc(tdm_type_row_size(type, k) * (size_t)n_row);
    made_weight_fill(seed, type, kind, k, n_row, rows);
    return rows;
}

void made_weight_row(tdm_type type, const uint8_t *rows, int64_t k, int64_t row, float *out) {
    tdm_row_dequantize(type, rows + tdm_type_row_size(type, k) * (size_t)row, out, k);
}
