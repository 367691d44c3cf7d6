// SPDX-License-Identifier: MIT
//
// page_row.glsl: a row of K or V in shared memory (page_rotate.glsl): quantises it to the codes
// that quant/ chooses, bit for bit, and stores it to a page. Every function of the row must be
// reached by all threads. The includer defines the constants ROW_TYPE_K and ROW_TYPE_V: `type` is
// one of them, and code for other types is left out.
#include "iq4.glsl"
#include "number.glsl"
#include "page_rotate.glsl"

bool row_is(int type, int that) {
    return (ROW_TYPE_K == that || ROW_TYPE_V == that) && type == that;
}
bool row_is_plain(int type) {
    return row_is(type, TYPE_F32) || row_is(type, TYPE_F16) || row_is(type, TYPE_BF16);
}
bool row_has_min(int type) {
    return row_is(type, TYPE_Q4_1) || row_is(type, TYPE_Q5_1);
}

shared uint row_code[ROW_LEN];              // of plain types the element's bits
shared uint row_scale[(ROW_LEN + 31) / 32]; // f16 d, in the high half f16 m
shared float fit_xv[64]; // fit_sums of each candidate
shared float fit_vv[64];

// ---- Scales and codes ----

float fit_limit(int type) {
    return type == TYPE_Q8_0 ? 65504.0 * 127.0
           : type == TYPE_Q5_0 ? 65504.0 * 16.0
           : type == TYPE_Q4_0 ? 65504.0 * 8.0 : 65504.0;
}

float block_reciprocal(float d) {
    return abs(d) >= uintBitsToFloat(0x00800000u) ? exact_div(1.0, d) : 0.0;
}

// The element of largest magnitude, with its sign; the first of several.
float block_peak(int start) {
    float peak = 0.0, magnitude = 0.0;
    for (int i = 0; i < 32; i++) {
        float x = row_x[start + i];
        if (abs(x) > magnitude) {
            magnitude = abs(x);
            peak = x;
        }
    }
    return peak;
}

uint block_round(float x, float base, float inverse, float offset, int hi) {
    precise float scaled = (x - base) * inverse;
    precise float shifted = scaled + (offset + 0.5);
    return uint(min(int(shifted), hi));
}

// Elements first .. first + n - 1 of the types whose scale follows from the block's range.
void row_codes_by_range(int type, int first, int n) {
    for (int i = first + row_thread(); i < first + n; i += ROW_GROUP) {
        int start = i / 32 * 32;
        uint scale = 0u;
        if (row_has_min(type)) {
            int hi = type == TYPE_Q4_1 ? 15 : 31;
            float lo_x = row_x[start], hi_x = lo_x;
            for (int k = 1; k < 32; k++) {
                float x = row_x[start + k];
                lo_x = x < lo_x ? x : lo_x;
                hi_x = x > hi_x ? x : hi_x;
            }
            precise float range = hi_x - lo_x;
            float d = exact_div(range, float(hi));
            row_code[i] = block_round(row_x[i], lo_x, block_reciprocal(d), 0.0, hi);
            scale = exact_to_f16(d) | exact_to_f16(lo_x) << 16;
        } else if (row_is(type, TYPE_Q8_0)) {
            float d = exact_div(abs(block_peak(start)), 127.0);
            precise float scaled = row_x[i] * block_reciprocal(d);
            int whole = int(scaled);
            precise float rest = scaled - float(whole);
            row_code[i] = uint(whole + (rest >= 0.5 ? 1 : 0) - (rest <= -0.5 ? 1 : 0)) & 255u;
            scale = exact_to_f16(d);
        } else if (row_is(type, TYPE_Q4_0) || row_is(type, TYPE_Q5_0)) {
            float offset = type == TYPE_Q4_0 ? 8.0 : 16.0;
            precise float d = block_peak(start) * (type == TYPE_Q4_0 ? -0.125 : -0.0625);
            row_code[i] =
                block_round(row_x[i], 0.0, block_reciprocal(d), offset, 2 * int(offset) - 1);
            scale = exact_to_f16(d);
        }
        if (i == start) row_scale[i / 32] = scale;
    }
}

// ---- iq4_nl: the search of quant/fit.c ----

