/* SPDX-License-Identifier: MIT
 *
 * shim_plugin.c: passes every call on to another plugin, TANDEM_SHIM_TARGET, and changes what the
 * environment names:
 *   TANDEM_TEST_FAULT     one slot is wrong, or one op or the step block that it reads is changed
 *                         before its graph is run. The conformance suite must find it
 *                         (tests/conform/test_faults.c lists the faults). Faults of this plugin are
 *                         in what the null plugin does not have: private tensors, caches, and ops
 *                         with a plausible mistake, such as RoPE with its pairs in the other order.
 *   TANDEM_SHIM_PINNED    if set, the devices have pinned memory (shim_pinned.h)
 *   TANDEM_TEST_MEMORY    bytes that the devices report as free; the total is twice that
 *   TANDEM_TEST_LIMITS    READ,INT8,F32: the limits that the devices report instead of measuring
 *                         them: bytes a second, and operations a second with integers and with f32.
 *                         READ,INT8,F32,N: SIGINT arrives while they are measured for the N-th time
 * Apart from the null plugin, which is a backend of its own and needs no target.
 *
 * The plugin's name is that of its file, so that copies of the file are plugins of their own. A
 * copy named away.so has devices with memory of their own: they do not report that it is the
 * host's, and give no addresses in it. A copy named cpu.so stands for the CPU plugin, whose memory
 * the program knows to be the host's.
 */
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/plugins/shims/shim_pinned.h"

enum { PEER_SIZE = 3 * 4096 }; /* of the buffer that the suite imports */

static void *target;
static const tdm_plugin *inner;
static tdm_plugin outer;
static tdm_device_ops device_ops;
static tdm_buffer_ops buffer_ops;
static tdm_split_ops split_ops;
static bool is_away;
static char name[32];

/* ---- Faults of ops: a node is changed, or left out (false), before the graph is run ---- */

typedef bool (*node_change)(const tdm_graph *graph, tdm_node *node);

static bool node_drop(const tdm_graph *graph, tdm_node *node) {
    (void)graph, (void)node;
    return false;
}

#define CHANGE(name, statement)                                                                    \
    static bool name(const tdm_graph *graph, tdm_node *node) {                                     \
        (void)graph;                                                                               \
        statement;                                                                                 \
        return true;                                                                               \
    }
CHANGE(change_act, node->params.act.act = TDM_ACT_SILU)
CHANGE(change_glu, node->params.act.act = TDM_ACT_GELU)
CHANGE(change_get_rows, node->params.rows.first_row = 0)
CHANGE(change_rms_norm, node->params.norm.eps *= 2)
CHANGE(change_rms_apply, node->params.norm.n = 0)
CHANGE(change_layer_norm, node->src[2] = -1)
CHANGE(change_clamp, node->params.clamp.min = -INFINITY)
CHANGE(change_div, node->op = TDM_OP_MUL)
CHANGE(change_sqrt, node->op = TDM_OP_SCALE; node->params.scale.scale = 1;
       node->params.scale.bias = 0)
CHANGE(change_softplus,
       if (node->params.act.act == TDM_ACT_SOFTPLUS) node->params.act.act = TDM_ACT_RELU)
CHANGE(change_rope, node->params.rope.mode ^= 1)
CHANGE(change_top_k, node->params.top_k.index_base = 0)
CHANGE(change_moe_route, node->params.route.normalize = 0)
CHANGE(change_moe_ffn, node->params.moe.first_expert = 0)
CHANGE(change_kv_shift, node->params.shift.rope.mode ^= 1)
CHANGE(change_shift_factor, node->src[2] = -1)
CHANGE(change_attention, node->params.attention.window = 0)
CHANGE(change_add, node->op = TDM_OP_MUL)
CHANGE(change_concat, int32_t first = node->src[0]; node->src[0] = node->src[1];
       node->src[1] = first)
