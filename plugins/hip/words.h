/* SPDX-License-Identifier: MIT
 *
 * words.h: the words of plugins/gpu/kernels/lang.h for AMD's processors, for clang in HIP mode. No
 * header of ROCm is used. The build includes plugins/gpu/kernels/on_device.h first.
 */
#ifndef TANDEM_HIP_WORDS_H
#define TANDEM_HIP_WORDS_H

/* launch_bounds is ignored for these targets. */
#define GPU_ENTRY(name, body)                                                                      \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 1024))) void name(            \
        const Args args) body

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

extern __attribute__((shared, aligned(16))) uint gpu_shared_words[];
static inline char *shared_memory() {
    return (char *)gpu_shared_words;
}
static inline uint shared_add(uint *word, uint n) {
    return __scoped_atomic_fetch_add(word, n, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}
static inline uint shared_or(uint *word, uint bits) {
    return __scoped_atomic_fetch_or(word, bits, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}
static inline float half_to_float(uint bits) {
    u16 half = u16(bits);
    _Float16 x;
    __builtin_memcpy(&x, &half, sizeof x);
    return float(x);
}

#endif
