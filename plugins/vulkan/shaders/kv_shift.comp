// SPDX-License-Identifier: MIT
//
// kv_shift.comp: KV_SHIFT: a workgroup for each job, head and slot rotates a K row further, in
// place. Where several jobs name a slot, the workgroup of the first job runs all of them in order,
// and the others do nothing. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "exact.glsl"
#include "angle.glsl"
#include "page.glsl"
#include "page_code.glsl"

const int TYPE = SPEC0;
const int DIM = SPEC1;
const int ROTATION = SPEC2;
const bool HAS_FACTOR = SPEC3 != 0;
const bool IS_ADJACENT = SPEC4 == 0;
const int ROPE_OFFSET = SPEC5;
const int N_PAIR = SPEC6;
const int ROW_LEN = SPEC7 > 0 ? SPEC7 : 1;
#define ROW_GROUP  int(gl_WorkGroupSize.x)
#define ROW_TYPE_K TYPE
#define ROW_TYPE_V TYPE
#include "page_row.glsl"

shared int n_earlier; // jobs that name the slot
shared int n_later;

float element_read(uint64_t region, int slot, int i) {
    bool is_pair = !type_is_plain(TYPE) && TYPE != TYPE_Q8_0;
    int size = type_is_plain(TYPE) ? type_size(TYPE) : 1, block = i / 32;
    int column = is_pair ? block * 16 + i % 16 : i;
    uint off = uint(column * size);
    uint64_t at = region + (off / 16u * uint(page_slots()) + uint(slot)) * 16u + off % 16u;
    if (TYPE == TYPE_F32) return F32(at).at[0];
    if (TYPE == TYPE_BF16) return uintBitsToFloat(uint(U16(at).at[0]) << 16);
    if (TYPE == TYPE_F16) return exact_from_f16(uint(U16(at).at[0]));
    uint code = uint(U8(at).at[0]), scale_at = uint(block * page_slots() + slot);
    uint64_t plane = region + page_k_scale();
    vec2 scale;
    if (type_has_min(TYPE)) {
        uint bits = U32(plane).at[scale_at];
        scale = vec2(exact_from_f16(bits & 0xffffu), exact_from_f16(bits >> 16));
    } else {
        scale = vec2(exact_from_f16(uint(U16(plane).at[scale_at])), 0.0);
    }
    if (is_pair) code = code >> (i % 32 < 16 ? 0 : 4) & 15u;
    if (type_has_fifth(TYPE)) {
        uint64_t fifth = plane + page_fifth(TYPE, row_blocks(TYPE, DIM));
        code |= (U32(fifth).at[scale_at] >> i % 32 & 1u) << 4;
    }
    return code_scaled(TYPE, code, scale);
}

void pair_turn(int pair, int by) {
    int a = ROPE_OFFSET + (IS_ADJACENT ? 2 * pair : pair), b = a + (IS_ADJACENT ? 1 : N_PAIR);
    uint64_t turn = Turns(args.address[2]).at[pair];
    bool is_bad = false;
    if (HAS_FACTOR)
        turn = turn_divided(turn, F32(args.address[3]).at[pair * args.word[12]], is_bad);
    vec2 angle = turn_cos_sin(turn, int64_t(by));
    if (is_bad) angle = vec2(uintBitsToFloat(0x7fc00000u));
    precise float x = row_x[a], y = row_x[b];
    precise float xc = x * angle.x, ys = y * angle.y, xs = x * angle.y, yc = y * angle.x;
    precise float turned_x = xc - ys, turned_y = xs + yc;
    row_x[a] = turned_x;
    row_x[b] = turned_y;
}

// Rotates a row by `by` positions. Only blocks, of the type and of the Walsh-Hadamard rotation,
// with rotated elements are written again: elements first .. first + n - 1.
void slot_shift(uint64_t region, int slot, int by) {
    int first = args.word[10], n = args.word[11];
    barrier();
    for (int i = first + row_thread(); i < first + n; i += ROW_GROUP)
        row_x[i] = element_read(region, slot, i);
    row_rotate(first, n, ROTATION);
    barrier();
    for (int pair = row_thread(); pair < N_PAIR; pair += ROW_GROUP) pair_turn(pair, by);
    row_rotate(first, n, ROTATION);
    row_quantize(TYPE, first, n);
    row_store_k(TYPE, DIM, region, slot, first, n);
}

bool job_names(int j, int page, int slot, out int by) {
    ivec4 job = job_read(args.address[1], args.word[8], j);
    by = job.w;
    return job_clip(job, page_len()) && job.x == page && slot >= job.y && slot < job.y + job.z;
}

void main() {
    int n_head = args.word[7], by;
    uint number = group_number();
    int slot = int(number % uint(page_len()));
    number /= uint(page_len());
    int head = int(number % uint(n_head)), j = int(number / uint(n_head));
    int n_job = min(args.word[9], I32(args.address[1]).at[STEP_N_JOB]);
    if (j >= n_job) return;
    int page = job_read(args.address[1], args.word[8], j).x;
    if (!job_names(j, page, slot, by)) return;

    if (row_thread() == 0) n_earlier = n_later = 0;
    barrier();
    for (int k = row_thread(); k < n_job; k += ROW_GROUP) {
        int other;
        if (k == j || !job_names(k, page, slot, other)) continue;
        if (k < j)
            atomicAdd(n_earlier, 1);
        else
            atomicAdd(n_later, 1);
    }
    barrier();
    if (n_earlier > 0) return;
    uint64_t region = page_region(args.address[0], page, head);
    // One call for all jobs, since compilers copy functions into each.
    for (int k = j, left = n_later; k < n_job; k++) {
        if (k > j) {
            if (left == 0) break;
            if (!job_names(k, page, slot, by)) continue;
            left--;
            // The row is read by other threads than those that wrote it. On GPUs where two caches
            // serve a workgroup (RDNA), each thread must empty its cache after all threads have
            // written.
            memoryBarrierBuffer();
            barrier();
            memoryBarrierBuffer();
        }
        if (by != 0) slot_shift(region, slot, by);
    }
}