CHANGE(change_sinkhorn, node->params.sinkhorn.n_iter = 1)
CHANGE(change_permute, node->op = TDM_OP_RESHAPE) /* the elements keep their order */
CHANGE(change_slice, node->params.slice.offset[1] = 0)
CHANGE(change_causal, node->params.attention.is_causal = 0)
CHANGE(change_ml, node->dst[1] = -1)
CHANGE(change_bias, node->src[5] = -1)
CHANGE(change_lists, node->src[4] = -1) /* every cached token counts */
CHANGE(change_scan, node->src[5] = -1)
CHANGE(change_erased, int32_t erase = node->src[8]; node->src[8] = node->src[9];
       node->src[9] = erase)
CHANGE(change_select_local, node->params.select.n_local = 0)
#undef CHANGE

/* reshape: a COPY that reads a RESHAPE is left out. The RESHAPE has no parameter to change. */
static bool copy_of_reshape(const tdm_graph *graph, tdm_node *node) {
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *n = tdm_graph_node(graph, i);
        if (n->op == TDM_OP_RESHAPE && n->dst[0] == node->src[0]) return false;
    }
    return true;
}

/* copy: a COPY of i32 is left out. */
static bool copy_of_ids(const tdm_graph *graph, tdm_node *node) {
    return tdm_graph_value(graph, node->src[0])->type != TDM_TYPE_I32;
}

static bool exchange_sum(const tdm_graph *graph, tdm_node *node) {
    tdm_exchange_params *x = &node->params.exchange;
    (void)graph;
    if (x->kind == TDM_EXCHANGE_SUM && x->wire_type == TDM_TYPE_BF16) x->senders &= 6;
    return true;
}

static bool exchange_part(const tdm_graph *graph, tdm_node *node) {
    (void)graph;
    if (node->params.exchange.kind == TDM_EXCHANGE_SUM_PART) node->params.exchange.first = 0;
    return true;
}

static bool exchange_gather(const tdm_graph *graph, tdm_node *node) {
    (void)graph;
    tdm_exchange_params *x = &node->params.exchange;
    if (x->kind == TDM_EXCHANGE_GATHER && x->data_off2 == 0) x->first = 0;
    return true;
}

static bool exchange_second(const tdm_graph *graph, tdm_node *node) {
    tdm_exchange_params *x = &node->params.exchange;
    (void)graph;
    if (x->phase == TDM_EXCHANGE_WHOLE) x->first2 = 0;
    return true;
}

static bool exchange_publish(const tdm_graph *graph, tdm_node *node) {
    (void)graph;
    return node->params.exchange.phase != TDM_EXCHANGE_PUBLISH;
}

static bool exchange_collect(const tdm_graph *graph, tdm_node *node) {
    (void)graph;
    if (node->params.exchange.phase == TDM_EXCHANGE_COLLECT) node->params.exchange.senders &= ~1u;
    return true;
}

static bool exchange_chunks(const tdm_graph *graph, tdm_node *node) {
    if (node->dst[0] >= 0 && tdm_graph_value(graph, node->dst[0])->ne[0] > 65536)
        node->params.exchange.data_stride -= 4;
    return true;
}

/* exchange-together: of two members, the second one leaves out what the first one sends in f16. */
static bool exchange_together(const tdm_graph *graph, tdm_node *node) {
    tdm_exchange_params *x = &node->params.exchange;
    (void)graph;
    if (x->n_member == 2 && x->member == 1 && x->wire_type == TDM_TYPE_F16) x->senders &= ~1u;
    return true;
}

static bool exchange_wait(const tdm_graph *graph, tdm_node *node) {
    (void)graph;
    return node->params.exchange.member != 2;
}

/* ---- Faults in how ops read the step block: it is changed while the graph runs ---- */

typedef void (*block_change)(int32_t *block, const tdm_step_header *h);

/* kv-skip: a write of the first token to cell -1 goes to cell 0. */
static void write_first(int32_t *block, const tdm_step_header *h) {
    for (int32_t c = 0; c < h->n_class; c++)
        if (block[h->cls[c].write_off] == -1) block[h->cls[c].write_off] = 0;
}

