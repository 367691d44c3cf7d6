/* SPDX-License-Identifier: MIT
 *
 * peer.h: which device has which memory, and what another device of the emulated driver reaches of
 * it. The driver asks for each address of a copy or a launch. All functions may be called from any
 * thread.
 */
#ifndef TANDEM_SIMT_PEER_H
#define TANDEM_SIMT_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIMT_MAX_DEVICE = 4 }; /* devices of a driver, at most */

/* How devices reach the memory of others. The faults are those of a wrong mapping: the device
 * reaches a copy of the memory instead. */
typedef enum simt_peer_mode {
    SIMT_PEER_YES = 0,
    SIMT_PEER_NO,    /* the driver says that no device reaches another */
    SIMT_PEER_COPY,  /* copies and kernels are mapped wrongly */
    SIMT_PEER_KERNEL /* kernels are; copies are right */
} simt_peer_mode;

/* "yes", "no", "copy" or "kernel"; others change nothing. */
void simt_peer_set(const char *mode);

/* Notes memory of a device. is_shared: others may reach it while kernels run. False: no memory. */
bool simt_peer_note(int device, void *at, size_t size, bool is_shared);
void simt_peer_forget(void *at);

/* Whether the driver says that one device reaches another. */
bool simt_peer_can(int device, int home);
/* False where it is enabled already. */
bool simt_peer_enable(int device, int home);
/* The device's context has ended: nothing is enabled from it, or to it. */
void simt_peer_end(int device);

/* What the device reaches at an address: the address itself where it is no other device's. 0: a
 * fault, since access was not enabled, or the memory is not shared. */
uint64_t simt_peer_address(int device, uint64_t at, bool is_kernel);

#endif
