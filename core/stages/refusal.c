/* SPDX-License-Identifier: MIT
 *
 * refusal.c: see refusal.h.
 */
#include "core/stages/refusal.h"

#include "core/base/op_state.h"
#include "core/graph/builder.h"

void tdm_refusal_report(tdm_open_device *dev, const tdm_open_device *taken_by,
                        const tdm_graph *graph, const tdm_node *node, const char *reason) {
    tdm_runtime *rt = dev->rt;
    if (node->op < 0 || node->op >= TDM_OP_COUNT_) return;
    if (tdm_op_uses_kv(node->op) &&
        (tdm_graph_kv(graph, node->params.kv.kv)->flags & TDM_KV_IN_HOST) != 0)
        return;
    pthread_mutex_lock(&rt->adapter_mutex);
    bool is_new = !dev->refused[node->op];
    dev->refused[node->op] = true;
    pthread_mutex_unlock(&rt->adapter_mutex);
    if (is_new)
        tdm_runtime_log(rt, TDM_LOG_WARN, "%s does not run %s (%s); it runs on %s",
                        tdm_open_device_name(dev), tdm_op_name(node->op), reason,
                        tdm_open_device_name(taken_by));
}
