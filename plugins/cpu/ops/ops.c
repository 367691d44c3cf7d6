/* SPDX-License-Identifier: MIT
 *
 * ops.c: the one table of ops. What an op computes is in its family's file.
 */
#include "plugins/cpu/device.h"

static const cpu_op_impl *const op_table[] = {
    &cpu_op_copy,      &cpu_op_concat,    &cpu_op_get_rows, &cpu_op_add,       &cpu_op_mul,
    &cpu_op_scale,     &cpu_op_act,       &cpu_op_glu,      &cpu_op_softmax,   &cpu_op_rms_norm,
    &cpu_op_sum_sq,    &cpu_op_rms_apply, &cpu_op_rope,     &cpu_op_top_k,     &cpu_op_moe_route,
    &cpu_op_kv_write,  &cpu_op_kv_shift,  &cpu_op_kv_copy,  &cpu_op_kv_export, &cpu_op_kv_import,
    &cpu_op_attention, &cpu_op_lse_merge, &cpu_op_matmul,   &cpu_op_moe_ffn,   &cpu_op_exchange,
};

const cpu_op_impl *cpu_op_find(int32_t op) {
    for (size_t i = 0; i < sizeof op_table / sizeof op_table[0]; i++)
        if (op_table[i]->op == op) return op_table[i];
    return NULL;
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
