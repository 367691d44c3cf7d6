/* SPDX-License-Identifier: MIT
 *
 * peer.h: which device has which memory, and what other devices of the emulated driver reach at its
 * addresses. The driver calls simt_peer_address for each address of a copy or a launch. All
 * functions may be called from any thread.
 */
#ifndef TANDEM_SIMT_PEER_H
#define TANDEM_SIMT_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIMT_MAX_DEVICE = 4 }; /* devices of a driver, at most */

/* How devices reach the memory of others. The faults imitate a wrong mapping. */
typedef enum simt_peer_mode {
    SIMT_PEER_YES = 0,
    SIMT_PEER_NO,    /* the driver says that no device reaches another */
    SIMT_PEER_COPY,  /* fault: copies and kernels reach a copy of the memory */
    SIMT_PEER_KERNEL /* fault: kernels reach a copy of the memory; copies reach the memory */
} simt_peer_mode;

/* Sets the mode: "yes", "no", "copy" or "kernel". Other words, and NULL, change nothing. */
void simt_peer_set(const char *mode);

/* Notes that `size` bytes at `at` are memory of a device, until simt_peer_forget. is_shared: other
 * devices may reach it. False: there is no memory to note it. */
bool simt_peer_note(int device, void *at, size_t size, bool is_shared);
void simt_peer_forget(void *at);

/* Whether the driver says that `device` can reach memory of `home`. */
bool simt_peer_can(int device, int home);
/* Enables access of `device` to memory of `home`. False where it is enabled already. */
bool simt_peer_enable(int device, int home);
/* When the device's context ends: disables access from it and to it. */
void simt_peer_end(int device);

/* The address of what the device reaches at address `at` by a kernel or a copy: `at` itself where
 * the memory is its own or no device's, or access works. 0: access fails, since it was not enabled
 * or the memory is not shared. */
uint64_t simt_peer_address(int device, uint64_t at, bool is_kernel);

#endif
