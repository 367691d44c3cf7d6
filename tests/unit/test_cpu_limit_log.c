/* SPDX-License-Identifier: MIT
 *
 * test_cpu_limit_log.c: which times count when rates of a machine are computed from log entries.
 * The entries are given: threads that were descheduled, shared a processor, or had different
 * rates.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plugins/cpu/machine/limit_log.h"

#define MS      UINT64_C(1000000)
#define STRETCH (100 * MS)
#define LEAST   (25 * MS)
#define WINDOW  (2 * MS)

enum { N_THREAD = 2, N_NOTE = 20000 };

static cpu_limit_note notes[N_THREAD][N_NOTE];
static cpu_limit_log logs[N_THREAD];

static void log_begin(int32_t thread, uint64_t at_ns) {
    logs[thread] = (cpu_limit_log){.notes = notes[thread], .n = 1};
    notes[thread][0] = (cpu_limit_note){at_ns, 77 * MS}; /* has worked before */
}

/* n pieces that took so long each, of which the thread worked so much. */
static void pieces_add(int32_t thread, int32_t n, uint64_t took_ns, uint64_t work_ns) {
    cpu_limit_log *log = &logs[thread];
    assert_true(log->n + n <= N_NOTE);
    for (; n > 0; n--, log->n++) {
        const cpu_limit_note *last = &log->notes[log->n - 1];
        log->notes[log->n] = (cpu_limit_note){last->at_ns + took_ns, last->work_ns + work_ns};
    }
}

static void whole_pieces_add(int32_t thread, int32_t n, uint64_t took_ns) {
    pieces_add(thread, n, took_ns, took_ns);
}

static void both_begin(void) {
    log_begin(0, MS);
    log_begin(1, MS);
}

static void assert_rate(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-9 * expected))
        fail_msg("%.9g pieces a second, expected %.9g", got, expected);
}

static double stretch_rate(void) {
    return cpu_limit_stretch_rate(logs, N_THREAD, STRETCH, LEAST);
}

/* ---- Stretches ------------------------------------------------------------------------------- */

static void stretch_adds_up(void **state) {
    (void)state;
    both_begin();
    whole_pieces_add(0, 2000, MS / 10);
    whole_pieces_add(1, 1000, MS / 5);
    assert_rate(stretch_rate(), 10000 + 5000);
    assert_rate(cpu_limit_stretch_rate(logs, 1, STRETCH, LEAST), 10000);
    /* Pieces need not meet: a part of one counts as that part. */
    log_begin(1, MS + (MS / 7));
    whole_pieces_add(1, 900, MS / 5 + 13);
    assert_rate(stretch_rate(), 10000 + 1e9 / (200000.0 + 13));
}

/* What a thread lost takes nothing from the rate, nor does what the other did meanwhile add to
 * it. */
static void lost_time_is_left_out(void **state) {
    (void)state;
    both_begin();
    for (int i = 0; i < 60; i++) {
        whole_pieces_add(0, 40, MS / 10);
        pieces_add(0, 1, 3 * MS, MS / 10); /* preempted */
        whole_pieces_add(1, 40, MS / 10);
        whole_pieces_add(1, 60, MS / 20); /* faster, while it has the memory to itself */
    }
    /* of 7 ms of each round 4 count: 240 of 420 */
    assert_rate(stretch_rate(), 20000);
    for (int32_t i = 0; i < 2; i++) { /* either thread's loss does it */
        cpu_limit_log swap = logs[0];
        logs[0] = logs[1];
        logs[1] = swap;
        assert_rate(stretch_rate(), 20000);
    }
}

/* An eighth of a piece may go to interrupts. */
static void interrupts_are_no_loss(void **state) {
    (void)state;
    both_begin();
    pieces_add(0, 1200, 80000, 70000);
    whole_pieces_add(1, 1200, 80000);
    assert_rate(stretch_rate(), 2e9 / 80000);
    both_begin();
    pieces_add(0, 1200, 80000, 69999);
    whole_pieces_add(1, 1200, 80000);
    assert_rate(stretch_rate(), 0);
}

/* A burst shorter than a stretch is averaged; of whole stretches the best counts, also where losses
 * interrupt it. */
static void bursts_are_averaged(void **state) {
    (void)state;
    both_begin();
    for (int32_t t = 0; t < N_THREAD; t++) {
        whole_pieces_add(t, 900, MS / 10);  /* 90 ms */
        whole_pieces_add(t, 200, MS / 20);  /* 10 ms at twice the speed: a stretch of 1100 pieces */
        whole_pieces_add(t, 1000, MS / 10); /* one of 1000 */
    }
    assert_rate(stretch_rate(), 22000);
    both_begin();
    for (int32_t t = 0; t < N_THREAD; t++) {
        whole_pieces_add(t, 1000, MS / 10);
        whole_pieces_add(t, 1000, MS / 20);
        pieces_add(t, 5, 20 * MS, MS);
        whole_pieces_add(t, 1000, MS / 20);
        whole_pieces_add(t, 1500, MS / 10);
    }
    assert_rate(stretch_rate(), 40000);
}

