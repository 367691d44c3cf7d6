/* SPDX-License-Identifier: MIT
 *
 * builtins.h: clang's names for instructions of AMD's processors, on the emulated driver, as the
 * manuals of the instruction sets describe them. They are macros, since a compiler may not let a
 * program define functions of such names. The build defines the macros that clang defines for a
 * processor.
 */
#ifndef TANDEM_SIMT_HIP_BUILTINS_H
#define TANDEM_SIMT_HIP_BUILTINS_H

#include "plugins/gpu/kernels/number.h"
#include "tests/simt/matrix.h"

/* Vectors of ints, as gcc has them too. */
#define ext_vector_type(n) vector_size(4 * (n))

/* ---- The grid, barriers, shared memory ---- */

#define __builtin_amdgcn_workitem_id_x()     (simt_lane->thread)
#define __builtin_amdgcn_workgroup_size_x()  (simt_lane->block->n_thread)
#define __builtin_amdgcn_workgroup_id_x()    (simt_lane->block->group[0])
#define __builtin_amdgcn_workgroup_id_y()    (simt_lane->block->group[1])
#define __builtin_amdgcn_grid_size_x()       (simt_lane->block->grid[0] * simt_lane->block->n_thread)
#define __builtin_amdgcn_fence(order, scope) ((void)0)
#define __builtin_amdgcn_s_barrier()         simt_barrier()

static inline uint simt_fetch_add(uint *word, uint n) {
    uint before = *word;
    *word += n;
    return before;
}
static inline uint simt_fetch_or(uint *word, uint bits) {
    uint before = *word;
    *word |= bits;
    return before;
}
/* Plain arithmetic is atomic here: one fiber runs at a time, and none stops inside these
 * functions. */
#define __hip_atomic_fetch_add(at, n, order, scope) simt_fetch_add(at, n)
#define __hip_atomic_fetch_or(at, n, order, scope)  simt_fetch_or(at, n)

/* ---- Other devices ---- */

#define __hip_atomic_load(at, order, scope)        __atomic_load_n(at, order)
#define __hip_atomic_store(at, word, order, scope) __atomic_store_n(at, word, order)
#define __builtin_amdgcn_s_sleep(n)                simt_spin_pause()

/* ---- Lanes ---- */

/* v_mbcnt_lo_u32_b32 and v_mbcnt_hi_u32_b32: base + the bits of the mask, of lanes 0 to 31 or 32 to
 * 63, that belong to lanes below this one. */
static inline uint simt_mbcnt(uint mask, uint base, uint first) {
    uint lane = simt_lane->thread % simt_lane->block->wave_size, n = base;
    for (uint i = 0; i < 32 && first + i < lane; i++) n += mask >> i & 1u;
    return n;
}
#define __builtin_amdgcn_mbcnt_lo(mask, base) simt_mbcnt(mask, base, 0)
#define __builtin_amdgcn_mbcnt_hi(mask, base) simt_mbcnt(mask, base, 32)

/* ds_bpermute_b32: the word of the lane with number address / 4. */
static inline void simt_bpermute_run(const simt_collective *, uint32_t n_lane,
                                     uint32_t (*registers)[SIMT_REGISTERS]) {
    for (uint32_t i = 0; i < n_lane; i++)
        registers[i][2] = registers[registers[i][0] / 4 % n_lane][1];
}
inline const simt_collective simt_bpermute = {"ds_bpermute_b32", 0, simt_bpermute_run};
static inline int simt_ds_bpermute(int address, int word) {
    uint32_t registers[3] = {uint(address), uint(word), 0};
    simt_wave_execute(&simt_bpermute, registers, 3);
    return int(registers[2]);
}
#define __builtin_amdgcn_ds_bpermute(address, word) simt_ds_bpermute(address, word)

/* ---- Bytes ---- */

/* v_perm_b32: bytes 0 to 3 are those of src1, 4 to 7 those of src0. Each byte of the selector gives
 * a byte of the result: 0 to 7 that byte; 8 to 11 the sign of byte 1, 3, 5 or 7 as 0 or 255; 12
 * gives 0; more gives 255. */
