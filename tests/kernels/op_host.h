/* SPDX-License-Identifier: MIT
 *
 * op_host.h: a host table for tests of a plugin without the core. Its memory is counted, guarded,
 * filled with garbage, and can run out on demand. Semaphores are the core's.
 */
#ifndef TANDEM_TESTS_OP_HOST_H
#define TANDEM_TESTS_OP_HOST_H

#include "tandem/plugin.h"

typedef struct op_host op_host;

/* Never NULL: a test that has no memory ends. */
op_host *op_host_create(void);
/* Returns false when the plugin still holds memory or wrote past the end of some. */
bool op_host_destroy(op_host *host);
/* What the plugin is given. */
const tdm_host *op_host_table(const op_host *host);

/* Allocations so far, and bytes not freed. */
int64_t op_host_n_alloc(const op_host *host);
int64_t op_host_live_size(const op_host *host);
/* The next `n` allocations succeed, the one after them fails, as do all that follow until this is
 * called again; a negative n ends that. */
void op_host_fail_after(op_host *host, int64_t n);

#endif