/* kv-write: the rows of neighbouring cells are swapped. */
static void write_swapped(int32_t *block, const tdm_step_header *h) {
    for (int32_t c = 0; c < h->n_class; c++)
        for (int32_t t = 0; t < h->n_tok; t++)
            if (block[h->cls[c].write_off + t] >= 0) block[h->cls[c].write_off + t] ^= 1;
}

/* attention-long: only the first 8 page entries of the last sequence are read. */
static void entries_few(int32_t *block, const tdm_step_header *h) {
    for (int32_t c = 0; c < h->n_class; c++) {
        int32_t *first = block + h->cls[c].first_entry_off + h->n_seq - 1;
        if (first[1] > first[0] + 8) first[1] = first[0] + 8;
    }
}

/* strided-write, select-early: every token counts as one position earlier. */
static void position_early(int32_t *block, const tdm_step_header *h) {
    for (int32_t t = 0; t < h->n_tok; t++)
        if (block[h->pos_off + t] > 0) block[h->pos_off + t]--;
}

/* write-class, attention-class, select-class: every class has the tables of class 0. */
static void classes_first(int32_t *block, const tdm_step_header *h) {
    const tdm_step_class *from = &h->cls[0];
    const int32_t n_entry = block[from->first_entry_off + h->n_seq];
    for (int32_t c = 1; c < h->n_class; c++) {
        const tdm_step_class *to = &h->cls[c];
        memcpy(block + to->write_off, block + from->write_off, (size_t)h->n_tok * sizeof *block);
        memcpy(block + to->first_entry_off, block + from->first_entry_off,
               ((size_t)h->n_seq + 1) * sizeof *block);
        memcpy(block + to->entry_off, block + from->entry_off, (size_t)n_entry * 4 * sizeof *block);
    }
}

/* conv1d, block-pool: every sequence starts from zeros. */
static void states_none(int32_t *block, const tdm_step_header *h) {
    for (int32_t s = 0; s < h->n_seq; s++) block[h->rs_read_off + s] = -1;
}

