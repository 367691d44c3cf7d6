/* SPDX-License-Identifier: MIT
 *
 * interrupt.h: Ctrl-C and similar signals. After the first the command ends cleanly; the second
 * kills the process.
 */
#ifndef TANDEM_RUNNER_INTERRUPT_H
#define TANDEM_RUNNER_INTERRUPT_H

#include <stdbool.h>

/* Installs the handlers. The first SIGINT, SIGTERM or SIGHUP (a closed terminal; not where nohup
 * ignores it) sets a flag instead of killing. Writing to a closed pipe, or beyond the size limit of
 * files, is a failed write instead of a signal. [setup] */
void runner_interrupt_watch(void);

/* Whether one of the signals has arrived. [any-thread] */
bool runner_interrupt_came(void);

/* Clears the flag of a Ctrl-C that was handled, and installs its handler again; true where there
 * was one. The other signals stay set. [setup] */
bool runner_interrupt_obey(void);

/* The exit status for a process that was ended by the signal: 128 + its number, which is 130 for
 * Ctrl-C. [any-thread] */
int runner_interrupt_exit_code(void);

#endif
