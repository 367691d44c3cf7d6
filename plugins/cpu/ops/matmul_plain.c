/* SPDX-License-Identifier: MIT
 *
 * matmul_plain.c: canonical quantised rows times activations of 15 or 8 bits in plain C, for
 * machines without a vector kernel. A block of any type is unpacked to signed codes of 16 bits,
 * which every compiler multiplies and adds in vectors, with a scale and a minimum for each 16
 * elements:
 *   w[i] = scale[i / 16] * code[i] - min[i / 16]
 *   y = sum over halves h of 16: d * (scale[h] * sum(code * q)) - min[h] * (d * sum q)
 * Its reference is matmul_reference.c.
 */
#include "quant/codes.h"
#include "quant/half.h"
#include "plugins/cpu/ops/matmul.h"
#include "tandem/block.h"

enum { HALF = 16, MAX_HALVES = TDM_SUPERBLOCK_LEN / HALF };

typedef struct unpacked {
    int16_t code[TDM_SUPERBLOCK_LEN];
    float scale[MAX_HALVES];
    float min[MAX_HALVES];
} unpacked;

static const int8_t iq4_values[16] = TDM_IQ4_VALUES;

static void scale_set(unpacked *u, int first, int n, float scale, float min) {
    for (int h = first; h < first + n; h++) u->scale[h] = scale, u->min[h] = min;
}

/* The 32 nibbles of 16 bytes, minus an offset. */
static void nibbles_unpack(const uint8_t *qs, int offset, int16_t *code) {
    for (int j = 0; j < 16; j++) {
        code[j] = (int16_t)((qs[j] & 15) - offset);
        code[j + 16] = (int16_t)((qs[j] >> 4) - offset);
    }
}

/* Adds 16 where the fifth bit is set. */
static void fifth_bits_add(const uint8_t *qh, int16_t *code) {
    for (int i = 0; i < 32; i++) code[i] = (int16_t)(code[i] + (qh[i / 8] >> i % 8 & 1) * 16);
}

static void codebook_unpack(const uint8_t *qs, int16_t *code) {
    for (int j = 0; j < 16; j++) {
        code[j] = iq4_values[qs[j] & 15];
        code[j + 16] = iq4_values[qs[j] >> 4];
    }
}

static void q4_0_unpack(const void *block, unpacked *u) {
    const tdm_block_q4_0 *b = block;
    scale_set(u, 0, 2, tdm_f16_to_f32(b->d), 0);
    nibbles_unpack(b->qs, 8, u->code);
}

static void q4_1_unpack(const void *block, unpacked *u) {
    const tdm_block_q4_1 *b = block;
    scale_set(u, 0, 2, tdm_f16_to_f32(b->d), -tdm_f16_to_f32(b->m));
    nibbles_unpack(b->qs, 0, u->code);
}

static void q5_0_unpack(const void *block, unpacked *u) {
    const tdm_block_q5_0 *b = block;
    scale_set(u, 0, 2, tdm_f16_to_f32(b->d), 0);
    nibbles_unpack(b->qs, 16, u->code);
    fifth_bits_add(b->qh, u->code);
}

static void q5_1_unpack(const void *block, unpacked *u) {
    const tdm_block_q5_1 *b = block;
    scale_set(u, 0, 2, tdm_f16_to_f32(b->d), -tdm_f16_to_f32(b->m));
    nibbles_unpack(b->qs, 0, u->code);
    fifth_bits_add(b->qh, u->code);
}

static void q8_0_unpack(const void *block, unpacked *u) {
    const tdm_block_q8_0 *b = block;
    scale_set(u, 0, 2, tdm_f16_to_f32(b->d), 0);
    for (int i = 0; i < 32; i++) u->code[i] = b->qs[i];
}

static void iq4_nl_unpack(const void *block, unpacked *u) {
    const tdm_block_iq4_nl *b = block;
    scale_set(u, 0, 2, tdm_f16_to_f32(b->d), 0);
    codebook_unpack(b->qs, u->code);
}

