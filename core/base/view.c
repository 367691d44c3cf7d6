/* SPDX-License-Identifier: MIT
 *
 * view.c: strides and offsets of views, and the nodes around a value. Whether a view is allowed is
 * decided by the rules of its op. Nothing can overflow here: a verified value has fewer than 2^48
 * elements.
 */
#include "core/base/view.h"

/* Contiguous strides of a shape. */
static void strides_set(const tdm_value *value, int64_t nb[TDM_MAX_DIMS]) {
    tdm_type_info info = tdm_type_get_info((tdm_type)value->type);
    nb[0] = info.block_size;
    nb[1] = value->ne[0] / info.block_len * nb[0];
    nb[2] = nb[1] * value->ne[1];
    nb[3] = nb[2] * value->ne[2];
}

void tdm_view_place_base(const tdm_value *value, int32_t index, tdm_view_place *out) {
    out->base = index;
    out->reserved = 0;
    out->off = 0;
    strides_set(value, out->nb);
}

void tdm_view_place_step(const tdm_node *node, const tdm_value *y, const tdm_value *x,
                         const tdm_view_place *x_place, tdm_view_place *out) {
    tdm_view_place from = *x_place;
    int i;
    *out = from;
    switch (node->op) {
    case TDM_OP_RESHAPE: strides_set(y, out->nb); break;
    case TDM_OP_PERMUTE:
        for (i = 0; i < TDM_MAX_DIMS; i++) out->nb[node->params.permute.axis[i]] = from.nb[i];
        break;
    default: /* SLICE */
        for (i = 0; i < TDM_MAX_DIMS; i++) {
            int64_t at = node->params.slice.offset[i];
            if (i == 0) at /= tdm_type_get_info((tdm_type)x->type).block_len;
            out->off += at * from.nb[i];
        }
    }
}

bool tdm_view_is_contiguous(const tdm_value *value, const tdm_view_place *place) {
    tdm_type_info info = tdm_type_get_info((tdm_type)value->type);
    int64_t next = info.block_size;
    bool is_contiguous = true;
    int i;
    for (i = 0; i < TDM_MAX_DIMS; i++) {
        int64_t n = i == 0 ? value->ne[0] / info.block_len : value->ne[i];
        if (n == 0) return true;
        if (n != 1 && place->nb[i] != next) is_contiguous = false;
        next *= n;
    }
    return is_contiguous;
}

/* Walks the nodes backwards from the value to its base. A source is produced before its reader, so
 * one pass meets the whole chain of views, and the chain needs no memory: slices and permutations
 * are kept as element offsets and an order of axes until the strides of their source are known.
 * Those are contiguous at the base and after every RESHAPE. */
void tdm_view_resolve(const tdm_graph *graph, int32_t value, tdm_view_place *out) {
    int64_t at[TDM_MAX_DIMS] = {0};         /* elements along the axes of `value` */
    int order[TDM_MAX_DIMS] = {0, 1, 2, 3}; /* axis of `value` that axis j of the result is */
    bool has_strides = false;
    int32_t n = graph->n_node - 1;
    int i;
    out->off = 0;
    for (;;) {
        const tdm_node *node = NULL;
        const tdm_value *v = tdm_graph_value(graph, value);
        for (; n >= 0 && v->slot < 0; n--) {
            const tdm_node *candidate = tdm_graph_node(graph, n);
            if (tdm_op_is_view(candidate->op) && candidate->dst[0] == value) {
                node = candidate;
                break;
            }
        }
        if (node == NULL || node->op == TDM_OP_RESHAPE) {
            int32_t block_len = tdm_type_get_info((tdm_type)v->type).block_len;
            int64_t nb[TDM_MAX_DIMS];
            strides_set(v, nb);
            for (i = 0; i < TDM_MAX_DIMS; i++) {
                out->off += (i == 0 ? at[0] / block_len : at[i]) * nb[i];
                if (!has_strides) out->nb[i] = nb[order[i]];
                at[i] = 0;
            }
            has_strides = true;
        } else if (node->op == TDM_OP_PERMUTE) {
            int64_t from[TDM_MAX_DIMS];
            int back[TDM_MAX_DIMS]; /* axis of the source that an axis of `value` was */
            for (i = 0; i < TDM_MAX_DIMS; i++) {
                from[i] = at[node->params.permute.axis[i]];
                back[node->params.permute.axis[i]] = i;
            }
            for (i = 0; i < TDM_MAX_DIMS; i++) at[i] = from[i], order[i] = back[order[i]];
        } else {
            for (i = 0; i < TDM_MAX_DIMS; i++) at[i] += node->params.slice.offset[i];
        }
        if (node == NULL) break;
        value = node->src[0];
        n--;
    }
    out->base = value;
    out->reserved = 0;
}

void tdm_view_resolve_all(const tdm_graph *graph, tdm_view_place *places_out) {
    int32_t i;
    for (i = 0; i < graph->n_value; i++)
        tdm_view_place_base(tdm_graph_value(graph, i), i, &places_out[i]);
    for (i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        if (!tdm_op_is_view(node->op)) continue;
        tdm_view_place_step(node, tdm_graph_value(graph, node->dst[0]),
                            tdm_graph_value(graph, node->src[0]), &places_out[node->src[0]],
                            &places_out[node->dst[0]]);
    }
}

void tdm_view_uses(const tdm_graph *graph, const tdm_view_place *places, int32_t *writer_out,
                   int32_t *n_read_out) {
    int32_t i;
    int k;
    for (i = 0; i < graph->n_value; i++) writer_out[i] = -1, n_read_out[i] = 0;
    for (i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        if (tdm_op_is_view(node->op)) continue;
        for (k = 0; k < node->n_src; k++)
            if (node->src[k] >= 0) n_read_out[places[node->src[k]].base]++;
        for (k = 0; k < node->n_dst; k++)
            if (node->dst[k] >= 0) writer_out[node->dst[k]] = i;
    }
}
