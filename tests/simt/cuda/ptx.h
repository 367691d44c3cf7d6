/* SPDX-License-Identifier: MIT
 *
 * ptx.h: the functions of plugins/cuda/ptx.h on the emulated driver, by the PTX ISA's text. It is
 * included first and has the same include guard, so that plugins/cuda/words.h uses these.
 */
#ifndef TANDEM_CUDA_PTX_H
#define TANDEM_CUDA_PTX_H

#include "plugins/gpu/kernels/half.h"
#include "tests/simt/matrix.h"

static inline uint ptx_tid_x() {
    return simt_lane->thread;
}
static inline uint ptx_ntid_x() {
    return simt_lane->block->n_thread;
}
static inline uint ptx_ctaid_x() {
    return simt_lane->block->group[0];
}
static inline uint ptx_ctaid_y() {
    return simt_lane->block->group[1];
}
static inline uint ptx_nctaid_x() {
    return simt_lane->block->grid[0];
}
static inline uint ptx_shfl_bfly(uint word, uint mask) {
    return simt_wave_xchg(word, mask);
}
static inline void ptx_bar_sync() {
    simt_barrier();
}
static inline u64 ptx_ld_acquire_sys(u64 address) {
    return __atomic_load_n((u64 *)address, __ATOMIC_ACQUIRE);
}
static inline void ptx_st_release_sys(u64 address, u64 word) {
    __atomic_store_n((u64 *)address, word, __ATOMIC_RELEASE);
}
static inline uint ptx_atom_add_release_gpu(u64 address, uint n) {
    return __atomic_fetch_add((uint *)address, n, __ATOMIC_RELEASE);
}
static inline void ptx_fence_acq_rel_gpu() {
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}
static inline u64 ptx_globaltimer() {
    return simt_clock_ns();
}
static inline void ptx_nanosleep(uint) {
    simt_spin_pause();
}
#if __CUDA_ARCH__ >= 900
#define PTX_HAS_GRIDDEPCONTROL 1
static inline void ptx_griddepcontrol_launch_dependents() {}
static inline void ptx_griddepcontrol_wait() {
    simt_wait_previous();
}
static inline void ptx_prefetch_l2(u64 address) {
    simt_prefetch((const void *)address);
}
#endif
/* Plain arithmetic is atomic here: one fiber runs at a time, and none stops inside these
 * functions. */
static inline uint ptx_atom_add(uint *word, uint n) {
    uint before = *word;
    *word += n;
    return before;
}
static inline uint ptx_atom_or(uint *word, uint bits) {
    uint before = *word;
    *word |= bits;
    return before;
}

/* "dp4a": each byte of a times that of b, .s32 both, added to c. */
static inline int ptx_dp4a(uint a, uint b, int c) {
    uint d = uint(c);
    for (uint i = 0; i < 4; i++)
        d += uint(int((signed char)(a >> 8 * i)) * int((signed char)(b >> 8 * i)));
    return int(d);
}

/* "prmt": bytes 0 to 3 are of a, 4 to 7 of b. Bits 4 * i .. + 2 of the selector are the number of
 * byte i; bit 4 * i + 3 fills it with that byte's sign. */
static inline uint ptx_prmt(uint a, uint b, uint selector) {
    u64 bytes = u64(b) << 32 | a;
    uint picked = 0;
    for (uint i = 0; i < 4; i++) {
        uint nibble = selector >> 4 * i & 15u, byte = uint(bytes >> 8 * (nibble & 7u)) & 255u;
        if (nibble & 8u) byte = byte & 128u ? 255u : 0u;
        picked |= byte << 8 * i;
    }
    return picked;
}
static inline float ptx_cvt_f32_f16(u16 half) {
    return bits_to_float(f32_bits_of_f16(half));
}
static inline float ptx_ex2_approx(float x) {
    return x < -126.0f ? 0.0f : __builtin_exp2f(x);
}
static inline u16 ptx_cvt_f16_f32(float x) {
    return u16(f16_of_f32_bits(float_to_bits(x)));
}
static inline uint ptx_cvt_f16x2_f32(float a, float b) {
    return uint(ptx_cvt_f16_f32(a)) << 16 | ptx_cvt_f16_f32(b);
}
static inline uint ptx_add_f16x2(uint a, uint b) {
    return halves_add_plain(a, b);
}
static inline uint ptx_mul_f16x2(uint a, uint b) {
    return halves_mul_plain(a, b);
}

/* "ldmatrix": lanes 8 * i .. + 7 give the rows of matrix i. Lane l gets of each matrix the elements
 * 2 * (l % 4) and the next of row l / 4. */
