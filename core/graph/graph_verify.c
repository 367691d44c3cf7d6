/* SPDX-License-Identifier: MIT
 *
 * graph_verify.c: checks that a graph is valid: everything that a device may rely on. This file
 * checks the graph as a whole: arrays, order of nodes, slots, and which node writes which value.
 * value_check.c checks single values, op_rules.c single nodes.
 *
 * Every number of the graph may be garbage. The pointers must be valid: arrays of at least the
 * stated counts and strides. The receiver of a graph must ensure that.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/op_state.h"
#include "core/graph/builder.h"
#include "core/graph/op_rules.h"

/* State of each value while the nodes are checked in order. */
typedef struct verify_value {
    tdm_view_place place;
    int32_t kv;       /* of a STATE: the description it is used with; -1 = not used yet */
    bool is_produced; /* or is of a kind that no node produces */
    bool is_view;
} verify_value;

/* An array of `n` elements with stride `size`, of a struct of `least` bytes and alignment
 * `align`. */
static tdm_status array_check(const char *what, const void *array, int32_t n, size_t size,
                              size_t least, size_t align, tdm_error *err) {
    if (n < 0) return tdm_fail(err, TDM_INVALID_ARGUMENT, "graph: %d %s", (int)n, what);
    if (size < least || size % align != 0 || size > 4096)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "graph: %s have a stride of %zu bytes, this version's are %zu", what, size,
                        least);
    if (n > 0 && (array == NULL || (uintptr_t)array % align != 0))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "graph: the array of %s is %s", what,
                        array == NULL ? "absent" : "not aligned");
    return TDM_OK;
}

/* Names end inside their array and have no control characters, since messages are one line. */
static tdm_status names_check(const tdm_graph *graph, tdm_error *err) {
    int32_t i;
    if (graph->names == NULL || graph->names_size < 1 || graph->names[0] != '\0' ||
        graph->names[graph->names_size - 1] != '\0')
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "graph: names (%d bytes) must begin with \"\" and end in NUL",
                        (int)graph->names_size);
    for (i = 0; i < graph->names_size; i++) {
        unsigned char c = (unsigned char)graph->names[i];
        if ((c > 0 && c < 0x20) || c == 0x7f)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "graph: byte %d of the names is control character 0x%x", (int)i, c);
    }
    for (i = 0; i < graph->n_value; i++) {
        int32_t name = tdm_graph_value(graph, i)->name;
        if (name < 0 || name >= graph->names_size)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "value %d: its name is at %d of %d bytes of names", (int)i, (int)name,
                            (int)graph->names_size);
    }
    return TDM_OK;
}

static tdm_status header_check(const tdm_graph *graph, tdm_error *err) {
    tdm_status status;
    if (graph == NULL || graph->struct_size < sizeof *graph)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "graph: absent or shorter than %zu bytes",
                        sizeof *graph);
    status = array_check("values", graph->values, graph->n_value, graph->value_size,
                         sizeof(tdm_value), _Alignof(tdm_value), err);
    if (status == TDM_OK)
        status = array_check("nodes", graph->nodes, graph->n_node, graph->node_size,
                             sizeof(tdm_node), _Alignof(tdm_node), err);
    if (status == TDM_OK)
        status =
            array_check("partitions", graph->partitions, graph->n_partition, graph->partition_size,
                        sizeof(tdm_partition), _Alignof(tdm_partition), err);
    if (status == TDM_OK)
        status = array_check("cache descriptions", graph->kv, graph->n_kv, graph->kv_size,
                             sizeof(tdm_kv_desc), _Alignof(tdm_kv_desc), err);
    if (status == TDM_OK && graph->reserved != 0)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "graph: the reserved field is %d, not 0",
                          (int)graph->reserved);
    if (status == TDM_OK) status = names_check(graph, err);
    return status;
}

/* The step block: an INPUT of i32 of the length that its capacities give. */
static tdm_status step_check(const tdm_graph *graph, tdm_error *err) {
    static const tdm_step_caps none;
    tdm_step_header header;
    const tdm_value *v;
    char text[TDM_VALUE_TEXT_SIZE];
    tdm_status status;
    if (graph->step == -1) {
        if (memcmp(&graph->step_caps, &none, sizeof none) != 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "graph: has capacities of a step block but no step block");
        return TDM_OK;
    }
    if (graph->step < 0 || graph->step >= graph->n_value)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "graph: the step block is value %d of %d",
                        (int)graph->step, (int)graph->n_value);
    status = tdm_step_layout(&graph->step_caps, &header, err);
    if (status != TDM_OK) return status;
    v = tdm_graph_value(graph, graph->step);
    if (v->kind != TDM_VALUE_INPUT || v->type != TDM_TYPE_I32 || v->ne[0] != header.size ||
        tdm_shape_rows(v->ne) != 1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "the step block must be an INPUT of type i32 and shape [%d], not %s",
                        (int)header.size, tdm_value_text(graph, graph->step, text));
    return TDM_OK;
}

