/* SPDX-License-Identifier: MIT
 *
 * excerpt.c: see excerpt.h.
 */
#include "plugins/gpu/plan/excerpt.h"

#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "tandem/step.h"

enum {
    SMALL = 256,       /* a multiple of every type's block length */
    MAX_MEMBER = 128,  /* nodes of an excerpt: those of a fusion and the views that they read */
    PRODUCT_VALUE = 5, /* values that gpu_excerpt_multiply adds */
    PRODUCT_NODE = 3,  /* nodes that it adds */
    PRODUCT_ROWS = 16, /* rows of its weight */
    /* Rows of a quantised value that are random; further rows repeat them. A prime, so that rows at
     * the distance of a power of two differ */
    N_ROW_MADE = 13
};

/* ---- Choosing nodes -------------------------------------------------------------------------- */

/* Nodes of the excerpt, in the order of the graph. */
typedef struct member_list {
    int32_t node[MAX_MEMBER];
    int32_t n;
} member_list;

static int32_t writer_of(const tdm_graph *graph, int32_t value, int32_t before) {
    for (int32_t i = before - 1; i >= 0; i--) {
        const tdm_node *node = tdm_graph_node(graph, i);
        for (int k = 0; k < node->n_dst; k++)
            if (node->dst[k] == value) return i;
    }
    return -1;
}

static bool reads(const tdm_node *node, int32_t value) {
    for (int k = 0; k < node->n_src; k++)
        if (node->src[k] == value) return true;
    return false;
}

/* True where the result of `node`, which has no step of its own, is there before `last` runs: an
 * earlier step than that of `last`, into which the node was fused, stores it for others. */
static bool is_computed_before(const tdm_graph *graph, const uint8_t *has_step, int32_t node,
                               int32_t last) {
    const int32_t value = tdm_graph_node(graph, node)->dst[0];
    for (int32_t i = node + 1; i < last; i++)
        if (reads(tdm_graph_node(graph, i), value) &&
            (has_step[i] || is_computed_before(graph, has_step, i, last)))
            return true;
    return false;
}

/* Adds a node and, before it, the nodes whose results only its kernel computes. False where there
 * are too many, or where one works on a STATE or the step block. */
static bool member_add(const tdm_graph *graph, const uint8_t *has_step, int32_t index, int32_t last,
                       member_list *list) {
    const tdm_node *node = tdm_graph_node(graph, index);
    for (int32_t i = 0; i < list->n; i++)
        if (list->node[i] == index) return true;
    if (list->n == MAX_MEMBER) return false;
    int32_t at = list->n++;
    for (; at > 0 && list->node[at - 1] > index; at--) list->node[at] = list->node[at - 1];
    list->node[at] = index;
    for (int k = 0; k < node->n_src; k++) {
        int32_t value = node->src[k];
        if (value < 0) continue;
        const tdm_value *v = tdm_graph_value(graph, value);
        if (v->kind == TDM_VALUE_STATE || value == graph->step) return false;
        if (v->type == TDM_TYPE_I32) continue; /* views of the step block: inputs by themselves */
        int32_t writer = writer_of(graph, value, index);
        if (writer < 0) continue;
        bool is_inner = tdm_op_is_view(tdm_graph_node(graph, writer)->op) ||
                        (!has_step[writer] && !is_computed_before(graph, has_step, writer, last));
        if (is_inner && !member_add(graph, has_step, writer, last, list)) return false;
    }
    return true;
}

static bool is_member(const member_list *list, int32_t node) {
    for (int32_t i = 0; i < list->n; i++)
        if (list->node[i] == node) return true;
    return false;
}

/* Whether a node outside of the excerpt, or the caller of the graph, reads the value. */
static bool is_read_outside(const tdm_graph *graph, const member_list *list, int32_t value) {
    if (tdm_graph_value(graph, value)->kind == TDM_VALUE_OUTPUT) return true;
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        if (is_member(list, i)) continue;
        if (reads(node, value)) return true;
    }
    return false;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static int64_t smaller(int64_t n) {
    return n > SMALL ? SMALL + n % SMALL : n;
}

/* False where shapes follow from each other by more than equality, so that `smaller` breaks
 * them. */
static bool may_shrink(const tdm_graph *graph, const member_list *list) {
    for (int32_t i = 0; i < list->n; i++) switch (tdm_graph_node(graph, list->node[i])->op) {
        case TDM_OP_RESHAPE:
        case TDM_OP_SLICE:
        case TDM_OP_CONCAT:
        case TDM_OP_REPEAT: return false;
        default: break;
        }
    return true;
}