static inline void simt_ldmatrix_run(const simt_collective *, uint32_t n_lane,
                                     uint32_t (*registers)[SIMT_REGISTERS]) {
    for (uint32_t lane = 0; lane < n_lane; lane++)
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t *from = registers[8 * i + lane / 4];
            const char *row = (const char *)(u64(from[1]) << 32 | from[0]);
            __builtin_memcpy(&registers[lane][2 + i], row + 4 * (lane % 4), 4);
        }
}
inline const simt_collective simt_ldmatrix = {"ldmatrix.x4", 32, simt_ldmatrix_run};
static inline void ptx_ldmatrix_x4(uint *d, const void *row) {
    u64 address = u64(simt_pointer_16(u64(row)));
    uint32_t registers[6] = {uint(address), uint(address >> 32), 0, 0, 0, 0};
    simt_wave_execute(&simt_ldmatrix, registers, 6);
    __builtin_memcpy(d, registers + 2, 16);
}
/* With ".trans": lane l gets elements l / 4 of the rows 2 * (l % 4) and the next. */
static inline void simt_ldmatrix_trans_run(const simt_collective *, uint32_t n_lane,
                                           uint32_t (*registers)[SIMT_REGISTERS]) {
    for (uint32_t lane = 0; lane < n_lane; lane++)
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t k = 0; k < 2; k++) {
                const uint32_t *from = registers[8 * i + 2 * (lane % 4) + k];
                const char *row = (const char *)(u64(from[1]) << 32 | from[0]);
                __builtin_memcpy((char *)&registers[lane][2 + i] + 2 * k, row + 2 * (lane / 4), 2);
            }
}
inline const simt_collective simt_ldmatrix_trans = {"ldmatrix.x4.trans", 32,
                                                    simt_ldmatrix_trans_run};
static inline void ptx_ldmatrix_x4_trans(uint *d, const void *row) {
    u64 address = u64(simt_pointer_16(u64(row)));
    uint32_t registers[6] = {uint(address), uint(address >> 32), 0, 0, 0, 0};
    simt_wave_execute(&simt_ldmatrix_trans, registers, 6);
    __builtin_memcpy(d, registers + 2, 16);
}
static inline uint ptx_opaque(uint x) {
    return x;
}
static inline void *ptx_cvta_global(u64 address) {
    return (void *)address;
}
static inline void ptx_cp_async_16(void *to, u64 from) {
    simt_copy_16(simt_pointer_16(u64(to)), simt_pointer_16(from));
}
static inline void ptx_cp_async_8(void *to, u64 from) {
    simt_copy_8(to, (const void *)from);
}
static inline void ptx_cp_async_commit() {
    simt_copies_mark();
}
template <int N> static inline void ptx_cp_async_wait() {
    simt_copies_wait(N);
}
static inline void ptx_mma_m16n8k16_f16(float *d, const uint *a, uint b0, uint b1) {
    const uint b[2] = {b0, b1};
    simt_matrix_execute(&simt_mma_m16n8k16_f16, a, b, (int32_t *)d);
}
static inline void ptx_mma_m16n8k8_f16(float *d, uint a0, uint a1, uint b) {
    const uint a[2] = {a0, a1};
    simt_matrix_execute(&simt_mma_m16n8k8_f16, a, &b, (int32_t *)d);
}
static inline void ptx_mma_m16n8k16(int *d, uint a0, uint a1, uint b) {
    const uint a[2] = {a0, a1};
    simt_matrix_execute(&simt_mma_m16n8k16, a, &b, d);
}
static inline void ptx_mma_m8n8k16(int *d, uint a, uint b) {
    simt_matrix_execute(&simt_mma_m8n8k16, &a, &b, d);
}

/* Warpgroups, where the build is for sm_90a. wgmma computes at once here, and each lane reads
 * shared memory itself. So these words do not find a tile that is changed too early; HalfBlocks of
 * the emulated driver's own words (../words.h) does. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PTX_HAS_WGMMA 1
static inline void ptx_fence_proxy_async() {}
static inline void ptx_wgmma_fence() {}
static inline void ptx_wgmma_commit() {}
template <uint N> static inline void ptx_wgmma_wait() {}
static inline u64 ptx_wgmma_matrix(const void *at) {
    return u64(simt_pointer_16(u64(at)));
}
static inline u64 ptx_wgmma_offset(u64 matrix, uint n) {
    return matrix + 16 * n;
}
/* "Shared Memory Matrix Layout", 64-byte swizzling: bits 4 and 5 of an address, counted from the
 * matrix's, are changed by its bits 7 and 8. */
static inline float simt_wgmma_element(u64 matrix, uint row, uint k) {
    u64 first = matrix & ~u64(511), at = matrix - first + 64 * row + 2 * k;
    at ^= (at >> 7 & 3) << 4;
    u16 bits;
    __builtin_memcpy(&bits, (const char *)(first + at), 2);
    return ptx_cvt_f32_f16(bits);
}
/* "Register fragments for wgmma.mma_async.m64nNk16": a warp has 16 rows. */
static inline void simt_wgmma(float *d, u64 a, u64 b, uint n) {
    uint lane = ptx_tid_x() % 32, warp = ptx_tid_x() / 32 % 4;
    for (uint i = 0; i < n / 2; i++) {
        uint row = 16 * warp + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        for (uint k = 0; k < 16; k++)
            d[i] = __builtin_fmaf(simt_wgmma_element(a, row, k), simt_wgmma_element(b, column, k),
                                  d[i]);
    }
}
static inline void ptx_wgmma_m64n128k16_f16(float *d, u64 a, u64 b) {
    simt_wgmma(d, a, b, 128);
}
static inline void ptx_wgmma_m64n256k16_f16(float *d, u64 a, u64 b) {
    simt_wgmma(d, a, b, 256);
}
#endif

#endif