static const struct op_fault {
    const char *name;
    int32_t op;
    node_change change;        /* NULL = none */
    block_change block_change; /* likewise */
    int32_t step;              /* with block_change: which source of the op is the step block */
} op_faults[] = {
    {"act", TDM_OP_ACT, change_act},
    {"glu", TDM_OP_GLU, change_glu},
    {"get-rows", TDM_OP_GET_ROWS, change_get_rows},
    {"rms-norm", TDM_OP_RMS_NORM, change_rms_norm},
    {"rms-apply", TDM_OP_RMS_APPLY, change_rms_apply},
    {"layer-norm", TDM_OP_LAYER_NORM, change_layer_norm},
    {"clamp", TDM_OP_CLAMP, change_clamp},
    {"div", TDM_OP_DIV, change_div},
    {"sqrt", TDM_OP_SQRT, change_sqrt},
    {"repeat", TDM_OP_REPEAT, node_drop},
    {"softplus", TDM_OP_ACT, change_softplus},
    {"rope", TDM_OP_ROPE, change_rope},
    {"top-k", TDM_OP_TOP_K, change_top_k},
    {"moe-route", TDM_OP_MOE_ROUTE, change_moe_route},
    {"moe-ffn", TDM_OP_MOE_FFN, change_moe_ffn},
    {"lse-merge", TDM_OP_LSE_MERGE, node_drop},
    {"kv-shift", TDM_OP_KV_SHIFT, change_kv_shift},
    {"kv-shift-factor", TDM_OP_KV_SHIFT, change_shift_factor},
    {"kv-copy", TDM_OP_KV_COPY, node_drop},
    {"kv-import", TDM_OP_KV_IMPORT, node_drop},
    {"attention", TDM_OP_ATTENTION, change_attention},
    {"reshape", TDM_OP_COPY, copy_of_reshape},
    {"permute", TDM_OP_PERMUTE, change_permute},
    {"slice", TDM_OP_SLICE, change_slice},
    {"copy", TDM_OP_COPY, copy_of_ids},
    {"concat", TDM_OP_CONCAT, change_concat},
    {"matmul", TDM_OP_MATMUL, node_drop},
    {"add", TDM_OP_ADD, change_add},
    {"softmax", TDM_OP_SOFTMAX, node_drop},
    {"sum-sq", TDM_OP_SUM_SQ, node_drop},
    {"sinkhorn", TDM_OP_SINKHORN, change_sinkhorn},
    {"moe-matmul", TDM_OP_MOE_MATMUL, change_moe_ffn},
    {"kv-write", TDM_OP_KV_WRITE, NULL, write_swapped, 2},
    {"kv-skip", TDM_OP_KV_WRITE, NULL, write_first, 2},
    {"causal", TDM_OP_ATTENTION, change_causal},
    {"attention-ml", TDM_OP_ATTENTION, change_ml},
    {"attention-long", TDM_OP_ATTENTION, NULL, entries_few, 1},
    {"attention-bias", TDM_OP_ATTENTION, change_bias},
    {"conv1d", TDM_OP_CONV1D, NULL, states_none, 3},
    {"linear-scan", TDM_OP_LINEAR_SCAN, change_scan},
    {"linear-scan-erased", TDM_OP_LINEAR_SCAN, change_erased},
    {"block-pool", TDM_OP_BLOCK_POOL, NULL, states_none, 3},
    {"select-early", TDM_OP_KV_SELECT, NULL, position_early, 2},
    {"select-local", TDM_OP_KV_SELECT, change_select_local},
    {"attention-lists", TDM_OP_ATTENTION, change_lists},
    {"strided-write", TDM_OP_KV_WRITE, NULL, position_early, 2},
    {"write-class", TDM_OP_KV_WRITE, NULL, classes_first, 2},
    {"attention-class", TDM_OP_ATTENTION, NULL, classes_first, 1},
    {"select-class", TDM_OP_KV_SELECT, NULL, classes_first, 2},
    {"exchange-together", TDM_OP_EXCHANGE, exchange_together},
    {"exchange-sum", TDM_OP_EXCHANGE, exchange_sum},
    {"exchange-part", TDM_OP_EXCHANGE, exchange_part},
    {"exchange-gather", TDM_OP_EXCHANGE, exchange_gather},
    {"exchange-chunks", TDM_OP_EXCHANGE, exchange_chunks},
    {"exchange-wait", TDM_OP_EXCHANGE, exchange_wait},
    {"exchange-second", TDM_OP_EXCHANGE, exchange_second},
    {"exchange-publish", TDM_OP_EXCHANGE, exchange_publish},
    {"exchange-collect", TDM_OP_EXCHANGE, exchange_collect},
};
static const struct op_fault *op_fault; /* NULL = none */

/* Runs the graph while the step block that `node` reads is changed. At the end the block has its
 * content again: the suite checks that inputs are unchanged. */
static tdm_status compute_with_block(tdm_device *device, const tdm_graph *graph,
                                     const tdm_binding *bindings, int32_t n_binding,
                                     const tdm_node *node, tdm_error *err) {
    const tdm_binding *at = &bindings[tdm_graph_value(graph, node->src[op_fault->step])->slot];
    uint8_t *bytes = inner->buffer->host_pointer(at->buffer, TDM_ACCESS_READ | TDM_ACCESS_WRITE);
    uint8_t *before = malloc(at->size);
    tdm_step_header header;
    if (bytes == NULL || before == NULL) {
        free(before);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "shim: no access to the step block");
    }
    memcpy(before, bytes + at->off, at->size);
    memcpy(&header, before, sizeof header);
    op_fault->block_change((int32_t *)(void *)(bytes + at->off), &header);
    tdm_status status = inner->device->graph_compute_sync(device, graph, bindings, n_binding, err);
    memcpy(bytes + at->off, before, at->size);
    free(before);
    return status;
}

