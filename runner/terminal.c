/* SPDX-License-Identifier: MIT
 *
 * terminal.c: messages and progress on standard error.
 */
#include "runner/terminal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define SECOND        UINT64_C(1000000000)
#define SHOW_AFTER    (SECOND / 5)  /* no bar for shorter work */
#define BAR_INTERVAL  (SECOND / 10) /* faster redraws are not visible */
#define LINE_INTERVAL (2 * SECOND)  /* lines of progress in a log */
#define BAR_CELLS_MAX 40

struct runner_terminal {
    FILE *stream;
    bool is_tty, has_color, is_quiet, is_verbose;
    int width; /* columns; 0 = read from the terminal for each bar, since windows change */
    uint64_t (*clock)(void *);
    void *clock_user;
    pthread_mutex_t lock; /* guards all fields below: threads of plugins print messages too */
    bool is_active;       /* a progress has begun */
    bool is_drawn;        /* a bar is on the screen */
    bool was_shown;       /* a bar or line of this progress was printed */
    char what[48];
    uint64_t total, done;
    runner_unit unit;
    uint64_t begun, shown; /* clock times: of the beginning, and of the last bar or line */
};

static uint64_t monotonic_clock(void *user) {
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static bool environment_has(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0';
}

tdm_status runner_terminal_create(const runner_terminal_params *params,
                                  runner_terminal **terminal_out, tdm_error *err) {
    *terminal_out = NULL;
    runner_terminal *terminal = calloc(1, sizeof *terminal);
    if (terminal == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the terminal");
    if (pthread_mutex_init(&terminal->lock, NULL) != 0) {
        free(terminal);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no lock for the terminal");
    }
    terminal->stream = params->stream != NULL ? params->stream : stderr;
    const char *kind = getenv("TERM");
    bool is_dumb = kind != NULL && strcmp(kind, "dumb") == 0;
    terminal->is_tty =
        params->tty != 0 ? params->tty > 0 : isatty(fileno(terminal->stream)) == 1 && !is_dumb;
    terminal->has_color = params->color != 0
                              ? params->color > 0
                              : terminal->is_tty && !is_dumb && !environment_has("NO_COLOR");
    terminal->is_quiet = params->is_quiet;
    terminal->is_verbose = params->is_verbose;
    terminal->width = params->width;
    terminal->clock = params->clock != NULL ? params->clock : monotonic_clock;
    terminal->clock_user = params->clock_user;
    *terminal_out = terminal;
    return TDM_OK;
}

void runner_bytes_format(uint64_t n, char *text, size_t text_size) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)n;
    size_t unit = 0;
    while (value >= 1024 && unit < 4) value /= 1024, unit++;
    if (unit == 0)
        snprintf(text, text_size, "%u B", (unsigned)n);
    else
        snprintf(text, text_size, "%.*f %s",
                 value < 10    ? 2
                 : value < 100 ? 1
                               : 0,
                 value, units[unit]);
}

static void amount_format(runner_unit unit, uint64_t n, char *text, size_t text_size) {
    if (unit == RUNNER_UNIT_BYTES)
        runner_bytes_format(n, text, text_size);
    else
        snprintf(text, text_size, "%llu tokens", (unsigned long long)n);
}

static void bar_erase(runner_terminal *terminal) {
    if (!terminal->is_drawn) return;
    /* "\33[K" (ECMA-48, erase in line) clears the rest of a longer line */
    fputs("\r\33[K", terminal->stream);
    terminal->is_drawn = false;
}

