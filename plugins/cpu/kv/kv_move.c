/* SPDX-License-Identifier: MIT
 *
 * kv_move.c: KV_COPY, KV_EXPORT and KV_IMPORT: rows from page to page and between pages and
 * canonical tensors, bit for bit. Nothing is converted here.
 */
#include <string.h>

#include "plugins/cpu/kv/kv_page.h"
#include "plugins/cpu/ops/ops.h"

static size_t worker_size(const cpu_kv_layout *layout) {
    size_t k = layout->k.row_size, v = layout->v.row_size;
    return cpu_kv_round(k > v ? k : v);
}

static size_t scratch_size(const cpu_device *device, const tdm_graph *graph, const tdm_node *node) {
    cpu_kv_layout layout;
    if (cpu_kv_layout_get(tdm_graph_kv(graph, node->params.kv.kv), &layout, NULL) != TDM_OK)
        return 0;
    return worker_size(&layout) * (size_t)device->n_thread;
}

/* ---- copy ------------------------------------------------------------------------------------ */

enum { COPY_STEP, COPY_STATE };

static tdm_status copy_supports(const cpu_device *device, const tdm_graph *graph,
                                const tdm_node *node, tdm_error *err) {
    cpu_kv_layout layout;
    (void)device;
    return cpu_kv_supports(graph, node, node->params.kv.kv, COPY_STEP, COPY_STATE, &layout, err);
}

static void copy_rows(const cpu_kv_side *side, uint8_t *to, const uint8_t *from, int32_t first,
                      int32_t count, uint8_t *row) {
    for (int32_t slot = first; slot < first + count; slot++) {
        cpu_kv_load(side, from, slot, row, 0, cpu_kv_units(side));
        cpu_kv_store(side, to, slot, row, 0, cpu_kv_units(side));
    }
}

/* A worker copies some heads, and for these runs the jobs in order: a job may read what the one
 * before it wrote. */
static void copy_run(const cpu_node *n, cpu_worker *w) {
    cpu_kv_layout layout;
    const tdm_kv_desc *desc = tdm_graph_kv(n->graph, n->node->params.kv.kv);
    const cpu_view *state = &n->src[COPY_STATE];
    if (cpu_kv_layout_get(desc, &layout, NULL) != TDM_OK) return;
    cpu_step step = cpu_step_get(n->graph, &n->src[COPY_STEP], desc->cls);
    uint8_t *row = n->scratch + (size_t)w->ith * worker_size(&layout);
    for (int32_t j = 0; j < step.n_job; j++) {
        tdm_page_job job = step.jobs[j];
        if (!cpu_kv_job_clip(&layout, state->ne[1], -1, &job) || job.arg < 0 ||
            job.arg >= state->ne[1] || job.arg == job.page)
            continue;
        const int32_t first = job.first / layout.stride,
                      count = (job.first + job.count - 1) / layout.stride + 1 - first;
        for (int32_t head = w->ith; head < layout.n_head_kv; head += w->nth) {
            uint8_t *to = cpu_kv_head(&layout, state->data, job.page, head);
            const uint8_t *from = cpu_kv_head(&layout, state->data, job.arg, head);
            if (count == layout.n_slot) {
                memcpy(to, from, layout.head_size);
                continue;
            }
            copy_rows(&layout.k, to, from, first, count, row);
            if (!layout.v_from_k) copy_rows(&layout.v, to, from, first, count, row);
        }
    }
}

const cpu_op_impl cpu_op_kv_copy = {
    .supports = copy_supports, .scratch_size = scratch_size, .run = copy_run};

/* ---- export and import ----------------------------------------------------------------------- */

enum { EXPORT_STEP, EXPORT_STATE };
enum { IMPORT_K, IMPORT_V, IMPORT_STEP, IMPORT_STATE };

static tdm_status export_supports(const cpu_device *device, const tdm_graph *graph,
                                  const tdm_node *node, tdm_error *err) {
    cpu_kv_layout layout;
    (void)device;
    return cpu_kv_supports(graph, node, node->params.kv.kv, EXPORT_STEP, EXPORT_STATE, &layout,
                           err);
}