static tdm_status compute_changed(tdm_device *device, const tdm_graph *graph,
                                  const tdm_binding *bindings, int32_t n_binding, tdm_error *err) {
    tdm_graph changed = *graph;
    tdm_node *nodes = malloc(((size_t)graph->n_node + 1) * sizeof *nodes);
    const tdm_node *reader = NULL; /* the node whose step block is changed */
    int32_t n = 0;
    if (nodes == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "shim: out of memory");
    for (int32_t i = 0; i < graph->n_node; i++) {
        nodes[n] = *tdm_graph_node(graph, i);
        const bool is_meant = nodes[n].op == op_fault->op;
        if (is_meant && op_fault->block_change != NULL) reader = tdm_graph_node(graph, i);
        if (!is_meant || op_fault->change == NULL || op_fault->change(graph, &nodes[n])) n++;
    }
    changed.nodes = nodes;
    changed.node_size = sizeof *nodes;
    changed.n_node = n;
    changed.hash = 0;
    tdm_status status =
        reader != NULL
            ? compute_with_block(device, &changed, bindings, n_binding, reader, err)
            : inner->device->graph_compute_sync(device, &changed, bindings, n_binding, err);
    free(nodes);
    return status;
}

/* ---- Faults of slots ---- */

/* exchange-abort: an aborted plan succeeds. */
static tdm_status compute_aborted(tdm_device *device, const tdm_graph *graph,
                                  const tdm_binding *bindings, int32_t n_binding, tdm_error *err) {
    tdm_status status = inner->device->graph_compute_sync(device, graph, bindings, n_binding, err);
    return status == TDM_CANCELLED ? TDM_OK : status;
}

/* graph-supports: the answer for the third node is inverted. */
static tdm_status graph_supports(tdm_device *device, const tdm_graph *graph, uint8_t *supported_out,
                                 tdm_error *err) {
    tdm_status status = inner->device->graph_supports(device, graph, supported_out, err);
    if (status == TDM_OK && graph->n_node > 2) supported_out[2] ^= 1;
    return status;
}

/* tensor-pieces: every part begins in the first column. */
static tdm_status tensor_upload(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                                const void *src, uint64_t row_pitch, int64_t row_first,
                                int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err) {
    (void)col_first;
    return inner->buffer->tensor_upload(buffer, off, desc, src, row_pitch, row_first, n_row, 0,
                                        n_col, err);
}

/* tensor-size: 64 bytes too many for a tensor without a usage. */
static tdm_status tensor_size(tdm_device *device, const tdm_tensor_desc *desc, uint64_t *size_out,
                              tdm_error *err) {
    tdm_status status = inner->buffer->tensor_size(device, desc, size_out, err);
    if (status == TDM_OK && desc->usage == 0) *size_out += 64;
    return status;
}

static _Atomic uint64_t tensor_size_last; /* what tensor_size gave last */

static tdm_status tensor_size_noted(tdm_device *device, const tdm_tensor_desc *desc,
                                    uint64_t *size_out, tdm_error *err) {
    tdm_status status = inner->buffer->tensor_size(device, desc, size_out, err);
    if (status == TDM_OK) tensor_size_last = *size_out;
    return status;
}

/* tensor-bounds: an upload also writes the byte behind the tensor. */
static tdm_status tensor_upload_behind(tdm_buffer *buffer, uint64_t off,
                                       const tdm_tensor_desc *desc, const void *src,
                                       uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                       int64_t col_first, int64_t n_col, tdm_error *err) {
    tdm_status status = inner->buffer->tensor_upload(buffer, off, desc, src, row_pitch, row_first,
                                                     n_row, col_first, n_col, err);
    return status == TDM_OK ? inner->buffer->upload(buffer, off + tensor_size_last, "", 1, err)
                            : status;
}

/* tensor-threads: a part is lost where another thread uploads at the same time. */
static tdm_status tensor_upload_alone(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                                      const void *src, uint64_t row_pitch, int64_t row_first,
                                      int64_t n_row, int64_t col_first, int64_t n_col,
                                      tdm_error *err) {
    static atomic_bool is_busy;
    if (atomic_exchange(&is_busy, true)) return TDM_OK;
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    tdm_status status = inner->buffer->tensor_upload(buffer, off, desc, src, row_pitch, row_first,
                                                     n_row, col_first, n_col, err);
    atomic_store(&is_busy, false);
    return status;
}

