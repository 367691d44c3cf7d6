// SPDX-License-Identifier: MIT
//
// page.glsl: where the parts of a cache page are (plugins/gpu/layout/page.h), for the kernels of
// the cache ops. Their words begin with PAGE_WORDS words, which gpu_cache_words
// (plugins/gpu/ops/cache.c) fills: n_page, page_size, head_size, page_len, then the offsets of K's
// scales, V's codes and V's scales in a head's region. page_len is the tokens of a page; of a cache
// with a stride the slots of a page; both are powers of two. A page has at least 4 slots, except
// that page_len has 1 << 16 added where it has page_len slots even if these are fewer: recurrent
// states.

// tdm_type
const int TYPE_F32 = 0;
const int TYPE_F16 = 1;
const int TYPE_Q4_0 = 2;
const int TYPE_Q4_1 = 3;
const int TYPE_Q5_0 = 6;
const int TYPE_Q5_1 = 7;
const int TYPE_Q8_0 = 8;
const int TYPE_IQ4_NL = 20;
const int TYPE_BF16 = 30;

const int PAGE_WORDS = 7;

// Words of the step block (core/include/tandem/step.h).
const int STEP_N_TOK = 3;
const int STEP_N_SEQ = 4;
const int STEP_N_JOB = 6;
const int STEP_LONGEST = 35;

// As a constant expression where the type is constant.
#define TYPE_IS_PLAIN(type) ((type) == TYPE_F32 || (type) == TYPE_F16 || (type) == TYPE_BF16)
bool type_is_plain(int type) {
    return TYPE_IS_PLAIN(type);
}
bool type_has_min(int type) {
    return type == TYPE_Q4_1 || type == TYPE_Q5_1;
}
bool type_has_fifth(int type) {
    return type == TYPE_Q5_0 || type == TYPE_Q5_1;
}

// Bytes of a plain element.
int type_size(int type) {
    return type == TYPE_F32 ? 4 : 2;
}

// Of a row of dim elements: the blocks, the elements as stored, the columns of V, the 16-byte
// units.
int row_blocks(int type, int dim) {
    return type_is_plain(type) ? 0 : (dim + 31) / 32;
}
int row_stored(int type, int dim) {
    int unit = type_is_plain(type) ? 16 / type_size(type) : 32;
    return (dim + unit - 1) / unit * unit;
}
int row_columns(int type, int dim) {
    int n = row_stored(type, dim);
    return type_is_plain(type) || type == TYPE_Q8_0 ? n : n / 2;
}
int row_units(int type, int dim) {
    return row_columns(type, dim) * (type_is_plain(type) ? type_size(type) : 1) / 16;
}

int page_count() {
    return args.word[0];
}
int page_len() {
    return args.word[3] & 0xffff;
}
int page_slots() {
    return args.word[3] >> 16 != 0 ? page_len() : max(page_len(), 4);
}
uint64_t page_region(uint64_t state, int page, int head) {
    return state + uint64_t(page) * uint64_t(args.word[1]) + uint64_t(uint(head) * uint(args.word[2]));
}
uint page_k_scale() {
    return uint(args.word[4]);
}
uint page_v_code() {
    return uint(args.word[5]);
}
uint page_v_scale() {
    return uint(args.word[6]);
}

// Offset, in a plane of scales of n_block blocks, of the fifth bits behind it.
uint page_fifth(int type, int n_block) {
    uint n = uint(n_block * page_slots());
    return (n * (type_has_min(type) ? 4u : 2u) + 15u) / 16u * 16u;
}

// Limits a job's slots to its page of `len` tokens; false where nothing is left. job: page,
// first, count, arg.
bool job_clip(inout ivec4 job, int len) {
    if (job.x < 0 || job.x >= page_count() || job.y < 0 || job.z <= 0 || job.y >= len)
        return false;
    job.z = min(job.z, len - job.y);
    return true;
}
ivec4 job_read(uint64_t step, int job_off, int number) {
    I32 at = I32(step + uint64_t(uint(job_off + 4 * number)) * 4);
    return ivec4(at.at[0], at.at[1], at.at[2], at.at[3]);
}
