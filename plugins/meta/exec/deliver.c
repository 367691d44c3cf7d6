/* SPDX-License-Identifier: MIT
 *
 * deliver.c: copies the outputs to the caller. A member's part of a split value contains its pieces
 * in linear order. An element that several members hold comes from the lowest of them, its owner.
 */
#include "plugins/meta/exec/deliver.h"

#include <string.h>

/* One output on one member. */
typedef struct piece_source {
    const uint8_t *bytes; /* the member's part */
    uint8_t *dst;         /* the whole value */
    tdm_type type;
} piece_source;

static void pieces_copy(const piece_source *from, int64_t dst, int64_t src, int64_t n) {
    size_t size = tdm_type_row_size(from->type, n);
    if (size > 0)
        memcpy(from->dst + tdm_type_row_size(from->type, dst),
               from->bytes + tdm_type_row_size(from->type, src), size);
}

static void split_deliver(const tdm_layout *layout, int32_t d, const piece_source *from) {
    int64_t whole = 0, part = 0;
    for (int32_t s = 0; s < layout->n_segment; s++) {
        whole += layout->segments[s].n_unit;
        part += layout->segments[s].hi[d] - layout->segments[s].lo[d];
    }
    /* One member holds everything: the pattern may then be a single element, which is less than a
     * block of a quantised type, so the value is copied as a whole. */
    if (layout->n_segment == 1 && part == whole) {
        int64_t lo, hi;
        meta_segment_owned(&layout->segments[0], d, &lo, &hi);
        if (hi - lo == whole) pieces_copy(from, 0, 0, layout->outer * whole * layout->inner);
        if (hi - lo == whole || hi == lo) return;
    }
    for (int64_t o = 0; o < layout->outer; o++) {
        int64_t dst = o * whole, src = o * part;
        for (int32_t s = 0; s < layout->n_segment; s++) {
            const tdm_layout_segment *segment = &layout->segments[s];
            int64_t lo, hi;
            meta_segment_owned(segment, d, &lo, &hi);
            if (lo < hi)
                pieces_copy(from, (dst + lo) * layout->inner,
                            (src + lo - segment->lo[d]) * layout->inner, (hi - lo) * layout->inner);
            dst += segment->n_unit;
            src += segment->hi[d] - segment->lo[d];
        }
    }
}

/* Copies the exported rows whose pages member d holds. The jobs in the caller's step block list the
 * rows. Rows without a job are not copied. */
static void rows_deliver(const meta_plan *plan, int32_t d, const tdm_value *v,
                         const piece_source *from) {
    const tdm_graph *graph = plan->graph;
    const tdm_binding *b = &plan->bindings[tdm_graph_value(graph, graph->step)->slot];
    const int32_t *block = (const int32_t *)(const void *)(b->buffer->host + b->off);
    int64_t row = v->ne[0] * v->ne[1];
    tdm_step_header layout;
    if (tdm_step_layout(&graph->step_caps, &layout, NULL) != TDM_OK) return;
    int32_t n_job = ((const tdm_step_header *)(const void *)block)->n_job;
    for (int32_t i = 0; i < n_job && i < graph->step_caps.n_job; i++) {
        tdm_page_job job;
        memcpy(&job, &block[layout.job_off + 4 * i], sizeof job);
        if (job.page < 0 || job.page >= plan->n_page || plan->pages[job.page].owner != d) continue;
        if (job.arg < 0 || job.count < 0 || job.arg > v->ne[2] - job.count) continue;
        pieces_copy(from, job.arg * row, job.arg * row, job.count * row);
    }
}

tdm_status meta_part_fetch(meta_plan *plan, int32_t d, int32_t local, const uint8_t **bytes_out,
                           tdm_error *err) {
    meta_member_plan *m = &plan->members[d];
    const tdm_buffer_ops *ops = meta_member_buffers(&plan->device->members[d]);
    const tdm_value *v = meta_part_value(&m->part, local);
    const tdm_binding *b = &m->slot_bindings[v->slot];
    const uint8_t *host =
        TDM_HAS(ops, host_pointer) ? ops->host_pointer(b->buffer, TDM_ACCESS_READ) : NULL;
    if (host != NULL) {
        *bytes_out = host + b->off;
        return TDM_OK;
    }
    *bytes_out = m->staging;
    return ops->download(b->buffer, b->off, m->staging, b->size, err);
}

static tdm_status output_deliver(meta_plan *plan, const meta_output *output, tdm_error *err) {
    const meta_variant *variant = &plan->variants[output->variant];
    const tdm_layout *layout = &plan->layouts.layouts[variant->layout];
    const tdm_value *v = tdm_graph_value(plan->graph, output->value);
    const tdm_binding *b = &plan->bindings[v->slot];
    if (tdm_shape_count(v->ne) == 0) return TDM_OK;
    piece_source from = {.dst = b->buffer->host + b->off, .type = (tdm_type)v->type};
    for (int32_t d = 0; d < plan->device->n_member; d++) {
        if (variant->local[d] < 0) continue;
        tdm_error inner = {0};
        tdm_status status = meta_part_fetch(plan, d, variant->local[d], &from.bytes, &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "member '%s', output '%s': %s",
                            plan->device->members[d].name,
                            tdm_graph_value_name(plan->graph, output->value), inner.message);
        if (output->is_by_page) {
            rows_deliver(plan, d, v, &from);
        } else if (layout->kind == TDM_LAYOUT_SPLIT) {
            split_deliver(layout, d, &from);
        } else {
            pieces_copy(&from, 0, 0, tdm_shape_count(v->ne));
            break;
        }
    }
    return TDM_OK;
}

tdm_status meta_outputs_deliver(meta_plan *plan, tdm_error *err) {
    for (int32_t i = 0; i < plan->n_output; i++) {
        tdm_status status = output_deliver(plan, &plan->outputs[i], err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}
