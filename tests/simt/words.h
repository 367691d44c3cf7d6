/* SPDX-License-Identifier: MIT
 *
 * words.h: the words of plugins/gpu/kernels/lang.h on the emulated driver. A thread is a fiber
 * (block.c); simt_lane is the one that runs.
 */
#ifndef TANDEM_SIMT_WORDS_H
#define TANDEM_SIMT_WORDS_H

#ifdef SIMT_VENDOR
#error "the include path gives these words instead of the vendor's"
#endif

#include "plugins/gpu/kernels/half.h"
#include "tests/simt/entry.h"

static inline void *pointer(u64 address) {
    return (void *)address;
}
static inline uint thread_id() {
    return simt_lane->thread;
}
static inline uint group_size() {
    return simt_lane->block->n_thread;
}
static inline uint group_x() {
    return simt_lane->block->group[0];
}
static inline uint group_y() {
    return simt_lane->block->group[1];
}
static inline uint grid_x() {
    return simt_lane->block->grid[0];
}
static inline uint wave_size() {
    return simt_lane->block->wave_size;
}
static inline uint wave_xchg(uint word, uint mask) {
    return simt_wave_xchg(word, mask);
}
static inline void barrier() {
    simt_barrier();
}
static inline char *shared_memory() {
    return simt_lane->block->shared;
}
/* Plain arithmetic is atomic here: one fiber runs at a time, and none stops inside these
 * functions. */
static inline uint shared_add(uint *word, uint n) {
    uint before = *word;
    *word += n;
    return before;
}
static inline uint shared_or(uint *word, uint bits) {
    uint before = *word;
    *word |= bits;
    return before;
}
static inline int dot_4(uint a, uint b, int sum) {
    return dot_4_plain(a, b, sum);
}
static inline uint bytes_pick(uint low, uint high, uint index) {
    return bytes_pick_plain(low, high, index);
}
#include "plugins/gpu/kernels/matrix_plain.h"
static inline void *pointer_16(u64 address) {
    return simt_pointer_16(address);
}
static inline u64 load_system(u64 address) {
    return __atomic_load_n((u64 *)address, __ATOMIC_ACQUIRE);
}
static inline void store_system(u64 address, u64 word) {
    __atomic_store_n((u64 *)address, word, __ATOMIC_RELEASE);
}
static inline void system_release() {
    __atomic_thread_fence(__ATOMIC_RELEASE);
}
static inline void device_release() {
    __atomic_thread_fence(__ATOMIC_RELEASE);
}
static inline uint device_add(u64 address, uint n) {
    return __atomic_fetch_add((uint *)address, n, __ATOMIC_RELAXED);
}
static inline void device_acquire() {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}
static inline void group_acquire() {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}
static inline u64 ticks() {
    return simt_clock_ns();
}
static inline void spin_pause() {
    simt_spin_pause();
}
static inline void launch_next() {}
static inline void wait_previous() {
    simt_wait_previous();
}
static inline void prefetch(u64 address) {
    simt_prefetch((const void *)address);
}
static inline uint recomputed(uint x) {
    return x;
}
static inline float half_to_float(uint bits) {
    uint wide = f32_bits_of_f16(bits);
    float x;
    __builtin_memcpy(&x, &wide, sizeof x);
    return x;
}
static inline float exp2_roughly(float x) {
    return x < -126.0f ? 0.0f : __builtin_exp2f(x);
}
static inline uint pack_half2(float low, float high) {
    return f16_of_f32_bits(float_to_bits(low)) | f16_of_f32_bits(float_to_bits(high)) << 16;
}
static inline uint halves_add(uint a, uint b) {
    return halves_add_plain(a, b);
}
static inline uint halves_mul(uint a, uint b) {
    return halves_mul_plain(a, b);
}
#include "plugins/gpu/kernels/half_matrix_plain.h"
static inline void copy_16(uvec4 *to, u64 from) {
    simt_copy_16(to, simt_pointer_16(from));
}
static inline void copy_8(uvec2 *to, u64 from) {
    simt_copy_8(to, (const void *)from);
}
static inline void copies_mark() {
    simt_copies_mark();
}
template <int N> static inline void copies_wait() {
    simt_copies_wait(N);
}

#endif
