/* SPDX-License-Identifier: MIT
 *
 * block.c: see block.h. Fibers are switched by a few lines of assembly on x86-64, elsewhere by
 * swapcontext.
 */
#include "tests/simt/block.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

/* For functions that a fiber enters and never leaves. The thread sanitizer keeps a stack of the
 * functions that each fiber has entered; with these it would grow at every launch. */
#define NOT_COUNTED __attribute__((no_sanitize("thread")))

/* Fibers begin at N_SHIFT different distances from the ends of their stacks. With equal distances,
 * the used parts of all stacks would lie in the same few sets of the processor's caches, and each
 * switch would miss the cache. */
enum { SHIFT = 448, N_SHIFT = 32, STACK_SIZE = (128 + 16) << 10, GUARD_SIZE = 4096 };

static const uint8_t poison = 0xcd;

typedef enum fiber_state {
    FIBER_READY,
    FIBER_AT_BARRIER,
    FIBER_AT_XCHG,
    FIBER_AT_PREVIOUS, /* simt_wait_previous */
    FIBER_DONE
} fiber_state;

typedef struct fiber {
    simt_thread lane;
    const simt_collective *what; /* at an exchange: the instruction; NULL = simt_wave_xchg */
    char *stack;                 /* STACK_SIZE bytes, kept from workgroup to workgroup */
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
#ifdef __SANITIZE_ADDRESS__
    void *fake;
#endif
#ifdef __SANITIZE_THREAD__
    void *tsan;
#endif
} fiber;

__thread simt_thread *simt_lane;

/* A copy of sixteen or eight bytes to shared memory. */
typedef struct copy {
    void *to;
    const void *from;
    uint32_t batch, size;
} copy;

/* What a thread of the operating system needs to run a launch. */
typedef struct runner {
    fiber fibers[SIMT_MAX_THREAD];
    fiber_state state_of[SIMT_MAX_THREAD]; /* not in the fibers, since all are read often */
    copy copies_of[SIMT_MAX_THREAD][SIMT_MAX_COPY]; /* that have not ended, the oldest first */
    uint32_t words[2][SIMT_MAX_THREAD];             /* of simt_wave_xchg */
    uint32_t registers_of[SIMT_MAX_THREAD][SIMT_REGISTERS];
    uint32_t order_of[SIMT_MAX_THREAD];
    uint32_t turn; /* place in order_of of the running fiber */
    _Alignas(512) char shared_memory[SIMT_MORE_SHARED + GUARD_SIZE];
    const simt_work *running;
    simt_block block;
    bool is_started; /* simt_work_start has started `running`; simt_work_run goes on with it */
    uint32_t random_state;
#ifdef __x86_64__
    void *scheduler_sp;
#else
    ucontext_t scheduler_context;
#endif
#ifdef __SANITIZE_ADDRESS__
    bool is_from_scheduler; /* the last switch left the scheduler, whose stack is stored then */
    const void *scheduler_stack;
    size_t scheduler_stack_size;
#endif
#ifdef __SANITIZE_THREAD__
    void *scheduler_tsan;
#endif
} runner;

/* Runners for the launches that are started, and for one that runs meanwhile. NULL = not used
 * yet. */
static __thread runner *runners[1 + SIMT_MAX_EARLY];
/* The runner in use; NULL = this thread has run nothing. Every switch reads it: with another
 * tls_model, a call that finds its address would take half of the time of kernels with the address
 * sanitizer. */
static __thread runner *me __attribute__((tls_model("initial-exec")));

/* ---- Kernels by name ------------------------------------------------------------------------- */

static simt_kernel *kernels;

void simt_kernel_add(simt_kernel *kernel) {
    kernel->next = kernels;
    kernels = kernel;
}

simt_kernel *simt_kernel_find(const char *name) {
    simt_kernel *kernel = kernels;
    while (kernel != NULL && strcmp(kernel->name, name) != 0) kernel = kernel->next;
    return kernel;
}

/* ---- Switching ------------------------------------------------------------------------------- */

static void fiber_main(void);

#ifdef __x86_64__
/* Pushes the registers that a call preserves, stores the stack pointer at *from, and returns on the
 * stack `to`. */
void simt_switch(void **from, void *to);
__asm__(".text\n"
        ".hidden simt_switch\n"
        ".globl simt_switch\n"
        ".type simt_switch, @function\n"
        "simt_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size simt_switch, .-simt_switch\n");
