/* SPDX-License-Identifier: MIT
 *
 * limit_log.c: the arithmetic on notes; no clock is read here.
 */
#include "plugins/cpu/machine/limit_log.h"

/* Pieces of a thread in a window, at least: one that the window's end cuts off matters little. */
enum { WINDOW_PIECES = 40 };

/* ---- Stretches ---- */

/* Whether the thread had its processor all through the piece that ends at `done`, but for what
 * interrupts take. */
static bool piece_is_whole(const cpu_limit_note *done) {
    const cpu_limit_note *begun = done - 1;
    const uint64_t took_ns = done->at_ns - begun->at_ns;
    return done->work_ns - begun->work_ns >= took_ns - took_ns / 8;
}

double cpu_limit_stretch_rate(cpu_limit_log *logs, int32_t n_thread, uint64_t stretch_ns,
                              uint64_t least_ns) {
    uint64_t now = 0, had_ns = 0;
    double n_piece = 0, best = 0;
    for (int32_t t = 0; t < n_thread; t++) {
        logs[t].to = 1;
        if (logs[t].n < 2) return 0;
        if (logs[t].notes[0].at_ns > now) now = logs[t].notes[0].at_ns;
    }
    for (;;) {
        uint64_t next = UINT64_MAX;
        double rate = 0; /* pieces a nanosecond until then */
        bool is_whole = true;
        for (int32_t t = 0; t < n_thread; t++) {
            cpu_limit_log *log = &logs[t];
            while (log->to < log->n && log->notes[log->to].at_ns <= now) log->to++;
            if (log->to >= log->n) { /* the first thread whose log ends */
                if (best == 0 && had_ns >= least_ns) best = n_piece / (double)had_ns;
                return best * 1e9;
            }
            const cpu_limit_note *done = &log->notes[log->to];
            is_whole = is_whole && piece_is_whole(done);
            if (done->at_ns < next) next = done->at_ns;
            rate += 1 / (double)(done->at_ns - done[-1].at_ns);
        }
        if (is_whole) {
            n_piece += rate * (double)(next - now);
            had_ns += next - now;
        }
        now = next;
        if (had_ns >= stretch_ns) {
            if (n_piece / (double)had_ns > best) best = n_piece / (double)had_ns;
            n_piece = 0;
            had_ns = 0;
        }
    }
}

/* ---- Windows ---- */

static uint64_t shortest_piece(const cpu_limit_log *log) {
    uint64_t shortest = UINT64_MAX;
    for (int32_t i = 1; i < log->n; i++)
        if (log->notes[i].at_ns - log->notes[i - 1].at_ns < shortest)
            shortest = log->notes[i].at_ns - log->notes[i - 1].at_ns;
    return shortest;
}

/* How long the pieces in the present window take if nothing interrupts the thread. */
static uint64_t worked_ns(const cpu_limit_log *log) {
    return log->to > log->from ? (uint64_t)(log->to - log->from) * log->shortest_ns : 0;
}

double cpu_limit_window_rate(cpu_limit_log *logs, int32_t n_thread, uint64_t window_ns,
                             bool is_together) {
    int64_t best = 0;
    for (int32_t t = 0; t < n_thread; t++) {
        if (logs[t].n < 2) return 0;
        logs[t].from = logs[t].to = 0;
        logs[t].shortest_ns = shortest_piece(&logs[t]);
    }
    is_together = is_together && n_thread > 1;
    const cpu_limit_log *first = &logs[0];
    const uint64_t least_ns = WINDOW_PIECES * first->shortest_ns;
    const uint64_t span_ns = first->notes[first->n - 1].at_ns - first->notes[0].at_ns;
    if (window_ns > span_ns) window_ns = span_ns; /* so fast that the log was full before */
    if (window_ns < least_ns) window_ns = least_ns;
    for (int32_t i = 0; i < first->n; i++) { /* windows start where a piece of thread 0 does */
        const uint64_t start = first->notes[i].at_ns, end = start + window_ns;
        int64_t n = 0;
        for (int32_t t = 0; t < n_thread; t++) {
            cpu_limit_log *log = &logs[t];
            while (log->from < log->n && log->notes[log->from].at_ns < start) log->from++;
            while (log->to + 1 < log->n && log->notes[log->to + 1].at_ns <= end) log->to++;
            if (log->to > log->from) n += log->to - log->from;
        }
        if (n <= best) continue;
        bool counts = true;
        for (int32_t t = 0; t < n_thread && counts && is_together; t++)
            counts = worked_ns(&logs[t]) >= window_ns - window_ns / 4;
        if (counts) best = n;
    }
    return (double)best / ((double)window_ns * 1e-9);
}