static int terminal_width(const runner_terminal *terminal) {
    if (terminal->width > 0) return terminal->width;
    struct winsize size;
    if (ioctl(fileno(terminal->stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

/* Draws "loading  [#####.....]  50 %  1.00 MiB of 2.00 MiB". A bar of less than 5 cells is left
 * out, and the line is cut to the width, because a line that wraps cannot be redrawn. */
static void bar_draw(runner_terminal *terminal) {
    char done[32], total[32], tail[96];
    amount_format(terminal->unit, terminal->done, done, sizeof done);
    amount_format(terminal->unit, terminal->total, total, sizeof total);
    int percent =
        terminal->total > 0 ? (int)((double)terminal->done / (double)terminal->total * 100.0) : 0;
    if (terminal->total > 0)
        snprintf(tail, sizeof tail, "%3d %%  %s of %s", percent, done, total);
    else
        snprintf(tail, sizeof tail, "%s", done);
    int width = terminal_width(terminal) - 1;
    /* room for the longest possible tail ("1023 KiB" has 8), so that the bar keeps its size */
    int total_width = (int)strlen(total), done_width = total_width > 8 ? total_width : 8;
    int tail_width = (int)strlen("100 %   of ") + done_width + total_width;
    int cells = width - (int)strlen(terminal->what) - tail_width - (int)strlen("  []  ");
    if (cells > BAR_CELLS_MAX) cells = BAR_CELLS_MAX;
    char line[256];
    if (terminal->total > 0 && cells >= 5) {
        char bar[BAR_CELLS_MAX + 1];
        int full = cells * percent / 100;
        memset(bar, '.', (size_t)cells);
        memset(bar, '#', (size_t)full);
        bar[cells] = '\0';
        snprintf(line, sizeof line, "%s  [%s]  %s", terminal->what, bar, tail);
    } else {
        snprintf(line, sizeof line, "%s  %s", terminal->what, tail);
    }
    bar_erase(terminal);
    fprintf(terminal->stream, "%.*s", width > 0 ? width : 0, line);
    fflush(terminal->stream);
    terminal->is_drawn = true;
}

static void line_print(runner_terminal *terminal) {
    char done[32], total[32];
    amount_format(terminal->unit, terminal->done, done, sizeof done);
    amount_format(terminal->unit, terminal->total, total, sizeof total);
    if (terminal->total > 0)
        fprintf(terminal->stream, "%s: %.0f %% (%s of %s)\n", terminal->what,
                (double)terminal->done / (double)terminal->total * 100.0, done, total);
    else
        fprintf(terminal->stream, "%s: %s\n", terminal->what, done);
    fflush(terminal->stream);
}

static void progress_end(runner_terminal *terminal) {
    if (!terminal->is_active) return;
    terminal->is_active = false;
    if (terminal->is_tty) {
        bar_erase(terminal);
        fflush(terminal->stream);
        return;
    }
    if (!terminal->was_shown) return;
    uint64_t took = terminal->clock(terminal->clock_user) - terminal->begun;
    char done[32];
    amount_format(terminal->unit, terminal->done, done, sizeof done);
    fprintf(terminal->stream, "%s: %s in %.1f s\n", terminal->what, done,
            (double)took / (double)SECOND);
    fflush(terminal->stream);
}

void runner_terminal_destroy(runner_terminal *terminal) {
    if (terminal == NULL) return;
    runner_progress_end(terminal);
    pthread_mutex_destroy(&terminal->lock);
    free(terminal);
}

void runner_terminal_print(runner_terminal *terminal, runner_message message, const char *format,
                           ...) {
    static const char *const words[] = {"error: ", "warning: ", "", ""};
    static const char *const colors[] = {"\33[1;31m", "\33[1;33m", "", "\33[2m"};
    if (message == RUNNER_MESSAGE_NOTE && terminal->is_quiet) return;
    if (message == RUNNER_MESSAGE_DEBUG && (terminal->is_quiet || !terminal->is_verbose)) return;
    bool colored = terminal->has_color && colors[message][0] != '\0';
    pthread_mutex_lock(&terminal->lock);
    bar_erase(terminal);
    fprintf(terminal->stream, "%s%s%s", words[message][0] != '\0' ? "tandem: " : "",
            colored ? colors[message] : "", words[message]);
    /* only the word is coloured, except for debugging output, which has none */
    if (colored && message != RUNNER_MESSAGE_DEBUG) fputs("\33[0m", terminal->stream);
    va_list args;
    va_start(args, format);
    vfprintf(terminal->stream, format, args);
    va_end(args);
    if (colored && message == RUNNER_MESSAGE_DEBUG) fputs("\33[0m", terminal->stream);
    fputc('\n', terminal->stream);
    fflush(terminal->stream);
    pthread_mutex_unlock(&terminal->lock);
}

void runner_progress_begin(runner_terminal *terminal, const char *what, uint64_t total,
                           runner_unit unit) {
    if (terminal->is_quiet) return;
    pthread_mutex_lock(&terminal->lock);
    progress_end(terminal);
    snprintf(terminal->what, sizeof terminal->what, "%s", what);
    terminal->total = total;
    terminal->done = 0;
    terminal->unit = unit;
    terminal->begun = terminal->clock(terminal->clock_user);
    terminal->shown = terminal->begun;
    terminal->was_shown = false;
    terminal->is_active = true;
    pthread_mutex_unlock(&terminal->lock);
}

void runner_progress_update(runner_terminal *terminal, uint64_t done) {
    if (terminal->is_quiet) return;
    pthread_mutex_lock(&terminal->lock);
    if (terminal->is_active) {
        terminal->done = terminal->total > 0 && done > terminal->total ? terminal->total : done;
        uint64_t now = terminal->clock(terminal->clock_user);
        uint64_t interval = !terminal->was_shown ? SHOW_AFTER
                            : terminal->is_tty   ? BAR_INTERVAL
                                                 : LINE_INTERVAL;
        if (now - terminal->shown >= interval) {
            if (terminal->is_tty)
                bar_draw(terminal);
            else
                line_print(terminal);
            terminal->shown = now;
            terminal->was_shown = true;
        }
    }
    pthread_mutex_unlock(&terminal->lock);
}

void runner_progress_end(runner_terminal *terminal) {
    pthread_mutex_lock(&terminal->lock);
    progress_end(terminal);
    pthread_mutex_unlock(&terminal->lock);
}
