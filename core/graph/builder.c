/* SPDX-License-Identifier: MIT
 *
 * builder.c: the builder's arrays and their growth, the values that no node produces, names,
 * nodes, failure and hand-over. builder_nodes.h has a function for each op.
 */
#include "core/graph/builder.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/view.h"
#include "core/counters.h"
#include "core/graph/graph_arrays.h"
#include "core/graph/op_rules.h"

struct tdm_builder {
    tdm_graph graph;                           /* its arrays have room for cap_* elements */
    tdm_view_place *places;                    /* of every value */
    int32_t step_field[TDM_STEP_FIELD_COUNT_]; /* -1 = not made yet */
    int32_t role; /* source of roles of the next MATMUL, MOE_FFN or MOE_MATMUL; -1 = none */
    int32_t cap_value, cap_node, cap_partition, cap_kv, cap_name, cap_place;
    tdm_error err; /* the first failure */
};

/* True while nothing has failed. */
static bool builder_is_ok(const tdm_builder *b) {
    return b->err.status == TDM_OK;
}

static void builder_reset(tdm_builder *b) {
    int i;
    tdm_graph_clear(&b->graph);
    free(b->places);
    b->places = NULL;
    b->cap_value = b->cap_node = b->cap_partition = b->cap_kv = b->cap_name = b->cap_place = 0;
    for (i = 0; i < TDM_STEP_FIELD_COUNT_; i++) b->step_field[i] = -1;
    b->role = -1;
}

tdm_status tdm_builder_create(tdm_builder **builder_out, tdm_error *err) {
    tdm_builder *b = calloc(1, sizeof *b);
    if (b == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "graph builder: no memory");
    builder_reset(b);
    *builder_out = b;
    return TDM_OK;
}

void tdm_builder_destroy(tdm_builder *b) {
    if (b == NULL) return;
    builder_reset(b);
    free(b);
}

void tdm_build_fail(tdm_builder *b, tdm_status status, const char *format, ...) {
    char text[TDM_ERROR_MESSAGE_SIZE];
    va_list args;
    if (!builder_is_ok(b)) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tdm_fail(&b->err, status != TDM_OK ? status : TDM_INTERNAL, "%s", text);
}

/* Room for `n` elements of `size` bytes in *array, which has room for *cap; new ones are zero. */
static bool array_reserve(tdm_builder *b, const void **array, int32_t *cap, int64_t n,
                          size_t size) {
    int64_t wanted = n > 2 * (int64_t)*cap ? n : 2 * (int64_t)*cap;
    char *grown = NULL;
    if (n <= *cap) return true;
    if (wanted < 32) wanted = 32;
    if (wanted > INT32_MAX) wanted = INT32_MAX;
    if (n <= INT32_MAX) grown = realloc((void *)(uintptr_t)*array, (size_t)wanted * size);
    if (grown == NULL) {
        tdm_build_fail(b, TDM_RESOURCE_EXHAUSTED, "graph builder: no memory for %lld entries",
                       (long long)n);
        return false;
    }
    memset(grown + (size_t)*cap * size, 0, (size_t)(wanted - *cap) * size);
    *array = grown;
    *cap = (int32_t)wanted;
    return true;
}

