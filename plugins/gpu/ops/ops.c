/* SPDX-License-Identifier: MIT
 *
 * ops.c: the table of emitters. Views have none.
 */
#include "plugins/gpu/ops/ops.h"

#define ROW_VIEW(name)                    NULL
#define ROW_VALUE(name)                   gpu_op_##name
#define ROW_CACHE                         ROW_VALUE
#define ROW_GROUP                         ROW_VALUE
#define ROW_(ID, name, number, kind, ...) [TDM_OP_##ID] = ROW_##kind(name),
static const gpu_emit_fn emitters[TDM_OP_COUNT_] = {TDM_OP_LIST(ROW_)};

gpu_emit_fn gpu_op_emitter(int32_t op) {
    return op > TDM_OP_NONE && op < TDM_OP_COUNT_ ? emitters[op] : NULL;
}
