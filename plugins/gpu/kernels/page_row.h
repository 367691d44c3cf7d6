/* SPDX-License-Identifier: MIT
 *
 * page_row.h: a row of K or V in shared memory (page_rotate.h): its quantisation, to the bits that
 * quant/ gives, and storing it in a page. All threads of the workgroup call the functions that
 * begin with row_ together, except row_byte().
 */
#ifndef TANDEM_GPU_PAGE_ROW_H
#define TANDEM_GPU_PAGE_ROW_H

#include "exact.h"
#include "iq4.h"
#include "page_rotate.h"

struct PageRow : PageRotate {
    inline PageRow(const Args &args_, int row_len)
        : PageRotate(args_, row_len), row_code(shared_take<uint>(row_len)),
          row_scale(shared_take<uint>((row_len + 31) / 32)), fit_xv(shared_take<float>(64)),
          fit_vv(shared_take<float>(64)) {}

    uint *row_code;  // [row_len] codes; of plain types the bits of the elements
    uint *row_scale; // [blocks] f16 d, in the high half f16 m
    float *fit_xv;
    float *fit_vv;

    // ---- Scales and codes ----

    // Elements are limited to this magnitude, so that scale and minimum are finite f16.
    inline float fit_limit(int type) {
        return type == TYPE_Q8_0   ? 65504.0f * 127.0f
               : type == TYPE_Q5_0 ? 65504.0f * 16.0f
               : type == TYPE_Q4_0 ? 65504.0f * 8.0f
                                   : 65504.0f;
    }

    // 1 / d; 0 where d is 0 or a denormal.
    inline float block_reciprocal(float d) {
        return abs(d) >= bits_to_float(0x00800000u) ? exact_div(1.0f, d) : 0.0f;
    }

    // The element of largest magnitude, with its sign; the first of several.
    inline float block_peak(int start) {
        float peak = 0.0f, magnitude = 0.0f;
        for (int i = 0; i < 32; i++) {
            float x = row_x[start + i];
            if (abs(x) > magnitude) {
                magnitude = abs(x);
                peak = x;
            }
        }
        return peak;
    }

    inline uint block_round(float x, float base, float inverse, float offset, int hi) {
        float scaled = (x - base) * inverse;
        float shifted = scaled + (offset + 0.5f);
        return uint(min(int(shifted), hi));
    }

