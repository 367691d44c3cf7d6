/* SPDX-License-Identifier: MIT
 *
 * words.h: the words of plugins/gpu/kernels/lang.h in PTX, for clang in CUDA mode. No header of a
 * toolkit is used. The build includes plugins/gpu/kernels/on_device.h first.
 */
#ifndef TANDEM_CUDA_WORDS_H
#define TANDEM_CUDA_WORDS_H

#define GPU_ENTRY(name, max_threads, ...)                                                          \
    extern "C" __attribute__((global, launch_bounds(max_threads))) void name(const Args args)      \
        __VA_ARGS__

static inline uint thread_id() {
    return uint(__nvvm_read_ptx_sreg_tid_x());
}
static inline uint group_size() {
    return uint(__nvvm_read_ptx_sreg_ntid_x());
}
static inline uint group_x() {
    return uint(__nvvm_read_ptx_sreg_ctaid_x());
}
static inline uint group_y() {
    return uint(__nvvm_read_ptx_sreg_ctaid_y());
}
static inline uint grid_x() {
    return uint(__nvvm_read_ptx_sreg_nctaid_x());
}
static inline uint wave_size() {
    return 32;
}
static inline uint wave_xchg(uint word, uint mask) {
    uint other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                 : "=r"(other)
                 : "r"(word), "r"(mask));
    return other;
}
static inline void barrier() {
    asm volatile("bar.sync 0;" ::: "memory");
}

extern __attribute__((shared, aligned(16))) uint gpu_shared_words[];
static inline char *shared_memory() {
    return (char *)gpu_shared_words;
}
static inline uint shared_add(uint *word, uint n) {
    uint before;
    asm volatile("atom.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(n) : "memory");
    return before;
}
static inline uint shared_or(uint *word, uint bits) {
    uint before;
    asm volatile("atom.or.b32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(bits) : "memory");
    return before;
}
static inline int dot_4(uint a, uint b, int sum) {
    int total;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(a), "r"(b), "r"(sum));
    return total;
}
static inline uint bytes_pick(uint low, uint high, uint index) {
    uint nibbles = (index | index >> 4) & 0x00ff00ffu, picked;
    nibbles |= nibbles >> 8;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(low), "r"(high), "r"(nibbles));
    return picked;
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k16" and "mma.m8n8k16" with .s8: lane l holds bytes 4 *
 * (l % 4) .. + 3 of row l / 4 of eight rows, which is word l of them. */
struct Mat {
    uint word[2];
};
static inline Mat mat_load(const uvec4 *rows) {
    const uint *words = (const uint *)rows;
    Mat m;
    m.word[0] = words[thread_id() % 32];
    m.word[1] = words[32 + thread_id() % 32];
    return m;
}
static inline uint mat_count() {
    return 8;
}
static inline uint mat_row(uint i) {
    return thread_id() % 32 / 4 + 8 * (i / 2 % 2);
}
static inline uint mat_column(uint i) {
    return thread_id() % 4 * 2 + i % 2 + 8 * (i / 4);
}
static inline void mat_mul(int *sum, Mat a, Mat b) {
#if __CUDA_ARCH__ >= 800
    for (int n = 0; n < 2; n++)
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+r"(sum[4 * n]), "+r"(sum[4 * n + 1]), "+r"(sum[4 * n + 2]), "+r"(sum[4 * n + 3])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(b.word[n]));
#else
    for (int n = 0; n < 2; n++)
        for (int m = 0; m < 2; m++)
            asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+r"(sum[4 * n + 2 * m]), "+r"(sum[4 * n + 2 * m + 1])
                : "r"(a.word[m]), "r"(b.word[n]));
#endif
}
static inline float half_to_float(uint bits) {
    u16 half = u16(bits);
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
}

#endif
