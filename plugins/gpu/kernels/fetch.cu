/* SPDX-License-Identifier: MIT
 *
 * fetch.cu: copies what the host has written for a step from host memory into device memory. A
 * thread copies 16 bytes. See GPU_KERNEL_FETCH.
 */
#include "lang.h"

struct Fetch : Kernel {
    inline explicit Fetch(const Args &args_) : Kernel(args_) {}

    inline void run() {
        uint i = invocation_number();
        if (i < uint(args.word[0]))
            store_16(args.address[0] + u64(16) * i, load_16(args.address[1] + u64(16) * i));
    }
};

GPU_KERNEL(fetch, Fetch)