/* The excerpt's number of a value; the first use makes it. */
static int32_t value_map(gpu_excerpt *x, const tdm_graph *graph, int32_t *map, int32_t value,
                         int32_t kind, bool is_view, bool is_small) {
    if (value < 0 || map[value] >= 0) return value < 0 ? -1 : map[value];
    const tdm_value *theirs = tdm_graph_value(graph, value);
    tdm_value *v = &x->values[x->graph.n_value];
    *v = (tdm_value){.kind = kind,
                     .type = theirs->type,
                     .slot = is_view ? -1 : x->graph.n_slot,
                     .usage = kind == TDM_VALUE_WEIGHT ? theirs->usage : 0};
    for (int i = 0; i < TDM_MAX_DIMS; i++)
        v->ne[i] = is_small ? smaller(theirs->ne[i]) : theirs->ne[i];
    if (!is_view) x->graph.n_slot++;
    return map[value] = x->graph.n_value++;
}

static void nodes_copy(gpu_excerpt *x, const tdm_graph *graph, const member_list *list,
                       int32_t *map, bool is_small) {
    for (int32_t i = 0; i < list->n; i++) {
        const tdm_node *theirs = tdm_graph_node(graph, list->node[i]);
        bool is_view = tdm_op_is_view(theirs->op);
        tdm_node *node = &x->nodes[x->graph.n_node++];
        *node = *theirs;
        for (int k = 0; k < theirs->n_src; k++) {
            int32_t value = theirs->src[k];
            bool is_weight = value >= 0 && tdm_graph_value(graph, value)->kind == TDM_VALUE_WEIGHT;
            node->src[k] =
                value_map(x, graph, map, value, is_weight ? TDM_VALUE_WEIGHT : TDM_VALUE_INPUT,
                          false, is_small);
        }
        for (int k = 0; k < theirs->n_dst; k++) {
            bool is_out = !is_view && theirs->dst[k] >= 0 &&
                          (i == list->n - 1 || is_read_outside(graph, list, theirs->dst[k]));
            node->dst[k] = value_map(x, graph, map, theirs->dst[k],
                                     is_out ? TDM_VALUE_OUTPUT : TDM_VALUE_TEMP, is_view, is_small);
        }
    }
}

gpu_excerpt *gpu_excerpt_alloc(size_t n_value, size_t n_node) {
    static const tdm_partition none;
    gpu_excerpt *x = calloc(1, sizeof *x);
    if (x == NULL) return NULL;
    x->values = calloc(n_value + PRODUCT_VALUE, sizeof *x->values);
    x->nodes = calloc(n_node + PRODUCT_NODE, sizeof *x->nodes);
    if (x->values == NULL || x->nodes == NULL) {
        gpu_excerpt_free(x);
        return NULL;
    }
    x->graph = (tdm_graph){.struct_size = sizeof(tdm_graph),
                           .value_size = sizeof(tdm_value),
                           .node_size = sizeof(tdm_node),
                           .partition_size = sizeof(tdm_partition),
                           .kv_size = sizeof(tdm_kv_desc),
                           .values = x->values,
                           .nodes = x->nodes,
                           .partitions = &none,
                           .names = "",
                           .n_partition = 1,
                           .names_size = 1,
                           .step = -1};
    return x;
}

gpu_excerpt *gpu_excerpt_make(const tdm_graph *graph, const uint8_t *has_step, int32_t last,
                              bool is_small, bool *lacks_memory) {
    member_list list = {.n = 0};
    if (!member_add(graph, has_step, last, last, &list) || (is_small && !may_shrink(graph, &list)))
        return NULL;
    int32_t *map = malloc(((size_t)graph->n_value + 1) * sizeof *map);
    gpu_excerpt *x =
        gpu_excerpt_alloc((size_t)list.n * (TDM_MAX_SRC + TDM_MAX_DST), (size_t)list.n);
    if (map == NULL || x == NULL) {
        *lacks_memory = true;
        free(map);
        gpu_excerpt_free(x);
        return NULL;
    }
    for (int32_t i = 0; i < graph->n_value; i++) map[i] = -1;
    nodes_copy(x, graph, &list, map, is_small);
    free(map);
    return x;
}

static int32_t value_add(gpu_excerpt *x, int32_t kind, int32_t type, int64_t n0, int64_t n1) {
    x->values[x->graph.n_value] =
        (tdm_value){.kind = kind, .type = type, .ne = {n0, n1, 1, 1}, .slot = x->graph.n_slot++};
    return x->graph.n_value++;
}

