/* SPDX-License-Identifier: MIT
 *
 * ptx.h: instructions of PTX as functions, one each, with the operands in PTX's order. What they
 * are used for, and which lane holds what, is in words.h. tests/simt/cuda/ptx.h has the same
 * functions, with the same include guard, for the emulated driver.
 */
#ifndef TANDEM_CUDA_PTX_H
#define TANDEM_CUDA_PTX_H

/* Special registers. */
static inline uint ptx_tid_x() {
    return uint(__nvvm_read_ptx_sreg_tid_x());
}
static inline uint ptx_ntid_x() {
    return uint(__nvvm_read_ptx_sreg_ntid_x());
}
static inline uint ptx_ctaid_x() {
    return uint(__nvvm_read_ptx_sreg_ctaid_x());
}
static inline uint ptx_ctaid_y() {
    return uint(__nvvm_read_ptx_sreg_ctaid_y());
}
static inline uint ptx_nctaid_x() {
    return uint(__nvvm_read_ptx_sreg_nctaid_x());
}

/* The word of lane (own ^ mask). All 32 lanes call it together. */
static inline uint ptx_shfl_bfly(uint word, uint mask) {
    uint other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                 : "=r"(other)
                 : "r"(word), "r"(mask));
    return other;
}
static inline void ptx_bar_sync() {
    asm volatile("bar.sync 0;" ::: "memory");
}
/* clang 19 translates no acquire or release for this target. */
static inline u64 ptx_ld_acquire_sys(u64 address) {
    u64 word;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    return word;
}
static inline void ptx_st_release_sys(u64 address, u64 word) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
}
static inline u64 ptx_globaltimer() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
static inline void ptx_nanosleep(uint ns) {
    asm volatile("nanosleep.u32 %0;" ::"r"(ns));
}
static inline uint ptx_atom_add(uint *word, uint n) {
    uint before;
    asm volatile("atom.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(n) : "memory");
    return before;
}
static inline uint ptx_atom_or(uint *word, uint bits) {
    uint before;
    asm volatile("atom.or.b32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(bits) : "memory");
    return before;
}
static inline int ptx_dp4a(uint a, uint b, int sum) {
    int total;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(a), "r"(b), "r"(sum));
    return total;
}
static inline uint ptx_prmt(uint a, uint b, uint selector) {
    uint picked;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(a), "r"(b), "r"(selector));
    return picked;
}
static inline float ptx_cvt_f32_f16(u16 half) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
}

/* d += a * b of signed bytes: a of 16 rows and 16 columns, b of 16 rows and 8 columns; from sm_80
 * on. All 32 lanes call it together. */
static inline void ptx_mma_m16n8k16(int d[4], uint a0, uint a1, uint b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
}
/* The same with 8 rows of a; from sm_75 on. */
static inline void ptx_mma_m8n8k16(int d[2], uint a, uint b) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a), "r"(b));
}

#endif
