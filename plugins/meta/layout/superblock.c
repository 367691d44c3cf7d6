/* SPDX-License-Identifier: MIT
 *
 * superblock.c: which bits of a superblock belong to which elements (tandem/block.h), and two
 * operations that use this: masking elements and joining parts.
 *
 * The bits of a block are of three kinds: scale and minimum of a sub-block, code of an element, and
 * bits of the whole block. Both operations process units of 32 elements, the unit of a cut. In
 * types with sub-blocks of 16 a unit is a pair of sub-blocks.
 */
#include "plugins/meta/layout/superblock.h"

#include <stddef.h>
#include <string.h>

#include "tandem/block.h"

enum { UNIT = META_SUPERBLOCK_UNIT };

bool meta_superblock_is_cuttable(tdm_type type) {
    switch ((int)type) {
    case TDM_TYPE_Q2_K:
    case TDM_TYPE_Q3_K:
    case TDM_TYPE_Q4_K:
    case TDM_TYPE_Q5_K:
    case TDM_TYPE_Q6_K:
    case TDM_TYPE_IQ4_XS: return true;
    default: return false;
    }
}

/* Replaces the bits of *at that `mask` names. */
static void bits_set(uint8_t *at, unsigned mask, unsigned bits) {
    *at = (uint8_t)((*at & ~mask) | (bits & mask));
}

/* ---- Scales ----------------------------------------------------------------------------------
 * scales_copy(dst, src, u): sets the scale and minimum bits of elements 32 * u .. 32 * u + 31 to
 * those of src. With src NULL it sets them so that the elements dequantise to 0. */

static void q2_K_scales_copy(tdm_block_q2_K *dst, const tdm_block_q2_K *src, int u) {
    for (int s = 2 * u; s < 2 * u + 2; s++) dst->scales[s] = src != NULL ? src->scales[s] : 0;
}

/* The stored scale 32 means 0: its low four bits are 0, its high two bits are 2. */
static void q3_K_scales_copy(tdm_block_q3_K *dst, const tdm_block_q3_K *src, int u) {
    for (int s = 2 * u; s < 2 * u + 2; s++) {
        const int low = s % 8, low_shift = s < 8 ? 0 : 4;
        const int high = 8 + s % 4, high_shift = 2 * (s / 4);
        bits_set(&dst->scales[low], 15u << low_shift, src != NULL ? src->scales[low] : 0);
        bits_set(&dst->scales[high], 3u << high_shift,
                 src != NULL ? src->scales[high] : 2u << high_shift);
    }
}

/* q4_K and q5_K. */
static void q4_K_scales_copy(uint8_t dst[12], const uint8_t *src, int u) {
    if (u < 4) {
        bits_set(&dst[u], 63, src != NULL ? src[u] : 0);
        bits_set(&dst[u + 4], 63, src != NULL ? src[u + 4] : 0);
    } else {
        dst[u + 4] = src != NULL ? src[u + 4] : 0;
        bits_set(&dst[u - 4], 3u << 6, src != NULL ? src[u - 4] : 0);
        bits_set(&dst[u], 3u << 6, src != NULL ? src[u] : 0);
    }
}

static void q6_K_scales_copy(tdm_block_q6_K *dst, const tdm_block_q6_K *src, int u) {
    for (int s = 2 * u; s < 2 * u + 2; s++) dst->scales[s] = src != NULL ? src->scales[s] : 0;
}

/* As in q3_K, the stored scale 32 means 0. */
static void iq4_xs_scales_copy(tdm_block_iq4_xs *dst, const tdm_block_iq4_xs *src, int u) {
    const unsigned high = 3u << 2 * u;
    bits_set(&dst->scales_l[u / 2], 15u << 4 * (u % 2), src != NULL ? src->scales_l[u / 2] : 0);
    dst->scales_h =
        (uint16_t)((dst->scales_h & ~high) | ((src != NULL ? src->scales_h : 2u << 2 * u) & high));
}

/* dst and src may be equal; then nothing changes. */
static void scales_copy(tdm_type type, void *dst, const void *src, int u) {
    tdm_block_q4_K *q4 = dst;
    const tdm_block_q4_K *from4 = src;
    tdm_block_q5_K *q5 = dst;
    const tdm_block_q5_K *from5 = src;
    switch ((int)type) {
    case TDM_TYPE_Q2_K: q2_K_scales_copy(dst, src, u); break;
    case TDM_TYPE_Q3_K: q3_K_scales_copy(dst, src, u); break;
    case TDM_TYPE_Q4_K: q4_K_scales_copy(q4->scales, src != NULL ? from4->scales : NULL, u); break;
    case TDM_TYPE_Q5_K: q4_K_scales_copy(q5->scales, src != NULL ? from5->scales : NULL, u); break;
    case TDM_TYPE_Q6_K: q6_K_scales_copy(dst, src, u); break;
    case TDM_TYPE_IQ4_XS: iq4_xs_scales_copy(dst, src, u); break;
    default: break;
    }
}