/* import-info: writes behind the caller's tdm_import_info. */
static tdm_status import_host(tdm_device *device, void *ptr, uint64_t size,
                              tdm_import_info *info_out, tdm_buffer **buffer_out, tdm_error *err) {
    tdm_status status = inner->buffer->import_host(device, ptr, size, info_out, buffer_out, err);
    if (status == TDM_OK && info_out != NULL) info_out[1].has_atomic32 = true;
    return status;
}

/* import-coarse: imports only multiples of 64 KiB, which import_align does not say. */
static tdm_status import_coarse(tdm_device *device, void *ptr, uint64_t size,
                                tdm_import_info *info_out, tdm_buffer **buffer_out,
                                tdm_error *err) {
    if (size % 65536 != 0) return tdm_fail(err, TDM_UNSUPPORTED, "shim: not 64 KiB");
    return inner->buffer->import_host(device, ptr, size, info_out, buffer_out, err);
}

/* peer, which is no fault: a slot import_peer. It imports the home's memory by its host address. */
static tdm_status import_peer(tdm_device *device, tdm_buffer *home, tdm_buffer **buffer_out,
                              tdm_error *err) {
    void *at = inner->buffer->host_pointer(home, TDM_ACCESS_READ | TDM_ACCESS_WRITE);
    if (at == NULL) return tdm_fail(err, TDM_UNSUPPORTED, "shim: the buffer has no address");
    return inner->buffer->import_host(device, at, PEER_SIZE, NULL, buffer_out, err);
}

/* peer-copy: the imported buffer is a copy of the home instead of the same memory. */
static tdm_status import_copy(tdm_device *device, tdm_buffer *home, tdm_buffer **buffer_out,
                              tdm_error *err) {
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = PEER_SIZE, .purpose = TDM_BUFFER_ARENA};
    tdm_status status = inner->buffer->alloc(device, &params, buffer_out, err);
    return status == TDM_OK ? inner->buffer->copy(*buffer_out, 0, home, 0, PEER_SIZE, err) : status;
}

/* page-slot-OP: no kv_page_size, and of the cache ops only OP is claimed. denies-bias: an attention
 * with a bias is refused, but not the description of its cache. */
static int32_t claimed_op;

#define IS_CACHE_VIEW                    false
#define IS_CACHE_VALUE                   false
#define IS_CACHE_GROUP                   false
#define IS_CACHE_CACHE                   true
#define IS_(ID, name, number, kind, ...) [TDM_OP_##ID] = IS_CACHE_##kind,
static const bool is_cache_op[TDM_OP_COUNT_] = {TDM_OP_LIST(IS_)};
#define NAME_(ID, name, ...) [TDM_OP_##ID] = #name,
static const char *const op_names[TDM_OP_COUNT_] = {TDM_OP_LIST(NAME_)};

static tdm_status supports_one(tdm_device *device, const tdm_graph *graph, int32_t node,
                               tdm_error *err) {
    const int32_t op = tdm_graph_node(graph, node)->op;
    if (op > TDM_OP_NONE && op < TDM_OP_COUNT_ && is_cache_op[op] && op != claimed_op)
        return tdm_fail(err, TDM_UNSUPPORTED, "shim: not %s", op_names[op]);
    return inner->device->supports_op(device, graph, node, err);
}

static void slot_remove(const char *op) {
    for (int32_t i = 0; i < TDM_OP_COUNT_; i++)
        if (op_names[i] != NULL && strcmp(op_names[i], op) == 0) claimed_op = i;
    buffer_ops.kv_page_size = NULL;
    device_ops.supports_op = supports_one;
    device_ops.graph_supports = NULL;
}