/* The cut of a value: the partition's units cover its axis. A cache is cut by heads, and heads are
 * not an axis of the STATE. */
static tdm_status cut_check(const tdm_graph *graph, int32_t index, tdm_error *err) {
    const tdm_value *v = tdm_graph_value(graph, index);
    const tdm_partition *p;
    char text[TDM_VALUE_TEXT_SIZE];
    int64_t len = 0, covered;
    int i;
    if (v->axis < 0 || v->axis >= TDM_MAX_DIMS || (v->partition == 0 && v->axis != 0))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: cut along axis %d by partition %d",
                        tdm_value_text(graph, index, text), (int)v->axis, (int)v->partition);
    if (v->partition == 0) return TDM_OK;
    if (v->partition < 0 || v->partition >= graph->n_partition)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: partition %d of %d",
                        tdm_value_text(graph, index, text), (int)v->partition,
                        (int)graph->n_partition);
    if (v->kind == TDM_VALUE_STATE) return TDM_OK;
    p = tdm_graph_partition(graph, v->partition);
    for (i = 0; i < p->n_segment; i++) len += p->unit_len[i];
    if (__builtin_mul_overflow(len, p->n_unit, &covered) || covered != v->ne[v->axis])
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s: partition %d has %d units of %lld elements, axis %d has %lld",
                        tdm_value_text(graph, index, text), (int)v->partition, (int)p->n_unit,
                        (long long)len, (int)v->axis, (long long)v->ne[v->axis]);
    return TDM_OK;
}

/* Compares destination i of a node with the type and shape that its op gives. */
static tdm_status result_check(const tdm_graph *graph, int32_t index, int i,
                               const tdm_op_result *want, tdm_error *err) {
    const tdm_node *node = tdm_graph_node(graph, index);
    const tdm_value *v = tdm_graph_value(graph, node->dst[i]);
    char text[TDM_VALUE_TEXT_SIZE], shape[TDM_SHAPE_TEXT_SIZE];
    if (v->type == want->type && memcmp(v->ne, want->ne, sizeof v->ne) == 0) return TDM_OK;
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "node %d (%s): destination %d must be %s %s, not %s",
                    (int)index, tdm_op_name(node->op), i, tdm_type_name((tdm_type)want->type),
                    tdm_shape_text(want->ne, shape), tdm_value_text(graph, node->dst[i], text));
}

/* Destinations are in range, of a kind that a node may produce, and produced once. */
static tdm_status produce(const tdm_graph *graph, int32_t index, verify_value *known,
                          tdm_error *err) {
    const tdm_node *node = tdm_graph_node(graph, index);
    char text[TDM_VALUE_TEXT_SIZE];
    int i;
    for (i = 0; i < TDM_MAX_DST; i++) {
        int32_t dst = node->dst[i];
        if (dst == -1) continue;
        if (dst < 0 || dst >= graph->n_value || i >= node->n_dst)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "node %d (%s): destination %d of %d is value %d of %d", (int)index,
                            tdm_op_name(node->op), i, (int)node->n_dst, (int)dst,
                            (int)graph->n_value);
        if (known[dst].is_produced)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "node %d (%s): destination %d, %s, %s",
                            (int)index, tdm_op_name(node->op), i, tdm_value_text(graph, dst, text),
                            tdm_graph_value(graph, dst)->kind == TDM_VALUE_TEMP ||
                                    tdm_graph_value(graph, dst)->kind == TDM_VALUE_OUTPUT
                                ? "was written before"
                                : "is of a kind that no node writes");
        known[dst].is_produced = true;
    }
    return TDM_OK;
}

/* A STATE is used with one description only: its pages have one size. */
static tdm_status state_check(const tdm_graph *graph, int32_t index, verify_value *known,
                              tdm_error *err) {
    const tdm_node *node = tdm_graph_node(graph, index);
    int32_t state = tdm_op_state(node), kv = node->params.kv.kv;
    char text[TDM_VALUE_TEXT_SIZE];
    if (!tdm_op_uses_kv(node->op)) return TDM_OK;
    if (known[state].kv != -1 && known[state].kv != kv)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "node %d (%s): uses %s with cache description %d, an earlier node with %d",
                        (int)index, tdm_op_name(node->op), tdm_value_text(graph, state, text),
                        (int)kv, (int)known[state].kv);
    known[state].kv = kv;
    return TDM_OK;
}