static void q2_K_unpack(const void *block, unpacked *u) {
    const tdm_block_q2_K *b = block;
    float d = tdm_f16_to_f32(b->d), dmin = tdm_f16_to_f32(b->dmin);
    for (int s = 0; s < 16; s++) {
        scale_set(u, s, 1, d * (float)(b->scales[s] & 15), dmin * (float)(b->scales[s] >> 4));
    }
    for (int run = 0; run < 8; run++) {
        const uint8_t *qs = b->qs + 32 * (run / 4);
        int16_t *code = u->code + 32 * run;
        for (int c = 0; c < 32; c++) code[c] = (int16_t)(qs[c] >> 2 * (run % 4) & 3);
    }
}

static void q3_K_unpack(const void *block, unpacked *u) {
    const tdm_block_q3_K *b = block;
    float d = tdm_f16_to_f32(b->d);
    for (int s = 0; s < 16; s++) {
        scale_set(u, s, 1, d * (float)(tdm_q3_K_scale(b->scales, s) - 32), 0);
    }
    for (int run = 0; run < 8; run++) {
        const uint8_t *qs = b->qs + 32 * (run / 4);
        int16_t *code = u->code + 32 * run;
        for (int c = 0; c < 32; c++) {
            code[c] = (int16_t)((qs[c] >> 2 * (run % 4) & 3) - 4 + (b->hmask[c] >> run & 1) * 4);
        }
    }
}

static void q4_K_unpack(const void *block, unpacked *u) {
    const tdm_block_q4_K *b = block;
    float d = tdm_f16_to_f32(b->d), dmin = tdm_f16_to_f32(b->dmin);
    for (int s = 0; s < 8; s++) {
        scale_set(u, 2 * s, 2, d * (float)tdm_q4_K_scale(b->scales, s),
                  dmin * (float)tdm_q4_K_min(b->scales, s));
    }
    for (int run = 0; run < 8; run++) {
        const uint8_t *qs = b->qs + 32 * (run / 2);
        int16_t *code = u->code + 32 * run;
        for (int c = 0; c < 32; c++) code[c] = (int16_t)(qs[c] >> 4 * (run % 2) & 15);
    }
}

static void q5_K_unpack(const void *block, unpacked *u) {
    const tdm_block_q5_K *b = block;
    float d = tdm_f16_to_f32(b->d), dmin = tdm_f16_to_f32(b->dmin);
    for (int s = 0; s < 8; s++) {
        scale_set(u, 2 * s, 2, d * (float)tdm_q4_K_scale(b->scales, s),
                  dmin * (float)tdm_q4_K_min(b->scales, s));
    }
    for (int run = 0; run < 8; run++) {
        const uint8_t *qs = b->qs + 32 * (run / 2);
        int16_t *code = u->code + 32 * run;
        for (int c = 0; c < 32; c++) {
            code[c] = (int16_t)((qs[c] >> 4 * (run % 2) & 15) | (b->qh[c] >> run & 1) << 4);
        }
    }
}

static void q6_K_unpack(const void *block, unpacked *u) {
    const tdm_block_q6_K *b = block;
    float d = tdm_f16_to_f32(b->d);
    for (int s = 0; s < 16; s++) scale_set(u, s, 1, d * (float)b->scales[s], 0);
    for (int run = 0; run < 8; run++) {
        const uint8_t *ql = b->ql + 64 * (run / 4) + 32 * (run % 2);
        const uint8_t *qh = b->qh + 32 * (run / 4);
        int shift = run % 4 / 2 * 4;
        int16_t *code = u->code + 32 * run;
        for (int c = 0; c < 32; c++) {
            int low = ql[c] >> shift & 15, high = qh[c] >> 2 * (run % 4) & 3;
            code[c] = (int16_t)((low | high << 4) - 32);
        }
    }
}

static void iq4_xs_unpack(const void *block, unpacked *u) {
    const tdm_block_iq4_xs *b = block;
    float d = tdm_f16_to_f32(b->d);
    for (int s = 0; s < 8; s++) {
        scale_set(u, 2 * s, 2, d * (float)(tdm_iq4_xs_scale(b, s) - 32), 0);
        codebook_unpack(b->qs + 16 * s, u->code + 32 * s);
    }
}

