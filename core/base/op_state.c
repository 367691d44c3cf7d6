/* SPDX-License-Identifier: MIT
 *
 * op_state.c: see op_state.h.
 */
#include "core/base/op_state.h"

#include <stddef.h>

/* A row of TDM_OP_LIST (op.h): all that its initialisers may name. */
typedef struct op_row {
    bool uses_kv;
    int n_src, n_dst;
    unsigned optional_src, optional_dst, step_src, state_src, private_src, usage;
} op_row;

#define USES_KV_VIEW  false
#define USES_KV_VALUE false
#define USES_KV_CACHE true
#define USES_KV_GROUP false

#define ROW_(ID, name, number, kind, infer, params, ...)                                           \
    [TDM_OP_##ID] = {.uses_kv = USES_KV_##kind, __VA_ARGS__},
static const op_row rows[TDM_OP_COUNT_] = {TDM_OP_LIST(ROW_)};

static const op_row *row_get(int32_t op) {
    return op > TDM_OP_NONE && op < TDM_OP_COUNT_ ? &rows[op] : NULL;
}

bool tdm_op_uses_kv(int32_t op) {
    const op_row *row = row_get(op);
    return row != NULL && row->uses_kv;
}

int32_t tdm_op_state(const tdm_node *node) {
    const op_row *row = row_get(node->op);
    int i;
    if (row == NULL || row->state_src == 0) return -1;
    for (i = 0; (row->state_src >> i & 1) == 0; i++) continue;
    return node->src[i];
}

bool tdm_op_writes_state(int32_t op) {
    const op_row *row = row_get(op);
    switch (op) {
    case TDM_OP_ATTENTION:
    case TDM_OP_KV_SELECT:
    case TDM_OP_KV_EXPORT: return false;
    default: return row != NULL && row->state_src != 0;
    }
}