static void node_add(gpu_excerpt *x, tdm_op op, int32_t n_src, const int32_t *src, int32_t dst) {
    tdm_node *node = &x->nodes[x->graph.n_node++];
    *node = (tdm_node){.op = (int32_t)op, .n_src = n_src, .n_dst = 1};
    for (int k = 0; k < TDM_MAX_SRC; k++) node->src[k] = k < n_src ? src[k] : -1;
    for (int k = 0; k < TDM_MAX_DST; k++) node->dst[k] = k == 0 ? dst : -1;
}

void gpu_excerpt_multiply(gpu_excerpt *x, int64_t k, tdm_type type) {
    enum { F32 = TDM_TYPE_F32 };
    const int32_t of = x->nodes[x->graph.n_node - 1].dst[0];
    const int64_t n_row = tdm_shape_count(x->values[of].ne) / k;
    if (k % tdm_type_get_info(type).block_len != 0) type = TDM_TYPE_Q8_0;
    x->values[of].kind = TDM_VALUE_TEMP;
    int32_t w = value_add(x, TDM_VALUE_WEIGHT, (int32_t)type, k, PRODUCT_ROWS);
    x->values[w].usage = TDM_USAGE_MATMUL;
    int32_t role = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_I32, n_row, 1);
    int32_t rows = value_add(x, TDM_VALUE_TEMP, F32, k, n_row);
    x->values[rows].slot = -1; /* a view */
    x->graph.n_slot--;
    node_add(x, TDM_OP_RESHAPE, 1, &of, rows);
    int32_t y = value_add(x, TDM_VALUE_OUTPUT, F32, PRODUCT_ROWS, n_row);
    node_add(x, TDM_OP_MATMUL, 3, (const int32_t[]){w, rows, role}, y);
    int32_t copy = value_add(x, TDM_VALUE_OUTPUT, F32, k, n_row);
    node_add(x, TDM_OP_SCALE, 1, &rows, copy);
    x->nodes[x->graph.n_node - 1].params.scale.scale = 1;
}

void gpu_excerpt_free(gpu_excerpt *excerpt) {
    if (excerpt == NULL) return;
    free(excerpt->values);
    free(excerpt->nodes);
    free(excerpt->step);
    free(excerpt);
}

/* ---- Cost ------------------------------------------------------------------------------------ */

int64_t gpu_excerpt_count(const gpu_excerpt *excerpt) {
    int64_t n = 0;
    for (int32_t i = 0; i < excerpt->graph.n_value; i++)
        n += tdm_shape_count(excerpt->values[i].ne);
    return n;
}

int64_t gpu_excerpt_work(const gpu_excerpt *excerpt) {
    int64_t most = 0;
    for (int32_t i = 0; i < excerpt->graph.n_node; i++) {
        const tdm_node *node = &excerpt->nodes[i];
        const tdm_value *first = node->src[0] >= 0 ? &excerpt->values[node->src[0]] : NULL;
        int64_t n = 0;
        if (node->op == TDM_OP_MATMUL)
            n = first->ne[0] * tdm_shape_count(excerpt->values[node->dst[0]].ne);
        if (node->op == TDM_OP_MOE_FFN)
            n = 3 * tdm_shape_count(excerpt->values[node->src[1]].ne) *
                excerpt->values[node->src[3]].ne[0] * excerpt->values[node->src[3]].ne[1];
        if (node->op == TDM_OP_MOE_MATMUL)
            n = first->ne[0] * tdm_shape_count(excerpt->values[node->dst[0]].ne);
        if (n > most) most = n;
    }
    return most;
}

/* ---- Filling --------------------------------------------------------------------------------- */

static uint32_t random_next(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33);
}

/* Which numbers the nodes that read a value require. */
typedef struct fill_rule {
    bool is_positive;     /* floats from 0.5 to 1.5, else from -1 to 1 */
    bool is_rising;       /* integers of a row: every second number from `first` on */
    int64_t first, count; /* other integers: first .. first + count - 1 */
} fill_rule;

/* Adds what `node` requires of its source `src`. */

