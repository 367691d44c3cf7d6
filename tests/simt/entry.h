/* SPDX-License-Identifier: MIT
 *
 * entry.h: GPU_ENTRY of plugins/gpu/kernels/lang.h on the emulated driver: an entry adds itself to
 * the table of kernels.
 */
#ifndef TANDEM_SIMT_ENTRY_H
#define TANDEM_SIMT_ENTRY_H

#include "tests/simt/block.h"

#undef GPU_ENTRY /* of a vendor's words.h */
#define GPU_ENTRY(name, max_threads, registers, ...)                                               \
    static void entry_##name(const void *raw) {                                                    \
        const Args &args = *(const Args *)raw;                                                     \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    static simt_kernel kernel_##name = {#name, entry_##name, sizeof(Args), 0, 0, max_threads};     \
    __attribute__((constructor)) static void add_##name(void) {                                    \
        simt_kernel_add(&kernel_##name);                                                           \
    }

#endif
