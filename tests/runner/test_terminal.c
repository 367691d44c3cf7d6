/* SPDX-License-Identifier: MIT
 *
 * test_terminal.c: the output on standard error, with and without a terminal, by a clock that the
 * test sets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/terminal.h"

#define MS UINT64_C(1000000)

static uint64_t now;

static uint64_t test_clock(void *user) {
    (void)user;
    return now;
}

typedef struct screen {
    FILE *file;
    runner_terminal *terminal;
    char text[4096];
} screen;

static void screen_open(screen *s, runner_terminal_params params) {
    s->file = tmpfile();
    assert_non_null(s->file);
    params.stream = s->file;
    params.clock = test_clock;
    now = 1000 * MS;
    assert_int_equal(runner_terminal_create(&params, &s->terminal, NULL), TDM_OK);
}

/* What has been written since the last call. */
static const char *screen_take(screen *s) {
    fflush(s->file);
    rewind(s->file);
    size_t n = fread(s->text, 1, sizeof s->text - 1, s->file);
    s->text[n] = '\0';
    rewind(s->file);
    assert_int_equal(ftruncate(fileno(s->file), 0), 0);
    return s->text;
}

static void screen_close(screen *s) {
    runner_terminal_destroy(s->terminal);
    fclose(s->file);
}

static void test_bar(void **state) {
    (void)state;
    screen s;
    screen_open(&s, (runner_terminal_params){.tty = 1, .color = -1, .width = 60});
    runner_progress_update(s.terminal, 5); /* nothing has begun */
    runner_progress_begin(s.terminal, "loading", 2 << 20, RUNNER_UNIT_BYTES);
    now += 100 * MS;
    runner_progress_update(s.terminal, 1);
    assert_string_equal(screen_take(&s), "");
    now += 100 * MS;
    runner_progress_update(s.terminal, 1 << 20);
    assert_string_equal(screen_take(&s),
                        "loading  [#########..........]   50 %  1.00 MiB of 2.00 MiB");
    now += 99 * MS; /* too soon to draw again */
    runner_progress_update(s.terminal, 3 << 19);
    assert_string_equal(screen_take(&s), "");
    now += 1 * MS;
    runner_progress_update(s.terminal, UINT64_C(1) << 60); /* past the total counts as all of it */
    assert_string_equal(screen_take(&s),
                        "\r\33[Kloading  [###################]  100 %  2.00 MiB of 2.00 MiB");
    /* a message takes the bar's place, and is not joined to it */
    runner_terminal_print(s.terminal, RUNNER_MESSAGE_WARNING, "%s is odd", "this");
    assert_string_equal(screen_take(&s), "\r\33[Ktandem: warning: this is odd\n");
    now += 100 * MS;
    runner_progress_update(s.terminal, 0);
    assert_string_equal(screen_take(&s), "loading  [...................]    0 %  0 B of 2.00 MiB");
    runner_progress_end(s.terminal);
    assert_string_equal(screen_take(&s), "\r\33[K");
    runner_progress_end(s.terminal);
    assert_string_equal(screen_take(&s), "");
    /* of an unknown total; and one that is still there at the end */
    runner_progress_begin(s.terminal, "prefill", 0, RUNNER_UNIT_TOKENS);
    now += 200 * MS;
    runner_progress_update(s.terminal, 77);
    assert_string_equal(screen_take(&s), "prefill  77 tokens");
    runner_terminal_destroy(s.terminal);
    assert_string_equal(screen_take(&s), "\r\33[K");
    fclose(s.file);
}

static void test_narrow_bar(void **state) {
    (void)state;
    for (int width = 1; width < 200; width++) {
        screen s;
        screen_open(&s, (runner_terminal_params){.tty = 1, .color = -1, .width = width});
        runner_progress_begin(s.terminal, "loading", 100, RUNNER_UNIT_TOKENS);
        now += 200 * MS;
        runner_progress_update(s.terminal, 33);
        assert_true(strlen(screen_take(&s)) <= (size_t)width - 1);
        screen_close(&s);
    }
}

static void test_plain_lines(void **state) {
    (void)state;
    screen s;
    screen_open(&s, (runner_terminal_params){.tty = -1});
    runner_progress_begin(s.terminal, "prefill", 1000, RUNNER_UNIT_TOKENS);
    now += 250 * MS;
    runner_progress_update(s.terminal, 250);
    assert_string_equal(screen_take(&s), "prefill: 25 % (250 tokens of 1000 tokens)\n");
    now += 1999 * MS;
    runner_progress_update(s.terminal, 500);
    assert_string_equal(screen_take(&s), "");
    now += 1 * MS;
    runner_progress_update(s.terminal, 750);
    assert_string_equal(screen_take(&s), "prefill: 75 % (750 tokens of 1000 tokens)\n");
    runner_progress_update(s.terminal, 1000);
    now += 50 * MS;
    runner_progress_end(s.terminal);
    assert_string_equal(screen_take(&s), "prefill: 1000 tokens in 2.3 s\n");
    /* short work leaves no trace */
    runner_progress_begin(s.terminal, "loading", 10, RUNNER_UNIT_BYTES);
    runner_progress_update(s.terminal, 10);
    runner_progress_end(s.terminal);
    assert_string_equal(screen_take(&s), "");
    screen_close(&s);
}

