/* SPDX-License-Identifier: MIT
 *
 * limit_log.h: the speed of a machine, from notes that its threads took while they did small pieces
 * of work in parallel. There are two rules for which time counts. Both count only time in which all
 * threads worked at once: threads that shared a processor would look like a machine of half the
 * size. limits.c defines the pieces and takes the notes.
 */
#ifndef TANDEM_CPU_LIMIT_LOG_H
#define TANDEM_CPU_LIMIT_LOG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cpu_limit_note {
    uint64_t at_ns;   /* when a piece was done */
    uint64_t work_ns; /* processor time of the thread by then; used by stretch rates only */
} cpu_limit_note;

/* The notes of one thread: the first when it begins, then one after each piece. Times rise from
 * note to note. */
typedef struct cpu_limit_log {
    cpu_limit_note *notes; /* [n] */
    int32_t n;
    int32_t from, to;     /* positions while logs are read */
    uint64_t shortest_ns; /* piece, likewise */
} cpu_limit_log;

/* The highest rate in a stretch of stretch_ns, in pieces per second of all threads together. Only
 * time in which every thread had its processor counts: if a thread worked for clearly less time
 * than its piece took, that piece is left out, with what the others did meanwhile. The time that
 * remains is joined and cut into stretches. If it does not fill one, it counts as a stretch if it
 * has least_ns; else the result is 0: with more threads than processors, or on a busy machine. */
double cpu_limit_stretch_rate(cpu_limit_log *logs, int32_t n_thread, uint64_t stretch_ns,
                              uint64_t least_ns);

/* The highest rate in a window of window_ns, in pieces per second of all threads together; pieces
 * count that began and ended in the window. The window is shortened to the length of the log, then
 * lengthened to hold at least 40 of the first thread's shortest pieces. With is_together a window
 * counts only if each thread worked for at least three quarters of it, estimated as its pieces
 * times its shortest one: two threads that take turns on a processor do not. 0 if no window
 * counts. */
double cpu_limit_window_rate(cpu_limit_log *logs, int32_t n_thread, uint64_t window_ns,
                             bool is_together);

#endif
