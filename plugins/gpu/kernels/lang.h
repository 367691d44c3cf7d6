/* SPDX-License-Identifier: MIT
 *
 * lang.h: the language of kernels: C++ and the words (functions, types, macros) below. A kernel is
 * a struct whose run() is called by every thread of a grid; GPU_KERNEL(name, struct) at the end of
 * its file makes it an entry of that name.
 *
 * What differs between devices is in words.h. There is one in plugins/cuda, plugins/hip and
 * tests/simt; the include path of a build selects it. It defines
 *   GPU_ENTRY(name, max_threads, registers, body)
 *                          an entry for workgroups of up to max_threads threads, of which each may
 *                          use up to `registers` registers. The body reads `args`, a const Args &
 *   pointer(address)       a pointer to device memory, not to shared memory: its loads and stores
 *                          are cheaper than those of a pointer that may lead to either
 *   thread_id() group_size() group_x() group_y() grid_x()
 *                          number of the thread in its workgroup, threads of a workgroup, place of
 *                          the workgroup in the grid, workgroups along the grid's first axis
 *   wave_size()            lanes that run together
 *   wave_xchg(word, mask)  the word of lane (own ^ mask). The wave's lanes call it together
 *   barrier()              of the workgroup. What its threads stored before the barrier is visible
 *                          to all of them after it
 *   shared_memory()        the workgroup's shared memory, at a multiple of 512 bytes. Its contents
 *                          are undefined when the workgroup starts
 *   shared_add(word, n) shared_or(word, bits)
 *                          on a word of shared memory, atomically; they return the word's old value
 *   dot_4(a, b, sum)       sum + the products of the four signed bytes of a and of b
 *   bytes_pick(low, high, index)
 *                          a word. Its byte i is byte number (byte i of index, 0 .. 7) of the eight
 *                          bytes of low and high; those of low come first
 *   Mat                    a lane's part of 16 rows of 16 signed bytes each; the wave holds all
 *   mat_load(rows)         from 16 rows in shared memory. The wave's lanes call it together
 *   mat_mul(sum, a, b)     int sum[8]: sum[i] += the product of row mat_row(i) of a and row
 *                          mat_column(i) of b, for i below mat_count(). The wave's lanes call it
 *                          together; each of the 256 products is in one lane
 *   HalfMat                a lane's part of 16 rows of 16 f16 each; the wave holds all
 *   half_mat_load(tile, row, step)
 *                          rows row .. row + 15, and of each elements 16 * step .. + 15, of a tile
 *                          in shared memory. A row of a tile has 32 elements in four chunks of
 *                          eight; a chunk lies at tile[half_tile_at(row, chunk)]. row is a multiple
 *                          of 16. The wave's lanes call it together
 *   half_mat_load_transposed(tile, row, step)
 *                          the same rows and elements, transposed: row i has element 16 * step + i
 *                          of each of the rows row .. row + 15
 *   half_mat_mul(sum, a, b)
 *                          float sum[8]: as mat_mul. Products are exact
 *   HAS_HALF_MATS          defined where the device has these four in hardware
 *   HalfBlocks<PARTS>      products of larger tiles, which run while the thread goes on. It is made
 *                          of two pointers to shared memory, w and x, each to an array of tiles.
 *                          Four consecutive waves of 32 lanes call its functions together
 *     fence()              called before a barrier: after it, multiply() may read what this thread
 *                          has stored in shared memory, or has copied there and waited for
 *     multiply(sum, i)     float sum[PARTS][8]: starts sum[p] += the products of rows
 *                          16 * wave_id() .. + 15 of tile i of w and rows 16 * p .. + 15 of tile i
 *                          of x, over all 32 elements. A tile of w has 16 rows for each wave of the
 *                          workgroup, a tile of x 16 * PARTS rows. mat_row and mat_column say where
 *                          the thread's sums lie. Tiles are those of half_mat_load, at multiples of
 *                          512 bytes. Until wait() has returned, tiles must not be changed, and
 *                          nothing but another multiply() may use sum. Products are exact
 *     wait()               returns when all products that this thread has started have ended
 *   HAS_HALF_BLOCKS        defined where the device has these in hardware
 *   copy_16(to, from)      starts to copy sixteen bytes from an address of device memory to shared
 *                          memory, both at a multiple of 16. Neither may be changed, nor `to` read,
 *                          before the copy has ended
 *   copy_8(to, from)       the same of eight bytes, at multiples of 8
 *   copies_mark()          the copies that this thread has started since its last call are a batch
 *   copies_wait<N>()       returns when all batches of this thread but the latest N have ended.
 *                          Other threads may read the copies after a barrier
 *   COPIES_WAIT            true where copy_16 and copy_8 are a load and a store: the thread waits
 *                          for each load, so it has one copy under way at a time. False where
 *                          words.h does not define it
 *   loads_begun()          with COPIES_WAIT: loads that stand before this call are started before
 *                          it
 *   recomputed(x)          x, opaque to the compiler: what is computed from it is computed again
 *                          after each call, not once before a loop and then kept in a register
 *   half_to_float(bits)    exact; denormals are kept
 *   exp2_roughly(x)        2^x for x <= 0, with a relative error of up to 2^-20; 0 below -126. A
 *                          NaN stays a NaN
 *   pack_half2(low, high)  two floats as f16 in a word, to nearest even; denormals are kept
 *   halves_add(a, b) halves_mul(a, b)
 *                          sums and products of the two f16 of each word, rounded like that
 *   pointer_16(address)    pointer(address) to sixteen bytes, at a multiple of 16
 *   load_system(address)   a 64-bit word that other devices and the host write: acquire at system
 *                          scope
 *   store_system(address, word)
 *                          release at system scope. It covers earlier kernels of the stream too
 *   system_release()       called before a barrier that a store_system() of the workgroup follows:
 *                          who reads the stored word also sees what this thread has stored before
 *   device_release()       called before a barrier that a device_add() of the workgroup follows:
 *                          who reads the sum also sees what this thread has stored before
 *   device_add(address, n) on a 32-bit word of device memory, atomically; returns the old value
 *   device_acquire()       called by the thread that called device_add(), after it: the thread sees
 *                          what was released before the adds that the old value contains
 *   group_acquire()        called by all threads of the workgroup after the next barrier: they see
 *                          what device_acquire() made visible
 *   ticks()                a clock of the device that runs at one rate; always 0 where there is
 *                          none
 *   spin_pause()           for a thread that polls a word of another device: between two loads
 *   launch_next()          the next kernel of the stream may start as soon as every workgroup of
 *                          this grid has called it or has ended, where its launch allows that
 *                          (rt/early.h). It orders nothing and makes nothing visible
 *   wait_previous()        returns when the kernels before this one have ended; what they wrote is
 *                          visible then
 *   prefetch(address)      may read the 128 bytes of device memory around the address into the
 *                          device's cache. Later loads see later writes to that memory
 *
 * Functions are declared `inline`, those of structs too (on_device.h). Kernels use no library of
 * the language. Build without contraction (-ffp-contract=off, -fmad=false): fma is written out
 * where it is meant, so that results are the same on all devices.
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

/* Where chunk 0 .. 3 of a row of a tile of f16 lies, eight elements, in units of sixteen bytes.
 * Rows have 64 bytes. The same chunk of eight neighbouring rows lies in different banks of shared
 * memory. */
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

