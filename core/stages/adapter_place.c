/* SPDX-License-Identifier: MIT
 *
 * adapter_place.c: on which side of an adapted device weights and caches live, and nodes run. The
 * side depends on types and shapes alone. Weights and caches are placed before their graph exists,
 * so supports_op is called with a graph of one node (a probe), which lives on the stack.
 */
#include <string.h>

#include "core/base/op_state.h"
#include "core/stages/adapter_internal.h"
#include "core/stages/cut.h"

enum { PROBE_MAX_VALUE = 10 };

/* A valid graph of one node, never passed to the verifier; each value has a slot. */
typedef struct probe {
    tdm_graph graph;
    tdm_value values[PROBE_MAX_VALUE];
    tdm_node node;
    tdm_kv_desc kv;
    tdm_partition none;
    int32_t step_size; /* words of the step block, of a probe of a cache */
} probe;

static int32_t value_add(probe *p, int32_t kind, tdm_type type, int64_t ne0, int64_t ne1,
                         int64_t ne2) {
    int32_t i = p->graph.n_value++;
    p->values[i] = (tdm_value){.kind = kind, .type = (int32_t)type, .slot = i};
    p->values[i].ne[0] = ne0;
    p->values[i].ne[1] = ne1;
    p->values[i].ne[2] = ne2;
    p->values[i].ne[3] = 1;
    p->graph.n_slot = p->graph.n_value;
    return i;
}

static void probe_begin(probe *p, int32_t op) {
    memset(p, 0, sizeof *p);
    p->graph = (tdm_graph){.struct_size = sizeof p->graph,
                           .value_size = sizeof(tdm_value),
                           .node_size = sizeof(tdm_node),
                           .partition_size = sizeof(tdm_partition),
                           .kv_size = sizeof(tdm_kv_desc),
                           .values = p->values,
                           .nodes = &p->node,
                           .partitions = &p->none,
                           .kv = &p->kv,
                           .names = "",
                           .n_node = 1,
                           .n_partition = 1,
                           .names_size = 1,
                           .step = -1};
    p->node.op = op;
    memset(p->node.src, 0xff, sizeof p->node.src);
    memset(p->node.dst, 0xff, sizeof p->node.dst);
}

static void src_add(probe *p, int32_t value) {
    p->node.src[p->node.n_src++] = value;
}

static void dst_set(probe *p, int64_t ne0, int64_t ne1, int64_t ne2) {
    p->node.n_dst = 1;
    p->node.dst[0] = value_add(p, TDM_VALUE_OUTPUT, TDM_TYPE_F32, ne0, ne1, ne2);
}

static int32_t weight_add(probe *p, const tdm_tensor_desc *desc) {
    int32_t i = value_add(p, TDM_VALUE_WEIGHT, desc->type, 0, 0, 0);
    memcpy(p->values[i].ne, desc->ne, sizeof p->values[i].ne);
    p->values[i].usage = desc->usage;
    return i;
}

static void probe_matmul(probe *p, const tdm_tensor_desc *d) {
    bool is_by_head = d->ne[2] > 1;
    probe_begin(p, TDM_OP_MATMUL);
    src_add(p, weight_add(p, d));
    src_add(p, value_add(p, TDM_VALUE_INPUT, TDM_TYPE_F32, d->ne[0], is_by_head ? d->ne[2] : 1, 1));
    src_add(p, -1); /* no roles */
    dst_set(p, d->ne[1], is_by_head ? d->ne[2] : 1, 1);
}

static void probe_rows(probe *p, const tdm_tensor_desc *d) {
    probe_begin(p, TDM_OP_GET_ROWS);
    src_add(p, weight_add(p, d));
    src_add(p, value_add(p, TDM_VALUE_INPUT, TDM_TYPE_I32, 1, 1, 1));
    dst_set(p, d->ne[0], 1, 1);
}

/* The shape of gate and up is that of down with the first two axes swapped, so the description of
 * any of the three gives the others. */
static void probe_experts(probe *p, const tdm_tensor_desc *d) {
    int64_t n = d->ne[0], n_ff = d->ne[1];
    tdm_tensor_desc down = *d;
    down.ne[0] = n_ff;
    down.ne[1] = n;
    if (n_ff % tdm_type_get_info(d->type).block_len != 0) down.type = TDM_TYPE_F32;
    probe_begin(p, TDM_OP_MOE_FFN);
    src_add(p, value_add(p, TDM_VALUE_INPUT, TDM_TYPE_F32, n, 1, 1));
    src_add(p, value_add(p, TDM_VALUE_INPUT, TDM_TYPE_I32, 1, 1, 1));
    src_add(p, value_add(p, TDM_VALUE_INPUT, TDM_TYPE_F32, 1, 1, 1));
    src_add(p, weight_add(p, d));
    src_add(p, weight_add(p, d));
    src_add(p, weight_add(p, &down));
    for (int i = 0; i < 4; i++) src_add(p, -1); /* no roles, no biases */
    dst_set(p, n, 1, 1);
    p->node.params.moe.act = TDM_ACT_SILU;
}

