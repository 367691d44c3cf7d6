/* SPDX-License-Identifier: MIT
 *
 * last.h: finds the last of several workgroups that compute parts of a result. That workgroup reads
 * what all of them have stored and finishes the result, so no other kernel has to be launched for
 * it.
 */
#ifndef TANDEM_GPU_LAST_H
#define TANDEM_GPU_LAST_H

#include "lang.h"

/* True in the last of the n workgroups that call it with the same counter: its threads see what the
 * others have stored before their calls. The counter is a 32-bit word of device memory. It must be
 * 0 before the first of these calls; the last one sets it to 0 again, for the next launch. `word`
 * is in shared memory: the call overwrites it, and nothing else may use it before the next barrier.
 * All threads of the workgroup call it together. */
static inline bool group_is_last(u64 counter, uint n, uint *word) {
    device_release();
    barrier();
    if (thread_id() == 0) {
        const bool is_last = device_add(counter, 1) == n - 1;
        if (is_last) {
            device_acquire();
            U32(counter).at[0] = 0;
        }
        *word = is_last ? 1 : 0;
    }
    barrier();
    const bool is_last = *word != 0;
    if (is_last) group_acquire();
    return is_last;
}

#endif
