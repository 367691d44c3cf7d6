/* SPDX-License-Identifier: MIT
 *
 * matmul_plain.c: canonical quantised rows times 8-bit activations in plain C, for machines whose
 * vectors we have no kernel for. A block is unpacked to signed bytes with a scale and a minimum for
 * each 16 elements, whatever its type:
 *   w[i] = scale[i / 16] * code[i] - min[i / 16]
 *   y = sum over halves h of 16: d * (scale[h] * sum(code * q)) - min[h] * (d * sum q)
 * Its reference is matmul_reference.c.
 */
#include "core/base/half.h"
#include "plugins/cpu/matmul.h"
#include "tandem/block.h"

enum { HALF = 16, MAX_HALVES = TDM_SUPERBLOCK_LEN / HALF };

typedef struct unpacked {
    int8_t code[TDM_SUPERBLOCK_LEN];
    float scale[MAX_HALVES];
    float min[MAX_HALVES];
} unpacked;

static const int8_t iq4_values[16] = TDM_IQ4_VALUES;

static void scale_set(unpacked *u, int first, int n, float scale, float min) {
    for (int h = first; h < first + n; h++) u->scale[h] = scale, u->min[h] = min;
}

/* The 32 nibbles of 16 bytes, minus an offset. */
static void nibbles_unpack(const uint8_t *qs, int offset, int8_t *code) {
    for (int j = 0; j < 16; j++) {
        code[j] = (int8_t)((qs[j] & 15) - offset);
        code[j + 16] = (int8_t)((qs[j] >> 4) - offset);
    }
}

/* Adds 16 where the fifth bit is set. */
static void fifth_bits_add(const uint8_t *qh, int8_t *code) {
    for (int i = 0; i < 32; i++) code[i] = (int8_t)(code[i] + (qh[i / 8] >> i % 8 & 1) * 16);
}

static void codebook_unpack(const uint8_t *qs, int8_t *code) {
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
    for (int i = 0; i < 256; i++) {
        u->code[i] = (int8_t)(b->qs[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3);
    }
}

static void q3_K_unpack(const void *block, unpacked *u) {
    const tdm_block_q3_K *b = block;
    float d = tdm_f16_to_f32(b->d);
    for (int s = 0; s < 16; s++) {
        scale_set(u, s, 1, d * (float)(tdm_q3_K_scale(b->scales, s) - 32), 0);
    }
    for (int i = 0; i < 256; i++) {
        int low = b->qs[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
        u->code[i] = (int8_t)(low - 4 + (b->hmask[i % 32] >> i / 32 & 1) * 4);
    }
}

static void q4_K_unpack(const void *block, unpacked *u) {
    const tdm_block_q4_K *b = block;
    float d = tdm_f16_to_f32(b->d), dmin = tdm_f16_to_f32(b->dmin);
    for (int s = 0; s < 8; s++) {
        scale_set(u, 2 * s, 2, d * (float)tdm_q4_K_scale(b->scales, s),
                  dmin * (float)tdm_q4_K_min(b->scales, s));
    }
    for (int i = 0; i < 256; i++) {
        u->code[i] = (int8_t)(b->qs[32 * (i / 64) + i % 32] >> i % 64 / 32 * 4 & 15);
    }
}

static void q5_K_unpack(const void *block, unpacked *u) {
    const tdm_block_q5_K *b = block;
    float d = tdm_f16_to_f32(b->d), dmin = tdm_f16_to_f32(b->dmin);
    for (int s = 0; s < 8; s++) {
        scale_set(u, 2 * s, 2, d * (float)tdm_q4_K_scale(b->scales, s),
                  dmin * (float)tdm_q4_K_min(b->scales, s));
    }
    for (int i = 0; i < 256; i++) {
        int low = b->qs[32 * (i / 64) + i % 32] >> i % 64 / 32 * 4 & 15;
        u->code[i] = (int8_t)(low | (b->qh[i % 32] >> i / 32 & 1) << 4);
    }
}

static void q6_K_unpack(const void *block, unpacked *u) {
    const tdm_block_q6_K *b = block;
    float d = tdm_f16_to_f32(b->d);
    for (int s = 0; s < 16; s++) scale_set(u, s, 1, d * (float)b->scales[s], 0);
    for (int i = 0; i < 256; i++) {
        int low = b->ql[64 * (i / 128) + i % 64] >> i % 128 / 64 * 4 & 15;
        int high = b->qh[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
        u->code[i] = (int8_t)((low | high << 4) - 32);
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

typedef void (*unpack_fn)(const void *block, unpacked *u);

static const unpack_fn unpackers[TDM_TYPE_LIMIT_] = {
    [TDM_TYPE_Q4_0] = q4_0_unpack,     [TDM_TYPE_Q4_1] = q4_1_unpack,
    [TDM_TYPE_Q5_0] = q5_0_unpack,     [TDM_TYPE_Q5_1] = q5_1_unpack,
    [TDM_TYPE_Q8_0] = q8_0_unpack,     [TDM_TYPE_Q2_K] = q2_K_unpack,
    [TDM_TYPE_Q3_K] = q3_K_unpack,     [TDM_TYPE_Q4_K] = q4_K_unpack,
    [TDM_TYPE_Q5_K] = q5_K_unpack,     [TDM_TYPE_Q6_K] = q6_K_unpack,
    [TDM_TYPE_IQ4_NL] = iq4_nl_unpack, [TDM_TYPE_IQ4_XS] = iq4_xs_unpack,
};

/* At most 16 * 128 * 127: exact. */
static int32_t half_dot(const int8_t *code, const int8_t *q) {
    int32_t sum = 0;
    for (int i = 0; i < HALF; i++) sum += code[i] * q[i];
    return sum;
}

void cpu_matmul_run_plain(const cpu_matmul_tile *tile) {
    tdm_type_info info = tdm_type_get_info(tile->type);
    unpack_fn unpack = unpackers[tile->type];
    int n_half = info.block_len / HALF;
    float y[CPU_MATMUL_TOK] = {0};
    const uint8_t *block = tile->group;
    for (int64_t b = 0; b < tile->n_block; b++, block += info.block_size) {
        unpacked u;
        unpack(block, &u);
        for (int32_t t = 0; t < tile->n_tok; t++) {
            const cpu_q8_block *x = (const cpu_q8_block *)tile->x[t] + b * (n_half / 2);
            for (int h = 0; h < n_half; h++) {
                const cpu_q8_block *xh = x + h / 2;
                float dot = (float)half_dot(u.code + HALF * h, xh->q + HALF * (h % 2));
                y[t] += xh->d * (u.scale[h] * dot) - u.min[h] * xh->half[h % 2].sum;
            }
        }
    }
    for (int32_t t = 0; t < tile->n_tok; t++) tile->y[t][0] = y[t];
}