static tdm_status supports_no_bias(tdm_device *device, const tdm_graph *graph, int32_t node,
                                   tdm_error *err) {
    const tdm_node *n = tdm_graph_node(graph, node);
    if (n->op == TDM_OP_ATTENTION && n->src[5] >= 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "shim: no bias");
    return inner->device->supports_op(device, graph, node, err);
}

/* page-size: accepts q6_K for K, which is no type of caches. */
static tdm_status page_size_any_type(tdm_device *device, const tdm_kv_desc *desc,
                                     uint64_t *size_out, tdm_error *err) {
    tdm_kv_desc known = *desc;
    if (known.type_k == TDM_TYPE_Q6_K) known.type_k = TDM_TYPE_F32;
    return inner->buffer->kv_page_size(device, &known, size_out, err);
}

/* in-host: a page in the host's memory has another size. */
static tdm_status page_size_in_host(tdm_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                                    tdm_error *err) {
    tdm_status status = inner->buffer->kv_page_size(device, desc, size_out, err);
    if (status == TDM_OK && (desc->flags & TDM_KV_IN_HOST) != 0) *size_out *= 2;
    return status;
}

/* open-name: an open device has another name than describe gives. */
static tdm_status get_info_renamed(tdm_device *device, tdm_device_info *info_out, tdm_error *err) {
    tdm_status status = inner->device->get_info(device, info_out, err);
    if (status == TDM_OK) snprintf(info_out->name, sizeof info_out->name, "other0");
    return status;
}

/* split-unit: the unit of the last axis is 0. */
static tdm_status split_unit(tdm_device *device, const tdm_graph *graph, int32_t value,
                             int32_t axis, int64_t *unit_out, tdm_error *err) {
    tdm_status status = inner->split->split_unit(device, graph, value, axis, unit_out, err);
    if (status == TDM_OK && axis == 3) *unit_out = 0;
    return status;
}

/* Replaces the slot that the fault names. An unknown name changes nothing. */
static void fault_apply(const char *name) {
    for (size_t i = 0; i < sizeof op_faults / sizeof op_faults[0]; i++)
        if (strcmp(name, op_faults[i].name) == 0) op_fault = &op_faults[i];
    if (op_fault != NULL) device_ops.graph_compute_sync = compute_changed;
    if (strcmp(name, "exchange-abort") == 0) device_ops.graph_compute_sync = compute_aborted;
    if (strcmp(name, "graph-supports") == 0) device_ops.graph_supports = graph_supports;
    if (strcmp(name, "tensor-pieces") == 0) buffer_ops.tensor_upload = tensor_upload;
    if (strcmp(name, "tensor-size") == 0) buffer_ops.tensor_size = tensor_size;
    if (strcmp(name, "tensor-bounds") == 0) {
        buffer_ops.tensor_size = tensor_size_noted;
        buffer_ops.tensor_upload = tensor_upload_behind;
    }
    if (strcmp(name, "tensor-threads") == 0) buffer_ops.tensor_upload = tensor_upload_alone;
    if (strcmp(name, "open-name") == 0) device_ops.get_info = get_info_renamed;
    if (strcmp(name, "tensor-pair") == 0) buffer_ops.tensor_download = NULL;
    if (strcmp(name, "import-info") == 0) buffer_ops.import_host = import_host;
    if (strcmp(name, "import-coarse") == 0) buffer_ops.import_host = import_coarse;
    if (strcmp(name, "peer") == 0) buffer_ops.import_peer = import_peer;
    if (strcmp(name, "peer-copy") == 0) buffer_ops.import_peer = import_copy;
    if (strcmp(name, "page-size") == 0) buffer_ops.kv_page_size = page_size_any_type;
    if (strcmp(name, "in-host") == 0) buffer_ops.kv_page_size = page_size_in_host;
    if (strncmp(name, "page-slot-", 10) == 0) slot_remove(name + 10);
    if (strcmp(name, "denies-bias") == 0) {
        device_ops.supports_op = supports_no_bias;
        device_ops.graph_supports = NULL;
    }
    if (strcmp(name, "split-unit") == 0) split_ops.split_unit = split_unit;
}

