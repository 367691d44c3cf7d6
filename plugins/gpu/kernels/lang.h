/* SPDX-License-Identifier: MIT
 *
 * lang.h: the words that kernels are written in. A kernel is a struct whose run() is called by
 * every thread of a grid; GPU_KERNEL(name, struct) at the end of its file makes it an entry of that
 * name.
 *
 * What differs between devices is in words.h, which each of them has in a folder of its own and
 * which is found by the include path: plugins/cuda, plugins/hip, tests/simt. It defines
 *   GPU_ENTRY(name, body)  an entry; body sees `args`, a const Args &
 *   thread_id() group_size() group_x() group_y() grid_x()   of the workgroup and the grid
 *   wave_size() wave_xchg(word, mask)   lanes that run together; the word of lane (own ^ mask)
 *   barrier()              of the workgroup; it also orders shared memory
 *   shared_memory()        the workgroup's shared memory, 16-byte aligned, undefined at first
 *   shared_add(word, n) shared_or(word, bits)   on a word of shared memory, atomically;
 *                          they return what was there
 *   half_to_float(bits)    exact; denormals are kept
 * Kernels use no language library. Build without contraction (-ffp-contract=off): fma is written
 * out where it is wanted, and results are the same on all devices.
 */
#ifndef TANDEM_GPU_LANG_H
#define TANDEM_GPU_LANG_H

#include "number.h"

/* gpu_args of plugins/gpu/plan/kernel.h, and the step's specialisation numbers. */
struct Args {
    u64 address[6];
    int word[20];
    int spec[8];
};

#include "words.h"

#define UNROLL _Pragma("unroll")

/* Specialisation numbers, in members of struct Kernel. */
#define SPEC0 (args.spec[0])
#define SPEC1 (args.spec[1])
#define SPEC2 (args.spec[2])
#define SPEC3 (args.spec[3])
#define SPEC4 (args.spec[4])
#define SPEC5 (args.spec[5])
#define SPEC6 (args.spec[6])
#define SPEC7 (args.spec[7])

#include "vec.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Elements of a type from an address on. */
template <class T> struct Ref {
    T *at;
    explicit Ref(u64 address) : at((T *)address) {}
};
typedef Ref<float> F32;
typedef Ref<int> I32;
typedef Ref<uint> U32;
typedef Ref<u16> U16;
typedef Ref<u8> U8;
typedef Ref<u64> U64;
typedef Ref<vec2> F32x2;
typedef Ref<vec4> F32x4;
typedef Ref<uvec2> U32x2;
typedef Ref<uvec4> U32x4;

/* Sixteen bytes at a multiple of 16. */
static inline uvec4 load_16(u64 address) {
    return *(const uvec4 *)__builtin_assume_aligned((const void *)address, 16);
}
static inline void store_16(u64 address, uvec4 x) {
    *(uvec4 *)__builtin_assume_aligned((void *)address, 16) = x;
}

/* ---- Waves ----------------------------------------------------------------------------------- */

static inline uint lane_id() {
    return thread_id() % wave_size();
}
static inline uint wave_id() {
    return thread_id() / wave_size();
}
/* Workgroups are whole waves. */
static inline uint group_waves() {
    return group_size() / wave_size();
}

/* Over the lanes of a wave; every lane calls them and gets the same bits. */
static inline float wave_sum(float x) {
    for (uint mask = 1; mask < wave_size(); mask *= 2)
        x += bits_to_float(wave_xchg(float_to_bits(x), mask));
    return x;
}
static inline float wave_max(float x) {
    for (uint mask = 1; mask < wave_size(); mask *= 2)
        x = max(x, bits_to_float(wave_xchg(float_to_bits(x), mask)));
    return x;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

struct Kernel {
    const Args &args;
    uint shared_used; /* bytes */

    explicit Kernel(const Args &args_) : args(args_), shared_used(0) {}

    /* The next n elements of shared memory. All threads take the same, in the same order; how much
     * a kernel takes in all is in plugins/gpu/rt/shared.c too. */
    template <class T> T *shared_take(int n) {
        T *from = (T *)(shared_memory() + shared_used);
        shared_used += (uint(n) * uint(sizeof(T)) + 15u) & ~15u;
        return from;
    }

    /* The number of this workgroup, and of this thread, in a grid over x and y. */
    uint group_number() const { return group_x() + group_y() * grid_x(); }
    uint invocation_number() const { return group_number() * group_size() + thread_id(); }
};

#define GPU_KERNEL(name, type)                                                                     \
    GPU_ENTRY(name, {                                                                              \
        type kernel(args);                                                                         \
        kernel.run();                                                                              \
    })

#endif
