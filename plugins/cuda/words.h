/* SPDX-License-Identifier: MIT
 *
 * words.h: the words of plugins/gpu/kernels/lang.h for NVIDIA's devices, on the instructions of
 * ptx.h, for clang in CUDA mode, which uses no header of a toolkit, and for nvcc
 * (nvcc/cuda_runtime.h). The build includes plugins/gpu/kernels/on_device.h first.
 */
#ifndef TANDEM_CUDA_WORDS_H
#define TANDEM_CUDA_WORDS_H

#include "plugins/cuda/ptx.h"

/* The second number of launch_bounds is how many workgroups a multiprocessor shall have room for,
 * which has 65536 registers. Without it, ptxas saves registers: it moves each load directly before
 * its use, and a thread waits for one load after the other. */
#define GPU_ENTRY(name, max_threads, registers, ...)                                               \
    extern "C" __attribute__((                                                                     \
        global, launch_bounds(max_threads, 65536 / ((max_threads) * (registers))))) void           \
    name(const Args args) __VA_ARGS__

static inline void *pointer(u64 address) {
    return ptx_cvta_global(address);
}
static inline uint thread_id() {
    return ptx_tid_x();
}
static inline uint group_size() {
    return ptx_ntid_x();
}
static inline uint group_x() {
    return ptx_ctaid_x();
}
static inline uint group_y() {
    return ptx_ctaid_y();
}
static inline uint grid_x() {
    return ptx_nctaid_x();
}
static inline uint wave_size() {
    return 32;
}
static inline uint wave_xchg(uint word, uint mask) {
    return ptx_shfl_bfly(word, mask);
}
static inline void barrier() {
    ptx_bar_sync();
}

