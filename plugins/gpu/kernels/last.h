/* SPDX-License-Identifier: MIT
 *
 * last.h: of workgroups that compute parts of a result, the last to end goes on with what all have stored. So a
 * later step need not do it.
 */
#ifndef TANDEM_GPU_LAST_H
#define TANDEM_GPU_LAST_H

#include "lang.h"

/* True in the last of n workgroups that call it with the same counter: it sees what the others have stored before.
 * The counter is a word of the device's memory that is 0 before the first and behind the last of them, so that the
 * next launch counts again. `word` is in shared memory; nothing else uses it before the next barrier. All
 * threads call it together. */
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
