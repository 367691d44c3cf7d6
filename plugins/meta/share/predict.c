/* SPDX-License-Identifier: MIT
 *
 * predict.c: a simple model of a run. A node takes the time of its bytes or of its multiply-adds at
 * the member's measured rates, whichever is longer. Members wait for each other at every exchange.
 * So the nodes between two exchanges, an interval, take as long as the slowest member needs for
 * them.
 */
#include "plugins/meta/share/predict.h"

#include "plugins/meta/share/links.h"

/* Seconds that each node takes besides the time of its bytes or multiply-adds: starting it,
 * preparing its input for its kernel, joining the threads after it. Measured on small models. */
#define NODE_SECONDS 3e-6

typedef struct cost {
    double bytes, n_mac;
} cost;

static double value_size(const tdm_graph *graph, int32_t v) {
    if (v < 0) return 0;
    const tdm_value *value = tdm_graph_value(graph, v);
    return (double)tdm_tensor_canonical_size((tdm_type)value->type, value->ne);
}

static double value_count(const tdm_graph *graph, int32_t v) {
    return (double)tdm_shape_count(tdm_graph_value(graph, v)->ne);
}

static cost node_cost(const tdm_graph *graph, const tdm_node *node) {
    cost c = {0, 0};
    const int64_t *ne = tdm_graph_value(graph, node->src[0])->ne;
    double share;
    switch (node->op) {
    case TDM_OP_MATMUL:
        c.bytes = value_size(graph, node->src[0]);
        c.n_mac = (double)ne[0] * value_count(graph, node->dst[0]);
        break;
    case TDM_OP_MOE_FFN:
        /* Experts that no token of the step selects are not read. */
        share =
            value_count(graph, node->src[1]) / (double)tdm_graph_value(graph, node->src[3])->ne[2];
        for (int32_t i = 3; i < 6; i++) {
            c.bytes += value_size(graph, node->src[i]) * (share < 1 ? share : 1);
            c.n_mac += value_count(graph, node->src[i]) * share;
        }
        break;
    case TDM_OP_MOE_MATMUL:
        share =
            value_count(graph, node->src[3]) / (double)tdm_graph_value(graph, node->src[0])->ne[2];
        c.bytes = value_size(graph, node->src[0]) * (share < 1 ? share : 1);
        c.n_mac = value_count(graph, node->src[0]) * share;
        break;
    case TDM_OP_ATTENTION: /* over the tokens of the step only; earlier ones vary */
        c.n_mac = value_count(graph, node->src[0]) * (double)(ne[2] + 1);
        break;
    case TDM_OP_GET_ROWS: c.bytes = 2 * value_size(graph, node->dst[0]); break;
    default:
        for (int32_t i = 0; i < node->n_src; i++)
            if (node->src[i] >= 0 && tdm_graph_value(graph, node->src[i])->kind != TDM_VALUE_STATE)
                c.bytes += value_size(graph, node->src[i]);
        for (int32_t i = 0; i < node->n_dst; i++) c.bytes += value_size(graph, node->dst[i]);
    }
    return c;
}

static double node_seconds(const meta_member *member, const tdm_graph *graph, const tdm_node *node,
                           bool is_alone) {
    double bandwidth = is_alone ? member->bandwidth_alone : member->bandwidth;
    double arithmetic = is_alone ? member->arithmetic_alone : member->arithmetic;
    cost c = node_cost(graph, node);
    double by_bytes = c.bytes / bandwidth, by_mac = c.n_mac / arithmetic;
    return by_bytes > by_mac ? by_bytes : by_mac;
}

/* Seconds of the member's nodes if it ran alone. With cut_only, only of the nodes whose work the
 * members share. */
static double alone_seconds(const meta_plan *plan, int32_t d, bool cut_only) {
    const tdm_graph *graph = &plan->members[d].part.graph;
    double seconds = 0;
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        bool is_cut = node->op == TDM_OP_MATMUL || node->op == TDM_OP_MOE_FFN ||
                      node->op == TDM_OP_MOE_MATMUL || node->op == TDM_OP_ATTENTION;
        if (tdm_op_is_view(node->op) || node->op == TDM_OP_EXCHANGE || (cut_only && !is_cut))
            continue;
        seconds += node_seconds(&plan->device->members[d], graph, node, true) +
                   (cut_only ? 0 : NODE_SECONDS);
    }
    return seconds;
}