static tdm_status node_check(const tdm_graph *graph, int32_t index, verify_value *known,
                             tdm_error *err) {
    const tdm_node *node = tdm_graph_node(graph, index);
    tdm_op_result want[TDM_MAX_DST] = {{0}};
    const tdm_view_place *place = NULL;
    char text[TDM_VALUE_TEXT_SIZE];
    tdm_status status;
    int i;
    for (i = 0; i < TDM_MAX_SRC; i++)
        if (node->src[i] >= 0 && node->src[i] < graph->n_value && !known[node->src[i]].is_produced)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "node %d (%s): source %d, %s, is not produced by an earlier node",
                            (int)index, tdm_op_name(node->op), i,
                            tdm_value_text(graph, node->src[i], text));
    for (i = 0; i < TDM_MAX_DST; i++) {
        const tdm_value *v;
        if (node->dst[i] < 0 || node->dst[i] >= graph->n_value) continue;
        v = tdm_graph_value(graph, node->dst[i]);
        want[i].is_present = true;
        want[i].type = v->type;
        memcpy(want[i].ne, v->ne, sizeof v->ne);
    }
    if (node->src[0] >= 0 && node->src[0] < graph->n_value) place = &known[node->src[0]].place;
    status = produce(graph, index, known, err);
    if (status == TDM_OK) status = tdm_op_infer(graph, node, index, place, want, err);
    for (i = 0; i < node->n_dst && i < TDM_MAX_DST && status == TDM_OK; i++)
        if (node->dst[i] != -1) status = result_check(graph, index, i, &want[i], err);
    if (status == TDM_OK) status = state_check(graph, index, known, err);
    if (status == TDM_OK && tdm_op_is_view(node->op)) {
        known[node->dst[0]].is_view = true;
        tdm_view_place_step(node, tdm_graph_value(graph, node->dst[0]),
                            tdm_graph_value(graph, node->src[0]), place,
                            &known[node->dst[0]].place);
    }
    return status;
}

/* Every temporary and output is produced. Each slot belongs to one value; views have no slot. */
static tdm_status slots_check(const tdm_graph *graph, const verify_value *known, tdm_error *err) {
    char text[TDM_VALUE_TEXT_SIZE];
    int32_t i, n_used = 0;
    uint8_t *used;
    tdm_status status = TDM_OK;
    if (graph->n_slot < 0 || graph->n_slot > graph->n_value)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "graph: %d slots for %d values",
                        (int)graph->n_slot, (int)graph->n_value);
    used = calloc((size_t)graph->n_slot + 1, 1);
    if (used == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "graph: no memory to verify it");
    for (i = 0; i < graph->n_value && status == TDM_OK; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (!known[i].is_produced)
            status = tdm_fail(err, TDM_INVALID_ARGUMENT, "%s is produced by no node",
                              tdm_value_text(graph, i, text));
        else if (known[i].is_view && (v->slot != -1 || v->kind != TDM_VALUE_TEMP))
            status =
                tdm_fail(err, TDM_INVALID_ARGUMENT,
                         "%s is a view, so it is a TEMP with slot -1, not of kind %d with slot "
                         "%d: copy it to make it an output",
                         tdm_value_text(graph, i, text), (int)v->kind, (int)v->slot);
        else if (!known[i].is_view && (v->slot < 0 || v->slot >= graph->n_slot))
            status = tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: slot %d of %d",
                              tdm_value_text(graph, i, text), (int)v->slot, (int)graph->n_slot);
        else if (!known[i].is_view && used[v->slot]++ != 0)
            status = tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: slot %d is another value's",
                              tdm_value_text(graph, i, text), (int)v->slot);
        else if (!known[i].is_view)
            n_used++;
    }
    if (status == TDM_OK && n_used != graph->n_slot)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "graph: %d slots, of which values use %d",
                          (int)graph->n_slot, (int)n_used);
    free(used);
    return status;
}

static tdm_status body_check(const tdm_graph *graph, verify_value *known, tdm_error *err) {
    tdm_status status = TDM_OK;
    int32_t i;
    for (i = 1; i < graph->n_partition && status == TDM_OK; i++)
        status = tdm_partition_check(tdm_graph_partition(graph, i), i, err);
    for (i = 0; i < graph->n_kv && status == TDM_OK; i++)
        status = tdm_kv_desc_check(tdm_graph_kv(graph, i), i, err);
    for (i = 0; i < graph->n_value && status == TDM_OK; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        status = tdm_value_check(graph, i, err);
        if (status == TDM_OK) status = cut_check(graph, i, err);
        if (status != TDM_OK) break;
        tdm_view_place_base(v, i, &known[i].place);
        known[i].kv = -1;
        known[i].is_produced = v->kind != TDM_VALUE_TEMP && v->kind != TDM_VALUE_OUTPUT;
    }
    if (status == TDM_OK) status = step_check(graph, err);
    for (i = 0; i < graph->n_node && status == TDM_OK; i++)
        status = node_check(graph, i, known, err);
    if (status == TDM_OK) status = slots_check(graph, known, err);
    if (status == TDM_OK && graph->hash != 0 && graph->hash != tdm_graph_hash(graph))
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "graph: its hash is not that of its contents: compute it anew, or set 0");
    return status;
}

tdm_status tdm_graph_verify(const tdm_graph *graph, tdm_error *err) {
    verify_value *known;
    tdm_status status = header_check(graph, err);
    if (status != TDM_OK) return status;
    known = calloc((size_t)graph->n_value + 1, sizeof *known);
    if (known == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "graph: no memory to verify %d values",
                        (int)graph->n_value);
    status = body_check(graph, known, err);
    free(known);
    return status;
}