static tdm_status import_supports(const cpu_device *device, const tdm_graph *graph,
                                  const tdm_node *node, tdm_error *err) {
    cpu_kv_layout layout;
    (void)device;
    return cpu_kv_supports(graph, node, node->params.kv.kv, IMPORT_STEP, IMPORT_STATE, &layout,
                           err);
}

/* Copies rows of one head's K or V between slots and a tensor [padded, n_head_kv, n_row]. The
 * tensor may be a view with any strides; rows that are not contiguous go through `row`. */
static void move_rows(const cpu_kv_layout *layout, const cpu_kv_side *side, uint8_t *region,
                      const cpu_view *tensor, int32_t head, const tdm_page_job *job, bool is_import,
                      uint8_t *row) {
    bool is_packed = tensor->nb[0] == (int64_t)side->block_size;
    int32_t n = cpu_kv_units(side);
    for (int32_t i = 0; i < job->count; i++) {
        uint8_t *at = tensor->data + head * tensor->nb[1] + (job->arg + i) * tensor->nb[2];
        uint8_t *packed = is_packed ? at : row;
        const int32_t slot = (job->first + i) / layout->stride;
        const bool is_row = (job->arg + i + 1) % layout->stride == 0;
        if (is_import) {
            if (!is_row) continue;
            for (int32_t u = 0; u < n && !is_packed; u++)
                memcpy(row + (size_t)u * side->block_size, at + u * tensor->nb[0],
                       side->block_size);
            cpu_kv_store(side, region, slot, packed, 0, n);
        } else {
            if (is_row)
                cpu_kv_load(side, region, slot, packed, 0, n);
            else
                memset(packed, 0, (size_t)n * side->block_size);
            for (int32_t u = 0; u < n && !is_packed; u++)
                memcpy(at + u * tensor->nb[0], row + (size_t)u * side->block_size,
                       side->block_size);
        }
    }
}

static void move_run(const cpu_node *n, cpu_worker *w, const cpu_view *k, const cpu_view *v,
                     const cpu_view *step_view, const cpu_view *state, bool is_import) {
    cpu_kv_layout layout;
    const tdm_kv_desc *desc = tdm_graph_kv(n->graph, n->node->params.kv.kv);
    if (cpu_kv_layout_get(desc, &layout, NULL) != TDM_OK) return;
    cpu_step step = cpu_step_get(n->graph, step_view, desc->cls);
    uint8_t *row = n->scratch + (size_t)w->ith * worker_size(&layout);
    bool has_v = !layout.v_from_k && v->data != NULL;
    int64_t n_row = has_v && v->ne[2] < k->ne[2] ? v->ne[2] : k->ne[2];
    for (int32_t j = 0; j < step.n_job; j++) {
        tdm_page_job job = step.jobs[j];
        if (!cpu_kv_job_clip(&layout, state->ne[1], n_row, &job)) continue;
        for (int32_t head = w->ith; head < layout.n_head_kv; head += w->nth) {
            uint8_t *region = cpu_kv_head(&layout, state->data, job.page, head);
            move_rows(&layout, &layout.k, region, k, head, &job, is_import, row);
            if (has_v) move_rows(&layout, &layout.v, region, v, head, &job, is_import, row);
        }
    }
}

static void export_run(const cpu_node *n, cpu_worker *w) {
    move_run(n, w, &n->dst[0], &n->dst[1], &n->src[EXPORT_STEP], &n->src[EXPORT_STATE], false);
}

static void import_run(const cpu_node *n, cpu_worker *w) {
    move_run(n, w, &n->src[IMPORT_K], &n->src[IMPORT_V], &n->src[IMPORT_STEP],
             &n->src[IMPORT_STATE], true);
}

const cpu_op_impl cpu_op_kv_export = {
    .supports = export_supports, .scratch_size = scratch_size, .run = export_run};
const cpu_op_impl cpu_op_kv_import = {
    .supports = import_supports, .scratch_size = scratch_size, .run = import_run};