// From a level to the next, and the middle between both.
#define IQ4_STEP(k)  (IQ4_LEVEL(k + 1) - IQ4_LEVEL(k))
#define IQ4_MID(k)   (0.5 * (IQ4_LEVEL(k) + IQ4_LEVEL(k + 1)))
#define IQ4_EACH(f)                                                                                \
    float[15](f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12),     \
              f(13), f(14))
const float IQ4_STEPS[15] = IQ4_EACH(IQ4_STEP);
const float IQ4_MIDS[15] = IQ4_EACH(IQ4_MID);

// The levels nearest to x; the lower one of two. Of four numbers at once: drivers take long for the
// code of each by itself, also where another type needs none of it.
vec4 iq4_nearest(vec4 x) {
    vec4 level = vec4(IQ4_LEVEL(0));
    [[unroll]] for (int k = 0; k < 15; k++)
        level += mix(vec4(0.0), vec4(IQ4_STEPS[k]), greaterThan(x, vec4(IQ4_MIDS[k])));
    return level;
}

// The code of the level nearest to x.
uint iq4_code(float x) {
    uint code = 0u;
    [[unroll]] for (int k = 0; k < 15; k++) code += x > IQ4_MIDS[k] ? 1u : 0u;
    return code;
}

float fit_reciprocal(float scale) {
    return abs(scale) > 1e-30 ? exact_div(1.0, scale) : 0.0;
}

// sum w x v and sum w v^2 for the levels v nearest to x * inverse, in eight partial sums.
vec2 fit_sums(int start, float rms, float inverse) {
    precise vec4 xv[2], vv[2];
    [[unroll]] for (int h = 0; h < 2; h++) xv[h] = vv[h] = vec4(0.0);
    for (int i = start; i < start + 32; i += 8) {
        [[unroll]] for (int h = 0; h < 2; h++) {
            int at = i + 4 * h;
            vec4 x = vec4(row_x[at], row_x[at + 1], row_x[at + 2], row_x[at + 3]);
            precise vec4 w = vec4(rms) + abs(x);
            precise vec4 scaled = x * inverse;
            precise vec4 v = iq4_nearest(scaled);
            precise vec4 wv = w * v;
            precise vec4 wvx = wv * x, wvv = wv * v;
            xv[h] = xv[h] + wvx;
            vv[h] = vv[h] + wvv;
        }
    }
    precise float sum_xv = 0.0, sum_vv = 0.0;
    [[unroll]] for (int k = 0; k < 8; k++) {
        sum_xv = sum_xv + xv[k / 4][k % 4];
        sum_vv = sum_vv + vv[k / 4][k % 4];
    }
    return vec2(sum_xv, sum_vv);
}

// Takes the sums of one candidate: gain and scale become its own where they are better.
bool fit_take(vec2 sums, inout float gain, inout float scale) {
    precise float square = sums.x * sums.x, least = gain * sums.y;
    if (sums.y <= 0.0 || square <= least) return false;
    gain = exact_div(square, sums.y);
    scale = exact_div(sums.x, sums.y);
    return true;
}

// Codes and scales of elements first .. first + n - 1 of iq4_nl. A thread each sums the first 34
// candidates of a block; then one thread chooses the scale.
void row_codes_by_search(int first, int n) {
    const int N_STEP = 17;
    for (int start = first; start < first + n; start += 32) {
        precise float squares = 0.0;
        for (int i = 0; i < 32; i++) {
            precise float square = row_x[start + i] * row_x[start + i];
            squares = squares + square;
        }
        float rms = exact_sqrt(squares * 0.03125), peak = block_peak(start);
        bool is_zero = abs(peak) <= 1e-30;
        for (int c = row_thread(); c < 2 * N_STEP && !is_zero; c += ROW_GROUP) {
            float level = (c < N_STEP ? -127.0 : 113.0) + 1.5 * float(c % N_STEP - N_STEP / 2);
            vec2 sums = fit_sums(start, rms, exact_div(level, peak));
            fit_xv[c] = sums.x;
            fit_vv[c] = sums.y;
        }
        barrier();
        if (row_thread() == 0) {
            float gain = 0.0, scale = is_zero ? 0.0 : exact_div(peak, -127.0);
            for (int c = 0; c < 2 * N_STEP && !is_zero; c++)
                fit_take(vec2(fit_xv[c], fit_vv[c]), gain, scale);
            for (int turn = 0; turn < 2 && !is_zero; turn++)
                if (!fit_take(fit_sums(start, rms, fit_reciprocal(scale)), gain, scale)) break;
            row_scale[start / 32] = exact_to_f16(clamp(scale, -65504.0, 65504.0));
        }
        barrier();
        float inverse = fit_reciprocal(exact_from_f16(row_scale[start / 32]));
        for (int i = start + row_thread(); i < start + 32; i += ROW_GROUP) {
            precise float at = row_x[i] * inverse;
            row_code[i] = iq4_code(at);
        }
        barrier();
    }
}

