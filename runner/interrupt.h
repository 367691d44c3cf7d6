/* SPDX-License-Identifier: MIT
 *
 * interrupt.h: Ctrl-C. The first one asks the command to end cleanly, the second one kills.
 */
#ifndef TANDEM_RUNNER_INTERRUPT_H
#define TANDEM_RUNNER_INTERRUPT_H

#include <stdbool.h>

/* What a process that Ctrl-C ended exits with, as shells expect it: 128 + SIGINT. */
#define RUNNER_EXIT_INTERRUPTED 130

/* From here on SIGINT and SIGTERM are remembered instead of killing, once; a closed pipe is a
 * failed write instead of a signal. [setup] */
void runner_interrupt_watch(void);

/* Whether one has come. [any-thread] */
bool runner_interrupt_came(void);

#endif
