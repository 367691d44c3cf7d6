/* SPDX-License-Identifier: MIT
 *
 * host.h: the host table for plugins under test. It counts calls and allocations, puts guard bytes
 * around allocated memory, and records the plugin's first wrong use.
 */
#ifndef TANDEM_CERTIFY_HOST_H
#define TANDEM_CERTIFY_HOST_H

#include <stdatomic.h>

#include "tandem/host.h"

typedef struct certify_host {
    tdm_host table;
    _Atomic int64_t n_alloc;   /* calls, ever */
    _Atomic int64_t n_live;    /* allocations not yet freed */
    _Atomic int64_t n_call;    /* of any function of the table (semaphores and graphs apart) */
    _Atomic int64_t n_foreign; /* frees of memory that another host allocated */
    atomic_flag has_offence;
    char offence[160]; /* the first: "free(40 bytes) of what alloc gave 64"; "" = none */
} certify_host;

/* Fills the table. The host outlives the instance made with it. */
void certify_host_init(certify_host *host);

#endif