static void little_time_tells_nothing(void **state) {
    (void)state;
    both_begin();
    whole_pieces_add(0, 2000, MS / 10);
    whole_pieces_add(1, 260, MS / 10); /* the first that is done ends it: 26 ms */
    assert_rate(stretch_rate(), 20000);
    both_begin();
    whole_pieces_add(0, 2000, MS / 10);
    whole_pieces_add(1, 240, MS / 10);
    assert_rate(stretch_rate(), 0);
    /* What is left behind a whole stretch is no stretch. */
    both_begin();
    for (int32_t t = 0; t < N_THREAD; t++) {
        whole_pieces_add(t, 1000, MS / 10);
        whole_pieces_add(t, 1200, MS / 20); /* 60 ms */
    }
    assert_rate(stretch_rate(), 20000);
    both_begin(); /* no piece at all */
    whole_pieces_add(0, 2000, MS / 10);
    assert_rate(stretch_rate(), 0);
}

/* ---- Threads that are not at work at once ---------------------------------------------------- */

/* Slices of 3 ms on one processor, each of 30 pieces, until each thread has worked for 300 ms. */
static void turns_take(void) {
    both_begin();
    for (int i = 0; i < 100; i++) {
        whole_pieces_add(0, 29, MS / 10);
        pieces_add(0, 1, MS / 10 + 3 * MS, MS / 10);
        if (i == 0)
            pieces_add(1, 1, 3 * MS + MS / 10, MS / 10);
        else
            whole_pieces_add(1, 1, MS / 10);
        whole_pieces_add(1, 28, MS / 10);
        pieces_add(1, 1, MS / 10 + 3 * MS, MS / 10);
    }
}

/* One thread at a time is half the machine: not taken for the whole of it, unless that is all there
 * is. */
static void turns_are_not_the_machine(void **state) {
    (void)state;
    turns_take();
    assert_rate(stretch_rate(), 0);
    assert_rate(cpu_limit_window_rate(logs, N_THREAD, WINDOW, true), 0);
    double alone = cpu_limit_window_rate(logs, N_THREAD, WINDOW, false);
    assert_true(alone >= 8500 && alone <= 10000);
    /* Nor is a window in which one thread's slice ends and the other's begins. */
    for (uint64_t window = MS; window <= 12 * MS; window += MS / 3)
        assert_rate(cpu_limit_window_rate(logs, N_THREAD, window, true), 0);
}

/* Two milliseconds on two processors in all of this are enough for multiplications. */
static void one_window_together(void **state) {
    (void)state;
    turns_take();
    uint64_t end = notes[0][logs[0].n - 1].at_ns, other = notes[1][logs[1].n - 1].at_ns;
    pieces_add(other < end ? 1 : 0, 1, other < end ? end - other : other - end, MS / 10);
    for (int32_t t = 0; t < N_THREAD; t++) whole_pieces_add(t, 50, MS / 10);
    assert_rate(cpu_limit_window_rate(logs, N_THREAD, 4 * MS, true), 20000);
}

static void one_after_the_other(void **state) {
    (void)state;
    both_begin();
    whole_pieces_add(0, 2000, MS / 10);
    pieces_add(1, 1, 200 * MS, MS / 10);
    whole_pieces_add(1, 2000, MS / 10);
    assert_rate(stretch_rate(), 0);
    assert_rate(cpu_limit_window_rate(logs, N_THREAD, WINDOW, true), 0);
    log_begin(1, 500 * MS); /* came to its processor when the other had long been done */
    whole_pieces_add(1, 2000, MS / 10);
    assert_rate(stretch_rate(), 0);
    assert_rate(cpu_limit_window_rate(logs, N_THREAD, WINDOW, true), 0);
}

/* ---- Windows --------------------------------------------------------------------------------- */

static void windows_count_pieces(void **state) {
    (void)state;
    both_begin();
    whole_pieces_add(0, 1000, MS / 50);
    whole_pieces_add(1, 1000, MS / 50);
    assert_rate(cpu_limit_window_rate(logs, N_THREAD, WINDOW, true), 100000);
    /* the best of them; the other thread may be slower, if it is at work */
    both_begin();
    for (int i = 0; i < 10; i++) {
        whole_pieces_add(0, 110, MS / 50);
        pieces_add(0, 1, MS, MS / 50);
        whole_pieces_add(1, 32, MS / 10);
    }
    assert_rate(cpu_limit_window_rate(logs, N_THREAD, WINDOW, true), (100 + 20) / 2e-3);
    /* pieces so long that a window would hold few: 40 of thread 0 */
    both_begin();
    for (int32_t t = 0; t < N_THREAD; t++) whole_pieces_add(t, 80, MS);
    assert_rate(cpu_limit_window_rate(logs, N_THREAD, WINDOW, true), 80 / 40e-3);
    /* a log shorter than the window */
    both_begin();
    for (int32_t t = 0; t < N_THREAD; t++) whole_pieces_add(t, 100, MS / 100);
    assert_rate(cpu_limit_window_rate(logs, N_THREAD, WINDOW, true), 200000);
    both_begin();
    assert_rate(cpu_limit_window_rate(logs, N_THREAD, WINDOW, true), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stretch_adds_up),           cmocka_unit_test(lost_time_is_left_out),
        cmocka_unit_test(interrupts_are_no_loss),    cmocka_unit_test(bursts_are_averaged),
        cmocka_unit_test(little_time_tells_nothing), cmocka_unit_test(turns_are_not_the_machine),
        cmocka_unit_test(one_window_together),       cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(windows_count_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
