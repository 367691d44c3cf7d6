/* SPDX-License-Identifier: MIT
 *
 * test_block.c: the emulated workgroup (block.h): barriers and exchanges in every order of threads;
 * reports of kernels with which a device would hang or compute garbage; launches of two threads
 * that wait for each other; a launch that is started early and does not wait, which must compute
 * with old data.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/simt/block.h"

enum { N_THREAD = 128, N_GROUP = 3 };

typedef struct words {
    uint32_t *out;
    uint32_t n;
} words;

static uint32_t out[N_GROUP * N_THREAD];

static uint32_t *shared_words(void) {
    return (uint32_t *)(void *)simt_lane->block->shared;
}

/* Sums thread numbers over the workgroup by halves. */
static void sum_run(const void *args) {
    const words *w = args;
    uint32_t *sum = shared_words(), thread = simt_lane->thread;
    sum[thread] = thread;
    for (uint32_t half = N_THREAD / 2; half > 0; half /= 2) {
        simt_barrier();
        if (thread < half) sum[thread] += sum[thread + half];
    }
    if (thread == 0)
        w->out[simt_lane->block->group[0]] = sum[0] + 1000 * simt_lane->block->group[0];
}

/* Each lane gets the number of its neighbour, then of the lane 8 away. */
static void exchange_run(const void *args) {
    const words *w = args;
    uint32_t thread = simt_lane->thread;
    uint32_t next = simt_wave_xchg(thread, 1), far = simt_wave_xchg(next, 8);
    w->out[thread] = far;
}

/* Reads what its neighbour writes, without a barrier. */
static void race_run(const void *args) {
    const words *w = args;
    uint32_t *shared = shared_words(), thread = simt_lane->thread;
    shared[thread] = thread;
    w->out[thread] = shared[(thread + 1) % N_THREAD];
}

static void half_barrier_run(const void *args) {
    (void)args;
    if (simt_lane->thread < 64) simt_barrier();
}

static void half_exchange_run(const void *args) {
    (void)args;
    if (simt_lane->thread != 5) simt_wave_xchg(0, 1);
    simt_barrier();
}

/* An instruction of waves of 64 lanes. */
static void wide_lanes_run(const simt_collective *what, uint32_t n_lane,
                           uint32_t (*registers)[SIMT_REGISTERS]) {
    (void)what;
    for (uint32_t i = 0; i < n_lane; i++) registers[i][0] += n_lane;
}

static const simt_collective wide = {"wide", 64, wide_lanes_run};

static void wide_run(const void *args) {
    const words *w = args;
    uint32_t word = simt_lane->thread;
    simt_wave_execute(&wide, &word, 1);
    w->out[simt_lane->thread] = word;
}

static void two_instructions_run(const void *args) {
    uint32_t word = 0;
    (void)args;
    if (simt_lane->thread == 5)
        simt_wave_execute(&wide, &word, 1);
    else
        simt_wave_xchg(word, 1);
}

static void behind_run(const void *args) {
    (void)args;
    if (simt_lane->thread == 0) shared_words()[N_THREAD] = 1;
}

/* Sixteen bytes from word args->n of the output on. */
static void sixteen_run(const void *args) {
    const words *w = args;
    uint32_t four[4];
    memcpy(four, simt_pointer_16((uint64_t)(uintptr_t)(w->out + w->n)), sizeof four);
    if (simt_lane->thread == 0) w->out[0] = four[0];
}

static bool kernel_run(void (*entry)(const void *), simt_order order, uint32_t wave_size,
                       uint32_t n_thread, char why[200]) {
    const words args = {.out = out, .n = N_THREAD};
    const simt_kernel kernel = {.name = "test", .entry = entry, .args_size = sizeof args};
    simt_work work = {.kernel = &kernel,
                      .grid = {N_GROUP, 1, 1},
                      .n_thread = n_thread,
                      .shared_size = N_THREAD * 4,
                      .wave_size = wave_size,
                      .order = order};
    memcpy(work.args, &args, sizeof args);
    memset(out, 0xee, sizeof out);
    why[0] = '\0';
    return simt_work_run(&work, why, 200);
}

static void barriers_hold_in_every_order(void **state) {
    char why[200];
    (void)state;
    for (int order = SIMT_FORWARD; order <= SIMT_RANDOM; order++)
        for (uint32_t wave = 32; wave <= 64; wave *= 2) {
            assert_true(kernel_run(sum_run, (simt_order)order, wave, N_THREAD, why));
            for (uint32_t g = 0; g < N_GROUP; g++)
                assert_int_equal(out[g], N_THREAD * (N_THREAD - 1) / 2 + 1000 * g);
        }
}

