/* SPDX-License-Identifier: MIT
 *
 * part.c: builds a member's part: values, slots and nodes are appended. It does not check shapes:
 * the rules compute them, and plan.c has the host verify the finished part.
 */
#include "plugins/meta/rules/part.h"

#include <string.h>

void meta_part_begin(const tdm_host *host, const tdm_graph *whole, meta_part *part) {
    memset(part, 0, sizeof *part);
    part->host = host;
    part->arena = part->peer = part->epoch = -1;
    part->graph = (tdm_graph){
        .struct_size = sizeof part->graph,
        .value_size = sizeof(tdm_value),
        .node_size = sizeof(tdm_node),
        .partition_size = sizeof(tdm_partition),
        .kv_size = sizeof(tdm_kv_desc),
        .names = whole->names,
        .names_size = whole->names_size,
        .step = -1,
    };
}

static void array_free(const meta_part *part, void *array, int32_t capacity, size_t size) {
    meta_free(part->host, array, (size_t)capacity * size);
}

void meta_part_end(meta_part *part) {
    if (part->host == NULL) return;
    array_free(part, part->values, part->cap_value, sizeof(tdm_value));
    array_free(part, part->nodes, part->cap_node, sizeof(tdm_node));
    array_free(part, part->kv, part->cap_kv, sizeof(tdm_kv_desc));
    array_free(part, part->places, part->cap_place, sizeof *part->places);
    array_free(part, part->slots, part->cap_slot, sizeof *part->slots);
    memset(part, 0, sizeof *part);
}

/* Room for one element more in *array. */
static bool array_grow(const meta_part *part, void *array, int32_t *capacity, int32_t n,
                       size_t size) {
    return meta_grow(part->host, array, capacity, (int64_t)n + 1, size, NULL) == TDM_OK;
}

/* A value with a place and, unless it is a view, a slot. */
static int32_t value_append(meta_part *part, const tdm_value *value, const meta_slot *slot) {
    tdm_graph *g = &part->graph;
    bool has_room =
        array_grow(part, &part->values, &part->cap_value, g->n_value, sizeof(tdm_value)) &&
        array_grow(part, &part->places, &part->cap_place, g->n_value, sizeof *part->places) &&
        array_grow(part, &part->slots, &part->cap_slot, g->n_slot, sizeof *part->slots);
    /* `values` may have moved even where another array could not grow. */
    g->values = part->values;
    if (!has_room) return -1;
    int32_t index = g->n_value++;
    tdm_value *v = &part->values[index];
    *v = *value;
    v->slot = -1;
    v->partition = v->axis = v->reserved = 0;
    if (slot != NULL) {
        v->slot = g->n_slot;
        part->slots[g->n_slot++] = *slot;
    }
    tdm_view_place_base(v, index, &part->places[index]);
    return index;
}

int32_t meta_part_add_value(meta_part *part, const tdm_value *like, const int64_t ne[TDM_MAX_DIMS],
                            meta_slot_source source, int32_t value) {
    tdm_value v = *like;
    memcpy(v.ne, ne, sizeof v.ne);
    meta_slot slot = {source, value, tdm_tensor_canonical_size((tdm_type)v.type, v.ne)};
    return value_append(part, &v, &slot);
}

void meta_part_keep(meta_part *part, int32_t v, int32_t value) {
    tdm_value *kept = &part->values[v];
    kept->kind = TDM_VALUE_OUTPUT;
    part->slots[kept->slot].source = META_SLOT_OUTPUT;
    part->slots[kept->slot].value = value;
}

int32_t meta_part_add_kv(meta_part *part, const tdm_kv_desc *desc) {
    tdm_graph *g = &part->graph;
    if (!array_grow(part, &part->kv, &part->cap_kv, g->n_kv, sizeof *desc)) return -1;
    g->kv = part->kv;
    part->kv[g->n_kv] = *desc;
    return g->n_kv++;
}

bool meta_part_is_keepable(const meta_part *part, int32_t v) {
    if (v < 0) return false;
    const tdm_value *value = meta_part_value(part, v);
    return value->slot >= 0 && (value->kind == TDM_VALUE_TEMP || value->kind == TDM_VALUE_OUTPUT) &&
           tdm_shape_count(value->ne) > 0;
}