/* ---- What devices report ---- */

static void info_change(tdm_device_info *info) {
    const char *memory = getenv("TANDEM_TEST_MEMORY");
    if (is_away) {
        snprintf(info->name, sizeof info->name, "away0");
        info->flags &= ~(uint32_t)TDM_DEVICE_IS_HOST;
    }
    if (memory == NULL || !TDM_FIELD(info, memory_free)) return;
    info->memory_free = strtoull(memory, NULL, 10);
    info->memory_total = 2 * info->memory_free;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    tdm_status status = inner->device->describe(instance, index, params, info_out, err);
    if (status == TDM_OK) info_change(info_out);
    return status;
}

static tdm_status device_get_info(tdm_device *device, tdm_device_info *info_out, tdm_error *err) {
    tdm_status status = inner->device->get_info(device, info_out, err);
    if (status == TDM_OK) info_change(info_out);
    return status;
}

static tdm_status device_measure_limits(tdm_device *device, tdm_device_limits *limits_out,
                                        tdm_error *err) {
    const char *text = getenv("TANDEM_TEST_LIMITS");
    tdm_device_limits limits = {.arithmetic = "given"};
    size_t size = limits_out->struct_size;
    static atomic_int n_call;
    int interrupted = 0;
    if (text == NULL) return inner->device->measure_limits(device, limits_out, err);
    if (sscanf(text, "%lf,%lf,%lf,%d", &limits.read_bandwidth, &limits.int8_peak, &limits.f32_peak,
               &interrupted) < 3)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "shim: TANDEM_TEST_LIMITS '%s'", text);
    if (++n_call == interrupted) raise(SIGINT);
    limits.struct_size = size;
    memcpy(limits_out, &limits, size == 0 || size > sizeof limits ? sizeof limits : size);
    return TDM_OK;
}

static void *no_host_pointer(tdm_buffer *buffer, uint32_t access) {
    (void)access;
    (void)buffer;
    return NULL;
}

/* ---- The plugin ---- */

static void tables_make(void) {
    const char *fault = getenv("TANDEM_TEST_FAULT");
    Dl_info object;
    outer = *inner;
    device_ops = *inner->device;
    buffer_ops = *inner->buffer;
    split_ops = *inner->split;
    outer.device = &device_ops;
    outer.buffer = &buffer_ops;
    outer.split = &split_ops;
    const char *slash = dladdr(&outer, &object) != 0 ? strrchr(object.dli_fname, '/') : NULL;
    snprintf(name, sizeof name, "%.*s", slash != NULL ? (int)strcspn(slash + 1, ".") : 0,
             slash != NULL ? slash + 1 : "");
    is_away = strcmp(name, "away") == 0;
    device_ops.describe = device_describe;
    device_ops.get_info = device_get_info;
    device_ops.measure_limits = device_measure_limits;
    if (is_away) buffer_ops.host_pointer = no_host_pointer;
    outer.name = name;
    if (fault != NULL) fault_apply(fault);
    if (getenv("TANDEM_SHIM_PINNED") != NULL || (fault != NULL && strncmp(fault, "pinned", 6) == 0))
        shim_pinned_apply(inner->buffer, &buffer_ops, fault);
}

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    tdm_plugin_entry_fn entry;
    const char *file = getenv("TANDEM_SHIM_TARGET");
    if (target == NULL && file != NULL) target = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *symbol = target != NULL ? dlsym(target, TDM_PLUGIN_ENTRY_NAME) : NULL;
    if (symbol == NULL)
        return tdm_fail(err, TDM_NOT_FOUND, "shim: TANDEM_SHIM_TARGET is no plugin");
    memcpy(&entry, &symbol, sizeof entry);
    tdm_status status = entry(host, &inner, err);
    if (status != TDM_OK) return status;
    tables_make();
    *plugin_out = &outer;
    return TDM_OK;
}

/* Closes the target with the shim. */
__attribute__((destructor)) static void target_close(void) {
    if (target != NULL) dlclose(target);
}