static void lanes_exchange_in_every_order(void **state) {
    char why[200];
    (void)state;
    for (int order = SIMT_FORWARD; order <= SIMT_RANDOM; order++) {
        assert_true(kernel_run(exchange_run, (simt_order)order, 32, N_THREAD, why));
        for (uint32_t i = 0; i < N_THREAD; i++) assert_int_equal(out[i], i ^ 9);
        assert_true(kernel_run(wide_run, (simt_order)order, 64, N_THREAD, why));
        for (uint32_t i = 0; i < N_THREAD; i++) assert_int_equal(out[i], i + 64);
    }
}

/* The turn in which each workgroup runs. */
static uint32_t n_turn;
static void turn_run(const void *args) {
    const words *w = args;
    const simt_block *b = simt_lane->block;
    if (simt_lane->thread == 0)
        w->out[b->group[0] + b->grid[0] * (b->group[1] + b->grid[1] * b->group[2])] = n_turn++;
}

static void groups_run_in_every_order(void **state) {
    enum { N_TURN = 5 * 4 * 3 };
    const words args = {.out = out};
    const simt_kernel kernel = {.name = "turn", .entry = turn_run, .args_size = sizeof args};
    uint32_t last[3];
    char why[200];
    (void)state;
    for (int order = SIMT_FORWARD; order <= SIMT_RANDOM; order++) {
        simt_work work = {.kernel = &kernel,
                          .grid = {5, 4, 3},
                          .n_thread = 32,
                          .wave_size = 32,
                          .order = (simt_order)order};
        bool has_run[N_TURN] = {false};
        memcpy(work.args, &args, sizeof args);
        n_turn = 0;
        assert_true(simt_work_run(&work, why, sizeof why));
        for (uint32_t i = 0; i < N_TURN; i++) {
            assert_true(out[i] < N_TURN && !has_run[out[i]]);
            has_run[out[i]] = true;
            if (out[i] == N_TURN - 1) last[order] = i;
        }
    }
    assert_int_equal(last[SIMT_FORWARD], N_TURN - 1);
    assert_int_equal(last[SIMT_REVERSE], 0);
    assert_true(last[SIMT_RANDOM] > 0 && last[SIMT_RANDOM] < N_TURN - 1);
}

static void orders_uncover_a_race(void **state) {
    uint32_t forward[N_THREAD];
    char why[200];
    (void)state;
    assert_true(kernel_run(race_run, SIMT_FORWARD, 32, N_THREAD, why));
    memcpy(forward, out, sizeof forward);
    assert_int_equal(forward[0], 0xcdcdcdcd); /* shared memory before a write */
    assert_true(kernel_run(race_run, SIMT_REVERSE, 32, N_THREAD, why));
    assert_memory_not_equal(forward, out, sizeof forward);
    assert_int_equal(out[0], 1);
    assert_true(kernel_run(race_run, SIMT_RANDOM, 32, N_THREAD, why));
    assert_memory_not_equal(forward, out, sizeof forward);
}

static void broken_rules_are_reported(void **state) {
    char why[200];
    (void)state;
    assert_false(kernel_run(half_barrier_run, SIMT_FORWARD, 32, N_THREAD, why));
    assert_non_null(strstr(why, "64 wait at a barrier"));
    assert_false(kernel_run(half_exchange_run, SIMT_FORWARD, 32, N_THREAD, why));
    assert_non_null(strstr(why, "31 at an exchange"));
    assert_false(kernel_run(two_instructions_run, SIMT_FORWARD, 64, N_THREAD, why));
    assert_non_null(strstr(why, "different instructions: an exchange and wide"));
    assert_false(kernel_run(wide_run, SIMT_FORWARD, 32, N_THREAD, why));
    assert_non_null(strstr(why, "wide is not for waves of 32 lanes"));
    assert_false(kernel_run(behind_run, SIMT_FORWARD, 32, N_THREAD, why));
    assert_non_null(strstr(why, "behind its 512 bytes"));
    assert_false(kernel_run(sum_run, SIMT_FORWARD, 64, 96, why));
    assert_non_null(strstr(why, "96 threads are no whole waves of 64"));
}

/* ---- Two launches that wait for each other ---- */

enum { N_ROUND = 20 };

typedef struct meeting {
    uint64_t *flags;   /* [2] rounds that each side has published */
    uint32_t *numbers; /* [2] what it published in the present round */
    uint32_t side, *sum;
} meeting;

/* Each round both sides publish a number and add the other's. Written by lane 0, read by lane 5. */
static void meet_run(const void *args) {
    const meeting *m = args;
    uint32_t thread = simt_lane->thread;
    for (uint32_t round = 1; round <= N_ROUND; round++) {
        if (thread == 0) {
            m->numbers[m->side] = round * (m->side + 1);
            __atomic_store_n(&m->flags[m->side], 2 * round - 1, __ATOMIC_RELEASE);
        }
        simt_barrier();
        if (thread == 5) {
            while (__atomic_load_n(&m->flags[!m->side], __ATOMIC_ACQUIRE) < 2 * round - 1)
                simt_spin_pause();
            *m->sum += m->numbers[!m->side];
            __atomic_store_n(&m->flags[m->side], 2 * round, __ATOMIC_RELEASE);
            while (__atomic_load_n(&m->flags[!m->side], __ATOMIC_ACQUIRE) < 2 * round)
                simt_spin_pause();
        }
        simt_barrier();
    }
}

