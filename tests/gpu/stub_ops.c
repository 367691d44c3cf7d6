/* SPDX-License-Identifier: MIT
 *
 * stub_ops.c: see stub_ops.h. Takes the place of plugins/gpu/ops.
 */
#include "tests/gpu/stub_ops.h"

#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/plan/fuse.h"
#include "tests/support/random.h"

uint64_t stub_seed;
int64_t stub_trips;

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

/* The state that the op changes, or its source -1. */
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
    gpu_operand form = gpu_emit_form(e, 0, GPU_FORM_Q8, size, &is_new);
    tdm_status status = is_new ? pair(e, form, *out, (gpu_operand){0}, err) : TDM_OK;
    *out = form;
    return status;
}

static tdm_status stub_emit(gpu_emit *e, tdm_error *err) {
    static const int32_t table[4] = {1, 2, 3, 4};
    gpu_operand chain[TDM_MAX_SRC + 1];
    int written = state_written(e->node->op), n = 0;
    tdm_status status = TDM_OK;
    for (int i = 0; i < e->node->n_src; i++)
        if (e->src[i].is_present && i != written) chain[n++] = e->src[i].place;
    if (n > 0 && e->src[0].is_present && written != 0 && !e->src[0].is_private &&
        tdm_shape_count(e->src[0].ne) > 0 && draw(e, 3) == 1)
        status = form_get(e, &chain[0], err);
    if (draw(e, 5) == 2) chain[n++] = gpu_emit_constant(e, table, sizeof table);
    for (; n > 2 && status == TDM_OK; n--) {
        gpu_operand mixed = gpu_emit_scratch(e, 16 + 4 * draw(e, 300));
        status = pair(e, mixed, chain[n - 1], chain[n - 2], err);
        chain[n - 2] = mixed;
    }
    gpu_operand a = n > 0 ? chain[0] : (gpu_operand){0}, b = n > 1 ? chain[1] : (gpu_operand){0};
    if (status == TDM_OK && written >= 0) status = pair(e, e->src[written].place, a, b, err);
    for (int i = 0; i < e->node->n_dst && status == TDM_OK; i++)
        if (e->dst[i].is_present) status = pair(e, e->dst[i].place, a, b, err);
    return status;
}

gpu_emit_fn gpu_op_emitter(int32_t op) {
    return tdm_op_is_view(op) ? NULL : stub_emit;
}

const gpu_fusion *gpu_fusions(int32_t *n_out) {
    static const gpu_fusion none = {.name = "none"};
    *n_out = 0;
    return &none;
}
