/* SPDX-License-Identifier: MIT
 *
 * page.h: where the parts of a cache page are (plugins/gpu/layout/page.h), for the kernels of the
 * cache ops. Their words begin with the GPU_PAGE_WORDS words that gpu_cache_words
 * (plugins/gpu/ops/cache.c) fills:
 *   0  n_page
 *   1  page_size, bytes of a page
 *   2  head_size, bytes of a head's region of a page
 *   3  page_len, slots that a page uses, a power of two; 1 << 16 is added where a page has fewer
 *      than 4 slots (else it has at least 4, whatever page_len is)
 *   4 to 6  offsets in a head's region: K's scales, V's codes, V's scales
 * A slot holds the row of a token, or, of a cache with a stride, of `stride` tokens.
 */
#ifndef TANDEM_GPU_PAGE_H
#define TANDEM_GPU_PAGE_H

#include "lang.h"

// tdm_type
static constexpr int TYPE_F32 = 0;
static constexpr int TYPE_F16 = 1;
static constexpr int TYPE_Q4_0 = 2;
static constexpr int TYPE_Q4_1 = 3;
static constexpr int TYPE_Q5_0 = 6;
static constexpr int TYPE_Q5_1 = 7;
static constexpr int TYPE_Q8_0 = 8;
static constexpr int TYPE_IQ4_NL = 20;
static constexpr int TYPE_BF16 = 30;

static inline bool type_is_plain(int type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
}
static inline bool type_has_min(int type) {
    return type == TYPE_Q4_1 || type == TYPE_Q5_1;
}
static inline bool type_has_fifth(int type) {
    return type == TYPE_Q5_0 || type == TYPE_Q5_1;
}

// Bytes of a plain element.
static inline int type_size(int type) {
    return type == TYPE_F32 ? 4 : 2;
}

// Of a row of dim elements: the blocks, the elements as stored, the columns of V, the 16-byte
// units.
static inline int row_blocks(int type, int dim) {
    return type_is_plain(type) ? 0 : (dim + 31) / 32;
}
static inline int row_stored(int type, int dim) {
    int unit = type_is_plain(type) ? 16 / type_size(type) : 32;
    return (dim + unit - 1) / unit * unit;
}
static inline int row_columns(int type, int dim) {
    int n = row_stored(type, dim);
    return type_is_plain(type) || type == TYPE_Q8_0 ? n : n / 2;
}
static inline int row_units(int type, int dim) {
    return row_columns(type, dim) * (type_is_plain(type) ? type_size(type) : 1) / 16;
}

struct Page : Kernel {
    inline explicit Page(const Args &args_) : Kernel(args_) {}

    static constexpr int PAGE_WORDS = 7;

    // Words of the step block (core/include/tandem/step.h).
    static constexpr int STEP_N_TOK = 3;
    static constexpr int STEP_N_SEQ = 4;
    static constexpr int STEP_N_JOB = 6;
    static constexpr int STEP_LONGEST = 35;

    inline int page_count() { return args.word[0]; }
    inline int page_len() { return args.word[3] & 0xffff; }
    inline int page_slots() { return args.word[3] >> 16 != 0 ? page_len() : max(page_len(), 4); }
    inline u64 page_region(u64 state, int page, int head) {
        return state + u64(page) * u64(args.word[1]) + u64(uint(head) * uint(args.word[2]));
    }
    inline uint page_k_scale() { return uint(args.word[4]); }
    inline uint page_v_code() { return uint(args.word[5]); }
    inline uint page_v_scale() { return uint(args.word[6]); }

    // Where the fifth bits begin that follow a plane of scales, in bytes from the plane's start;
    // n_block: blocks of a row.
    inline uint page_fifth(int type, int n_block) {
        uint n = uint(n_block * page_slots());
        return (n * (type_has_min(type) ? 4u : 2u) + 15u) / 16u * 16u;
    }

    // Limits a job to its page of `len` tokens; false where nothing is left of it. job: page, first
    // token, count, argument.
    inline bool job_clip(ivec4 &job, int len) {
        if (job.x < 0 || job.x >= page_count() || job.y < 0 || job.z <= 0 || job.y >= len)
            return false;
        job.z = min(job.z, len - job.y);
        return true;
    }
    inline ivec4 job_read(u64 step, int job_off, int number) {
        I32 at = I32(step + u64(uint(job_off + 4 * number)) * 4);
        return ivec4(at.at[0], at.at[1], at.at[2], at.at[3]);
    }
};

#endif