static void *meet_main(void *arg) {
    const simt_kernel kernel = {.name = "meet", .entry = meet_run, .args_size = sizeof(meeting)};
    simt_work work = {.kernel = &kernel,
                      .grid = {1, 1, 1},
                      .n_thread = 64,
                      .shared_size = 16,
                      .wave_size = 32,
                      .order = SIMT_REVERSE};
    char why[200];
    memcpy(work.args, arg, sizeof(meeting));
    bool is_good = simt_work_run(&work, why, sizeof why);
    simt_work_end();
    return is_good ? arg : NULL;
}

static void launches_wait_for_each_other(void **state) {
    uint64_t flags[2] = {0};
    uint32_t numbers[2] = {0}, sums[2] = {0};
    meeting sides[2] = {{flags, numbers, 0, &sums[0]}, {flags, numbers, 1, &sums[1]}};
    pthread_t threads[2];
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, meet_main, &sides[i]), 0);
    for (int i = 0; i < 2; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &sides[i]);
    }
    assert_int_equal(sums[0], 2 * N_ROUND * (N_ROUND + 1) / 2);
    assert_int_equal(sums[1], N_ROUND * (N_ROUND + 1) / 2);
}

static void misaligned_bytes_are_reported(void **state) {
    static _Alignas(16) uint32_t aligned[8];
    char why[200];
    (void)state;
    for (uint32_t at = 0; at <= 4; at++) {
        const words args = {.out = aligned, .n = at};
        const simt_kernel kernel = {.name = "test", .entry = sixteen_run, .args_size = sizeof args};
        simt_work work = {.kernel = &kernel, .grid = {1, 1, 1}, .n_thread = 32, .wave_size = 32};
        memcpy(work.args, &args, sizeof args);
        why[0] = '\0';
        assert_int_equal(simt_work_run(&work, why, sizeof why), at % 4 == 0);
        assert_true((strstr(why, "no multiple of 16") != NULL) == (at % 4 != 0));
    }
}

/* out[thread] = in[thread] + 1, with barriers on both sides of the wait. `waits` = 0: the error. */
typedef struct add_args {
    uint32_t *out, *in;
    uint32_t waits;
} add_args;

static void add_run(const void *args) {
    const add_args *a = args;
    const uint32_t thread = simt_lane->thread;
    const uint32_t early = a->waits != 0 ? 0 : a->in[thread];
    simt_barrier();
    simt_wait_previous();
    const uint32_t x = a->waits != 0 ? a->in[thread] : early;
    simt_barrier();
    a->out[thread] = x + 1;
}

static void started_launches_wait(void **state) {
    static const simt_kernel kernel = {
        .name = "add", .entry = add_run, .args_size = sizeof(add_args)};
    static uint32_t values[4][N_THREAD];
    char why[200] = "";
    (void)state;
    for (int order = SIMT_FORWARD; order <= SIMT_RANDOM; order++)
        for (int wrong = 0; wrong < 3; wrong++) { /* the launch that does not wait; 0 = none */
            simt_work works[3];
            memset(values, 0, sizeof values);
            for (int i = 0; i < 3; i++) {
                const add_args args = {values[i + 1], values[i], i == 0 || i != wrong};
                works[i] = (simt_work){.kernel = &kernel,
                                       .grid = {1, 1, 1},
                                       .n_thread = N_THREAD,
                                       .shared_size = 4 * N_THREAD,
                                       .wave_size = 32,
                                       .order = (simt_order)order,
                                       .is_early = i > 0};
                memcpy(works[i].args, &args, sizeof args);
            }
            for (int i = 1; i < 3; i++) assert_true(simt_work_start(&works[i], why, sizeof why));
            assert_true(simt_work_start(&works[2], why, sizeof why)); /* is started */
            for (int i = 0; i < 3; i++) assert_true(simt_work_run(&works[i], why, sizeof why));
            for (int t = 0; t < N_THREAD; t++)
                assert_int_equal(values[3][t], wrong == 0 ? 3 : wrong == 1 ? 2 : 1);
        }
    simt_work_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_hold_in_every_order),
        cmocka_unit_test(lanes_exchange_in_every_order),
        cmocka_unit_test(groups_run_in_every_order),
        cmocka_unit_test(orders_uncover_a_race),
        cmocka_unit_test(broken_rules_are_reported),
        cmocka_unit_test(misaligned_bytes_are_reported),
        cmocka_unit_test(launches_wait_for_each_other),
        cmocka_unit_test(started_launches_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
