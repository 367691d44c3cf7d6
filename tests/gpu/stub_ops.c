/* SPDX-License-Identifier: MIT
 *
 * stub_ops.c: see stub_ops.h. Linked instead of plugins/gpu/ops.
 */
#include "tests/gpu/stub_ops.h"

#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/plan/fuse.h"
#include "tests/support/random.h"

uint64_t stub_seed;
int64_t stub_trips;
stub_fuse stub_fusing;

/* 0 .. n-1, the same each time that a node is planned. */
static uint32_t draw(const gpu_emit *e, uint32_t n) {
    uint64_t state = stub_seed + (uint64_t)e->index * 977;
    return stub_seed == 0 ? 0 : random_u32_below(&state, n);
}

static tdm_status pair(gpu_emit *e, gpu_operand dst, gpu_operand a, gpu_operand b, tdm_error *err) {
    gpu_step step = gpu_step_make(e, GPU_KERNEL_PAIR, 64);
    step.operand[0] = dst;
    step.operand[1] = a;
    step.operand[2] = b;
    step.trips = stub_trips;
    return gpu_emit_step(e, &step, err);
}

/* The source of an op that is the state which it changes; -1 = none. */
static int state_written(int32_t op) {
    switch (op) {
    case TDM_OP_KV_WRITE: return 3;
    case TDM_OP_KV_SHIFT: return 1;
    case TDM_OP_KV_COPY: return 1;
    case TDM_OP_KV_IMPORT: return 3;
    case TDM_OP_EXCHANGE: return 1;
    default: return -1;
    }
}

/* The first source in another form, as a product's activations are. */
static tdm_status form_get(gpu_emit *e, gpu_operand *out, tdm_error *err) {
    bool is_new = false;
    uint64_t size = (uint64_t)tdm_shape_count(e->src[0].ne);
    gpu_operand form = gpu_emit_form(e, 0, -1, &(gpu_form_key){.form = GPU_FORM_Q8}, size, &is_new);
    tdm_status status = is_new ? pair(e, form, *out, (gpu_operand){0}, err) : TDM_OK;
    *out = form;
    return status;
}

/* Appends the steps that read chain[0 .. n-1] and write the state or the destinations of e; of
 * `also` too, where that is not NULL. */
static tdm_status chain_emit(gpu_emit *e, gpu_operand *chain, int n, const gpu_emit *also,
                             tdm_error *err) {
    int written = state_written(e->node->op);
    tdm_status status = TDM_OK;
    for (; n > 2 && status == TDM_OK; n--) {
        gpu_operand mixed = gpu_emit_scratch(e, 16 + 4 * draw(e, 300));
        status = pair(e, mixed, chain[n - 1], chain[n - 2], err);
        chain[n - 2] = mixed;
    }
    gpu_operand a = n > 0 ? chain[0] : (gpu_operand){0}, b = n > 1 ? chain[1] : (gpu_operand){0};
    if (status == TDM_OK && written >= 0) status = pair(e, e->src[written].place, a, b, err);
    for (int i = 0; i < TDM_MAX_DST && status == TDM_OK; i++)
        if (e->dst[i].is_present) status = pair(e, e->dst[i].place, a, b, err);
    for (int i = 0; also != NULL && i < TDM_MAX_DST && status == TDM_OK; i++)
        if (also->dst[i].is_present) status = pair(e, also->dst[i].place, a, b, err);
    return status;
}

static bool is_in(const gpu_operand *o, const gpu_emit *e) {
    for (int i = 0; i < TDM_MAX_DST; i++)
        if (e->dst[i].is_present && e->dst[i].place.space == o->space &&
            e->dst[i].place.index == o->index)
            return true;
    return false;
}

/* Adds the sources of e to the chain, but for a state that it writes and what `before` (nullable)
 * writes. */
static int sources_add(const gpu_emit *e, gpu_operand *chain, int n, const gpu_emit *before) {
    for (int i = 0; i < e->node->n_src; i++)
        if (e->src[i].is_present && i != state_written(e->node->op) &&
            (before == NULL || !is_in(&e->src[i].place, before)))
            chain[n++] = e->src[i].place;
    return n;
}

static tdm_status stub_emit(gpu_emit *e, tdm_error *err) {
    static const int32_t table[4] = {1, 2, 3, 4};
    gpu_operand chain[TDM_MAX_SRC + 1];
    int written = state_written(e->node->op), n = sources_add(e, chain, 0, NULL);
    tdm_status status = TDM_OK;
    if (n > 0 && e->src[0].is_present && written != 0 && !e->src[0].is_private &&
        tdm_shape_count(e->src[0].ne) > 0 && draw(e, 3) == 1)
        status = form_get(e, &chain[0], err);
    if (draw(e, 5) == 2) chain[n++] = gpu_emit_constant(e, table, sizeof table);
    return status != TDM_OK ? status : chain_emit(e, chain, n, NULL, err);
}

/* ---- Fusing ---- */

/* Fusion "both": one step for two nodes that writes the results of both. */
static tdm_status stub_fused_emit(gpu_emit *nodes, tdm_error *err) {
    gpu_operand chain[2 * TDM_MAX_SRC];
    int n = sources_add(&nodes[0], chain, 0, NULL);
    if (stub_fusing == STUB_FUSE_REFUSED) return gpu_refuse(&nodes[1], err, "never");
    n = sources_add(&nodes[1], chain, n, &nodes[0]);
    return chain_emit(&nodes[1], chain, n, &nodes[0], err);
}

/* Fusion "inner": the result of nodes[0] is read by nodes[1] alone, and is not written. */
static tdm_status stub_inner_emit(gpu_emit *nodes, tdm_error *err) {
    gpu_operand chain[2 * TDM_MAX_SRC];
    int n = sources_add(&nodes[0], chain, 0, NULL);
    n = sources_add(&nodes[1], chain, n, &nodes[0]);
    return chain_emit(&nodes[1], chain, n, NULL, err);
}

/* The node that wrote the first source of `node`, where the two may be fused at all. */
static bool stub_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    const tdm_node *n = tdm_graph_node(uses->graph, node);
    uint64_t state = stub_seed + (uint64_t)node * 31;
    if (tdm_op_is_view(n->op) || n->n_src == 0 || n->src[0] < 0) return false;
    if (stub_fusing == STUB_FUSE_SOME && random_u32_below(&state, 3) != 0) return false;
    *out = (gpu_fused){.node = {uses->writer[n->src[0]], node}, .n = 2};
    return out->node[0] >= 0;
}

static bool stub_inner_match(const gpu_uses *uses, int32_t node, gpu_fused *out) {
    if (!stub_match(uses, node, out)) return false;
    const tdm_node *first = tdm_graph_node(uses->graph, out->node[0]);
    return first->dst[1] < 0 && gpu_uses_is_inner(uses, first->dst[0]);
}

const gpu_fusion *gpu_fusions(int32_t *n_out) {
    static const gpu_fusion fusions[] = {
        {"inner", stub_inner_match, stub_inner_emit},
        {"both", stub_match, stub_fused_emit},
    };
    bool is_refused = stub_fusing == STUB_FUSE_REFUSED;
    *n_out = stub_fusing == STUB_FUSE_NONE ? 0 : 2 - is_refused;
    return fusions + is_refused;
}

gpu_emit_fn gpu_op_emitter(int32_t op) {
    return tdm_op_is_view(op) ? NULL : stub_emit;
}