static void rule_add(const gpu_excerpt *x, const tdm_node *node, int src, fill_rule *rule) {
    const tdm_value *table = node->src[0] >= 0 ? &x->values[node->src[0]] : NULL;
    switch (node->op) {
    case TDM_OP_DIV:
    case TDM_OP_RMS_APPLY: rule->is_positive = rule->is_positive || src == 1; break;
    case TDM_OP_SQRT: rule->is_positive = true; break;
    case TDM_OP_ROPE:
        rule->is_positive = rule->is_positive || src == 2;
        rule->count = 4096;
        break;
    case TDM_OP_KV_SHIFT: rule->is_positive = true; break;
    case TDM_OP_ATTENTION: /* lists of positions: the first ones are before those of a scene */
        rule->is_rising = src == 4;
        rule->first = x->kv.stride > 1 ? 60 / x->kv.stride : 60;
        break;
    case TDM_OP_GET_ROWS:
        rule->first = node->params.rows.first_row;
        rule->count = table->ne[1];
        break;
    case TDM_OP_MOE_FFN:
        rule->first = src == 1 ? node->params.moe.first_expert : TDM_ROLE_GENERATED;
        rule->count = src == 1 ? x->values[node->src[3]].ne[2] : 1;
        break;
    case TDM_OP_MOE_MATMUL:
        rule->first = src == 3 ? node->params.moe.first_expert : TDM_ROLE_GENERATED;
        rule->count = src == 3 ? table->ne[2] : 1;
        break;
    case TDM_OP_MOE_ROUTE: rule->count = table->ne[0]; break;
    case TDM_OP_MATMUL: /* both roles */
        rule->first = TDM_ROLE_GENERATED;
        rule->count = 2;
        break;
    default: break;
    }
}

/* The rule of a value, and of the views of it. */
static void rule_find(const gpu_excerpt *x, int32_t value, fill_rule *rule) {
    for (int32_t i = 0; i < x->graph.n_node; i++)
        for (int k = 0; k < x->nodes[i].n_src; k++) {
            if (x->nodes[i].src[k] != value) continue;
            if (tdm_op_is_view(x->nodes[i].op))
                rule_find(x, x->nodes[i].dst[0], rule);
            else
                rule_add(x, &x->nodes[i], k, rule);
        }
}

static bool rows_fill(const tdm_value *v, const fill_rule *rule, uint64_t *seed, uint8_t *bytes) {
    size_t row_size = tdm_type_row_size((tdm_type)v->type, v->ne[0]);
    int64_t n_row = tdm_shape_rows(v->ne), n_made = n_row < N_ROW_MADE ? n_row : N_ROW_MADE;
    /* Quantising some types takes long: their rows repeat. */
    if (!tdm_type_get_info((tdm_type)v->type).is_quantized) n_made = n_row;
    float *row = malloc(((size_t)v->ne[0] + 1) * sizeof *row);
    tdm_status status = row != NULL ? TDM_OK : TDM_RESOURCE_EXHAUSTED;
    for (int64_t r = 0; r < n_made && status == TDM_OK; r++) {
        for (int64_t i = 0; i < v->ne[0]; i++) {
            float unit = (float)(random_next(seed) & 0xffff) * (1.0f / 65536);
            row[i] = rule->is_positive ? unit + 0.5f : unit * 2 - 1;
        }
        status =
            tdm_row_quantize((tdm_type)v->type, row, bytes + (size_t)r * row_size, v->ne[0], NULL);
    }
    for (int64_t r = n_made; r < n_row && status == TDM_OK; r++)
        memcpy(bytes + (size_t)r * row_size, bytes + (size_t)(r % n_made) * row_size, row_size);
    free(row);
    return status == TDM_OK;
}

bool gpu_excerpt_fill(const gpu_excerpt *excerpt, int32_t value, void *bytes) {
    const tdm_value *v = &excerpt->values[value];
    fill_rule rule = {.is_positive = false, .first = 0, .count = 1000};
    uint64_t seed = 88172645463325252u + (uint64_t)value;
    if (excerpt->step != NULL && value == excerpt->step_value) {
        memcpy(bytes, excerpt->step, (size_t)tdm_shape_count(v->ne) * sizeof *excerpt->step);
        return true;
    }
    rule_find(excerpt, value, &rule);
    if (rule.count < 1) rule.count = 1;
    if (v->type != TDM_TYPE_I32) return rows_fill(v, &rule, &seed, bytes);
    for (int64_t i = 0, n = tdm_shape_count(v->ne); i < n; i++)
        ((int32_t *)bytes)[i] =
            rule.is_rising
                ? (int32_t)(rule.first + i % v->ne[0] * 2)
                : (int32_t)(rule.first + (int64_t)(random_next(&seed) % (uint64_t)rule.count));
    return true;
}