    // row_code and row_scale of elements first .. first + n - 1, for the types whose scale follows
    // from the block's range.
    inline void row_codes_by_range(int type, int first, int n) {
        for (int i = first + row_thread(); i < first + n; i += row_group()) {
            int start = i / 32 * 32;
            uint scale = 0u;
            if (type_has_min(type)) {
                int hi = type == TYPE_Q4_1 ? 15 : 31;
                float lo_x = row_x[start], hi_x = lo_x;
                for (int k = 1; k < 32; k++) {
                    float x = row_x[start + k];
                    lo_x = x < lo_x ? x : lo_x;
                    hi_x = x > hi_x ? x : hi_x;
                }
                float range = hi_x - lo_x;
                float d = exact_div(range, float(hi));
                row_code[i] = block_round(row_x[i], lo_x, block_reciprocal(d), 0.0f, hi);
                scale = exact_to_f16(d) | exact_to_f16(lo_x) << 16;
            } else if (type == TYPE_Q8_0) {
                float d = exact_div(abs(block_peak(start)), 127.0f);
                float scaled = row_x[i] * block_reciprocal(d);
                int whole = int(scaled);
                float rest = scaled - float(whole);
                row_code[i] = uint(whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0)) & 255u;
                scale = exact_to_f16(d);
            } else {
                float offset = type == TYPE_Q4_0 ? 8.0f : 16.0f;
                float d = block_peak(start) * (type == TYPE_Q4_0 ? -0.125f : -0.0625f);
                row_code[i] =
                    block_round(row_x[i], 0.0f, block_reciprocal(d), offset, 2 * int(offset) - 1);
                scale = exact_to_f16(d);
            }
            if (i == start) row_scale[i / 32] = scale;
        }
    }

    // ---- iq4_nl: the search of quant/fit.c ----

    // The middle between levels k and k + 1, and what lies between both; k is a constant.
    inline float iq4_mid(int k) { return 0.5f * (iq4_level(k) + iq4_level(k + 1)); }
    inline float iq4_step(int k) { return iq4_level(k + 1) - iq4_level(k); }

    // The level nearest to x, the lower one of two, and its code.
    inline float iq4_nearest(float x) {
        float level = iq4_level(0);
        UNROLL for (int k = 0; k < 15; k++) level += x > iq4_mid(k) ? iq4_step(k) : 0.0f;
        return level;
    }
    inline uint iq4_code(float x) {
        uint code = 0u;
        UNROLL for (int k = 0; k < 15; k++) code += x > iq4_mid(k) ? 1u : 0u;
        return code;
    }

    inline float fit_reciprocal(float scale) {
        return abs(scale) > 1e-30f ? exact_div(1.0f, scale) : 0.0f;
    }

    // The sums of w x v and of w v^2 over a block, with the levels v nearest to x * inverse. In
    // eight partial sums, in the order of quant/fit.c.
    inline vec2 fit_sums(int start, float rms, float inverse) {
        float xv[8], vv[8];
        UNROLL for (int k = 0; k < 8; k++) xv[k] = vv[k] = 0.0f;
        for (int i = 0; i < 32; i += 8) {
            UNROLL for (int k = 0; k < 8; k++) {
                float x = row_x[start + i + k];
                float w = rms + abs(x);
                float at = x * inverse;
                float v = iq4_nearest(at);
                float wv = w * v;
                float wvx = wv * x, wvv = wv * v;
                xv[k] = xv[k] + wvx;
                vv[k] = vv[k] + wvv;
            }
        }
        float sum_xv = 0.0f, sum_vv = 0.0f;
        UNROLL for (int k = 0; k < 8; k++) {
            sum_xv = sum_xv + xv[k];
            sum_vv = sum_vv + vv[k];
        }
        return vec2(sum_xv, sum_vv);
    }

    // Compares a candidate, given its sums, with the best so far. Where it is better, gain and
    // scale become its own, and the result is true.
    inline bool fit_take(vec2 sums, float &gain, float &scale) {
        float square = sums.x * sums.x, least = gain * sums.y;
        if (sums.y <= 0.0f || square <= least) return false;
        gain = exact_div(square, sums.y);
        scale = exact_div(sums.x, sums.y);
        return true;
    }

    // The first 34 candidates of a block are summed in parallel, one by each thread; one thread
    // chooses.
    inline void row_codes_by_search(int first, int n) {
        const int N_STEP = 17;
        for (int start = first; start < first + n; start += 32) {
            float squares = 0.0f;
            for (int i = 0; i < 32; i++) {
                float square = row_x[start + i] * row_x[start + i];
                squares = squares + square;
            }
            float rms = exact_sqrt(squares * 0.03125f), peak = block_peak(start);
            bool is_zero = abs(peak) <= 1e-30f;
            for (int c = row_thread(); c < 2 * N_STEP && !is_zero; c += row_group()) {
                float level =
                    (c < N_STEP ? -127.0f : 113.0f) + 1.5f * float(c % N_STEP - N_STEP / 2);
                vec2 sums = fit_sums(start, rms, exact_div(level, peak));
                fit_xv[c] = sums.x;
                fit_vv[c] = sums.y;
            }
            barrier();
            if (row_thread() == 0) {
                float gain = 0.0f, scale = is_zero ? 0.0f : exact_div(peak, -127.0f);
                for (int c = 0; c < 2 * N_STEP && !is_zero; c++)
                    fit_take(vec2(fit_xv[c], fit_vv[c]), gain, scale);
                for (int turn = 0; turn < 2 && !is_zero; turn++)
                    if (!fit_take(fit_sums(start, rms, fit_reciprocal(scale)), gain, scale)) break;
                row_scale[start / 32] = exact_to_f16(clamp(scale, -65504.0f, 65504.0f));
            }
            barrier();
            float inverse = fit_reciprocal(exact_from_f16(row_scale[start / 32]));
            for (int i = start + row_thread(); i < start + 32; i += row_group()) {
                float at = row_x[i] * inverse;
                row_code[i] = iq4_code(at);
            }
            barrier();
        }
    }

    // row_code and row_scale of elements first .. first + n - 1, whole blocks, from row_x. It
    // changes row_x for types with blocks: elements are limited to what the type can express, NaN
    // becomes 0. It begins and ends with a barrier.
    inline void row_quantize(int type, int first, int n) {
        barrier();
        if (type_is_plain(type)) {
            for (int i = first + row_thread(); i < first + n; i += row_group())
                row_code[i] = type == TYPE_F32   ? float_to_bits(row_x[i])
                              : type == TYPE_F16 ? exact_to_f16(row_x[i])
                                                 : exact_to_bf16(row_x[i]);
        } else {
            float limit = fit_limit(type);
            for (int i = first + row_thread(); i < first + n; i += row_group()) {
                float x = row_x[i];
                row_x[i] = is_nan(x) ? 0.0f : x > limit ? limit : x < -limit ? -limit : x;
            }
            barrier();
            if (type == TYPE_IQ4_NL)
                row_codes_by_search(first, n);
            else
                row_codes_by_range(type, first, n);
        }
        barrier();
    }

    // ---- Into a page ----

    // The byte of codes of a column.
    inline uint row_byte(int type, int column) {
        if (type == TYPE_Q8_0) return row_code[column];
        int i = column / 16 * 32 + column % 16;
        return row_code[i] & 15u | (row_code[i + 16] & 15u) << 4;
    }

    inline void row_store_scales(int type, u64 plane, int slot, int n_block, int first, int n) {
        int n_slot = page_slots();
        u64 fifth = plane + page_fifth(type, n_block);
        for (int b = first / 32 + row_thread(); b < (first + n) / 32; b += row_group()) {
            uint at = uint(b * n_slot + slot);
            if (type_has_min(type))
                U32(plane).at[at] = row_scale[b];
            else
                U16(plane).at[at] = u16(row_scale[b]);
            if (!type_has_fifth(type)) continue;
            uint bits = 0u;
            for (int i = 0; i < 32; i++) bits |= (row_code[32 * b + i] >> 4 & 1u) << i;
            U32(fifth).at[at] = bits;
        }
    }

    // Stores elements first .. first + n - 1 of a K row of dim elements in a slot: whole units of
    // 16 bytes.
    inline void row_store_k(int type, int dim, u64 region, int slot, int first, int n) {
        int n_slot = page_slots(), per_word = type == TYPE_F32 ? 1 : type_is_plain(type) ? 2 : 4;
        bool is_halved = !type_is_plain(type) && type != TYPE_Q8_0; // two elements in a column
        int begin = is_halved ? first / 2 : first, end = begin + (is_halved ? n / 2 : n);
        for (int w = begin / per_word + row_thread(); w < end / per_word; w += row_group()) {
            uint word = 0u;
            if (type == TYPE_F32)
                word = row_code[w];
            else if (type_is_plain(type))
                word = row_code[2 * w] | row_code[2 * w + 1] << 16;
            else
                for (int i = 0; i < 4; i++) word |= row_byte(type, 4 * w + i) << 8 * i;
            U32(region).at[uint((w / 4 * n_slot + slot) * 4 + w % 4)] = word;
        }
        if (!type_is_plain(type))
            row_store_scales(type, region + page_k_scale(), slot, row_blocks(type, dim), first, n);
    }

    // Stores a whole V row of dim elements in a slot.
    inline void row_store_v(int type, int dim, u64 region, int slot) {
        int n_column = row_columns(type, dim);
        u64 codes = region + page_v_code();
        for (int c = row_thread(); c < n_column; c += row_group()) {
            uint at = uint((slot / 4 * n_column + c) * 4 + slot % 4);
            if (type == TYPE_F32)
                U32(codes).at[at] = row_code[c];
            else if (type_is_plain(type))
                U16(codes).at[at] = u16(row_code[c]);
            else
                U8(codes).at[at] = u8(row_byte(type, c));
        }
        if (!type_is_plain(type))
            row_store_scales(type, region + page_v_scale(), slot, row_blocks(type, dim), 0,
                             row_stored(type, dim));
    }
};

#endif
