/* SPDX-License-Identifier: MIT
 *
 * interrupt.h: Ctrl-C and similar signals. After the first signal the command ends cleanly; a
 * second one kills the process.
 */
#ifndef TANDEM_RUNNER_INTERRUPT_H
#define TANDEM_RUNNER_INTERRUPT_H

#include <stdbool.h>

/* Installs the handlers. The first SIGINT, SIGTERM or SIGHUP (a closed terminal) sets a flag
 * instead of killing the process; a SIGHUP that nohup ignores stays ignored. A write to a closed
 * pipe, or beyond the size limit of files, fails instead of raising a signal. [setup] */
void runner_interrupt_watch(void);

/* Whether one of the signals has arrived. [any-thread] */
bool runner_interrupt_came(void);

/* For a command that goes on after Ctrl-C: clears the flag and installs the handlers again. Returns
 * false, and changes nothing, where no signal has arrived or another one than Ctrl-C. [setup] */
bool runner_interrupt_obey(void);

/* The exit status for a process that was ended by the signal: 128 + its number, which is 130 for
 * Ctrl-C. [any-thread] */
int runner_interrupt_exit_code(void);

#endif
