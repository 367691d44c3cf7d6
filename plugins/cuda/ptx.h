/* SPDX-License-Identifier: MIT
 *
 * ptx.h: instructions of PTX as functions, one each, with the operands in PTX's order. words.h uses
 * them, and says which lane holds what. tests/simt/cuda/ptx.h has the same functions, with the same
 * include guard, for the emulated driver.
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
/* In assembly, since clang 19 does not translate atomics with acquire or release for this
 * target. */
static inline u64 ptx_ld_acquire_sys(u64 address) {
    u64 word;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    return word;
}
static inline void ptx_st_release_sys(u64 address, u64 word) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
}
static inline uint ptx_atom_add_release_gpu(u64 address, uint n) {
    uint before;
    asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(address), "r"(n)
                 : "memory");
    return before;
}
static inline void ptx_fence_acq_rel_gpu() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
static inline u64 ptx_globaltimer() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
static inline void ptx_nanosleep(uint ns) {
    asm volatile("nanosleep.u32 %0;" ::"r"(ns));
}
#if __CUDA_ARCH__ >= 900
#define PTX_HAS_GRIDDEPCONTROL 1
static inline void ptx_griddepcontrol_launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;");
}
static inline void ptx_griddepcontrol_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
static inline void ptx_prefetch_l2(u64 address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
#endif
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

static inline float ptx_ex2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static inline u16 ptx_cvt_f16_f32(float x) {
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}
/* a is the upper one; from sm_80 on. */
static inline uint ptx_cvt_f16x2_f32(float a, float b) {
    uint both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(a), "f"(b));
    return both;
}
static inline uint ptx_add_f16x2(uint a, uint b) {
    uint sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}
static inline uint ptx_mul_f16x2(uint a, uint b) {
    uint product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

/* The address in shared memory of a pointer, and a pointer to an address in global memory. nvcc has
 * no attribute of address spaces. With __nv_cvta_global_to_generic_impl, the compilation of some
 * kernels by nvcc 13.0 does not end; so the address space is an assumption there. */
#if defined(__clang__)
static inline uint ptx_cvta_shared(const void *at) {
    return uint(u64((__attribute__((address_space(3))) const void *)at));
}
static inline void *ptx_cvta_global(u64 address) {
    return (void *)(__attribute__((address_space(1))) void *)address;
}
#else
static inline uint ptx_cvta_shared(const void *at) {
    return uint(__nv_cvta_generic_to_shared_impl(at));
}
static inline void *ptx_cvta_global(u64 address) {
    void *at = (void *)address;
    __builtin_assume(__nv_isGlobal_impl(at));
    return at;
}
#endif
/* Four 8 x 8 matrices of 16-bit elements; lanes 8 * i .. + 7 give the addresses of the rows of
 * matrix i, at multiples of 16. From sm_75 on. All 32 lanes call it together. */
static inline void ptx_ldmatrix_x4(uint d[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(ptx_cvta_shared(row))
                 : "memory");
}
/* The same, each matrix transposed. */
static inline void ptx_ldmatrix_x4_trans(uint d[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(ptx_cvta_shared(row))
                 : "memory");
}
/* No instruction. Returns x; the compiler must take it for an unknown value. */
static inline uint ptx_opaque(uint x) {
    asm volatile("" : "+r"(x));
    return x;
}
/* Sixteen bytes from global to shared memory, not through the first-level cache; from sm_80 on. */
static inline void ptx_cp_async_16(void *to, u64 from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(ptx_cvta_shared(to)), "l"(from)
                 : "memory");
}
/* Eight bytes, through the first-level cache. */
static inline void ptx_cp_async_8(void *to, u64 from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(ptx_cvta_shared(to)), "l"(from)
                 : "memory");
}
static inline void ptx_cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> static inline void ptx_cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* d += a * b of f16 with f32 sums: a of 16 rows and 16 columns, b of 16 rows and 8 columns; from
 * sm_80 on. All 32 lanes call it together. */
static inline void ptx_mma_m16n8k16_f16(float d[4], const uint a[4], uint b0, uint b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* The same with 8 columns of a and rows of b; from sm_75 on. */
static inline void ptx_mma_m16n8k8_f16(float d[4], uint a0, uint a1, uint b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
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

/* ---- Warpgroups, sm_90a ---------------------------------------------------------------------- */

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PTX_HAS_WGMMA 1
/* Makes this thread's stores to shared memory visible to wgmma. */
static inline void ptx_fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
static inline void ptx_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static inline void ptx_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <uint N> static inline void ptx_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* The descriptor ("Matrix Descriptor Format" of the PTX ISA) of a matrix in shared memory, at a
 * multiple of 512 bytes, whose rows have 64 bytes, with 64-byte swizzling. Addresses and distances
 * in it count sixteen bytes; eight rows, 512 bytes, are its stride. */
static inline u64 ptx_wgmma_matrix(const void *at) {
    const u64 swizzle_64 = u64(2) << 62, stride = u64(512 / 16) << 32, leading = u64(1) << 16;
    return swizzle_64 | stride | leading | (ptx_cvta_shared(at) & 0x3ffffu) >> 4;
}
/* The descriptor of the matrix n times sixteen bytes further on. */
static inline u64 ptx_wgmma_offset(u64 matrix, uint n) {
    return (matrix & ~u64(0xffffffffu)) | (uint(matrix) + n);
}
#define PTX_SUM_8(d, i)                                                                            \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define PTX_SUM_32(d, i)                                                                           \
    PTX_SUM_8(d, i), PTX_SUM_8(d, i + 8), PTX_SUM_8(d, i + 16), PTX_SUM_8(d, i + 24)
/* d += a * b of f16 with f32 sums: a of 64 rows and 16 columns, b of 16 rows and 128 or 256
 * columns, given by descriptors. The instruction runs asynchronously. All lanes of four consecutive
 * warps call it together; the number of the first warp is a multiple of four. */
static inline void ptx_wgmma_m64n128k16_f16(float *d, u64 a, u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
                 "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
                 "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, p, 1, 1, 0, 0;\n}"
                 : PTX_SUM_32(d, 0), PTX_SUM_32(d, 32)
                 : "l"(a), "l"(b));
}
static inline void ptx_wgmma_m64n256k16_f16(float *d, u64 a, u64 b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "
        "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
        "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "
        "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
        "%126, %127"
        "}, %128, %129, p, 1, 1, 0, 0;\n}"
        : PTX_SUM_32(d, 0), PTX_SUM_32(d, 32), PTX_SUM_32(d, 64), PTX_SUM_32(d, 96)
        : "l"(a), "l"(b));
}
#endif

#endif
