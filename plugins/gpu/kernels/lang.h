/* SPDX-License-Identifier: MIT
 *
 * lang.h: the words that kernels are written in. A kernel is a struct whose run() is called by
 * every thread of a grid; GPU_KERNEL(name, struct) at the end of its file makes it an entry of that
 * name.
 *
 * What differs between devices is in words.h, which each of them has in a folder of its own and
 * which is found by the include path: plugins/cuda, plugins/hip, tests/simt. It defines
 *   GPU_ENTRY(name, max_threads, registers, body)  an entry, for workgroups of up to max_threads, of
 *                          which each may use so many registers; its body sees
 *                          `args`, a const Args &
 *   pointer(address)       to device memory, not to shared memory: its loads and stores are cheaper than
 *                          those of a pointer to either
 *   thread_id() group_size() group_x() group_y() grid_x()   of the workgroup and the grid
 *   wave_size() wave_xchg(word, mask)   lanes that run together; the word of lane (own ^ mask)
 *   barrier()              of the workgroup; it also orders what its threads read and write
 *   shared_memory()        the workgroup's shared memory, at a multiple of 512 bytes, undefined at first
 *   shared_add(word, n) shared_or(word, bits)   on a word of shared memory, atomically;
 *                          they return what was there
 *   dot_4(a, b, sum)       sum + the products of the four signed bytes of two words
 *   bytes_pick(low, high, index)   byte i is that of the eight bytes low, high whose number,
 *                          0 .. 7, is byte i of index
 *   Mat                    a lane's part of 16 rows of 16 signed bytes each; the wave holds all
 *   mat_load(rows)         of shared memory; the wave's lanes call it together
 *   mat_mul(sum, a, b)     int sum[8]: sum[i] += the product of row mat_row(i) of a and row
 *                          mat_column(i) of b, for i below mat_count(). The wave's lanes call it
 *                          together, and have the 256 products between them
 *   HalfMat                a lane's part of 16 rows of 16 f16 each; the wave holds all
 *   half_mat_load(tile, row, step)   rows row .. + 15, and of each elements 16 * step .. + 15, of a
 *                          tile in shared memory, whose rows have 32 elements: eight of them, `chunk`,
 *                          lie at tile[half_tile_at(row, chunk)]. row is a multiple of 16. The wave's
 *                          lanes call it together
 *   half_mat_load_transposed(tile, row, step)   the same sixteen rows and elements of a tile, transposed: row i
 *                          has element 16 * step + i of each of the rows row .. + 15
 *   half_mat_mul(sum, a, b)   float sum[8]: as mat_mul. Products are exact
 *   HAS_HALF_MATS          defined where the device has these four in hardware
 *   HalfBlocks<PARTS>      the products that a thread has under way, made of two pointers, w and x, to tiles
 *                          in shared memory that follow each other. Four waves that follow each other, of 32
 *                          lanes, call its functions together
 *     fence()              what this thread has stored in shared memory, or copied there and waited for,
 *                          multiply() may read behind the next barrier
 *     multiply(sum, i)     float sum[PARTS][8]: begins sum[p] += the products of rows 16 * wave_id() .. + 15
 *                          of the i-th tile of w, of 16 rows for each wave, and rows 16 * p .. + 15 of the
 *                          i-th tile of x, of 16 * PARTS rows, over all 32 elements. The rows of a
 *                          thread's sums are mat_row, the columns mat_column. Tiles are those of
 *                          half_mat_load, at multiples of 512 bytes. Until it has ended, tiles may not be
 *                          changed, and sum is for another multiply() alone. Products are exact
 *     wait()               all of them have ended
 *   HAS_HALF_BLOCKS        defined where the device has these in hardware
 *   copy_16(to, from)      begins to copy sixteen bytes from an address to shared memory, both at a
 *                          multiple of 16. Neither may be changed, nor `to` read, before the copy ends
 *   copy_8(to, from)       the same of eight bytes, at multiples of 8
 *   COPIES_WAIT            true where these two wait for what they load, so that a thread has no second copy
 *                          under way; where it is not defined, false
 *   loads_begun()          where COPIES_WAIT is defined: no load before this call is delayed beyond it
 *   copies_mark()          what this thread has begun since the last call is a batch
 *   copies_wait<N>()       all batches of this thread have ended but the latest N. Other threads see
 *                          them behind a barrier
 *   recomputed(x)          x. What follows from it is computed behind this call each time: a compiler cannot
 *                          compute it before a loop, and keep it in registers throughout
 *   half_to_float(bits)    exact; denormals are kept
 *   exp2_roughly(x)        2^x for x <= 0, to 2^-20 of it; 0 below -126, and a NaN stays one
 *   pack_half2(low, high)  two floats as f16 in a word, to nearest even; denormals are kept
 *   halves_add(a, b) halves_mul(a, b)   of the two f16 of two words, each rounded like that
 *   pointer_16(address)    of sixteen bytes, at a multiple of 16
 *   load_system(address)   a 64-bit word that other devices and the host write: acquire at system scope
 *   store_system(address, word)   release at system scope, of what the stream did before, too
 *   system_release()       other devices and the host that see what store_system() stores behind the next barrier
 *                          of this workgroup see what this thread has stored before
 *   device_release()       threads that see what device_add() adds behind the next barrier of this workgroup see
 *                          what this thread has stored before
 *   device_add(address, n)   on a 32-bit word of the device's memory, atomically; returns what was there
 *   device_acquire()       behind device_add(), of the thread that called it: it sees what is visible by the sum
 *                          that was there
 *   group_acquire()        behind the next barrier, of all threads of that workgroup: they see it too
 *   ticks()                a clock of the device that runs at one rate; always 0 where there is none
 *   spin_pause()           between two loads of a thread that waits for another device
 *   launch_next()          the next kernel of the stream may start as soon as every workgroup of this grid
 *                          has called it or has ended, where its launch allows that (rt/early.h).
 *                          Nothing is ordered or made visible by it
 *   wait_previous()        returns when the kernels before this one have ended; what they wrote is visible
 *   prefetch(address)      may read the 128 bytes of device memory around the address into the device's
 *                          cache. It returns no value: loads behind it see later writes to that memory
 * Functions are declared `inline`, those of structs too (on_device.h). Kernels use no language library. Build
 * without contraction (-ffp-contract=off, -fmad=false): fma is written out where it is meant, and results are
 * the same on all devices.
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

#include "vec.h"

/* Where eight elements of a row of a tile of f16 lie, in units of sixteen bytes: rows have 64 bytes, and
 * eight neighbouring rows have the same chunk in different banks of shared memory. */
