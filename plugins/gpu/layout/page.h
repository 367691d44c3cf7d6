/* SPDX-License-Identifier: MIT
 *
 * page.h: how GPU plugins arrange the bytes of a cache page (kv.h). Only the emitters and the
 * kernels of the cache ops depend on it.
 *
 * Mental model. A page has one region for each KV head. A region has planes, each at a multiple of
 * 16 bytes: codes of K, scales of K, codes of V, scales of V; with V_FROM_K only K's. A plane of
 * scales ends with the fifth bits of q5_0 and q5_1. `n_slot` is page_len, but at least 4; of a
 * cache with a stride it is page_len / stride, rounded up to a power of two from 4 on. A page of
 * recurrent states has one slot: the floats of a unit lie in canonical order, and each unit begins
 * at a multiple of 16 bytes.
 *
 *   codes of K [unit][slot] of 16 bytes. A unit is the 16 code bytes of a block (q8_0: of half a
 *                block) or 16 bytes of plain elements. A thread that owns a slot computes a whole
 *                dot product, and its neighbours read the next 16 bytes.
 *   codes of V   [slot / 4][column][slot % 4]. A column is a code byte of a row (with 4- and 5-bit
 *                codes it has elements j and j + 16 of its block) or a plain element. A thread that
 *                owns a column reads four slots at once and adds slot after slot.
 *   scales       [block][slot], f16 d, or f16 d and m
 *   fifth bits   [block][slot], u32, bit i of element i
 *
 * Each slot's bytes are its own: tokens are written in any order. Rows of plain types are padded
 * with zeros to whole units.
 */
#ifndef TANDEM_GPU_PAGE_H
#define TANDEM_GPU_PAGE_H

#include "plugins/gpu/plan/target.h"
#include "tandem/kv.h"

/* The K or the V of a head. Offsets are bytes from the start of the head's region. */
typedef struct gpu_page_side {
    tdm_type type;
    int32_t head_dim;  /* elements before padding */
    int32_t padded;    /* elements of a canonical row */
    int32_t stored;    /* elements of the row as stored: `padded`, rounded up to whole units */
    int32_t n_block;   /* quantisation blocks of a row; 0 = plain type */
    int32_t n_unit;    /* units of 16 bytes of a row */
    int32_t n_column;  /* columns of a row */
    int32_t rotation;  /* elements of a Walsh-Hadamard block; 1 = not rotated */
    int32_t code_off;  /* of the plane of codes */
    int32_t scale_off; /* of the plane of scales; a plain type has none */
} gpu_page_side;

typedef struct gpu_page {
    gpu_page_side k;
    gpu_page_side v; /* with v_from_k a copy of k, with V's head_dim: V is not stored */
    bool v_from_k;
    int32_t n_head_kv;
    int32_t page_len;  /* tokens */
    int32_t stride;    /* positions that a row stands for (TDM_KV_STRIDED); else 1 */
    int32_t n_slot;    /* slots that a plane has room for */
    int32_t n_row;     /* slots that kernels use: page_len, with a stride n_slot */
    int32_t head_size; /* bytes of a region */
    int32_t page_size; /* bytes of a page */
} gpu_page;

/* The arrangement of the pages of a cache. TDM_UNSUPPORTED with the reason where this device cannot
 * have the cache; fails like tdm_kv_page_check for a wrong description. [any-thread] */
tdm_status gpu_page_get(const gpu_target *target, const tdm_kv_desc *desc, gpu_page *page_out,
                        tdm_error *err);

/* Bytes of a page: tdm_buffer_ops.kv_page_size. Fails like gpu_page_get. [any-thread] */
tdm_status gpu_page_size(const gpu_target *target, const tdm_kv_desc *desc, uint64_t *size_out,
                         tdm_error *err);

/* Copy the canonical row of a slot into a head's region, and out of it: KV_IMPORT and KV_EXPORT on
 * the host. `is_v` is false where V is part of K. [any-thread], for slots that differ */
void gpu_page_row_put(const gpu_page *page, uint8_t *region, int32_t slot, bool is_v,
                      const uint8_t *row);
void gpu_page_row_get(const gpu_page *page, const uint8_t *region, int32_t slot, bool is_v,
                      uint8_t *row);

#endif