#endif

static void fiber_prepare(fiber *f) {
#ifdef __x86_64__
    /* The stack as simt_switch leaves it: six registers, then the return address. At the entry of a
     * function the stack pointer is 8 above a multiple of 16. */
    uintptr_t shift = f->lane.thread % N_SHIFT * SHIFT;
    uintptr_t top = ((uintptr_t)f->stack + STACK_SIZE - shift) & ~(uintptr_t)15;
    void **sp = (void **)top;
    *--sp = NULL; /* fiber_main does not return */
    *--sp = (void *)(uintptr_t)fiber_main;
    for (int i = 0; i < 6; i++) *--sp = NULL;
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_SIZE;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
#endif
#ifdef __SANITIZE_ADDRESS__
    f->fake = NULL;
#endif
}

/* The next fiber that can run, from place `turn` of the order on; NULL where there is none. */
static fiber *fiber_next(uint32_t turn) {
    for (const uint32_t n = me->running->n_thread; turn < n; turn++) {
        const uint32_t i = me->order_of[turn];
        if (me->state_of[i] != FIBER_READY) continue;
        me->turn = turn;
        return &me->fibers[i];
    }
    return NULL;
}

/* Runs the fibers that can run, one after another, until each of them has stopped. */
static void fibers_resume(void) {
    fiber *f = fiber_next(0);
    if (f == NULL) return;
    simt_lane = &f->lane;
#ifdef __SANITIZE_ADDRESS__
    void *fake = NULL;
    me->is_from_scheduler = true;
    __sanitizer_start_switch_fiber(&fake, f->stack, STACK_SIZE);
#endif
#ifdef __SANITIZE_THREAD__
    me->scheduler_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
#ifdef __x86_64__
    simt_switch(&me->scheduler_sp, f->sp);
#else
    swapcontext(&me->scheduler_context, &f->context);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
    simt_lane = NULL;
}

static fiber *fiber_now(void) {
    return (fiber *)simt_lane;
}

/* What a fiber does first whenever it runs. For the address sanitizer; fake: the fiber's own, NULL
 * when it runs for the first time. */
static void fiber_arrive(void *fake) {
#ifdef __SANITIZE_ADDRESS__
    const void *stack = NULL;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(fake, &stack, &size);
    if (!me->is_from_scheduler) return;
    me->is_from_scheduler = false;
    me->scheduler_stack = stack;
    me->scheduler_stack_size = size;
#else
    (void)fake;
#endif
}

/* Stops the running fiber and runs the next one, without the scheduler between them: a switch is
 * most of what a barrier takes. Returns when the stopped fiber is resumed. */
NOT_COUNTED static void fiber_stop(fiber_state state) {
    fiber *f = fiber_now();
    me->state_of[f->lane.thread] = state;
    fiber *next = fiber_next(me->turn + 1);
    simt_lane = next != NULL ? &next->lane : NULL;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(state == FIBER_DONE ? NULL : &f->fake,
                                   next != NULL ? next->stack : me->scheduler_stack,
                                   next != NULL ? STACK_SIZE : me->scheduler_stack_size);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(next != NULL ? next->tsan : me->scheduler_tsan, 0);
#endif
#ifdef __x86_64__
    simt_switch(&f->sp, next != NULL ? next->sp : me->scheduler_sp);
#else
    swapcontext(&f->context, next != NULL ? &next->context : &me->scheduler_context);
#endif
#ifdef __SANITIZE_ADDRESS__
    fiber_arrive(f->fake);
#endif
}

NOT_COUNTED static void fiber_main(void) {
    fiber_arrive(NULL);
    me->running->kernel->entry(me->running->args);
    fiber_stop(FIBER_DONE);
    abort(); /* a finished fiber is not resumed */
}

/* ---- What kernels call ----------------------------------------------------------------------- */

void simt_barrier(void) {
    fiber_stop(FIBER_AT_BARRIER);
}

void simt_wait_previous(void) {
    if (simt_lane->block->is_early) fiber_stop(FIBER_AT_PREVIOUS);
}

/* Two sets of words are enough: all lanes have read the words of an exchange before any lane stores
 * those of the second exchange after it. */
