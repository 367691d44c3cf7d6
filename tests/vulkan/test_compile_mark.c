/* SPDX-License-Identifier: MIT
 *
 * test_compile_mark.c: marks of pipelines that are being compiled, left by processes that were
 * killed. The children of a test are such processes.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugins/vulkan/compile_mark.h"
#include "tests/vulkan/verdict_scene.h"

enum { N_SLOT = 64 /* of the file */, N_PARALLEL = 17, MAX_PIPELINE = 100 };

static char folder[] = "/tmp/tandem-marks-XXXXXX";
static char path[64], marks_path[96], lock_path[96];

static int folder_make(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/rows", folder);
    snprintf(marks_path, sizeof marks_path, "%s.compiling", path);
    snprintf(lock_path, sizeof lock_path, "%s.lock", path);
    return 0;
}

static int files_remove(void **state) {
    (void)state;
    unlink(path);
    unlink(marks_path);
    unlink(lock_path);
    return 0;
}

static int folder_remove(void **state) {
    (void)files_remove(state);
    return rmdir(folder); /* empty: nothing else was left */
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* A start of the program: reads the verdicts and opens the marks. */
typedef struct start {
    vk_verdict_list verdicts;
    vk_compile_marks *marks;
    int32_t n_fatal;
} start;

static start start_open(void) {
    start s = {.n_fatal = -1};
    (void)vk_verdict_file_read(path, &key, is_even, &s.verdicts);
    s.marks = vk_compile_marks_open(path, &key, is_even, &s.verdicts, &s.n_fatal);
    return s;
}

static void start_close(start *s) {
    vk_compile_marks_close(s->marks);
    free(s->verdicts.rows);
}

/* Compiles a pipeline without an end; true where it is compiled by itself. */
static bool compile(const start *s, uint64_t pipeline) {
    const vk_verdict_row row = row_of(pipeline, VK_VERDICT_NONE);
    const vk_compile_mark mark = vk_compile_mark_begin(s->marks, &row);
    assert_true(mark.slot >= 0);
    vk_compile_mark_end(s->marks, &mark);
    return mark.is_alone;
}

typedef struct work {
    start start;
    uint64_t first; /* pipeline; each thread begins the next one */
    atomic_int n_begun;
    pthread_barrier_t all_begun;
} work;

static void *begin_main(void *arg) {
    work *w = arg;
    const vk_verdict_row row =
        row_of(w->first + (uint64_t)atomic_fetch_add(&w->n_begun, 1), VK_VERDICT_NONE);
    (void)vk_compile_mark_begin(w->start.marks, &row);
    pthread_barrier_wait(&w->all_begun);
    return NULL;
}

/* A process that is killed while its threads compile pipelines first to first + n - 1. */
static void killed_while_compiling(uint64_t first, int n) {
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        work w = {.start = start_open(), .first = first};
        pthread_t threads[MAX_PIPELINE];
        pthread_barrier_init(&w.all_begun, NULL, (unsigned)n + 1);
        for (int i = 0; i < n; i++)
            if (pthread_create(&threads[i], NULL, begin_main, &w) != 0) _exit(1);
        pthread_barrier_wait(&w.all_begun);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static int32_t verdict_of(const start *s, uint64_t pipeline) {
    const vk_verdict_row *row = vk_verdict_list_find(&s->verdicts, pipeline);
    return row != NULL ? row->verdict : VK_VERDICT_NONE;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* After one kill each pipeline is compiled by itself, and then no more. */
static void test_killed_once(void **state) {
    (void)state;
    killed_while_compiling(100, N_PARALLEL);
    start s = start_open();
    assert_int_equal(s.n_fatal, 0);
    assert_int_equal(s.verdicts.n, 0);
    assert_false(compile(&s, 99));
    for (uint64_t i = 100; i < 100 + N_PARALLEL; i++) assert_true(compile(&s, i));
    for (uint64_t i = 99; i < 100 + N_PARALLEL; i++) assert_false(compile(&s, i));
    start_close(&s);
    s = start_open();
    for (uint64_t i = 99; i < 100 + N_PARALLEL; i++) assert_false(compile(&s, i));
    start_close(&s);
}

/* Of the pipelines of a killed process only the one that a second process compiled when it was
 * killed too is fatal. The others are still compiled by themselves. */
static void test_killed_twice(void **state) {
    vk_verdict_list list = {.n = 0};
    (void)state;
    killed_while_compiling(100, N_PARALLEL);
    killed_while_compiling(105, 1);
    vk_compile_marks_read(path, &key, is_even, &list);
    assert_int_equal(list.n, 1);
    assert_int_equal(list.rows[0].verdict, VK_VERDICT_FATAL);
    free(list.rows);
    for (int i = 0; i < 2; i++) { /* then from the file of verdicts */
        start s = start_open();
        assert_int_equal(s.n_fatal, i == 0);
        assert_int_equal(s.verdicts.n, 1);
        assert_int_equal(verdict_of(&s, 105), VK_VERDICT_FATAL);
        assert_string_equal(s.verdicts.rows[0].kernel, "k105");
        start_close(&s);
    }
    unlink(path); /* to try it again */
    start s = start_open();
    assert_int_equal(s.verdicts.n, 0);
    for (uint64_t i = 100; i < 100 + N_PARALLEL; i++) assert_int_equal(compile(&s, i), i != 105);
    start_close(&s);
}

/* A process that compiles pipelines `first` to first + n - 1 and is killed while it runs them for
 * the first time. */
static void killed_while_running(uint64_t first, int32_t n, bool is_alone) {
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const start s = start_open();
        vk_verdict_row rows[MAX_PIPELINE];
        bool is_right = s.n_fatal == 0;
        for (int32_t i = 0; i < n; i++) {
            rows[i] = row_of(first + (uint64_t)i, VK_VERDICT_NONE);
            is_right = is_right && !compile(&s, rows[i].pipeline);
        }
        const vk_first_run run = vk_first_run_begin(s.marks, rows, n);
        is_right = is_right && run.is_alone == is_alone;
        if (!is_right) _exit(1);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* That pipelines compile does not clear them of ending a process when they run. */
static void test_first_run(void **state) {
    const vk_verdict_row rows[] = {row_of(7, VK_VERDICT_NONE), row_of(8, VK_VERDICT_NONE)};
    (void)state;
    killed_while_running(7, 2, false);
    start s = start_open();
    assert_int_equal(s.n_fatal, 0);
    vk_first_run run = vk_first_run_begin(s.marks, rows, 2);
    assert_true(run.is_alone);
    vk_first_run_end(s.marks, &run);
    run = vk_first_run_begin(s.marks, rows, 2);
    assert_false(run.is_alone);
    vk_first_run_end(s.marks, &run);
    start_close(&s);
    killed_while_running(7, 2, false);
    killed_while_running(7, 2, true);
    s = start_open();
    assert_int_equal(s.n_fatal, 2);
    assert_int_equal(verdict_of(&s, 7), VK_VERDICT_FATAL);
    assert_int_equal(verdict_of(&s, 8), VK_VERDICT_FATAL);
    start_close(&s);
    /* more than are marked; and none */
    killed_while_running(20, VK_FIRST_RUN_MAX + 1, false);
    killed_while_running(20, VK_FIRST_RUN_MAX + 1, true);
    s = start_open();
    assert_int_equal(s.n_fatal, VK_FIRST_RUN_MAX);
    run = vk_first_run_begin(s.marks, rows, 0);
    vk_first_run_end(s.marks, &run);
    run = vk_first_run_begin(NULL, rows, 2);
    vk_first_run_end(NULL, &run);
    start_close(&s);
}

/* What a process that lives compiles is no one's fault, and a second device of a process has slots
 * of its own. */
static void test_living(void **state) {
    (void)state;
    start first = start_open();
    const vk_verdict_row row = row_of(1, VK_VERDICT_NONE);
    const vk_compile_mark mark = vk_compile_mark_begin(first.marks, &row);
    start second = start_open();
    assert_int_equal(second.n_fatal, 0);
    const vk_compile_mark other = vk_compile_mark_begin(second.marks, &row);
    assert_false(other.is_alone);
    assert_true(mark.slot >= 0 && other.slot >= 0 && mark.slot != other.slot);
    killed_while_compiling(2, 1);
    vk_compile_mark_end(first.marks, &mark);
    vk_compile_mark_end(second.marks, &other);
    start third = start_open();
    assert_false(compile(&third, 1));
    assert_true(compile(&second, 2)); /* found by the third start, read by all */
    assert_false(compile(&third, 2));
    start_close(&first);
    start_close(&second);
    start_close(&third);
}

/* A suspect that a process compiles is not fatal before that process ends. */
static void test_living_suspect(void **state) {
    const vk_verdict_row row = row_of(1, VK_VERDICT_NONE);
    vk_verdict_list list = {.n = 0};
    (void)state;
    killed_while_compiling(1, 1);
    start first = start_open();
    const vk_compile_mark mark = vk_compile_mark_begin(first.marks, &row);
    assert_true(mark.is_alone);
    vk_compile_marks_read(path, &key, is_even, &list);
    assert_int_equal(list.n, 0);
    start second = start_open();
    assert_int_equal(second.n_fatal, 0);
    vk_compile_mark_end(first.marks, &mark);
    assert_false(compile(&second, 1));
    start_close(&first);
    start_close(&second);
    free(list.rows);
}

/* Where the file of verdicts cannot be written, each start finds the fatal pipeline again. */
static void test_unwritable(void **state) {
    (void)state;
    killed_while_compiling(1, 1);
    killed_while_compiling(1, 1);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < 2; i++) {
        start s = start_open();
        assert_int_equal(s.n_fatal, 1);
        assert_int_equal(verdict_of(&s, 1), VK_VERDICT_FATAL);
        start_close(&s);
    }
    assert_int_equal(rmdir(path), 0);
}

/* A pipeline that another process has compiled and found right meanwhile. */
static void test_known(void **state) {
    (void)state;
    killed_while_compiling(1, 1);
    killed_while_compiling(1, 1);
    start s = {.n_fatal = 0};
    vk_verdict_row row = row_of(1, VK_VERDICT_NONE);
    row.verdict = VK_VERDICT_RIGHT;
    assert_true(vk_verdict_list_reserve(&s.verdicts, 1));
    vk_verdict_list_add(&s.verdicts, &row);
    assert_true(vk_verdict_file_merge(path, &key, is_even, &s.verdicts));
    free(s.verdicts.rows);
    s = start_open();
    assert_int_equal(s.n_fatal, 0);
    assert_int_equal(verdict_of(&s, 1), VK_VERDICT_RIGHT);
    assert_false(compile(&s, 1));
    start_close(&s);
}

/* Pipelines that are not compiled again leave room for others in the end. */
static void test_full(void **state) {
    (void)state;
    killed_while_compiling(100, N_SLOT);
    killed_while_compiling(200, 1);
    start s = start_open();
    assert_true(compile(&s, 200));
    int n = 0;
    for (uint64_t i = 100; i < 100 + N_SLOT; i++) n += compile(&s, i);
    assert_int_equal(n, N_SLOT - 1);
    /* More at a time than there are slots: those are not marked. */
    start_close(&s);
    killed_while_compiling(300, N_SLOT + 1);
    s = start_open();
    n = 0;
    for (uint64_t i = 300; i <= 300 + N_SLOT; i++) n += compile(&s, i);
    assert_int_equal(n, N_SLOT);
    start_close(&s);
}

static bool is_four(uint64_t code) {
    return code == 4;
}

/* Code that this build does not have, another version of verdicts, damaged bytes. */
static void test_other_content(void **state) {
    const vk_verdict_row row = row_of(1, VK_VERDICT_NONE);
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        killed_while_compiling(1, 1);
        if (kind == 2) {
            FILE *file = fopen(marks_path, "r+b");
            assert_non_null(file);
            assert_int_equal(fseek(file, 20, SEEK_SET), 0);
            assert_int_equal(fputc(0x5a, file), 0x5a);
            fclose(file);
        }
        vk_cache_key other = key;
        other.version += kind == 1;
        start s = {.n_fatal = -1};
        s.marks = vk_compile_marks_open(path, &other, kind == 3 ? is_four : is_even, &s.verdicts,
                                        &s.n_fatal);
        assert_int_equal(s.n_fatal, 0);
        vk_compile_mark mark = vk_compile_mark_begin(s.marks, &row);
        vk_compile_mark_end(s.marks, &mark);
        assert_int_equal(mark.is_alone, kind == 0);
        start_close(&s);
    }
}

/* Without a folder nothing is marked, and nothing fails. */
static void test_no_folder(void **state) {
    char below[96];
    vk_verdict_list list = {.n = 0};
    int32_t n_fatal = -1;
    const vk_verdict_row row = row_of(1, VK_VERDICT_NONE);
    (void)state;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fclose(file);
    snprintf(below, sizeof below, "%s/rows", path); /* under a file */
    vk_compile_marks *marks = vk_compile_marks_open(below, &key, is_even, &list, &n_fatal);
    assert_null(marks);
    assert_int_equal(n_fatal, 0);
    const vk_compile_mark mark = vk_compile_mark_begin(marks, &row);
    assert_int_equal(mark.slot, -1);
    assert_false(mark.is_alone);
    vk_compile_mark_end(marks, &mark);
    vk_compile_marks_close(marks);
    vk_compile_marks_read(below, &key, is_even, &list);
    assert_int_equal(list.n, 0);
    free(list.rows);
}

/* ---- One at a time --------------------------------------------------------------------------- */

enum { N_THREAD = 4 };

typedef struct race {
    start *start;
    atomic_int next, n_compiling, n_alone, n_beside;
} race;

static void *race_main(void *arg) {
    race *r = arg;
    for (;;) {
        const int i = atomic_fetch_add(&r->next, 1);
        if (i >= 2 * N_SLOT) return NULL;
        /* Every second one was compiled when a process was killed. */
        const vk_verdict_row row =
            row_of((uint64_t)(i % 2 == 0 ? 100 + i / 2 : 1000 + i), VK_VERDICT_NONE);
        const vk_compile_mark mark = vk_compile_mark_begin(r->start->marks, &row);
        atomic_fetch_add(&r->n_alone, mark.is_alone);
        const int n = atomic_fetch_add(&r->n_compiling, mark.is_alone ? 1000 : 1);
        atomic_fetch_add(&r->n_beside, mark.is_alone ? n > 0 : n >= 1000);
        sched_yield();
        atomic_fetch_sub(&r->n_compiling, mark.is_alone ? 1000 : 1);
        vk_compile_mark_end(r->start->marks, &mark);
    }
}

static void test_alone(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        killed_while_compiling(100, N_SLOT - N_THREAD);
        start s = start_open();
        race r = {.start = &s};
        pthread_t threads[N_THREAD];
        for (int i = 0; i < N_THREAD; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, race_main, &r), 0);
        for (int i = 0; i < N_THREAD; i++) pthread_join(threads[i], NULL);
        assert_int_equal(r.n_alone, N_SLOT - N_THREAD);
        assert_int_equal(r.n_beside, 0);
        start_close(&s);
        (void)files_remove(NULL);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, NULL, files_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_killed_once),    TEST(test_killed_twice),  TEST(test_living),
        TEST(test_living_suspect), TEST(test_unwritable),    TEST(test_known),
        TEST(test_full),           TEST(test_other_content), TEST(test_no_folder),
        TEST(test_alone),          TEST(test_first_run),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