static inline uint half_tile_at(uint row, uint chunk) {
    return 4 * row + (chunk ^ row / 2 % 4);
}

#include "words.h"

#ifndef COPIES_WAIT
#define COPIES_WAIT false
static inline void loads_begun() {}
#endif

/* Sixteen bytes of shared memory at a multiple of 16. */
static inline void shared_store_16(uvec4 *at, uvec4 x) {
    *(uvec4 *)__builtin_assume_aligned(at, 16) = x;
}

#define UNROLL      _Pragma("unroll")
#define DONT_UNROLL _Pragma("unroll 1")

/* Specialisation numbers, in members of struct Kernel. */
#define SPEC0 (args.spec[0])
#define SPEC1 (args.spec[1])
#define SPEC2 (args.spec[2])
#define SPEC3 (args.spec[3])
#define SPEC4 (args.spec[4])
#define SPEC5 (args.spec[5])
#define SPEC6 (args.spec[6])
#define SPEC7 (args.spec[7])

/* Two f16 in a word, the low one first. */
static inline vec2 unpack_half2(uint bits) {
    return vec2(half_to_float(bits & 0xffffu), half_to_float(bits >> 16));
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Elements of a type from an address on, which is a multiple of its alignment. */
template <class T> struct Ref {
    T *at;
    inline explicit Ref(u64 address) : at((T *)pointer(address)) {}
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
    return *(const uvec4 *)pointer_16(address);
}
static inline void store_16(u64 address, uvec4 x) {
    *(uvec4 *)pointer_16(address) = x;
}

/* copy_16(to(i), from(i)) for i from `first` on in steps below `end`. Where copies wait, four are loaded before
 * the first is stored. */
template <class To, class From>
static inline void copies_16(int first, int end, int step, To to, From from) {
    constexpr int AT_ONCE = 4;
    int i = first;
    if (COPIES_WAIT) DONT_UNROLL for (; i + (AT_ONCE - 1) * step < end; i += AT_ONCE * step) {
            uvec4 x[AT_ONCE];
            UNROLL for (int k = 0; k < AT_ONCE; k++) x[k] = load_16(from(i + k * step));
            loads_begun();
            UNROLL for (int k = 0; k < AT_ONCE; k++) shared_store_16(to(i + k * step), x[k]);
        }
    DONT_UNROLL for (; i < end; i += step) copy_16(to(i), from(i));
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

    inline explicit Kernel(const Args &args_) : args(args_), shared_used(0) {}

    /* What every thread does while the kernels before may still run. It reads and writes no memory of the
     * device: only prefetch() is allowed. A kernel has its own where it has use for it. */
    inline void begin() {}

    /* The next n elements of shared memory. All threads take the same, in the same order; how much
     * a kernel takes in all is in plugins/gpu/rt/shared.c too. */
    template <class T> inline T *shared_take(int n) {
        T *from = (T *)(shared_memory() + shared_used);
        shared_used += (uint(n) * uint(sizeof(T)) + 15u) & ~15u;
        return from;
    }

    /* The number of this workgroup, and of this thread, in a grid over x and y. */
    inline uint group_number() const { return group_x() + group_y() * grid_x(); }
    inline uint invocation_number() const { return group_number() * group_size() + thread_id(); }
};

/* Threads of the largest workgroup: target_fill of plugins/gpu/rt/device.c. */
#define GPU_MAX_GROUP 1024

#define GPU_KERNEL(name, ...) GPU_KERNEL_OF(name, GPU_MAX_GROUP, 64, __VA_ARGS__)
/* registers: up to 255 of 32 bits. With more, a thread has more loads under way; with fewer, a
 * processor has more threads.
 * Every kernel waits here, and nowhere else: so a kernel ends after all that were launched before it,
 * and the wait for one kernel is a wait for all of them. */
#define GPU_KERNEL_OF(name, max_threads, registers, ...)                                           \
    GPU_ENTRY(name, max_threads, registers, {                                                      \
        launch_next();                                                                             \
        __VA_ARGS__ kernel(args);                                                                  \
        kernel.begin();                                                                            \
        wait_previous();                                                                           \
        kernel.run();                                                                              \
    })

#endif
