// SPDX-License-Identifier: MIT
//
// kv_copy.comp: KV_COPY: an invocation for each 4-byte word of a page runs the jobs in order, since
// a job may read what an earlier one wrote. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"

const int TYPE_K = SPEC0;
const int TYPE_V = SPEC1;
const int DIM_K = SPEC2;
const int DIM_V = SPEC3;
const int V_FROM_K = SPEC4;
const int STRIDE = SPEC5 > 1 ? SPEC5 : 1; // of the cache

// The slots whose bytes a word of a plane has: the first, and how many (1, 2 or 4).
ivec2 k_code_slots(uint off) {
    return ivec2(int(off / 16u) % page_slots(), 1);
}
ivec2 v_code_slots(int type, int dim, uint off) {
    int size = type_is_plain(type) ? type_size(type) : 1, n = 4 / size;
    int quad_size = row_columns(type, dim) * 4 * size;
    return ivec2(int(off) / quad_size * 4 + int(off) % (4 * size) / size, n);
}
ivec2 scale_slots(int type, int dim, uint off) {
    uint fifth = page_fifth(type, row_blocks(type, dim));
    if (off >= fifth) return ivec2(int(off - fifth) / 4 % page_slots(), 1);
    if (type_has_min(type)) return ivec2(int(off) / 4 % page_slots(), 1);
    return ivec2(int(off) / 2 % page_slots(), 2);
}

ivec2 word_slots(uint off) {
    if (off < page_k_scale()) return k_code_slots(off);
    if (V_FROM_K != 0 || off < page_v_code())
        return scale_slots(TYPE_K, DIM_K, off - page_k_scale());
    if (off < page_v_scale()) return v_code_slots(TYPE_V, DIM_V, off - page_v_code());
    return scale_slots(TYPE_V, DIM_V, off - page_v_scale());
}

void main() {
    uint n_word = uint(args.word[2]) / 4u, number = invocation_number();
    uint off = number % n_word * 4u;
    int head = int(number / n_word);
    if (head >= args.word[7]) return;
    ivec2 slots = word_slots(off);
    int n_job = min(args.word[9], I32(args.address[1]).at[STEP_N_JOB]);
    for (int j = 0; j < n_job; j++) {
        ivec4 job = job_read(args.address[1], args.word[8], j);
        if (!job_clip(job, args.word[10]) || job.w < 0 || job.w >= page_count() || job.w == job.x)
            continue;
        int first = job.y / STRIDE, last = (job.y + job.z - 1) / STRIDE;
        uint mask = 0u;
        for (int i = 0; i < slots.y; i++) {
            int slot = slots.x + i;
            uint bits = slots.y == 1 ? 0xffffffffu : slots.y == 2 ? 0xffffu : 0xffu;
            if (slot >= first && slot <= last) mask |= bits << 32 / slots.y * i;
        }
        if (mask == 0u) continue;
        U32 to = U32(page_region(args.address[0], job.x, head) + off);
        U32 from = U32(page_region(args.address[0], job.w, head) + off);
        to.at[0] = to.at[0] & ~mask | from.at[0] & mask;
    }
}