uint32_t simt_wave_xchg(uint32_t word, uint32_t mask) {
    simt_thread *lane = simt_lane;
    uint32_t turn = lane->n_xchg++ & 1;
    me->words[turn][lane->thread] = word;
    fiber_now()->what = NULL;
    fiber_stop(FIBER_AT_XCHG);
    return me->words[turn][lane->thread ^ mask];
}

static void copy_begin(void *to, const void *from, uint32_t size) {
    simt_thread *lane = simt_lane;
    if (lane->n_copy == SIMT_MAX_COPY) abort(); /* the kernel waits too rarely */
    me->copies_of[lane->thread][lane->n_copy++] = (copy){to, from, lane->batch, size};
}

void simt_copy_16(void *to, const void *from) {
    copy_begin(to, from, 16);
}

void simt_copy_8(void *to, const void *from) {
    if (((uintptr_t)to | (uintptr_t)from) % 8 != 0) simt_lane->block->is_misaligned = true;
    copy_begin(to, from, 8);
}

void simt_copies_mark(void) {
    simt_lane->batch++;
}

void simt_copies_wait(uint32_t n) {
    simt_thread *lane = simt_lane;
    copy *copies = me->copies_of[lane->thread];
    uint32_t done = 0;
    while (done < lane->n_copy && copies[done].batch + n < lane->batch) {
        memcpy(copies[done].to, copies[done].from, copies[done].size);
        done++;
    }
    lane->n_copy -= done;
    memmove(copies, copies + done, lane->n_copy * sizeof *copies);
}

uint64_t simt_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void simt_spin_pause(void) {
    const struct timespec pause = {.tv_nsec = 20000};
    sched_yield();
    nanosleep(&pause, NULL);
}

/* A lane reads and writes its own registers only. While it is stopped, wave_release runs the
 * instruction. */
void simt_wave_execute(const simt_collective *what, uint32_t *registers, uint32_t n) {
    uint32_t *own = me->registers_of[simt_lane->thread];
    memcpy(own, registers, n * sizeof *own);
    fiber_now()->what = what;
    fiber_stop(FIBER_AT_XCHG);
    memcpy(registers, own, n * sizeof *own);
}

/* ---- A workgroup ----------------------------------------------------------------------------- */

static uint32_t random_next(void) {
    me->random_state ^= me->random_state << 13;
    me->random_state ^= me->random_state >> 17;
    me->random_state ^= me->random_state << 5;
    return me->random_state;
}

static void order_set(simt_order order, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) me->order_of[i] = order == SIMT_REVERSE ? n - 1 - i : i;
    if (order != SIMT_RANDOM) return;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = random_next() % i, swap = me->order_of[i - 1];
        me->order_of[i - 1] = me->order_of[k];
        me->order_of[k] = swap;
    }
}

/* Executes what all lanes of a wave have reached. */
static bool wave_release(uint32_t first, uint32_t wave_size, char *why, size_t why_size) {
    const simt_collective *what = me->fibers[first].what;
    for (uint32_t i = first; i < first + wave_size; i++) {
        me->state_of[i] = FIBER_READY;
        if (me->fibers[i].what == what) continue;
        snprintf(why, why_size, "lanes of a wave execute different instructions: %s and %s",
                 what != NULL ? what->name : "an exchange",
                 me->fibers[i].what != NULL ? me->fibers[i].what->name : "an exchange");
        return false;
    }
    if (what == NULL) return true;
    if (what->n_lane != 0 && what->n_lane != wave_size) {
        snprintf(why, why_size, "%s is not for waves of %u lanes", what->name, (unsigned)wave_size);
        return false;
    }
    what->run(what, wave_size, me->registers_of + first);
    return true;
}

/* Resumes threads whose workgroup or wave has reached the same point. False where no thread can
 * continue and some have not ended. */
