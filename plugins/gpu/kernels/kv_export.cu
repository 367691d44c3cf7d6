/* SPDX-License-Identifier: MIT
 *
 * kv_export.cu: KV_EXPORT. See kernel.h.
 */
#include "kv_move.h"

struct KvExport : KvMove {
    inline explicit KvExport(const Args &args_) : KvMove(args_, false) {}
};

GPU_KERNEL(kv_export, KvExport)
