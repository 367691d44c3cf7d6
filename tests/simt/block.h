/* SPDX-License-Identifier: MIT
 *
 * block.h: runs a kernel over a grid, one workgroup after the other, on the calling thread. A
 * kernel may wait until another thread of the operating system has written memory
 * (simt_spin_pause).
 *
 * "Thread" is a thread of a workgroup below. Each is a fiber: it runs until it reaches a barrier or
 * an exchange inside its wave (an instruction of the whole wave is one too). It continues when
 * every other thread of the workgroup, or of the wave, has reached the same. simt_work.order is the
 * order in which threads are resumed and workgroups run: a kernel that depends on the order gives
 * different results in different orders. Shared memory is filled with a pattern before each
 * workgroup, and guard bytes follow it.
 *
 * A kernel ends with a message where a device would hang or give wrong results: at a barrier or an
 * exchange that not all threads of the workgroup or lanes of the wave reach, at different
 * instructions of a wave in one place, after a write beyond shared memory, and where workgroups are
 * not whole waves.
 */
#ifndef TANDEM_SIMT_BLOCK_H
#define TANDEM_SIMT_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SIMT_MAX_THREAD = 1024,
    SIMT_MAX_SHARED = 48 << 10,   /* of a launch */
    SIMT_MORE_SHARED = 227 << 10, /* of a launch of a kernel that asked for more (max_shared) */
    SIMT_MAX_ARGS = 256,
    SIMT_MAX_COPY = 64 /* of a thread that have not ended */
};

typedef enum simt_order {
    SIMT_FORWARD = 0, /* thread 0 first, and workgroup 0 */
    SIMT_REVERSE,
    SIMT_RANDOM /* another order of threads after each barrier; the seed is fixed */
} simt_order;

typedef struct simt_block simt_block;

/* A thread of the running workgroup. */
typedef struct simt_thread {
    uint32_t thread;
    simt_block *block;
    uint32_t n_xchg; /* exchanges so far; their parity selects one of the lane's two words */
    uint32_t n_copy; /* that have not ended */
    uint32_t batch;  /* number of the batch that new copies belong to */
} simt_thread;

struct simt_block {
    uint32_t group[3]; /* this workgroup's place in the grid */
    uint32_t grid[3];  /* workgroups along each axis */
    uint32_t n_thread;
    uint32_t wave_size;
    char *shared;
    bool is_misaligned; /* sixteen bytes were reached at no multiple of 16 */
    bool is_early;      /* its threads stop at simt_wait_previous */
};

/* The emulated thread that this thread of the operating system runs; NULL outside kernels. */
extern __thread simt_thread *simt_lane __attribute__((tls_model("initial-exec")));

/* The pointer to sixteen bytes that a kernel loads or stores at once. A device ends a kernel whose
 * address is no multiple of 16; here the kernel ends with a message after the workgroup has run. */
static inline void *simt_pointer_16(uint64_t address) {
    if (address % 16 != 0) simt_lane->block->is_misaligned = true;
    return (void *)(uintptr_t)address;
}

void simt_barrier(void);
uint32_t simt_wave_xchg(uint32_t word, uint32_t mask);
/* Copies of sixteen or eight bytes to shared memory, in batches. The bytes are copied when this
 * thread waits for them, neither earlier nor later. A kernel ends with a message where a thread
 * ends before it has waited for all its copies. */
void simt_copy_16(void *to, const void *from);
void simt_copy_8(void *to, const void *from);
void simt_copies_mark(void);
/* Copies what belongs to all batches of this thread but the latest n that were marked. */
void simt_copies_wait(uint32_t n);
/* Nanoseconds of a clock that does not stop. */
uint64_t simt_clock_ns(void);
/* For a thread that polls: sleeps for some microseconds, since other devices are threads of this
 * machine. All threads of the workgroup stop meanwhile. */
void simt_spin_pause(void);
/* In a workgroup that simt_work_start has started: stops the thread until simt_work_run goes on
 * with the launch. Otherwise does nothing. */
void simt_wait_previous(void);
/* Reads a byte, so that a sanitizer or the operating system reports an address outside any
 * memory. */
static inline void simt_prefetch(const void *address) {
    (void)*(const volatile char *)address;
}

/* An instruction that a wave executes as a whole: it reads registers of all lanes. */
enum { SIMT_REGISTERS = 24 };
typedef struct simt_collective {
    const char *name;
    uint32_t n_lane; /* lanes of the waves that have this instruction; 0 = any number */
    /* registers: [lane][SIMT_REGISTERS] what the lanes gave; run() stores what they get. */
    void (*run)(const struct simt_collective *what, uint32_t n_lane,
                uint32_t (*registers)[SIMT_REGISTERS]);
} simt_collective;

/* Executes the instruction on n registers of this lane (at most SIMT_REGISTERS), which it may
 * change. Returns when all lanes of the wave have called it. A kernel whose lanes call different
 * instructions ends with a message. */
void simt_wave_execute(const simt_collective *what, uint32_t *registers, uint32_t n);

/* ---- Kernels by name ---- */

typedef struct simt_kernel {
    const char *name;
    void (*entry)(const void *args);
    size_t args_size;
    struct simt_kernel *next;
    uint32_t max_shared;  /* bytes of a launch, where more than SIMT_MAX_SHARED */
    uint32_t max_threads; /* of a workgroup; a driver refuses launches of more */
} simt_kernel;

/* Adds a kernel to the table, which keeps the pointer. Called by constructors of the library
 * alone. */
void simt_kernel_add(simt_kernel *kernel);
/* NULL where there is none. */
simt_kernel *simt_kernel_find(const char *name);

/* ---- Running ---- */

typedef struct simt_work {
    const simt_kernel *kernel;
    uint32_t grid[3];
    uint32_t n_thread;
    uint32_t shared_size;
    uint32_t wave_size;
    simt_order order;
    bool is_early; /* may be started before the launches before it have ended */
    uint64_t args[SIMT_MAX_ARGS / 8];
} simt_work;

/* Runs all workgroups of a launch. False where the kernel breaks a rule; `why` receives a message
 * then. The launch must stay at its address until it has run. Different threads of the operating
 * system run launches at the same time, so one launch may wait for another. Each of them keeps
 * memory for its launches, and frees it with simt_work_end before it ends. */
bool simt_work_run(const simt_work *launch, char *why, size_t why_size);
void simt_work_end(void);

/* Starts a launch early: its first workgroup runs until each of its threads has reached
 * simt_wait_previous or has ended; simt_work_run goes on from there. Does nothing where the launch
 * is started already. At most SIMT_MAX_EARLY launches of a thread of the operating system may be
 * started at a time; other launches may run meanwhile. So a kernel gives wrong results if, before
 * it waits, it reads what an earlier launch writes or writes what an earlier launch reads. Fails as
 * simt_work_run. */
enum { SIMT_MAX_EARLY = 2 };
bool simt_work_start(const simt_work *launch, char *why, size_t why_size);
/* Drops the launches that are started: they will not be run. */
void simt_works_forget(void);

#ifdef __cplusplus
}
#endif

#endif