static void test_quiet_and_verbose(void **state) {
    (void)state;
    screen s;
    screen_open(&s, (runner_terminal_params){.tty = 1, .is_quiet = true, .is_verbose = true});
    runner_progress_begin(s.terminal, "loading", 10, RUNNER_UNIT_BYTES);
    now += 5000 * MS;
    runner_progress_update(s.terminal, 5);
    runner_terminal_print(s.terminal, RUNNER_MESSAGE_NOTE, "note");
    runner_terminal_print(s.terminal, RUNNER_MESSAGE_DEBUG, "debug");
    runner_progress_end(s.terminal);
    assert_string_equal(screen_take(&s), "");
    screen_close(&s);

    screen_open(&s, (runner_terminal_params){.tty = -1});
    runner_terminal_print(s.terminal, RUNNER_MESSAGE_DEBUG, "debug");
    runner_terminal_print(s.terminal, RUNNER_MESSAGE_NOTE, "note");
    runner_terminal_print(s.terminal, RUNNER_MESSAGE_ERROR, "error");
    assert_string_equal(screen_take(&s), "note\ntandem: error: error\n");
    screen_close(&s);

    screen_open(&s, (runner_terminal_params){.tty = -1, .is_verbose = true});
    runner_terminal_print(s.terminal, RUNNER_MESSAGE_DEBUG, "debug");
    assert_string_equal(screen_take(&s), "debug\n");
    screen_close(&s);
}

static void test_color(void **state) {
    (void)state;
    static const struct {
        const char *no_color, *term;
        int tty, color;
        bool expected;
    } rows[] = {
        {NULL, "xterm", 1, 0, true},  {"1", "xterm", 1, 0, false},   {"", "xterm", 1, 0, true},
        {NULL, "dumb", 1, 0, false},  {NULL, "xterm", -1, 0, false}, {"1", "xterm", 1, 1, true},
        {NULL, "xterm", -1, 1, true}, {NULL, "xterm", 1, -1, false}, {NULL, NULL, 1, 0, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].no_color != NULL)
            setenv("NO_COLOR", rows[i].no_color, 1);
        else
            unsetenv("NO_COLOR");
        if (rows[i].term != NULL)
            setenv("TERM", rows[i].term, 1);
        else
            unsetenv("TERM");
        screen s;
        screen_open(&s, (runner_terminal_params){.tty = rows[i].tty, .color = rows[i].color});
        runner_terminal_print(s.terminal, RUNNER_MESSAGE_ERROR, "no");
        assert_string_equal(screen_take(&s), rows[i].expected ? "tandem: \33[1;31merror: \33[0mno\n"
                                                              : "tandem: error: no\n");
        screen_close(&s);
    }
    /* by default a file is not a terminal */
    screen s;
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    screen_open(&s, (runner_terminal_params){0});
    runner_terminal_print(s.terminal, RUNNER_MESSAGE_ERROR, "no");
    assert_string_equal(screen_take(&s), "tandem: error: no\n");
    screen_close(&s);
}

static void test_bytes(void **state) {
    (void)state;
    static const struct {
        uint64_t n;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {20 << 10, "20.0 KiB"},
        {700 << 20, "700 MiB"},
        {UINT64_C(1300) << 20, "1.27 GiB"},
        {UINT64_C(5000) << 40, "5000 TiB"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[32];
        runner_bytes_format(rows[i].n, text, sizeof text);
        assert_string_equal(text, rows[i].text);
    }
}

#define N_LINE 200

static void *print_lines(void *user) {
    for (int i = 0; i < N_LINE; i++) {
        runner_terminal_print(user, RUNNER_MESSAGE_NOTE, "a line");
        runner_progress_update(user, (uint64_t)i);
    }
    return NULL;
}

/* Lines of several threads come out whole; thread sanitizer watches the rest. */
static void test_threads(void **state) {
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    runner_terminal *terminal;
    runner_terminal_params params = {.stream = file, .tty = -1};
    assert_int_equal(runner_terminal_create(&params, &terminal, NULL), TDM_OK);
    runner_progress_begin(terminal, "loading", N_LINE, RUNNER_UNIT_BYTES);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, print_lines, terminal), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    runner_terminal_destroy(terminal);
    rewind(file);
    char line[128];
    size_t n = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "loading: ", 9) == 0) continue;
        assert_string_equal(line, "a line\n");
        n++;
    }
    assert_int_equal(n, 3 * N_LINE);
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bar),         cmocka_unit_test(test_narrow_bar),
        cmocka_unit_test(test_plain_lines), cmocka_unit_test(test_quiet_and_verbose),
        cmocka_unit_test(test_color),       cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
