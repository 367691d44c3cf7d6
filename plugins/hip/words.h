/* SPDX-License-Identifier: MIT
 *
 * words.h: the words of plugins/gpu/kernels/lang.h for AMD's processors, for clang in HIP mode and
 * hipcc. No header of ROCm is used. The build includes plugins/gpu/kernels/on_device.h first.
 */
#ifndef TANDEM_HIP_WORDS_H
#define TANDEM_HIP_WORDS_H

/* gfx940 to gfx950. */
#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__) ||    \
    defined(__gfx9_4_generic__)
#define IS_CDNA_3 1
#else
#define IS_CDNA_3 0
#endif

/* The arguments of a kernel. LLVM 15 copies `given` to local memory in most kernels, for each
 * thread, which LLVM 19 does not. So older compilers read the arguments where the launch has put
 * them. */
#if __clang_major__ < 19 && defined(__AMDGCN__)
#define GPU_ARGS(given) *(const Args *)__builtin_amdgcn_kernarg_segment_ptr()
#else
#define GPU_ARGS(given) given
#endif

/* Compilers ignore launch_bounds for these targets; the attribute has the same meaning. */
#define GPU_ENTRY(name, max_threads, registers, ...)                                               \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, max_threads))) void name(     \
        const Args given) {                                                                        \
        const Args &args = GPU_ARGS(given);                                                        \
        __VA_ARGS__                                                                                \
    }

static inline void *pointer(u64 address) {
    return (void *)(__attribute__((address_space(1))) void *)address;
}
static inline uint thread_id() {
    return __builtin_amdgcn_workitem_id_x();
}
static inline uint group_size() {
    return __builtin_amdgcn_workgroup_size_x();
}
static inline uint group_x() {
    return __builtin_amdgcn_workgroup_id_x();
}
static inline uint group_y() {
    return __builtin_amdgcn_workgroup_id_y();
}
static inline uint grid_x() {
    return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
}
static inline uint wave_size() {
    return __AMDGCN_WAVEFRONT_SIZE;
}
static inline uint wave_xchg(uint word, uint mask) {
    uint lane = __builtin_amdgcn_mbcnt_lo(~0u, 0u);
    if (__AMDGCN_WAVEFRONT_SIZE == 64) lane = __builtin_amdgcn_mbcnt_hi(~0u, lane);
    return uint(__builtin_amdgcn_ds_bpermute(int((lane ^ mask) << 2), int(word)));
}
static inline void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

extern __attribute__((shared, aligned(512))) uint gpu_shared_words[];
static inline char *shared_memory() {
    return (char *)gpu_shared_words;
}
static inline uint shared_add(uint *word, uint n) {
    return __hip_atomic_fetch_add(word, n, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
static inline uint shared_or(uint *word, uint bits) {
    return __hip_atomic_fetch_or(word, bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
#if defined(__GFX11__) || defined(__GFX12__)
static inline int dot_4(uint a, uint b, int sum) {
    return __builtin_amdgcn_sudot4(true, int(a), true, int(b), sum, false);
}
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || IS_CDNA_3 ||            \
    defined(__gfx1011__) || defined(__gfx1012__) || defined(__gfx1030__) ||                        \
    defined(__gfx1031__) || defined(__gfx1032__) || defined(__gfx1033__) ||                        \
    defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__)
static inline int dot_4(uint a, uint b, int sum) {
    return __builtin_amdgcn_sdot4(int(a), int(b), sum, false);
}
#else
static inline int dot_4(uint a, uint b, int sum) {
    return dot_4_plain(a, b, sum);
}
#endif
/* v_perm_b32 takes bytes 0 to 3 from its second operand. */
static inline uint bytes_pick(uint low, uint high, uint index) {
    return __builtin_amdgcn_perm(high, low, index);
}

typedef int mat_int2 __attribute__((ext_vector_type(2)));
typedef int mat_int4 __attribute__((ext_vector_type(4)));
typedef int mat_int8 __attribute__((ext_vector_type(8)));
static inline uint mat_lane() {
    return thread_id() % __AMDGCN_WAVEFRONT_SIZE;
}
#if defined(__GFX11__) && __AMDGCN_WAVEFRONT_SIZE == 32
/* RDNA 3: lane l has all 16 bytes of row l % 16; both halves of a wave have the same rows. */
typedef mat_int4 Mat;
static inline Mat mat_load(const uvec4 *rows) {
    uvec4 row = rows[mat_lane() % 16];
    return Mat{int(row.x), int(row.y), int(row.z), int(row.w)};
}
static inline uint mat_count() {
    return 8;
}
static inline uint mat_row(uint i) {
    return 2 * i + mat_lane() / 16;
}
static inline void mat_mul(int *sum, Mat a, Mat b) {
    mat_int8 c = {sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7]};
    c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, c, false);
    for (int i = 0; i < 8; i++) sum[i] = c[i];
}
#define MAT_IS_DEFINED
#elif defined(__GFX12__) && __AMDGCN_WAVEFRONT_SIZE == 32
/* RDNA 4: lane l has bytes 8 * (l / 16) .. + 7 of row l % 16. */
typedef mat_int2 Mat;
static inline Mat mat_load(const uvec4 *rows) {
    const uint *words = (const uint *)(rows + mat_lane() % 16) + 2 * (mat_lane() / 16);
    return Mat{int(words[0]), int(words[1])};
}
static inline uint mat_count() {
    return 8;
}
static inline uint mat_row(uint i) {
    return i + 8 * (mat_lane() / 16);
}
static inline void mat_mul(int *sum, Mat a, Mat b) {
    mat_int8 c = {sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7]};
    c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, b, c, false);
    for (int i = 0; i < 8; i++) sum[i] = c[i];
}
#define MAT_IS_DEFINED
#elif defined(__gfx908__) || defined(__gfx90a__) || IS_CDNA_3
#if defined(__gfx908__) || defined(__gfx90a__)
/* CDNA 1 and 2: lane l has bytes 4 * (l / 16) .. + 3 of row l % 16. */
typedef int Mat;
static inline Mat mat_load(const uvec4 *rows) {
    return int(((const uint *)(rows + mat_lane() % 16))[mat_lane() / 16]);
}
static inline mat_int4 mat_product(Mat a, Mat b, mat_int4 c) {
    return __builtin_amdgcn_mfma_i32_16x16x16i8(a, b, c, 0, 0, 0);
}
#else
/* CDNA 3 multiplies 32 bytes of a row at a time: lane l has bytes 8 * (l / 16) .. + 7 of row l %
 * 16. Rows of Mat have 16 bytes; bytes from 16 on are 0. */
