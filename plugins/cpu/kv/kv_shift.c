/* SPDX-License-Identifier: MIT
 *
 * kv_shift.c: KV_SHIFT: moves cached K rows on by some positions, in place. A row is dequantised,
 * its Walsh-Hadamard rotation undone, its elements turned by RoPE, then rotated and quantised
 * again. V carries no positions.
 */
#include "plugins/cpu/kv/hadamard.h"
#include "plugins/cpu/kv/kv_page.h"
#include "plugins/cpu/kv/kv_row.h"
#include "plugins/cpu/ops/ops.h"
#include "plugins/cpu/ops/rope.h"

enum { SRC_STEP, SRC_STATE, SRC_FACTOR };

static tdm_status supports(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                           tdm_error *err) {
    cpu_kv_layout layout;
    const tdm_rope_params *rope = &node->params.shift.rope;
    (void)device;
    tdm_status status =
        cpu_kv_supports(graph, node, node->params.shift.kv, SRC_STEP, SRC_STATE, &layout, err);
    if (status != TDM_OK) return status;
    if (rope->n_rot < 0 || rope->n_rot % 2 != 0 || rope->rope_offset < 0 ||
        (int64_t)rope->rope_offset + rope->n_rot > layout.k.head_dim)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "shift of elements %d .. +%d of heads of %d: they must lie in the head",
                        rope->rope_offset, rope->n_rot, layout.k.head_dim);
    return TDM_OK;
}

/* Floats of a row, its bytes, cosines and sines. */
static size_t worker_size(const cpu_kv_layout *layout) {
    return 4 * cpu_kv_round((size_t)layout->k.padded * sizeof(float));
}

static size_t scratch_size(const cpu_device *device, const tdm_graph *graph, const tdm_node *node) {
    cpu_kv_layout layout;
    if (cpu_kv_layout_get(tdm_graph_kv(graph, node->params.shift.kv), &layout, NULL) != TDM_OK)
        return 0;
    return worker_size(&layout) * (size_t)device->n_thread;
}

static void run(const cpu_node *n, cpu_worker *w) {
    cpu_kv_layout layout;
    const tdm_rope_params *rope = &n->node->params.shift.rope;
    const tdm_kv_desc *desc = tdm_graph_kv(n->graph, n->node->params.shift.kv);
    const cpu_view *state = &n->src[SRC_STATE];
    if (rope->n_rot <= 0 || desc->n_rot == 0) return;
    if (cpu_kv_layout_get(desc, &layout, NULL) != TDM_OK) return;
    const cpu_kv_side *side = &layout.k;
    cpu_step step = cpu_step_get(n->graph, &n->src[SRC_STEP], desc->cls);
    size_t part = worker_size(&layout) / 4;
    uint8_t *scratch = n->scratch + (size_t)w->ith * worker_size(&layout);
    float *x = (float *)(void *)scratch;
    float *cosines = (float *)(void *)(scratch + part), *sines = cosines + part / sizeof *sines;
    uint8_t *row = scratch + 3 * part;
    tdm_row_dequantize_fn dequantize = tdm_row_codec_get(side->type).dequantize;
    tdm_row_quantize_fn quantize = cpu_kv_quantizer(n->device, side->type);
    cpu_hadamard_fn rotate = cpu_hadamard_choose(n->device->isa);

    /* Only blocks (of the rotation and of the type) with turned elements are rewritten: a second
     * quantisation costs accuracy. */
    int32_t unit = side->n_block > 0 ? CPU_KV_BLOCK : 1;
    int32_t align = side->rotation > unit ? side->rotation : unit;
    int32_t first = rope->rope_offset / align * align;
    int32_t last = (rope->rope_offset + rope->n_rot + align - 1) / align * align;

    for (int32_t j = 0; j < step.n_job; j++) {
        tdm_page_job job = step.jobs[j];
        if (!cpu_kv_job_clip(&layout, state->ne[1], -1, &job) || job.arg == 0) continue;
        cpu_rope_angles(rope, &n->src[SRC_FACTOR], job.arg, false, cosines, sines);
        for (int32_t head = 0; head < layout.n_head_kv; head++) {
            /* All jobs on a page and head have the same worker, which runs them in order. */
            if ((head + job.page) % w->nth != w->ith) continue;
            uint8_t *region = cpu_kv_head(&layout, state->data, job.page, head);
            for (int32_t slot = job.first; slot < job.first + job.count; slot++) {
                cpu_kv_load(side, region, slot, row, first / unit, (last - first) / unit);
                dequantize(row, x + first, last - first);
                rotate(x + first, last - first, side->rotation);
                cpu_rope_turn(rope, cosines, sines, x);
                rotate(x + first, last - first, side->rotation);
                quantize(x + first, row, last - first, NULL);
                cpu_kv_store(side, region, slot, row, first / unit, (last - first) / unit);
            }
        }
    }
}

const cpu_op_impl cpu_op_kv_shift = {
    .supports = supports, .scratch_size = scratch_size, .run = run};
