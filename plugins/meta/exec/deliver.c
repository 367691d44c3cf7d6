/* SPDX-License-Identifier: MIT
 *
 * deliver.c: copies the outputs to the caller. A member's part of a split value contains its pieces
 * in linear order. An element that several members hold comes from the lowest of them, its owner.
 * Candidates, the best numbers of each member's part of a row, are merged.
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

static tdm_status part_fetch(meta_plan *plan, int32_t d, const meta_output *output,
                             const uint8_t **bytes_out, tdm_error *err) {
    tdm_error inner = {0};
    tdm_status status =
        meta_part_fetch(plan, d, plan->variants[output->variant].local[d], bytes_out, &inner);
    if (status == TDM_OK) return TDM_OK;
    return tdm_fail(err, status, "member '%s', output '%s': %s", plan->device->members[d].name,
                    tdm_graph_value_name(plan->graph, output->value), inner.message);
}

/* A member's candidates, best first in each row. */
typedef struct candidate_list {
    const float *values;
    const int32_t *ids;
    int64_t n; /* of a row */
    int64_t at;
} candidate_list;

/* The order of TOP_K: the larger value, NaN below everything, then the lower index. */
static bool ranks_before(float a, int32_t a_id, float b, int32_t b_id) {
    if (a > b) return true;
    if (a < b) return false;
    const bool a_nan = a != a, b_nan = b != b;
    return a_nan != b_nan ? b_nan : a_id < b_id;
}

static void row_merge(candidate_list *lists, int32_t n_list, int64_t k, float *values,
                      int32_t *ids) {
    for (int64_t i = 0; i < k; i++) {
        candidate_list *best = NULL;
        for (int32_t l = 0; l < n_list; l++) {
            candidate_list *list = &lists[l];
            if (list->at < list->n &&
                (best == NULL || ranks_before(list->values[list->at], list->ids[list->at],
                                              best->values[best->at], best->ids[best->at])))
                best = list;
        }
        values[i] = best->values[best->at];
        ids[i] = best->ids[best->at++];
    }
    for (int32_t l = 0; l < n_list; l++) {
        lists[l].values += lists[l].n;
        lists[l].ids += lists[l].n;
        lists[l].at = 0;
    }
}

/* Fetches a member's part of an output to *room, and moves *room behind it. */
static tdm_status candidates_fetch(meta_plan *plan, int32_t d, const meta_output *output,
                                   uint8_t **room, tdm_error *err) {
    const tdm_value *v =
        meta_part_value(&plan->members[d].part, plan->variants[output->variant].local[d]);
    const uint64_t size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    const uint8_t *bytes;
    tdm_status status = part_fetch(plan, d, output, &bytes, err);
    if (status != TDM_OK) return status;
    memcpy(*room, bytes, (size_t)size);
    *room += size;
    return TDM_OK;
}

/* The bytes that the caller bound to an output. */
static void *output_bytes(const meta_plan *plan, const meta_output *output) {
    const tdm_binding *b = &plan->bindings[tdm_graph_value(plan->graph, output->value)->slot];
    return b->buffer->host + b->off;
}

static tdm_status candidates_deliver(meta_plan *plan, const meta_output *output, tdm_error *err) {
    const meta_output *id_output = &plan->outputs[output->ids];
    const tdm_value *v = tdm_graph_value(plan->graph, output->value);
    const int64_t k = v->ne[0], n_row = tdm_shape_rows(v->ne);
    candidate_list lists[TDM_MAX_MEMBERS];
    int32_t n_list = 0;
    uint8_t *room = plan->candidates;
    for (int32_t d = 0; d < plan->device->n_member; d++) {
        int32_t local = plan->variants[output->variant].local[d];
        if (local < 0) continue;
        candidate_list *list = &lists[n_list++];
        *list = (candidate_list){.n = meta_part_value(&plan->members[d].part, local)->ne[0]};
        list->values = (const float *)(const void *)room;
        tdm_status status = candidates_fetch(plan, d, output, &room, err);
        list->ids = (const int32_t *)(const void *)room;
        if (status == TDM_OK) status = candidates_fetch(plan, d, id_output, &room, err);
        if (status != TDM_OK) return status;
    }
    float *values = output_bytes(plan, output);
    int32_t *ids = output_bytes(plan, id_output);
    for (int64_t row = 0; row < n_row; row++)
        row_merge(lists, n_list, k, values + row * k, ids + row * k);
    return TDM_OK;
}

static tdm_status output_deliver(meta_plan *plan, const meta_output *output, tdm_error *err) {
    const meta_variant *variant = &plan->variants[output->variant];
    const tdm_layout *layout = &plan->layouts.layouts[variant->layout];
    const tdm_value *v = tdm_graph_value(plan->graph, output->value);
    const tdm_binding *b = &plan->bindings[v->slot];
    if (tdm_shape_count(v->ne) == 0 || output->is_ids) return TDM_OK;
    if (output->ids >= 0) return candidates_deliver(plan, output, err);
    piece_source from = {.dst = b->buffer->host + b->off, .type = (tdm_type)v->type};
    for (int32_t d = 0; d < plan->device->n_member; d++) {
        if (variant->local[d] < 0) continue;
        tdm_status status = part_fetch(plan, d, output, &from.bytes, err);
        if (status != TDM_OK) return status;
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
