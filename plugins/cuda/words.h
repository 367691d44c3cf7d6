/* SPDX-License-Identifier: MIT
 *
 * words.h: the words of plugins/gpu/kernels/lang.h in PTX, for clang in CUDA mode. No header of a
 * toolkit is used. The build includes plugins/gpu/kernels/on_device.h first.
 */
#ifndef TANDEM_CUDA_WORDS_H
#define TANDEM_CUDA_WORDS_H

#define GPU_ENTRY(name, body)                                                                      \
    extern "C" __attribute__((global, launch_bounds(GPU_MAX_GROUP))) void name(const Args args) body

/* Threads of the largest workgroup: target_fill of plugins/gpu/rt/device.c. */
enum { GPU_MAX_GROUP = 1024 };

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
static inline float half_to_float(uint bits) {
    u16 half = u16(bits);
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
}

#endif
