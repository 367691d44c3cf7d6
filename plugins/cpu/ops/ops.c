/* SPDX-License-Identifier: MIT
 *
 * ops.c: the one table of ops. Each family of ops is in a file of its own, in ops/ or kv/.
 */
#include "plugins/cpu/ops/ops.h"

#define ROW_VIEW(name)                    NULL
#define ROW_VALUE(name)                   &cpu_op_##name
#define ROW_CACHE                         ROW_VALUE
#define ROW_GROUP                         ROW_VALUE
#define ROW_(ID, name, number, kind, ...) [TDM_OP_##ID] = ROW_##kind(name),
static const cpu_op_impl *const op_table[TDM_OP_COUNT_] = {TDM_OP_LIST(ROW_)};

const cpu_op_impl *cpu_op_find(int32_t op) {
    return op > TDM_OP_NONE && op < TDM_OP_COUNT_ ? op_table[op] : NULL;
}

tdm_status cpu_op_supports(const cpu_device *device, const tdm_graph *graph, int32_t node,
                           tdm_error *err) {
    if (node < 0 || node >= graph->n_node)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "supports_op: the graph has no node %d",
                        (int)node);
    const tdm_node *n = tdm_graph_node(graph, node);
    if (tdm_op_is_view(n->op)) return TDM_OK;
    const cpu_op_impl *impl = cpu_op_find(n->op);
    if (impl == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED, "node %d: the cpu plugin does not run op %d",
                        (int)node, (int)n->op);
    return impl->supports != NULL ? impl->supports(device, graph, n, err) : TDM_OK;
}
