/* SPDX-License-Identifier: MIT
 *
 * interrupt.c: see interrupt.h. The handler only sets a flag.
 */
#include "runner/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static atomic_int came; /* the number of the signal; 0 = none */

static void remember(int signal_number) {
    atomic_store_explicit(&came, signal_number, memory_order_relaxed);
}

void runner_interrupt_watch(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = remember;
    action.sa_flags = SA_RESETHAND; /* without SA_RESTART, so that a read from a terminal ends */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* set by nohup */
        sigaction(SIGHUP, &action, NULL);
    action.sa_handler = SIG_IGN;
    action.sa_flags = 0;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

bool runner_interrupt_came(void) {
    return atomic_load_explicit(&came, memory_order_relaxed) != 0;
}

bool runner_interrupt_obey(void) {
    int ctrl_c = SIGINT;
    if (!atomic_compare_exchange_strong(&came, &ctrl_c, 0)) return false;
    runner_interrupt_watch();
    return true;
}

int runner_interrupt_exit_code(void) {
    return 128 + atomic_load_explicit(&came, memory_order_relaxed);
}