/* Returns the seconds of the member's nodes. slowest[n_exchange + 1] has the seconds of the
 * slowest member so far in each interval, and is raised to this member's: its nodes, and the
 * submission that begins the interval. A member that exchanges in its plan has one submission,
 * in the first. */
static double intervals_raise(const meta_plan *plan, int32_t d, double *slowest) {
    const tdm_graph *graph = &plan->members[d].part.graph;
    const meta_member *member = &plan->device->members[d];
    double seconds = 0, interval = 0, submit = member->submit_seconds;
    int32_t at = 0;
    for (int32_t i = 0; i <= graph->n_node; i++) {
        const tdm_node *node = i < graph->n_node ? tdm_graph_node(graph, i) : NULL;
        bool is_exchange = node != NULL && node->op == TDM_OP_EXCHANGE;
        if (node == NULL || (is_exchange && node->params.exchange.phase != TDM_EXCHANGE_PUBLISH)) {
            if (submit + interval > slowest[at]) slowest[at] = submit + interval;
            seconds += interval;
            interval = 0;
            if (member->exchange == META_EXCHANGE_IN_PLAN) submit = 0;
            if (is_exchange) at = node->params.exchange.stage + 1;
        } else if (!is_exchange && !tdm_op_is_view(node->op)) {
            interval += node_seconds(member, graph, node, false) + NODE_SECONDS;
        }
    }
    return seconds;
}

static bool is_measured(const meta_device *device) {
    for (int32_t d = 0; d < device->n_member; d++) {
        const meta_member *member = &device->members[d];
        if (meta_is_active(device, d) && (!(member->bandwidth > 0) || !(member->arithmetic > 0)))
            return false;
    }
    return true;
}

/* Seconds of an exchange besides its bytes and submissions, of the slowest active member. */
static double slowest_crossing(const meta_device *device) {
    double slowest = 0;
    for (int32_t d = 0; d < device->n_member; d++) {
        double seconds = meta_crossing_seconds(&device->members[d]);
        if (meta_is_active(device, d) && seconds > slowest) slowest = seconds;
    }
    return slowest;
}

static double exchanges_seconds(const meta_plan *plan) {
    const meta_device *device = plan->device;
    double slowest = 0;
    if (plan->facts.n_exchange == 0 || device->n_active < 2) return 0;
    for (int32_t d = 0; d < device->n_member; d++) {
        const meta_member *member = &device->members[d];
        double rate = member->link_rate > 0 ? member->link_rate : member->bandwidth;
        if (meta_is_active(device, d) && (slowest == 0 || rate < slowest)) slowest = rate;
    }
    return plan->facts.n_exchange * slowest_crossing(device) + plan->facts.moved / slowest;
}

tdm_status meta_predict(const meta_plan *plan, tdm_split_report *r, double *member_seconds,
                        tdm_error *err) {
    const meta_device *device = plan->device;
    size_t size = ((size_t)plan->facts.n_exchange + 1) * sizeof(double);
    double *slowest, layers = 0;
    if (!is_measured(device)) return TDM_OK;
    if ((slowest = meta_alloc(device->host, size)) == NULL)
        return meta_no_memory("to predict times", err);
    for (int32_t d = 0; d < device->n_member; d++) {
        member_seconds[d] = 0;
        if (!meta_is_active(device, d)) continue;
        member_seconds[d] = intervals_raise(plan, d, slowest);
        layers += alone_seconds(plan, d, d != device->owner) + device->members[d].submit_seconds;
    }
    r->exchange_seconds = exchanges_seconds(plan);
    r->seconds = r->exchange_seconds;
    for (int32_t i = 0; i <= plan->facts.n_exchange; i++) r->seconds += slowest[i];
    r->layer_seconds = layers + (device->n_active - 1) * slowest_crossing(device);
    meta_free(device->host, slowest, size);
    return TDM_OK;
}