static bool threads_release(uint32_t n, uint32_t wave_size, char *why, size_t why_size) {
    uint32_t n_barrier = 0, n_done = 0, n_exchange = 0, n_held = 0;
    bool is_moving = false;
    for (uint32_t first = 0; first < n; first += wave_size) {
        uint32_t n_xchg = 0;
        for (uint32_t i = first; i < first + wave_size; i++) {
            n_barrier += me->state_of[i] == FIBER_AT_BARRIER;
            n_done += me->state_of[i] == FIBER_DONE;
            n_held += me->state_of[i] == FIBER_AT_PREVIOUS;
            n_xchg += me->state_of[i] == FIBER_AT_XCHG;
        }
        n_exchange += n_xchg;
        if (n_xchg < wave_size) continue;
        if (!wave_release(first, wave_size, why, why_size)) return false;
        is_moving = true;
    }
    if (n_barrier == n) {
        for (uint32_t i = 0; i < n; i++) me->state_of[i] = FIBER_READY;
        is_moving = true;
    }
    if (is_moving || n_done == n || n_held > 0) return true;
    snprintf(why, why_size,
             "of %u threads %u wait at a barrier, %u at an exchange in a wave, and %u have ended: "
             "not all reach the same one",
             (unsigned)n, (unsigned)n_barrier, (unsigned)n_exchange, (unsigned)n_done);
    return false;
}

static bool any_is(fiber_state state, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (me->state_of[i] == state) return true;
    return false;
}

static bool guard_is_whole(uint32_t shared_size) {
    const char *guard = me->shared_memory + shared_size;
    return (uint8_t)guard[0] == poison && memcmp(guard, guard + 1, GUARD_SIZE - 1) == 0;
}

static void block_begin(simt_block *block, const simt_work *launch) {
    const uint32_t n = launch->n_thread;
    memset(me->shared_memory, poison, launch->shared_size + GUARD_SIZE);
    for (uint32_t i = 0; i < n; i++) {
        simt_thread *lane = &me->fibers[i].lane;
        lane->thread = i;
        lane->block = block;
        lane->n_xchg = lane->n_copy = lane->batch = 0;
        me->state_of[i] = FIBER_READY;
        fiber_prepare(&me->fibers[i]);
    }
    order_set(launch->order, n);
}

/* Runs the workgroup until all threads have ended; where the launch is only started, until none can
 * run. */
static bool block_advance(const simt_work *launch, char *why, size_t why_size) {
    const uint32_t n = launch->n_thread;
    while (any_is(FIBER_READY, n)) {
        fibers_resume();
        if (!threads_release(n, launch->wave_size, why, why_size)) return false;
        if (launch->order == SIMT_RANDOM) order_set(launch->order, n);
    }
    return true;
}

/* Lets the threads that simt_wait_previous has stopped run. */
static void block_go_on(simt_block *block, uint32_t n) {
    block->is_early = false;
    for (uint32_t i = 0; i < n; i++)
        if (me->state_of[i] == FIBER_AT_PREVIOUS) me->state_of[i] = FIBER_READY;
}

/* After all threads have ended: whether the workgroup has kept the rules. */
static bool block_check(const simt_block *block, const simt_work *launch, char *why,
                        size_t why_size) {
    const uint32_t n = launch->n_thread;
    if (block->is_misaligned) {
        snprintf(why, why_size,
                 "it loads or stores 16 bytes at an address that is no multiple of 16");
        return false;
    }
    for (uint32_t i = 0; i < n; i++)
        if (me->fibers[i].lane.n_copy != 0) {
            snprintf(why, why_size, "a thread ends before its copies to shared memory");
            return false;
        }
    if (guard_is_whole(launch->shared_size)) return true;
    snprintf(why, why_size, "it writes behind its %u bytes of shared memory",
             (unsigned)launch->shared_size);
    return false;
}

static bool stacks_get(uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (me->fibers[i].stack != NULL) continue;
        void *stack =
            mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stack == MAP_FAILED) return false;
        me->fibers[i].stack = stack;
#ifdef __SANITIZE_THREAD__
        me->fibers[i].tsan = __tsan_create_fiber(0);
#endif
    }
    return true;
}

static bool launch_check(const simt_work *launch, char *why, size_t why_size) {
    uint32_t n = launch->n_thread;
    if (n == 0 || n > SIMT_MAX_THREAD || n % launch->wave_size != 0)
        snprintf(why, why_size, "%u threads are no whole waves of %u", (unsigned)n,
                 (unsigned)launch->wave_size);
    else if (launch->shared_size > SIMT_MORE_SHARED)
        snprintf(why, why_size, "%u bytes of shared memory", (unsigned)launch->shared_size);
    else if (!stacks_get(n))
        snprintf(why, why_size, "no memory for stacks");
    else
        return true;
    return false;
}