static inline uint simt_perm(uint src0, uint src1, uint selector) {
    u64 bytes = u64(src0) << 32 | src1;
    uint picked = 0;
    for (uint i = 0; i < 4; i++) {
        uint number = selector >> 8 * i & 255u, byte = 255u;
        if (number < 8)
            byte = uint(bytes >> 8 * number) & 255u;
        else if (number < 12)
            byte = bytes >> (16 * (number - 8) + 15) & 1u ? 255u : 0u;
        else if (number == 12)
            byte = 0;
        picked |= byte << 8 * i;
    }
    return picked;
}
#define __builtin_amdgcn_perm(src0, src1, selector) simt_perm(src0, src1, selector)

/* v_dot4_i32_i8, and v_dot4_i32_iu8, whose neg bits say which source is signed. With clamp the sum
 * saturates. */
static inline int simt_dot4(bool a_signed, int a, bool b_signed, int b, int c, bool clamp) {
    i64 sum = c;
    for (int i = 0; i < 32; i += 8) {
        i64 x = a_signed ? i64((signed char)(a >> i)) : i64((unsigned char)(a >> i));
        i64 y = b_signed ? i64((signed char)(b >> i)) : i64((unsigned char)(b >> i));
        sum += x * y;
    }
    if (clamp) sum = sum < -2147483648ll ? -2147483648ll : sum > 2147483647ll ? 2147483647ll : sum;
    return int(uint(u64(sum)));
}
#define __builtin_amdgcn_sdot4(a, b, c, clamp) simt_dot4(true, a, true, b, c, clamp)
#define __builtin_amdgcn_sudot4(a_signed, a, b_signed, b, c, clamp)                                \
    simt_dot4(a_signed, a, b_signed, b, c, clamp)

/* ---- Matrices ---- */

/* Executes a matrix instruction on vectors or integers of types A and C as registers. Only signed
 * sources without clamp and without broadcasts are emulated: anything else does not compile
 * (SimtWmma, SimtMfma). */
template <class A, class C> static inline C simt_matrix_of(const simt_matrix *what, A a, A b, C c) {
    uint of_a[sizeof(A) / 4], of_b[sizeof(A) / 4];
    int of_c[sizeof(C) / 4];
    __builtin_memcpy(of_a, &a, sizeof a);
    __builtin_memcpy(of_b, &b, sizeof b);
    __builtin_memcpy(of_c, &c, sizeof c);
    simt_matrix_execute(what, of_a, of_b, of_c);
    __builtin_memcpy(&c, of_c, sizeof c);
    return c;
}
template <bool A_SIGNED, bool B_SIGNED, bool CLAMP> struct SimtWmma {
    static_assert(A_SIGNED && B_SIGNED && !CLAMP, "not emulated");
    template <class A, class C> static C run(const simt_matrix *what, A a, A b, C c) {
        return simt_matrix_of(what, a, b, c);
    }
};
template <int CBSZ, int ABID, int BLGP> struct SimtMfma {
    static_assert(CBSZ == 0 && ABID == 0 && BLGP == 0, "not emulated");
    template <class A, class C> static C run(const simt_matrix *what, A a, A b, C c) {
        return simt_matrix_of(what, a, b, c);
    }
};
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(a_signed, a, b_signed, b, c, clamp)             \
    SimtWmma<a_signed, b_signed, clamp>::run(&simt_wmma_gfx11, a, b, c)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(a_signed, a, b_signed, b, c, clamp)       \
    SimtWmma<a_signed, b_signed, clamp>::run(&simt_wmma_gfx12, a, b, c)
#define __builtin_amdgcn_mfma_i32_16x16x16i8(a, b, c, cbsz, abid, blgp)                            \
    SimtMfma<cbsz, abid, blgp>::run(&simt_mfma_16x16x16, a, b, c)
#define __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, cbsz, abid, blgp)                           \
    SimtMfma<cbsz, abid, blgp>::run(&simt_mfma_16x16x32, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)                                        \
    simt_matrix_of(&simt_wmma_gfx11_f16, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)                                  \
    simt_matrix_of(&simt_wmma_gfx12_f16, a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, cbsz, abid, blgp)                           \
    SimtMfma<cbsz, abid, blgp>::run(&simt_mfma_16x16x16_f16, a, b, c)

#endif
