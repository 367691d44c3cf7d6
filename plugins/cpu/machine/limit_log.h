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

/* A thread's: the beginning, then each piece. Times rise from note to note. */
typedef struct cpu_limit_log {
    cpu_limit_note *notes; /* [n] */
    int32_t n;
    int32_t from, to;     /* positions while logs are read */
    uint64_t shortest_ns; /* piece, likewise */
} cpu_limit_log;

/* Pieces a second that all threads together did in the best stretch of time in which every one of
 * them had its processor. A piece that took its thread clearly longer than that worked is left out,
 * with what the others did meanwhile; what is left on both sides of it counts as one piece of time.
 * It is cut into stretches of stretch_ns; where it makes not even one, it is one as a whole if it
 * is least_ns long. 0 where there is less: with more threads than processors, or on a busy
 * machine. */
double cpu_limit_stretch_rate(cpu_limit_log *logs, int32_t n_thread, uint64_t stretch_ns,
                              uint64_t least_ns);

/* Pieces a second that all threads together did in the best window of that length: those that began
 * and ended in it. It is longer where it would hold few pieces, and no longer than the log. With
 * is_together only windows count in which each thread worked for three quarters of the time at
 * least, as its shortest piece tells: two that take turns on a processor cannot. 0 where there is
 * none. */
double cpu_limit_window_rate(cpu_limit_log *logs, int32_t n_thread, uint64_t window_ns,
                             bool is_together);

#endif
