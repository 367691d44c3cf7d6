/* SPDX-License-Identifier: MIT
 *
 * test_verdict_file.c: verdicts on disk: what several processes find at the same time is all kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/vulkan/verdict_scene.h"

enum { N_PROCESS = 2, N_ROUND = 40, N_ROW = 3 /* of a round */ };

static char folder[] = "/tmp/tandem-verdicts-XXXXXX";
static char path[64], lock_path[72];

static int folder_make(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/rows", folder);
    snprintf(lock_path, sizeof lock_path, "%s.lock", path);
    return 0;
}

static int folder_remove(void **state) {
    (void)state;
    unlink(path);
    unlink(lock_path);
    return rmdir(folder); /* empty: nothing else was left */
}

static void row_add(vk_verdict_list *list, const vk_verdict_row *row) {
    if (!vk_verdict_list_reserve(list, 1)) fail_msg("no memory");
    vk_verdict_list_add(list, row);
}

static vk_verdict_list list_read(const vk_cache_key *of) {
    vk_verdict_list list = {.n = 0};
    assert_true(vk_verdict_file_read(path, of, is_even, &list));
    return list;
}

/* The verdict on a pipeline; VK_VERDICT_NONE where the list has none. */
static int32_t verdict_of(const vk_verdict_list *list, uint64_t pipeline) {
    for (int32_t i = 0; i < list->n; i++)
        if (list->rows[i].pipeline == pipeline) return list->rows[i].verdict;
    return VK_VERDICT_NONE;
}

/* What a process finds: a few more rows in every round, as many as there are plans. It begins with
 * an empty list, as a process that was started before the other one wrote. */
static int process_run(int number, int go) {
    vk_verdict_list list = {.n = 0};
    char byte;
    if (read(go, &byte, 1) != 1) return 1;
    for (int round = 0; round < N_ROUND; round++) {
        for (int i = 0; i < N_ROW; i++) {
            vk_verdict_row row =
                row_of((uint64_t)(1000 * number + N_ROW * round + i), VK_VERDICT_RIGHT);
            if (!vk_verdict_list_reserve(&list, 1)) return 1;
            vk_verdict_list_add(&list, &row);
        }
        if (!vk_verdict_file_merge(path, &key, is_even, &list)) return 1;
    }
    free(list.rows);
    return 0;
}

static void test_two_processes(void **state) {
    pid_t children[N_PROCESS];
    int go[2], status;
    (void)state;
    unlink(path);
    assert_int_equal(pipe(go), 0);
    for (int i = 0; i < N_PROCESS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit(process_run(i + 1, go[0]));
    }
    assert_int_equal(write(go[1], "go", N_PROCESS), N_PROCESS);
    for (int i = 0; i < N_PROCESS; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    close(go[0]);
    close(go[1]);
    vk_verdict_list list = list_read(&key);
    assert_int_equal(list.n, N_PROCESS * N_ROUND * N_ROW);
    for (int number = 1; number <= N_PROCESS; number++)
        for (int i = 0; i < N_ROUND * N_ROW; i++)
            assert_int_equal(verdict_of(&list, (uint64_t)(1000 * number + i)), VK_VERDICT_RIGHT);
    free(list.rows);
}

/* A process learns what the file has, and the more cautious verdict stays. */
static void test_verdicts(void **state) {
    static const struct {
        vk_verdict ours, theirs, both;
    } cases[] = {{VK_VERDICT_RIGHT, VK_VERDICT_WRONG, VK_VERDICT_WRONG},
                 {VK_VERDICT_WRONG, VK_VERDICT_RIGHT, VK_VERDICT_WRONG},
                 {VK_VERDICT_UNTRIED, VK_VERDICT_RIGHT, VK_VERDICT_RIGHT},
                 {VK_VERDICT_RIGHT, VK_VERDICT_UNTRIED, VK_VERDICT_RIGHT},
                 {VK_VERDICT_UNTRIED, VK_VERDICT_WRONG, VK_VERDICT_WRONG},
                 {VK_VERDICT_RIGHT, VK_VERDICT_FATAL, VK_VERDICT_FATAL},
                 {VK_VERDICT_FATAL, VK_VERDICT_WRONG, VK_VERDICT_FATAL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vk_verdict_list ours = {.n = 0}, theirs = {.n = 0};
        vk_verdict_row row = row_of(7, cases[i].theirs), alone = row_of(8, VK_VERDICT_WRONG);
        unlink(path);
        row_add(&theirs, &row);
        row_add(&theirs, &alone);
        assert_true(vk_verdict_file_merge(path, &key, is_even, &theirs));
        row = row_of(7, cases[i].ours);
        row_add(&ours, &row);
        assert_true(vk_verdict_file_merge(path, &key, is_even, &ours));
        vk_verdict_list list = list_read(&key);
        assert_int_equal(list.n, 2);
        assert_int_equal(ours.n, 2);
        assert_int_equal(verdict_of(&list, 7), cases[i].both);
        assert_int_equal(verdict_of(&ours, 7), cases[i].both);
        assert_int_equal(verdict_of(&ours, 8), VK_VERDICT_WRONG);
        free(list.rows);
        free(ours.rows);
        free(theirs.rows);
    }
}

/* Rows of code that this build does not have, and files of another version, count for nothing. */
static void test_other_code(void **state) {
    vk_cache_key other = key;
    vk_verdict_list list = {.n = 0};
    vk_verdict_row row = row_of(1, VK_VERDICT_WRONG), old = row_of(2, VK_VERDICT_WRONG);
    (void)state;
    old.code = 3;
    unlink(path);
    row_add(&list, &row);
    row_add(&list, &old);
    assert_true(vk_verdict_file_merge(path, &key, is_even, &list));
    free(list.rows);
    list = list_read(&key);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.rows[0].kernel, "k1");
    free(list.rows);
    other.version++;
    list = list_read(&other);
    assert_int_equal(list.n, 0);
    free(list.rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_other_code),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
