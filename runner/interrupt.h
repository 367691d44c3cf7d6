/* SPDX-License-Identifier: MIT
 *
 * interrupt.h: Ctrl-C, and its like. The first one asks the command to end cleanly, the second one
 * kills.
 */
#ifndef TANDEM_RUNNER_INTERRUPT_H
#define TANDEM_RUNNER_INTERRUPT_H

#include <stdbool.h>

/* From here on SIGINT, SIGTERM and SIGHUP (a terminal that was closed; not where nohup has it ignored)
 * are remembered instead of killing, once; a closed pipe or a file that grows too large is a failed
 * write instead of a signal. [setup] */
void runner_interrupt_watch(void);

/* Whether one has come. [any-thread] */
bool runner_interrupt_came(void);

/* Forgets a Ctrl-C that has been obeyed, and watches for the next one; true where there was one. Not
 * for the others: they stay. [setup] */
bool runner_interrupt_obey(void);

/* What a process that one has ended exits with, as shells expect it: 128 + its number, which is
 * 130 for Ctrl-C. [any-thread] */
int runner_interrupt_exit_code(void);

#endif