/* Sets `me` to the runner in which the launch is started, or else to a free one. */
static bool runner_get(const simt_work *launch, char *why, size_t why_size) {
    int at = -1;
    for (int i = 0; i <= SIMT_MAX_EARLY; i++) {
        const bool is_started = runners[i] != NULL && runners[i]->is_started;
        if (is_started && runners[i]->running == launch) {
            me = runners[i];
            return true;
        }
        if (!is_started && at < 0) at = i;
    }
    if (at >= 0 && runners[at] == NULL) {
        runners[at] = aligned_alloc(_Alignof(runner), sizeof *me);
        if (runners[at] != NULL) {
            memset(runners[at]->fibers, 0, sizeof runners[at]->fibers);
            runners[at]->is_started = false;
        }
    }
    if (at >= 0 && runners[at] != NULL) {
        me = runners[at];
        return true;
    }
    snprintf(why, why_size, at < 0 ? "too many launches are started" : "no memory for fibers");
    return false;
}

void simt_works_forget(void) {
    for (int i = 0; i <= SIMT_MAX_EARLY; i++)
        if (runners[i] != NULL) runners[i]->is_started = false;
}

static void runner_free(runner *r) {
    for (uint32_t i = 0; i < SIMT_MAX_THREAD && r->fibers[i].stack != NULL; i++) {
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(r->fibers[i].stack, STACK_SIZE);
#endif
#ifdef __SANITIZE_THREAD__
        __tsan_destroy_fiber(r->fibers[i].tsan);
#endif
        munmap(r->fibers[i].stack, STACK_SIZE);
    }
    free(r);
}

void simt_work_end(void) {
    for (int i = 0; i <= SIMT_MAX_EARLY; i++) {
        if (runners[i] != NULL) runner_free(runners[i]);
        runners[i] = NULL;
    }
    me = NULL;
}

/* Sets the block's place in the grid to that of the turn-th workgroup in the given order; false
 * where all have run. In the random order, the workgroup that runs last is usually not the one with
 * the highest number: kernels/last.h must not depend on it. */
static bool group_set(simt_block *block, simt_order order, uint64_t turn) {
    const uint64_t n = (uint64_t)block->grid[0] * block->grid[1] * block->grid[2];
    const uint64_t prime = 2654435761u; /* so each number comes once, of n below it */
    if (turn >= n) return false;
    uint64_t number = turn;
    if (order == SIMT_REVERSE) number = n - 1 - turn;
    if (order == SIMT_RANDOM && n < prime) number = (turn * prime + n / 3) % n;
    for (int axis = 0; axis < 3; axis++) {
        block->group[axis] = (uint32_t)(number % block->grid[axis]);
        number /= block->grid[axis];
    }
    return true;
}

/* Makes the first workgroup ready to run. */
static bool launch_begin(const simt_work *launch, bool is_early, char *why, size_t why_size) {
    if (!runner_get(launch, why, why_size) || !launch_check(launch, why, why_size)) return false;
    me->block = (simt_block){.n_thread = launch->n_thread,
                             .wave_size = launch->wave_size,
                             .shared = me->shared_memory,
                             .is_early = is_early};
    memcpy(me->block.grid, launch->grid, sizeof me->block.grid);
    group_set(&me->block, launch->order, 0);
    me->running = launch;
    me->random_state = 0x9e3779b9u;
    block_begin(&me->block, launch);
    return true;
}

bool simt_work_start(const simt_work *launch, char *why, size_t why_size) {
    for (int i = 0; i <= SIMT_MAX_EARLY; i++)
        if (runners[i] != NULL && runners[i]->is_started && runners[i]->running == launch)
            return true;
    if (!launch_begin(launch, true, why, why_size)) return false;
    me->is_started = true;
    return block_advance(launch, why, why_size);
}

bool simt_work_run(const simt_work *launch, char *why, size_t why_size) {
    if (!runner_get(launch, why, why_size)) return false;
    if (!me->is_started && !launch_begin(launch, false, why, why_size)) return false;
    simt_block *block = &me->block;
    if (me->is_started) block_go_on(block, launch->n_thread);
    me->is_started = false;
    uint64_t turn = 0;
    while (block_advance(launch, why, why_size) && block_check(block, launch, why, why_size)) {
        if (!group_set(block, launch->order, ++turn)) return true;
        block_begin(block, launch);
    }
    return false;
}