extern __attribute__((shared, aligned(512))) uint gpu_shared_words[];
static inline char *shared_memory() {
    return (char *)gpu_shared_words;
}
static inline uint shared_add(uint *word, uint n) {
    return ptx_atom_add(word, n);
}
static inline uint shared_or(uint *word, uint bits) {
    return ptx_atom_or(word, bits);
}
static inline int dot_4(uint a, uint b, int sum) {
    return ptx_dp4a(a, b, sum);
}
static inline uint bytes_pick(uint low, uint high, uint index) {
    uint nibbles = (index | index >> 4) & 0x00ff00ffu;
    return ptx_prmt(low, high, nibbles | nibbles >> 8);
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k16" and "mma.m8n8k16" with .s8: of each eight rows, lane
 * l holds bytes 4 * (l % 4) .. + 3 of row l / 4. That is word l of the eight rows in memory. */
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
    for (int n = 0; n < 2; n++) ptx_mma_m16n8k16(sum + 4 * n, a.word[0], a.word[1], b.word[n]);
#else
    for (int n = 0; n < 2; n++)
        for (int m = 0; m < 2; m++) ptx_mma_m8n8k16(sum + 4 * n + 2 * m, a.word[m], b.word[n]);
#endif
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "ldmatrix": the four 8
 * x 8 matrices are rows 0 .. 7 and 8 .. 15 of elements 0 .. 7, then of elements 8 .. 15. Sums lie
 * where those of Mat lie (mat_row, mat_column). */
#define HAS_HALF_MATS 1
struct HalfMat {
    uint word[4];
};
static inline HalfMat half_mat_load(const uvec4 *tile, uint row, uint step) {
    uint lane = thread_id() % 32;
    HalfMat m;
    ptx_ldmatrix_x4(m.word, tile + half_tile_at(row + lane % 16, 2 * step + lane / 16));
    return m;
}
static inline HalfMat half_mat_load_transposed(const uvec4 *tile, uint row, uint step) {
    uint lane = thread_id() % 32, of_matrix = row + lane % 8 + lane / 16 * 8;
    HalfMat m;
    ptx_ldmatrix_x4_trans(m.word, tile + half_tile_at(of_matrix, 2 * step + lane / 8 % 2));
    return m;
}
static inline void half_mat_mul(float *sum, const HalfMat &a, const HalfMat &b) {
#if __CUDA_ARCH__ >= 800
    for (int n = 0; n < 2; n++) ptx_mma_m16n8k16_f16(sum + 4 * n, a.word, b.word[n], b.word[n + 2]);
#else
    for (int n = 0; n < 2; n++)
        for (int k = 0; k < 4; k += 2)
            ptx_mma_m16n8k8_f16(sum + 4 * n, a.word[k], a.word[k + 1], b.word[n + k]);
#endif
}
/* PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": sums lie where those of half_mat_mul
 * lie. The 64-byte swizzle is the arrangement of half_tile_at. */
#if PTX_HAS_WGMMA
#define HAS_HALF_BLOCKS 1
template <uint PARTS> struct HalfBlocks {
    const u64 w_tiles,
        x_tiles; /* descriptors of the first tiles; w_tiles of this warpgroup's rows */
    inline HalfBlocks(const uvec4 *w, const uvec4 *x)
        : w_tiles(ptx_wgmma_matrix(w + 256 * (thread_id() / 128))), x_tiles(ptx_wgmma_matrix(x)) {}
    static inline void fence() { ptx_fence_proxy_async(); }
    inline void multiply(float (*sum)[8], uint i) const {
        ptx_wgmma_fence();
        _Pragma("unroll") for (uint step = 0; step < 2; step++) {
            u64 a = ptx_wgmma_offset(w_tiles, i * (2 * group_size()) + 2 * step);
            u64 b = ptx_wgmma_offset(x_tiles, i * (64 * PARTS) + 2 * step);
            if (PARTS == 8)
                ptx_wgmma_m64n128k16_f16(sum[0], a, b);
            else
                ptx_wgmma_m64n256k16_f16(sum[0], a, b);
        }
    }
    static inline void wait() {
        ptx_wgmma_commit();
        ptx_wgmma_wait<0>();
    }
};
#endif
#if __CUDA_ARCH__ >= 800
static inline void copy_16(uvec4 *to, u64 from) {
    ptx_cp_async_16(to, from);
}
static inline void copy_8(uvec2 *to, u64 from) {
    ptx_cp_async_8(to, from);
}
static inline void copies_mark() {
    ptx_cp_async_commit();
}
template <int N> static inline void copies_wait() {
    ptx_cp_async_wait<N>();
}
#else
static inline void copy_16(uvec4 *to, u64 from) {
    *(uvec4 *)__builtin_assume_aligned(to, 16) =
        *(const uvec4 *)__builtin_assume_aligned((void *)from, 16);
}
static inline void copy_8(uvec2 *to, u64 from) {
    *to = *(const uvec2 *)pointer(from);
}
static inline void copies_mark() {}
template <int N> static inline void copies_wait() {}
#endif
static inline void *pointer_16(u64 address) {
    return __builtin_assume_aligned(pointer(address), 16);
}
static inline u64 load_system(u64 address) {
    return ptx_ld_acquire_sys(address);
}
static inline void store_system(u64 address, u64 word) {
    ptx_st_release_sys(address, word);
}
/* Nothing: the releases of store_system() and device_add() cover what the whole workgroup has
 * stored before its barrier ("Causality Order" of the PTX ISA). A fence in each wave would take as
 * long as another release, and would also empty the first-level cache, which holds what
 * neighbouring workgroups read. */
static inline void system_release() {}
static inline void device_release() {}
static inline uint device_add(u64 address, uint n) {
    return ptx_atom_add_release_gpu(address, n);
}
/* A fence acquires for the thread that has read the sum, and for no other ("Release and Acquire
 * Patterns" of the PTX ISA). The barrier after it orders what the other threads read:
 * group_acquire() does nothing. */
static inline void device_acquire() {
    ptx_fence_acq_rel_gpu();
}
static inline void group_acquire() {}
/* Nanoseconds. */
static inline u64 ticks() {
    return ptx_globaltimer();
}
static inline void spin_pause() {
    ptx_nanosleep(64);
}
/* Devices before sm_90 have none of these. They start a kernel when the one before has ended. */
#if PTX_HAS_GRIDDEPCONTROL
static inline void launch_next() {
    ptx_griddepcontrol_launch_dependents();
}
static inline void wait_previous() {
    ptx_griddepcontrol_wait();
}
static inline void prefetch(u64 address) {
    ptx_prefetch_l2(address);
}
#else
static inline void launch_next() {}
static inline void wait_previous() {}
static inline void prefetch(u64) {}
#endif
static inline uint recomputed(uint x) {
    return ptx_opaque(x);
}
static inline float half_to_float(uint bits) {
    return ptx_cvt_f32_f16(u16(bits));
}
static inline float exp2_roughly(float x) {
    return ptx_ex2_approx(x);
}
static inline uint halves_add(uint a, uint b) {
    return ptx_add_f16x2(a, b);
}
static inline uint halves_mul(uint a, uint b) {
    return ptx_mul_f16x2(a, b);
}
static inline uint pack_half2(float low, float high) {
#if __CUDA_ARCH__ >= 800
    return ptx_cvt_f16x2_f32(high, low);
#else
    return uint(ptx_cvt_f16_f32(low)) | uint(ptx_cvt_f16_f32(high)) << 16;
#endif
}

#endif