typedef long Mat;
static inline Mat mat_load(const uvec4 *rows) {
    const uint *words = (const uint *)(rows + mat_lane() % 16) + 2 * (mat_lane() / 16 % 2);
    u64 bytes = u64(words[0]) | u64(words[1]) << 32;
    return mat_lane() < 32 ? long(bytes) : 0;
}
static inline mat_int4 mat_product(Mat a, Mat b, mat_int4 c) {
    return __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, 0, 0, 0);
}
#endif
/* CDNA 1 to 3: lane l has rows 4 * (l / 16) .. + 3 of the sums. */
static inline uint mat_count() {
    return 4;
}
static inline uint mat_row(uint i) {
    return 4 * (mat_lane() / 16) + i;
}
static inline void mat_mul(int *sum, Mat a, Mat b) {
    mat_int4 c = mat_product(a, b, mat_int4{sum[0], sum[1], sum[2], sum[3]});
    for (int i = 0; i < 4; i++) sum[i] = c[i];
}
#define MAT_IS_DEFINED
#endif
#ifdef MAT_IS_DEFINED
static inline uint mat_column(uint i) {
    (void)i;
    return mat_lane() % 16;
}
/* f16: a lane has part of the same row as of bytes, and its sums have the same places. */
#define HAS_HALF_MATS 1
#if defined(__GFX11__)
/* A lane has all 16 elements of row l % 16. */
enum { HALF_MAT_WORDS = 8 };
static inline uint half_mat_chunk() {
    return 0;
}
#elif defined(__GFX12__)
/* Lane l has elements 8 * (l / 16) .. + 7 of row l % 16. */
enum { HALF_MAT_WORDS = 4 };
static inline uint half_mat_chunk() {
    return mat_lane() / 16;
}
#else
/* Lane l has elements 4 * (l / 16) .. + 3 of row l % 16. */
enum { HALF_MAT_WORDS = 2 };
static inline uint half_mat_chunk() {
    return mat_lane() / 32;
}
#endif
typedef _Float16 half_vector __attribute__((vector_size(4 * HALF_MAT_WORDS)));
struct HalfMat {
    half_vector row;
};
static inline HalfMat half_mat_load(const uvec4 *tile, uint row, uint step) {
    uint words[HALF_MAT_WORDS], first = 0;
    if (HALF_MAT_WORDS == 2) first = mat_lane() / 16 % 2 * 2;
    for (uint i = 0; i < HALF_MAT_WORDS; i++) {
        uint chunk = 2 * step + half_mat_chunk() + i / 4;
        const uvec4 *at = tile + half_tile_at(row + mat_lane() % 16, chunk);
        words[i] = ((const uint *)__builtin_assume_aligned(at, 16))[first + i % 4];
    }
    HalfMat m;
    __builtin_memcpy(&m.row, words, sizeof words);
    return m;
}
/* A lane's elements lie in different rows of the tile, at the same place of each row. */
static inline HalfMat half_mat_load_transposed(const uvec4 *tile, uint row, uint step) {
    const uint element = mat_lane() % 16;
    u16 halves[2 * HALF_MAT_WORDS];
    uint first = row + 8 * half_mat_chunk();
    if (HALF_MAT_WORDS == 2) first += mat_lane() / 16 % 2 * 4;
    for (uint i = 0; i < 2 * HALF_MAT_WORDS; i++)
        halves[i] =
            ((const u16 *)(tile + half_tile_at(first + i, 2 * step + element / 8)))[element % 8];
    HalfMat m;
    __builtin_memcpy(&m.row, halves, sizeof halves);
    return m;
}
#if defined(__GFX11__) || defined(__GFX12__)
typedef float half_sums __attribute__((vector_size(32)));
#else
typedef float half_sums __attribute__((vector_size(16)));
#endif
static inline void half_mat_mul(float *sum, const HalfMat &a, const HalfMat &b) {
    half_sums c;
    for (uint i = 0; i < sizeof c / sizeof(float); i++) c[i] = sum[i];
#if defined(__GFX11__)
    c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a.row, b.row, c);
