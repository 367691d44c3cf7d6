/* SPDX-License-Identifier: MIT
 *
 * kv_import.cu: KV_IMPORT. See kernel.h.
 */
#include "kv_move.h"

struct KvImport : KvMove {
    inline explicit KvImport(const Args &args_) : KvMove(args_, true) {}
};

GPU_KERNEL(kv_import, KvImport)