static void probe_plain(probe *p, const tdm_tensor_desc *d) {
    probe_begin(p, TDM_OP_MUL);
    src_add(p, value_add(p, TDM_VALUE_INPUT, TDM_TYPE_F32, d->ne[0], d->ne[1], d->ne[2]));
    src_add(p, weight_add(p, d));
    dst_set(p, d->ne[0], d->ne[1], d->ne[2]);
    p->values[0].ne[3] = p->values[p->node.dst[0]].ne[3] = d->ne[3];
}

static bool probe_runs(tdm_open_device *dev, const probe *p) {
    return tdm_open_device_supports_op(dev, &p->graph, 0, NULL) == TDM_OK;
}

/* Whether the device runs the ops that the weight's usage names. */
static bool dev_takes_tensor(tdm_open_device *dev, const tdm_tensor_desc *desc) {
    probe p;
    uint64_t size;
    bool takes = tdm_open_device_tensor_size(dev, desc, &size, NULL) == TDM_OK;
    if (takes && (desc->usage & TDM_USAGE_MATMUL) != 0) {
        probe_matmul(&p, desc);
        takes = probe_runs(dev, &p);
    }
    if (takes && (desc->usage & TDM_USAGE_ROWS) != 0) {
        probe_rows(&p, desc);
        takes = probe_runs(dev, &p);
    }
    if (takes && (desc->usage & TDM_USAGE_EXPERT) != 0) {
        probe_experts(&p, desc);
        takes = probe_runs(dev, &p);
    }
    if (takes && desc->usage == 0 && desc->type == TDM_TYPE_F32) {
        probe_plain(&p, desc);
        takes = probe_runs(dev, &p);
    }
    return takes;
}

static int32_t input_add(probe *p, int64_t ne0, int64_t ne1, int64_t ne2) {
    return value_add(p, TDM_VALUE_INPUT, TDM_TYPE_F32, ne0, ne1, ne2);
}

/* Begins a probe of an op on a cache of one page. */
static bool probe_cache(probe *p, int32_t op, const tdm_kv_desc *desc) {
    tdm_step_header header = {0};
    probe_begin(p, op);
    p->kv = *desc;
    p->graph.n_kv = 1;
    p->graph.step_caps = (tdm_step_caps){.n_tok = 1,
                                         .n_seq = 1,
                                         .n_out = 1,
                                         .n_entry = 1,
                                         .n_class = desc->cls + 1,
                                         .has_rs = (desc->flags & TDM_KV_RECURRENT) != 0};
    if (tdm_step_layout(&p->graph.step_caps, &header, NULL) != TDM_OK) return false;
    p->step_size = header.size;
    return true;
}

/* Adds the step block and the cache as sources. */
static void step_add(probe *p, uint64_t page_size) {
    p->graph.step = value_add(p, TDM_VALUE_INPUT, TDM_TYPE_I32, p->step_size, 1, 1);
    src_add(p, p->graph.step);
    src_add(p, value_add(p, TDM_VALUE_STATE, TDM_TYPE_I8, (int64_t)page_size, 1, 1));
}

static bool probe_attention(probe *p, const tdm_kv_desc *d, uint64_t page_size) {
    if (!probe_cache(p, TDM_OP_ATTENTION, d)) return false;
    src_add(p, input_add(p, d->head_dim_k, d->n_head_kv, 1));
    step_add(p, page_size);
    for (int i = 0; i < 3; i++) src_add(p, -1); /* no sink, no list of positions, no bias */
    dst_set(p, d->head_dim_v, d->n_head_kv, 1);
    p->node.n_dst = 2; /* (m, l) is absent */
    p->node.params.attention =
        (tdm_attention_params){.heads_per_kv = 1, .n_head_all = d->n_head_kv, .is_causal = 1};
    return true;
}

/* A convolution over two tokens. */
static bool probe_conv(probe *p, const tdm_kv_desc *d, uint64_t page_size) {
    const int64_t n_ch = (int64_t)d->n_head_kv * d->head_dim_k;
    if (!probe_cache(p, TDM_OP_CONV1D, d)) return false;
    src_add(p, input_add(p, n_ch, 1, 1));
    src_add(p, input_add(p, 2, n_ch, 1));
    src_add(p, -1); /* no bias */
    step_add(p, page_size);
    dst_set(p, n_ch, 1, 1);
    p->node.params.conv = (tdm_conv_params){.n_segment = 1, .unit_len = {d->head_dim_k}};
    return true;
}