// row_code and row_scale of elements first .. first + n - 1, whole blocks, from row_x, which is
// limited to what the type can express.
void row_quantize(int type, int first, int n) {
    barrier();
    if (row_is_plain(type)) {
        for (int i = first + row_thread(); i < first + n; i += ROW_GROUP)
            row_code[i] = row_is(type, TYPE_F32)   ? floatBitsToUint(row_x[i])
                          : row_is(type, TYPE_F16) ? exact_to_f16(row_x[i])
                                                   : exact_to_bf16(row_x[i]);
    } else {
        float limit = fit_limit(type);
        for (int i = first + row_thread(); i < first + n; i += ROW_GROUP) {
            float x = row_x[i];
            row_x[i] = is_nan(x) ? 0.0 : x > limit ? limit : x < -limit ? -limit : x;
        }
        barrier();
        if (row_is(type, TYPE_IQ4_NL))
            row_codes_by_search(first, n);
        else
            row_codes_by_range(type, first, n);
    }
    barrier();
}

// ---- Into a page ----

uint row_byte(int type, int column) {
    if (type == TYPE_Q8_0) return row_code[column];
    int i = column / 16 * 32 + column % 16;
    return row_code[i] & 15u | (row_code[i + 16] & 15u) << 4;
}

void row_store_scales(int type, uint64_t plane, int slot, int n_block, int first, int n) {
    int n_slot = page_slots();
    uint64_t fifth = plane + page_fifth(type, n_block);
    for (int b = first / 32 + row_thread(); b < (first + n) / 32; b += ROW_GROUP) {
        uint at = uint(b * n_slot + slot);
        if (type_has_min(type))
            U32(plane).at[at] = row_scale[b];
        else
            U16(plane).at[at] = uint16_t(row_scale[b]);
        if (!type_has_fifth(type)) continue;
        uint bits = 0u;
        for (int i = 0; i < 32; i++) bits |= (row_code[32 * b + i] >> 4 & 1u) << i;
        U32(fifth).at[at] = bits;
    }
}

// Elements first .. first + n - 1 of a K row of dim elements to a slot: whole units of 16 bytes.
void row_store_k(int type, int dim, uint64_t region, int slot, int first, int n) {
    int n_slot = page_slots(), per_word = type == TYPE_F32 ? 1 : type_is_plain(type) ? 2 : 4;
    bool is_halved = !type_is_plain(type) && type != TYPE_Q8_0; // two elements in a column
    int begin = is_halved ? first / 2 : first, end = begin + (is_halved ? n / 2 : n);
    for (int w = begin / per_word + row_thread(); w < end / per_word; w += ROW_GROUP) {
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

// A whole V row of dim elements to a slot.
void row_store_v(int type, int dim, uint64_t region, int slot) {
    int n_column = row_columns(type, dim);
    uint64_t codes = region + page_v_code();
    for (int c = row_thread(); c < n_column; c += ROW_GROUP) {
        uint at = uint((slot / 4 * n_column + c) * 4 + slot % 4);
        if (type == TYPE_F32)
            U32(codes).at[at] = row_code[c];
        else if (type_is_plain(type))
            U16(codes).at[at] = uint16_t(row_code[c]);
        else
            U8(codes).at[at] = uint8_t(row_byte(type, c));
    }
    if (!type_is_plain(type))
        row_store_scales(type, region + page_v_scale(), slot, row_blocks(type, dim), 0,
                         row_stored(type, dim));
}