/* An array of T in device memory; the address is a multiple of T's alignment. */
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

/* copy_16(to(i), from(i)) for i = first, first + step, ... below `end`. Where copies wait, four are
 * loaded before the first is stored. */
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

    /* Runs in every thread before wait_previous(), while earlier kernels may still run. It must not
     * read or write device memory; only prefetch() is allowed. A kernel may replace it. */
    inline void begin() {}

    /* The next n elements of shared memory, at a multiple of 16 bytes. All threads take the same,
     * in the same order. The sum of what a kernel takes is stated in plugins/gpu/rt/shared.c too: a
     * launch gives the kernel that many bytes. */
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
/* registers: of 32 bits, up to 255. With more, a thread has more loads under way; with fewer, a
 * processor has more threads.
 * Every kernel waits for earlier ones here and nowhere else. So a kernel ends after all kernels
 * that were launched before it, and a wait for one kernel is a wait for all of them. */
#define GPU_KERNEL_OF(name, max_threads, registers, ...)                                           \
    GPU_ENTRY(name, max_threads, registers, {                                                      \
        launch_next();                                                                             \
        __VA_ARGS__ kernel(args);                                                                  \
        kernel.begin();                                                                            \
        wait_previous();                                                                           \
        kernel.run();                                                                              \
    })

#endif