/* One matrix for each unit of the state. */
static bool probe_scan(probe *p, const tdm_kv_desc *d, uint64_t page_size) {
    const int64_t dk = d->rope_offset, dv = d->head_dim_k / dk, n = d->n_head_kv;
    if (!probe_cache(p, TDM_OP_LINEAR_SCAN, d)) return false;
    src_add(p, input_add(p, dk, n, 1));
    src_add(p, input_add(p, dk, n, 1));
    src_add(p, input_add(p, dv, n, 1));
    src_add(p, input_add(p, 1, n, 1));
    src_add(p, -1); /* no a */
    src_add(p, -1); /* no beta */
    step_add(p, page_size);
    for (int i = 0; i < 2; i++) /* erase and write */
        src_add(p, (d->flags & TDM_KV_ERASED) != 0 ? input_add(p, dk, n, 1) : -1);
    dst_set(p, dv, n, 1);
    p->node.params.scan = (tdm_scan_params){.heads_per_k = 1};
    return true;
}

/* Whether the device stores such a cache and runs the op that reads it. */
static bool dev_takes_cache(tdm_open_device *dev, const tdm_kv_desc *desc) {
    probe p;
    uint64_t page_size;
    if (tdm_open_device_kv_page_size(dev, desc, &page_size, NULL) != TDM_OK) return false;
    /* A device that keeps caches of sparse attention, of attention with a bias or with a stride, or
     * states of BLOCK_POOL, runs the ops on them (kv.h). */
    if ((desc->flags & (TDM_KV_SPARSE | TDM_KV_BIASED | TDM_KV_STRIDED | TDM_KV_POOLED)) != 0)
        return true;
    bool is_made = (desc->flags & TDM_KV_RECURRENT) == 0 ? probe_attention(&p, desc, page_size)
                   : desc->rope_offset == 0              ? probe_conv(&p, desc, page_size)
                                                         : probe_scan(&p, desc, page_size);
    return is_made && probe_runs(dev, &p);
}

adapter_side adapter_tensor_side(tdm_device *device, const tdm_tensor_desc *desc) {
    if (dev_takes_tensor(device->main, desc)) return ADAPTER_MAIN;
    tdm_open_device *fallback = adapter_fallback(device, NULL);
    return fallback != NULL && dev_takes_tensor(fallback, desc) ? ADAPTER_FALLBACK : ADAPTER_MAIN;
}

adapter_side adapter_kv_side(tdm_device *device, const tdm_kv_desc *desc) {
    if (dev_takes_cache(device->main, desc)) return ADAPTER_MAIN;
    tdm_open_device *fallback = adapter_fallback(device, NULL);
    return fallback != NULL && dev_takes_cache(fallback, desc) ? ADAPTER_FALLBACK : ADAPTER_MAIN;
}

/* The cache that a node works on; NULL where it works on none. */
static const tdm_kv_desc *node_kv(const tdm_graph *graph, const tdm_node *node) {
    return tdm_op_uses_kv(node->op) ? tdm_graph_kv(graph, node->params.kv.kv) : NULL;
}

adapter_side adapter_source_side(tdm_device *device, const tdm_graph *graph, int32_t index,
                                 int32_t base) {
    const tdm_value *v = tdm_graph_value(graph, base);
    if (v->kind == TDM_VALUE_WEIGHT) {
        tdm_tensor_desc desc = tdm_weight_desc(v);
        return adapter_tensor_side(device, &desc);
    }
    const tdm_kv_desc *kv =
        v->kind == TDM_VALUE_STATE ? node_kv(graph, tdm_graph_node(graph, index)) : NULL;
    return kv != NULL ? adapter_kv_side(device, kv) : ADAPTER_MAIN;
}

tdm_status adapter_node_side(tdm_device *device, const tdm_graph *graph, int32_t index,
                             const adapter_needs *needs, adapter_side *side_out, tdm_error *why) {
    const bool needs_fallback = needs->is_state ? needs->state_fallback : needs->weight_fallback;
    tdm_error refusal = {0}, fallback_refusal = {0};
    tdm_status status = tdm_open_device_supports_op(device->main, graph, index, &refusal);
    *side_out = ADAPTER_MAIN;
    if (status == TDM_OK && !needs_fallback) return TDM_OK;
    if (status == TDM_OK) tdm_fail(&refusal, TDM_UNSUPPORTED, "its data is on the fallback");
    /* Members wait for one another inside an EXCHANGE, so the fallback cannot run it. The bytes of
     * a cache have the layout of the device that holds it, so only that device can read them. */
    if (tdm_graph_node(graph, index)->op == TDM_OP_EXCHANGE || (needs->is_state && !needs_fallback))
        return tdm_fail(why, TDM_UNSUPPORTED, "%.400s", refusal.message);
    tdm_open_device *fallback = adapter_fallback(device, &fallback_refusal);
    if (fallback != NULL &&
        tdm_open_device_supports_op(fallback, graph, index, &fallback_refusal) == TDM_OK) {
        *side_out = ADAPTER_FALLBACK;
        tdm_fail(why, TDM_OK, "%.400s", refusal.message);
        return TDM_OK;
    }
    return tdm_fail(why, TDM_UNSUPPORTED, "%.220s; the fallback refuses it too: %.220s",
                    refusal.message, fallback_refusal.message);
}
