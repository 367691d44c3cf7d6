/* SPDX-License-Identifier: MIT
 *
 * attention.c: attention = auto: how the caches of a model are cut. solve.h describes the choice.
 */
#include "core/base/op_state.h"
#include "plugins/meta/share/solve.h"

tdm_status meta_attention_solve(meta_device *device, const tdm_graph *graph, tdm_error *err) {
    const meta_member *owner = &device->members[device->owner];
    double copied = 0;
    bool is_whole = false; /* a cut by sequence has no rule for KV_SELECT and strided caches */
    meta_load load;
    if (device->options.attention != META_ATTENTION_AUTO || device->is_attention_solved ||
        graph->n_partition < 2)
        return TDM_OK;
    tdm_status status = meta_load_weigh(device, graph, &load, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        uint64_t page_size = 0;
        is_whole = is_whole || node->op == TDM_OP_KV_SELECT;
        if (node->op != TDM_OP_KV_WRITE) continue;
        const tdm_kv_desc *desc = tdm_graph_kv(graph, node->params.kv.kv);
        is_whole = is_whole || (desc->flags & TDM_KV_STRIDED) != 0;
        const tdm_value *state = tdm_graph_value(graph, tdm_op_state(node));
        if (state->partition == 0 ||
            tdm_graph_partition(graph, state->partition)->n_unit >= device->n_active)
            continue;
        status = owner->acquired.plugin->buffer->kv_page_size(owner->acquired.device, desc,
                                                              &page_size, err);
        if (status != TDM_OK) return status;
        copied += (double)page_size * (double)state->ne[1];
    }
    const bool is_long = copied * device->n_active > (double)load.read_size;
    device->attention = is_long && !is_whole ? META_ATTENTION_SEQUENCE
                        : copied > 0         ? META_ATTENTION_REPLICATE
                                             : META_ATTENTION_HEADS;
    device->is_attention_solved = true;
    return TDM_OK;
}