/* Of the types whose codes quant/codes.h gives. */
static void codes_unpack(tdm_codes_fn codes_get, int n, const void *block, unpacked *u) {
    int8_t code[TDM_SUPERBLOCK_LEN];
    codes_get(block, code, u->scale);
    for (int h = 0; h < n / HALF; h++) u->min[h] = 0;
    for (int i = 0; i < n; i++) u->code[i] = code[i];
}

typedef void (*unpack_fn)(const void *block, unpacked *u);

static const unpack_fn unpackers[TDM_TYPE_LIMIT_] = {
    [TDM_TYPE_Q4_0] = q4_0_unpack,     [TDM_TYPE_Q4_1] = q4_1_unpack,
    [TDM_TYPE_Q5_0] = q5_0_unpack,     [TDM_TYPE_Q5_1] = q5_1_unpack,
    [TDM_TYPE_Q8_0] = q8_0_unpack,     [TDM_TYPE_Q2_K] = q2_K_unpack,
    [TDM_TYPE_Q3_K] = q3_K_unpack,     [TDM_TYPE_Q4_K] = q4_K_unpack,
    [TDM_TYPE_Q5_K] = q5_K_unpack,     [TDM_TYPE_Q6_K] = q6_K_unpack,
    [TDM_TYPE_IQ4_NL] = iq4_nl_unpack, [TDM_TYPE_IQ4_XS] = iq4_xs_unpack,
};

/* At most 16 * 128 * 16256, far below 2^31: exact. A function of its own, because compilers that
 * see the whole loop nest take the sixteen steps apart before they could become vectors. */
__attribute__((noinline)) static int32_t half_dot(const int16_t *code, const int16_t *q) {
    int32_t sum = 0;
    for (int i = 0; i < HALF; i++) sum += code[i] * q[i];
    return sum;
}

/* Block `ix` of a token as words. */
static const int16_t *words_get(cpu_x_format format, const void *x, int64_t ix, int16_t *piece,
                                const cpu_x_scale **scale) {
    if (format == CPU_X_Q15) {
        const cpu_q15_block *block = (const cpu_q15_block *)x + ix;
        *scale = &block->s;
        return block->q;
    }
    const cpu_q8_block *block = (const cpu_q8_block *)x + ix;
    for (int c = 0; c < CPU_X_LEN; c++) piece[c] = block->q[c];
    *scale = &block->s;
    return piece;
}

static void tile_run(cpu_x_format format, const cpu_matmul_tile *tile) {
    tdm_type_info info = tdm_type_get_info(tile->type);
    unpack_fn unpack = unpackers[tile->type]; /* NULL: codes_get instead */
    tdm_codes_fn codes_get = tdm_codes_get(tile->type);
    int n_x = info.block_len / CPU_X_LEN;
    float y[CPU_MATMUL_TOK] = {0};
    const uint8_t *block = tile->group;
    for (int64_t b = 0; b < tile->n_block; b++, block += info.block_size) {
        unpacked u;
        if (unpack != NULL)
            unpack(block, &u);
        else
            codes_unpack(codes_get, info.block_len, block, &u);
        for (int32_t t = 0; t < tile->n_tok; t++) {
            const int16_t *code = u.code;
            for (int i = 0; i < n_x; i++, code += CPU_X_LEN) {
                int16_t piece[CPU_X_LEN];
                const cpu_x_scale *s;
                const int16_t *q = words_get(format, tile->x[t], b * n_x + i, piece, &s);
                float lo = u.scale[2 * i] * (float)half_dot(code, q);
                float hi = u.scale[2 * i + 1] * (float)half_dot(code + HALF, q + HALF);
                float min = u.min[2 * i] * s->half[0].sum + u.min[2 * i + 1] * s->half[1].sum;
                y[t] += s->d * (lo + hi) - min;
            }
        }
    }
    for (int32_t t = 0; t < tile->n_tok; t++) tile->y[t][0] = y[t];
}

void cpu_matmul_run_plain(const cpu_matmul_tile *tile) {
    tile_run(CPU_X_Q15, tile);
}

void cpu_matmul_run_q8_plain(const cpu_matmul_tile *tile) {
    tile_run(CPU_X_Q8, tile);
}