#elif defined(__GFX12__)
    c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a.row, b.row, c);
#else
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(a.row, b.row, c, 0, 0, 0);
#endif
    for (uint i = 0; i < sizeof c / sizeof(float); i++) sum[i] = c[i];
}
#else
#include "plugins/gpu/kernels/matrix_plain.h"
#endif
static inline void *pointer_16(u64 address) {
    return __builtin_assume_aligned(pointer(address), 16);
}
/* Returns when the write-backs and invalidations of caches that this wave's fences have started are
 * done. LLVM 19 does not wait for them: it leaves the wait of a fence out where it knows of no load
 * or store of the wave under way (llvm/llvm-project#178316, #220694). Without this wait, a flag
 * could become visible before stores of earlier kernels, which gfx12 keeps in its caches even where
 * they go to host memory; and a load after an acquire could return old data that is not yet
 * invalidated. */
static inline void caches_wait() {
#ifdef __AMDGCN__ /* else a test compiles this for the CPU */
#ifdef __GFX12__
    asm volatile("s_wait_storecnt 0x0\n\ts_wait_loadcnt 0x0" ::: "memory");
#else
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#endif
#endif
}
static inline u64 load_system(u64 address) {
    u64 word = __hip_atomic_load((u64 *)address, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
    caches_wait();
    return word;
}
/* In each wave, since a wave's wait covers its own stores alone. */
static inline void system_release() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    caches_wait();
}
static inline void store_system(u64 address, u64 word) {
    system_release();
    __hip_atomic_store((u64 *)address, word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
static inline void device_release() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    caches_wait();
}
static inline uint device_add(u64 address, uint n) {
    return __hip_atomic_fetch_add((uint *)pointer(address), n, __ATOMIC_RELAXED,
                                  __HIP_MEMORY_SCOPE_AGENT);
}
static inline void device_acquire() {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    caches_wait();
}
static inline void group_acquire() {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    caches_wait();
}
static inline u64 ticks() {
#if __has_builtin(__builtin_readsteadycounter)
    return __builtin_readsteadycounter();
#elif defined(__AMDGCN__) && !defined(__GFX11__) && !defined(__GFX12__)
    return __builtin_amdgcn_s_memrealtime(); /* as newer compilers make of the other */
#else
    return 0;
#endif
}
static inline void spin_pause() {
    __builtin_amdgcn_s_sleep(1);
}
/* A kernel starts when the one before has ended, so there is nothing to do. */
static inline void launch_next() {}
static inline void wait_previous() {}
static inline void prefetch(u64) {}
/* AMD's asynchronous copies do not let each lane choose its address in shared memory. */
#define COPIES_WAIT true
/* Without this, compilers move each load directly before its store, to save registers. */
static inline void loads_begun() {
#ifdef __AMDGCN__
    asm volatile("" ::: "memory");
#endif
}
static inline void copy_16(uvec4 *to, u64 from) {
    *(uvec4 *)__builtin_assume_aligned(to, 16) = *(const uvec4 *)pointer_16(from);
}
static inline void copy_8(uvec2 *to, u64 from) {
    *to = *(const uvec2 *)pointer(from);
}
static inline void copies_mark() {}
template <int N> static inline void copies_wait() {}
static inline uint recomputed(uint x) {
#ifdef __AMDGCN__ /* else a test compiles this for a CPU */
    asm volatile("" : "+v"(x));
#endif
    return x;
}
static inline float exp2_roughly(float x) {
    return x < -126.0f ? 0.0f : __builtin_exp2f(x);
}
typedef _Float16 half_pair __attribute__((vector_size(4)));
static inline half_pair half_pair_of(uint bits) {
    half_pair x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint half_pair_bits(half_pair x) {
    uint bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline uint halves_add(uint a, uint b) {
    return half_pair_bits(half_pair_of(a) + half_pair_of(b));
}
static inline uint halves_mul(uint a, uint b) {
    return half_pair_bits(half_pair_of(a) * half_pair_of(b));
}
static inline uint pack_half2(float low, float high) {
    _Float16 both[2] = {_Float16(low), _Float16(high)};
    uint bits;
    __builtin_memcpy(&bits, both, sizeof bits);
    return bits;
}
static inline float half_to_float(uint bits) {
    u16 half = u16(bits);
    _Float16 x;
    __builtin_memcpy(&x, &half, sizeof x);
    return float(x);
}

#endif