/* ---- Codes ------------------------------------------------------------------------------------
 * In every type the 32 elements of a unit lie in the same bits of 32 consecutive bytes, or (iq4_xs)
 * fill 16 bytes. */

static void bytes_copy(uint8_t *dst, const uint8_t *src, unsigned mask) {
    for (int i = 0; i < UNIT; i++) bits_set(&dst[i], mask, src[i]);
}

/* Two bits for each element, in halves of 128: q2_K's codes, the low part of q3_K's, and the high
 * part of q6_K's. */
static void quarters_copy(uint8_t *dst, const uint8_t *src, int u) {
    const size_t at = (size_t)32 * (size_t)(u / 4);
    bytes_copy(dst + at, src + at, 3u << 2 * (u % 4));
}

/* Four bits for each element, in pairs of units: q4_K and q5_K. */
static void nibbles_copy(uint8_t *dst, const uint8_t *src, int u) {
    const size_t at = (size_t)32 * (size_t)(u / 2);
    bytes_copy(dst + at, src + at, 15u << 4 * (u % 2));
}

static void codes_copy(tdm_type type, void *dst, const void *src, int u) {
    switch ((int)type) {
    case TDM_TYPE_Q2_K:
        quarters_copy(((tdm_block_q2_K *)dst)->qs, ((const tdm_block_q2_K *)src)->qs, u);
        break;
    case TDM_TYPE_Q3_K:
        quarters_copy(((tdm_block_q3_K *)dst)->qs, ((const tdm_block_q3_K *)src)->qs, u);
        bytes_copy(((tdm_block_q3_K *)dst)->hmask, ((const tdm_block_q3_K *)src)->hmask, 1u << u);
        break;
    case TDM_TYPE_Q4_K:
        nibbles_copy(((tdm_block_q4_K *)dst)->qs, ((const tdm_block_q4_K *)src)->qs, u);
        break;
    case TDM_TYPE_Q5_K:
        nibbles_copy(((tdm_block_q5_K *)dst)->qs, ((const tdm_block_q5_K *)src)->qs, u);
        bytes_copy(((tdm_block_q5_K *)dst)->qh, ((const tdm_block_q5_K *)src)->qh, 1u << u);
        break;
    case TDM_TYPE_Q6_K: {
        tdm_block_q6_K *to = dst;
        const tdm_block_q6_K *from = src;
        const int k = u % 4; /* quarter of the half */
        const size_t at = (size_t)(64 * (u / 4) + 32 * (k % 2));
        bytes_copy(to->ql + at, from->ql + at, 15u << 4 * (k / 2));
        quarters_copy(to->qh, from->qh, u);
        break;
    }
    case TDM_TYPE_IQ4_XS:
        memcpy(((tdm_block_iq4_xs *)dst)->qs + 16 * u, ((const tdm_block_iq4_xs *)src)->qs + 16 * u,
               16);
        break;
    default: break;
    }
}

/* Copies the bits of the whole block: its scales. */
static void shared_copy(tdm_type type, void *dst, const void *src) {
    size_t off = 0, size = sizeof(tdm_f16);
    switch ((int)type) {
    case TDM_TYPE_Q2_K:
        off = offsetof(tdm_block_q2_K, d);
        size = 2 * sizeof(tdm_f16);
        break;
    case TDM_TYPE_Q3_K: off = offsetof(tdm_block_q3_K, d); break;
    case TDM_TYPE_Q4_K:
    case TDM_TYPE_Q5_K: size = 2 * sizeof(tdm_f16); break;
    case TDM_TYPE_Q6_K: off = offsetof(tdm_block_q6_K, d); break;
    case TDM_TYPE_IQ4_XS: break;
    default: return;
    }
    memcpy((char *)dst + off, (const char *)src + off, size);
}

/* ---- Masking and joining ---- */

void meta_superblock_mask(tdm_type type, void *block, int lo, int hi) {
    for (int u = 0; u < TDM_SUPERBLOCK_LEN / UNIT; u++)
        if (UNIT * u < lo || UNIT * u >= hi) scales_copy(type, block, NULL, u);
}

void meta_superblock_join(tdm_type type, void *dst, const void *src, int lo, int hi) {
    shared_copy(type, dst, src);
    for (int u = lo / UNIT; u < hi / UNIT; u++) {
        scales_copy(type, dst, src, u);
        codes_copy(type, dst, src, u);
    }
}