bool meta_part_add_node(meta_part *part, int32_t op, const tdm_op_params *params,
                        const int32_t *src, int32_t n_src, const meta_result *dst, int32_t n_dst,
                        int32_t *dst_out) {
    tdm_graph *g = &part->graph;
    tdm_node node = {.op = op, .n_src = n_src, .n_dst = n_dst};
    if (!array_grow(part, &part->nodes, &part->cap_node, g->n_node, sizeof node)) return false;
    g->nodes = part->nodes;
    for (int32_t i = 0; i < TDM_MAX_SRC; i++) node.src[i] = i < n_src ? src[i] : -1;
    for (int32_t i = 0; i < TDM_MAX_DST; i++) node.dst[i] = -1;
    if (params != NULL) node.params = *params;
    for (int32_t i = 0; i < n_dst; i++) {
        tdm_value v = {.kind = TDM_VALUE_TEMP, .type = dst[i].type, .name = dst[i].name};
        meta_slot slot = {META_SLOT_TEMP, -1, 0};
        if (dst[i].type < 0) { /* an optional destination that is absent */
            dst_out[i] = -1;
            continue;
        }
        memcpy(v.ne, dst[i].ne, sizeof v.ne);
        slot.size = tdm_tensor_canonical_size((tdm_type)v.type, v.ne);
        dst_out[i] = value_append(part, &v, tdm_op_is_view(op) ? NULL : &slot);
        if (dst_out[i] < 0) return false;
        node.dst[i] = dst_out[i];
        if (tdm_op_is_view(op))
            tdm_view_place_step(&node, &part->values[dst_out[i]], &part->values[src[0]],
                                &part->places[src[0]], &part->places[dst_out[i]]);
    }
    part->nodes[g->n_node++] = node;
    return true;
}

static int32_t view_add(meta_part *part, int32_t op, const tdm_op_params *params, int32_t v,
                        const int64_t ne[TDM_MAX_DIMS]) {
    const tdm_value *x = meta_part_value(part, v);
    meta_result dst = {x->type, x->name, {ne[0], ne[1], ne[2], ne[3]}};
    int32_t out = -1;
    return meta_part_add_node(part, op, params, &v, 1, &dst, 1, &out) ? out : -1;
}

int32_t meta_part_reshape(meta_part *part, int32_t v, const int64_t ne[TDM_MAX_DIMS]) {
    if (v < 0) return -1;
    if (memcmp(meta_part_value(part, v)->ne, ne, sizeof(int64_t) * TDM_MAX_DIMS) == 0) return v;
    v = meta_part_contiguous(part, v);
    return v < 0 ? -1 : view_add(part, TDM_OP_RESHAPE, NULL, v, ne);
}

int32_t meta_part_slice(meta_part *part, int32_t v, int32_t axis, int64_t off, int64_t len) {
    if (v < 0) return -1;
    int64_t ne[TDM_MAX_DIMS];
    memcpy(ne, meta_part_value(part, v)->ne, sizeof ne);
    if (off == 0 && len == ne[axis]) return v;
    tdm_op_params params = {{{0}}};
    params.slice.offset[axis] = off;
    ne[axis] = len;
    return view_add(part, TDM_OP_SLICE, &params, v, ne);
}

int32_t meta_part_concat(meta_part *part, int32_t a, int32_t b, int32_t axis) {
    if (a < 0 || b < 0) return -1;
    const tdm_value *x = meta_part_value(part, a), *y = meta_part_value(part, b);
    meta_result dst = meta_result_like(x);
    tdm_op_params params = {{{0}}};
    int32_t src[2] = {a, b}, out = -1;
    dst.ne[axis] += y->ne[axis];
    params.concat.axis = axis;
    return meta_part_add_node(part, TDM_OP_CONCAT, &params, src, 2, &dst, 1, &out) ? out : -1;
}

int32_t meta_part_contiguous(meta_part *part, int32_t v) {
    if (v < 0) return -1;
    const tdm_value *x = meta_part_value(part, v);
    if (tdm_view_is_contiguous(x, &part->places[v])) return v;
    meta_result dst = meta_result_like(x);
    int32_t out = -1;
    return meta_part_add_node(part, TDM_OP_COPY, NULL, &v, 1, &dst, 1, &out) ? out : -1;
}

uint64_t meta_part_span(const meta_part *part, int32_t v) {
    const tdm_value *value = meta_part_value(part, v);
    const tdm_view_place *place = &part->places[v];
    tdm_type_info info = tdm_type_get_info((tdm_type)value->type);
    if (tdm_shape_count(value->ne) == 0) return 0;
    int64_t span = (value->ne[0] / info.block_len - 1) * place->nb[0] + info.block_size;
    for (int32_t i = 1; i < TDM_MAX_DIMS; i++) span += (value->ne[i] - 1) * place->nb[i];
    return (uint64_t)span;
}