/* Appends a name, control characters replaced (messages are one line); its offset, or -1. */
static int32_t name_add(tdm_builder *b, const char *name, int layer) {
    char prefix[32] = "";
    size_t prefix_size, size;
    int32_t off = b->graph.names_size > 0 ? b->graph.names_size : 1; /* offset 0 is "" */
    const void *names = b->graph.names;
    char *at;
    if (layer >= 0) snprintf(prefix, sizeof prefix, "blk.%d.", layer);
    prefix_size = strlen(prefix);
    size = strlen(name);
    if (size > 4096) size = 4096; /* a name, not a document */
    if (!array_reserve(b, &names, &b->cap_name, off + (int64_t)(prefix_size + size) + 1, 1))
        return -1;
    b->graph.names = names;
    at = (char *)(uintptr_t)b->graph.names + off;
    memcpy(at, prefix, prefix_size);
    memcpy(at + prefix_size, name, size);
    at[prefix_size + size] = '\0';
    for (; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
    b->graph.names_size = off + (int32_t)(prefix_size + size) + 1;
    return off;
}

/* Adds a value of `kind`, checked, and returns its index; -1 on failure. `slot` of a view is -1,
 * otherwise the next free one. `name` NULL: "WORD.INDEX". */
static int32_t value_add(tdm_builder *b, tdm_value_kind kind, int32_t type,
                         const int64_t ne[TDM_MAX_DIMS], const char *name, const char *word,
                         bool is_view) {
    tdm_graph *g = &b->graph;
    const void *values = g->values, *places = b->places;
    tdm_value v = {0};
    char automatic[48];
    if (!builder_is_ok(b)) return -1;
    if (name == NULL) {
        snprintf(automatic, sizeof automatic, "%s.%d", word, (int)g->n_value);
        name = automatic;
    }
    v.kind = kind;
    v.type = type;
    memcpy(v.ne, ne, sizeof v.ne);
    v.slot = is_view ? -1 : g->n_slot;
    v.name = name_add(b, name, -1);
    if (v.name < 0) return -1;
    if (!array_reserve(b, &places, &b->cap_place, (int64_t)g->n_value + 1, sizeof *b->places))
        return -1;
    b->places = (tdm_view_place *)(uintptr_t)places;
    if (!array_reserve(b, &values, &b->cap_value, (int64_t)g->n_value + 1, sizeof v)) return -1;
    g->values = values;
    *tdm_graph_own_value(g, g->n_value) = v;
    if (tdm_value_check(g, g->n_value, &b->err) != TDM_OK) return -1;
    tdm_view_place_base(&v, g->n_value, &b->places[g->n_value]);
    if (!is_view) g->n_slot++;
    return g->n_value++;
}

/* The next node's storage, zeroed, sources and destinations -1; tdm_build_node counts it. NULL on
 * failure. */
static tdm_node *node_next(tdm_builder *b) {
    const void *nodes = b->graph.nodes;
    tdm_node *node;
    int i;
    if (!builder_is_ok(b)) return NULL;
    if (!array_reserve(b, &nodes, &b->cap_node, (int64_t)b->graph.n_node + 1, sizeof *node))
        return NULL;
    b->graph.nodes = nodes;
    node = tdm_graph_own_node(&b->graph, b->graph.n_node);
    memset(node, 0, sizeof *node);
    for (i = 0; i < TDM_MAX_SRC; i++) node->src[i] = -1;
    for (i = 0; i < TDM_MAX_DST; i++) node->dst[i] = -1;
    return node;
}

int32_t tdm_build_weight(tdm_builder *b, const char *name, tdm_type type,
                         const int64_t ne[TDM_MAX_DIMS], uint32_t usage) {
    int32_t i = value_add(b, TDM_VALUE_WEIGHT, (int32_t)type, ne, name, "weight", false);
    if (i < 0) return -1;
    tdm_graph_own_value(&b->graph, i)->usage = usage;
    return tdm_value_check(&b->graph, i, &b->err) == TDM_OK ? i : -1;
}

int32_t tdm_build_input(tdm_builder *b, const char *name, tdm_type type,
                        const int64_t ne[TDM_MAX_DIMS]) {
    return value_add(b, TDM_VALUE_INPUT, (int32_t)type, ne, name, "input", false);
}

int32_t tdm_build_bytes(tdm_builder *b, const char *name, uint64_t size) {
    const int64_t ne[TDM_MAX_DIMS] = {size < (uint64_t)TDM_MAX_ELEMENTS ? (int64_t)size : -1, 1, 1,
                                      1};
    return value_add(b, TDM_VALUE_STATE, TDM_TYPE_I8, ne, name, "bytes", false);
}

int32_t tdm_build_state(tdm_builder *b, const char *name, const tdm_kv_desc *desc,
                        uint64_t page_size, int64_t n_page, int32_t *kv_out) {
    tdm_kv_desc own = {0};
    const void *kv = b->graph.kv;
    int64_t ne[TDM_MAX_DIMS] = {0, n_page, 1, 1};
    int32_t i;
    if (!builder_is_ok(b)) return -1;
    own = *desc;
    own.struct_size = sizeof own;
    if (tdm_kv_desc_check(&own, b->graph.n_kv, &b->err) != TDM_OK) return -1;
    if (page_size >= (uint64_t)TDM_MAX_ELEMENTS) {
        tdm_build_fail(b, TDM_OUT_OF_RANGE, "cache '%.64s': a page of %llu bytes",
                       name != NULL ? name : "", (unsigned long long)page_size);
        return -1;
    }
    ne[0] = (int64_t)page_size;
    i = value_add(b, TDM_VALUE_STATE, TDM_TYPE_I8, ne, name, "state", false);
    if (i < 0) return -1;
    if (!array_reserve(b, &kv, &b->cap_kv, (int64_t)b->graph.n_kv + 1, sizeof own)) return -1;
    b->graph.kv = kv;
    ((tdm_kv_desc *)(uintptr_t)b->graph.kv)[b->graph.n_kv] = own;
    *kv_out = b->graph.n_kv++;
    return i;
}

int32_t tdm_build_step(tdm_builder *b, const tdm_step_caps *caps) {
    tdm_step_header header;
    int64_t ne[TDM_MAX_DIMS] = {0, 1, 1, 1};
    int32_t i;
    if (!builder_is_ok(b)) return -1;
    if (b->graph.step >= 0) {
        tdm_build_fail(b, TDM_INVALID_ARGUMENT, "graph builder: a second step block");
        return -1;
    }
    if (tdm_step_layout(caps, &header, &b->err) != TDM_OK) return -1;
    ne[0] = header.size;
    i = value_add(b, TDM_VALUE_INPUT, TDM_TYPE_I32, ne, "step", "step", false);
    if (i < 0) return -1;
    b->graph.step = i;
    b->graph.step_caps = *caps;
    return i;
}

int32_t tdm_build_step_field(tdm_builder *b, tdm_step_field field) {
    static const char *const names[] = {"step.token", "step.pos", "step.out_row", "step.role",
                                        "step.out_role"};
    tdm_step_header header = {0};
    int64_t offset[TDM_MAX_DIMS] = {0}, ne[TDM_MAX_DIMS] = {0, 1, 1, 1};
    int32_t i;
    if (!builder_is_ok(b)) return -1;
    if (b->graph.step < 0 || (unsigned)field >= TDM_STEP_FIELD_COUNT_) {
        tdm_build_fail(b, TDM_INVALID_ARGUMENT, "graph builder: field %d of the step block, %s",
                       (int)field,
                       b->graph.step < 0 ? "which the graph does not have" : "which has none such");
        return -1;
    }
    if (b->step_field[field] >= 0) return b->step_field[field];
    tdm_step_layout(&b->graph.step_caps, &header, NULL); /* succeeded in tdm_build_step */
    const int32_t offs[] = {header.token_off, header.pos_off, header.out_row_off, header.role_off,
                            header.out_role_off};
    const bool is_out = field == TDM_STEP_OUT_ROW || field == TDM_STEP_OUT_ROLE;
    ne[0] = is_out ? b->graph.step_caps.n_out : b->graph.step_caps.n_tok;
    offset[0] = offs[field];
    i = tdm_build_slice(b, b->graph.step, offset, ne);
    if (i < 0) return -1;
    tdm_build_name(b, i, names[field], -1);
    b->step_field[field] = i;
    return i;
}

void tdm_build_set_role(tdm_builder *b, int32_t role) {
    b->role = role;
}

int32_t tdm_build_role(const tdm_builder *b) {
    return b->role;
}

int32_t tdm_build_partition(tdm_builder *b, const tdm_partition *partition) {
    tdm_graph *g = &b->graph;
    const void *parts = g->partitions;
    int32_t i;
    if (!builder_is_ok(b)) return -1;
    for (i = 1; i < g->n_partition; i++) {
        const tdm_partition *p = tdm_graph_partition(g, i);
        if (p->id != partition->id) continue;
        if (memcmp(p, partition, sizeof *p) == 0) return i;
        if (p->n_unit != partition->n_unit || p->layer != partition->layer ||
            p->n_sub != partition->n_sub) {
            tdm_build_fail(b, TDM_INVALID_ARGUMENT,
                           "partition id %d: %d units of layer %d, n_sub %d, and elsewhere %d of "
                           "layer %d, n_sub %d",
                           (int)p->id, (int)p->n_unit, (int)p->layer, (int)p->n_sub,
                           (int)partition->n_unit, (int)partition->layer, (int)partition->n_sub);
            return -1;
        }
    }
    /* number 0 is "none" */
    if (!array_reserve(b, &parts, &b->cap_partition, (int64_t)g->n_partition + 2,
                       sizeof *partition))
        return -1;
    g->partitions = parts;
    i = g->n_partition > 0 ? g->n_partition : 1;
    if (tdm_partition_check(partition, i, &b->err) != TDM_OK) return -1;
    ((tdm_partition *)(uintptr_t)g->partitions)[i] = *partition;
    g->n_partition = i + 1;
    return i;
}

/* A value, to be changed. For an index without a value it returns NULL and records a failure, in
 * which `what` says what was requested. */
static tdm_value *value_get(tdm_builder *b, int32_t value, const char *what) {
    if (!builder_is_ok(b)) return NULL;
    if (value >= 0 && value < b->graph.n_value) return tdm_graph_own_value(&b->graph, value);
    tdm_build_fail(b, TDM_INVALID_ARGUMENT, "graph builder: %s of value %d of %d", what, (int)value,
                   (int)b->graph.n_value);
    return NULL;
}

void tdm_build_set_partition(tdm_builder *b, int32_t value, int32_t partition, int32_t axis) {
    tdm_value *v = value_get(b, value, "partition");
    if (v == NULL) return;
    v->partition = partition;
    v->axis = axis;
}

const tdm_graph *tdm_build_graph(const tdm_builder *b) {
    return builder_is_ok(b) ? &b->graph : NULL;
}

void tdm_build_output(tdm_builder *b, int32_t value, const char *name) {
    tdm_value *v = value_get(b, value, "output");
    char text[TDM_VALUE_TEXT_SIZE];
    if (v == NULL) return;
    if (v->kind != TDM_VALUE_TEMP || v->slot < 0) {
        tdm_build_fail(b, TDM_INVALID_ARGUMENT, "output '%.64s': %s %s", name,
                       tdm_value_text(&b->graph, value, text),
                       v->kind == TDM_VALUE_TEMP ? "is a view: copy it first"
                                                 : "is not a temporary");
        return;
    }
    v->kind = TDM_VALUE_OUTPUT;
    tdm_build_name(b, value, name, -1);
}

void tdm_build_name(tdm_builder *b, int32_t value, const char *name, int layer) {
    tdm_value *v = value_get(b, value, "name");
    int32_t off;
    if (v == NULL) return;
    /* A name given right after the value was made replaces the automatic one in place. */
    if (value == b->graph.n_value - 1 && v->name > 0 &&
        v->name + (int64_t)strlen(b->graph.names + v->name) + 1 == b->graph.names_size)
        b->graph.names_size = v->name;
    off = name_add(b, name, layer);
    if (off >= 0) v->name = off;
}

const int64_t *tdm_build_shape(const tdm_builder *b, int32_t value) {
    if (!builder_is_ok(b) || value < 0 || value >= b->graph.n_value) return NULL;
    return tdm_graph_value(&b->graph, value)->ne;
}

tdm_status tdm_builder_finish(tdm_builder *b, tdm_graph **graph_out, tdm_error *err) {
    tdm_graph *graph;
    tdm_status status;
    if (builder_is_ok(b) && b->graph.names_size == 0) {
        /* No value, so no name: the empty string alone. */
        const void *names = b->graph.names;
        if (array_reserve(b, &names, &b->cap_name, 1, 1)) b->graph.names_size = 1;
        b->graph.names = names;
    }
    if (!builder_is_ok(b)) {
        status = tdm_fail(err, b->err.status, "%s", b->err.message);
        builder_reset(b);
        b->err = (tdm_error){0};
        return status;
    }
    status = tdm_graph_verify(&b->graph, err);
    graph = status == TDM_OK ? malloc(sizeof *graph) : NULL;
    if (status == TDM_OK && graph == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "graph builder: no memory");
    if (status == TDM_OK) {
        *graph = b->graph;
        graph->hash = tdm_graph_hash(graph);
        tdm_graph_init(&b->graph); /* the arrays are the graph's now */
        tdm_counter_add(TDM_COUNTER_GRAPHS_BUILT, 1);
        *graph_out = graph;
    }
    builder_reset(b);
    return status;
}

const tdm_kv_desc *tdm_build_kv_desc(const tdm_builder *b, int32_t kv) {
    return kv >= 0 && kv < b->graph.n_kv ? tdm_graph_kv(&b->graph, kv) : NULL;
}

int32_t tdm_build_node(tdm_builder *b, const tdm_node_spec *spec, int32_t *second_out) {
    tdm_graph *g = &b->graph;
    const tdm_op_rule *rule = tdm_op_rule_get(spec->op);
    bool is_view = tdm_op_is_view(spec->op);
    const tdm_view_place *place = NULL;
    tdm_node *node = rule != NULL ? node_next(b) : NULL;
    tdm_op_result dst[TDM_MAX_DST];
    int i;
    if (second_out != NULL) *second_out = -1;
    if (rule == NULL)
        tdm_build_fail(b, TDM_INVALID_ARGUMENT, "op number %d is not an op", spec->op);
    if (node == NULL) return -1;
    memcpy(dst, spec->dst, sizeof dst);
    node->op = spec->op;
    node->n_src = rule->n_src;
    node->n_dst = rule->n_dst;
    memcpy(node->src, spec->src, sizeof node->src);
    node->params = spec->params;
    if (spec->src[0] >= 0 && spec->src[0] < g->n_value) place = &b->places[spec->src[0]];
    if (tdm_op_infer(g, node, g->n_node, place, dst, &b->err) != TDM_OK) return -1;
    for (i = 0; i < rule->n_dst; i++) {
        if (!dst[i].is_present) continue;
        node->dst[i] =
            value_add(b, TDM_VALUE_TEMP, dst[i].type, dst[i].ne, NULL, rule->name, is_view);
        if (node->dst[i] < 0) return -1;
    }
    if (is_view)
        tdm_view_place_step(node, tdm_graph_value(g, node->dst[0]),
                            tdm_graph_value(g, spec->src[0]), &b->places[spec->src[0]],
                            &b->places[node->dst[0]]);
    g->n_node++;
    if (second_out != NULL) *second_out = node->dst[1];
    return node->dst[0];
}
