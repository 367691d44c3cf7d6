/* SPDX-License-Identifier: MIT
 *
 * exchange_scene.c: see exchange_scene.h. The graphs of members are filled in directly, because the
 * builder has no EXCHANGE nodes.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/exchange_scene.h"
#include "core/runtime.h"
#include "core/graph/builder.h"

/* The values of an exchange, behind arena and step. A base has memory, the other value is a view of
 * it; with SCENE_DENSE both are one value. */
enum { V_X_BASE, V_X, V_RESIDUAL_BASE, V_RESIDUAL, V_X2, V_RESULT, V_RESULT2, V_COUNT };
enum {
    MAX_VALUE = 2 + (V_COUNT + 2) * SCENE_MAX_NODE,
    STEP_LEN = sizeof(tdm_step_header) / sizeof(int32_t),
    PAD_ROWS = 1 /* before the slice, in the larger tensor */
};
enum { ARENA, STEP };

typedef struct scene_member {
    tdm_open_device *dev;
    tdm_queue *queue;
    tdm_buffer *arena;
    tdm_semaphore *done;
    uint64_t n_run;
    /* Of the plan, from here on. */
    tdm_plan *plan;
    tdm_mem memory;
    tdm_graph graph;
    tdm_value values[MAX_VALUE];
    tdm_node nodes[5 * SCENE_MAX_NODE]; /* with two views and two copies each */
    tdm_binding bindings[MAX_VALUE];
    int32_t index[SCENE_MAX_NODE][V_COUNT]; /* of values; -1 = absent */
} scene_member;

struct scene {
    tdm_runtime *rt;
    uint8_t *arena;
    uint64_t arena_size;
    int32_t n_member;
    int32_t n_node;
    uint32_t base; /* exchange_base */
    scene_node nodes[SCENE_MAX_NODE];
    scene_member members[SCENE_MAX_MEMBER];
};

static const tdm_queue_ops *queue_ops(const scene_member *m) {
    return tdm_open_device_plugin(m->dev)->queue;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static int64_t part_len(const scene *s, int32_t node, int32_t member) {
    return s->nodes[node].cut[member + 1] - s->nodes[node].cut[member];
}

void scene_shape_x(const scene *s, int32_t node, int32_t member, int64_t ne_out[TDM_MAX_DIMS]) {
    const scene_node *n = &s->nodes[node];
    memcpy(ne_out, n->ne, sizeof n->ne);
    if (n->params.kind == TDM_EXCHANGE_GATHER) ne_out[n->params.axis] = part_len(s, node, member);
}

void scene_shape_result(const scene *s, int32_t node, int32_t member,
                        int64_t ne_out[TDM_MAX_DIMS]) {
    const scene_node *n = &s->nodes[node];
    memcpy(ne_out, n->ne, sizeof n->ne);
    if (n->params.kind == TDM_EXCHANGE_SUM_PART) ne_out[n->params.axis] = part_len(s, node, member);
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

static int32_t value_add(scene_member *m, int32_t kind, tdm_type type, const int64_t *ne,
                         bool is_view) {
    int32_t index = m->graph.n_value++;
    m->values[index] = (tdm_value){.kind = kind,
                                   .type = (int32_t)type,
                                   .ne = {ne[0], ne[1], ne[2], ne[3]},
                                   .slot = is_view ? -1 : m->graph.n_slot++};
    return index;
}

static tdm_node *node_add(scene_member *m, tdm_op op, int32_t n_src, int32_t dst) {
    tdm_node *node = &m->nodes[m->graph.n_node++];
    memset(node, 0, sizeof *node);
    node->op = op;
    node->n_src = n_src;
    node->n_dst = 1;
    for (int i = 0; i < TDM_MAX_SRC; i++) node->src[i] = -1;
    node->dst[0] = dst;
    node->dst[1] = -1;
    return node;
}

/* Adds an input of shape ne, and the view of it that `lie` asks for. Returns the view; *base_out is
 * the value that has memory. */
static int32_t source_add(scene_member *m, tdm_type type, const int64_t *ne, scene_lie lie,
                          int32_t *base_out) {
    int64_t wide[TDM_MAX_DIMS] = {ne[0], ne[1], ne[2], ne[3]};
    int64_t block = tdm_type_get_info(type).block_len;
    if (lie == SCENE_SLICED) wide[0] += 2 * block, wide[1] += PAD_ROWS;
    if (lie == SCENE_TRANSPOSED) wide[0] = ne[1], wide[1] = ne[0];
    *base_out = value_add(m, TDM_VALUE_INPUT, type, wide, false);
    if (lie == SCENE_DENSE) return *base_out;
    int32_t view = value_add(m, TDM_VALUE_TEMP, type, ne, true);
    tdm_node *node = node_add(m, lie == SCENE_SLICED ? TDM_OP_SLICE : TDM_OP_PERMUTE, 1, view);
    node->src[0] = *base_out;
    if (lie == SCENE_SLICED) {
        node->params.slice.offset[0] = block;
        node->params.slice.offset[1] = PAD_ROWS;
    } else {
        for (int i = 0; i < TDM_MAX_DIMS; i++) node->params.permute.axis[i] = i < 2 ? 1 - i : i;
    }
    return view;
}

/* Adds a copy of `from`, of the same type and shape. */
static int32_t copy_add(scene_member *m, int32_t from, int32_t kind) {
    const tdm_value v = m->values[from];
    int32_t to = value_add(m, kind, (tdm_type)v.type, v.ne, false);
    node_add(m, TDM_OP_COPY, 1, to)->src[0] = from;
    return to;
}

/* The parameters of node `index` as the graph of this member has them. */
static tdm_exchange_params params_of(const scene *s, int32_t index, int32_t member) {
    const scene_node *n = &s->nodes[index];
    tdm_exchange_params p = n->params;
    bool is_sender = (p.senders >> member & 1) != 0;
    bool is_gather = p.kind == TDM_EXCHANGE_GATHER, is_part = p.kind == TDM_EXCHANGE_SUM_PART;
    bool has_x = is_sender && p.phase != TDM_EXCHANGE_COLLECT;
    p.member = member;
    if ((is_gather && has_x) || is_part) p.first = n->cut[member];
    if ((is_part && !has_x) || (is_gather && p.phase == TDM_EXCHANGE_PUBLISH))
        p.whole = (int32_t)n->ne[p.axis];
    if (p.data_off2 == 0) return p;
    if (has_x) p.first2 = n->cut2[member];
    if (p.phase == TDM_EXCHANGE_PUBLISH) p.whole2 = (int32_t)n->ne2[p.axis2];
    return p;
}

static void second_add(scene *s, int32_t index, int32_t member, bool has_x, bool has_y) {
    scene_member *m = &s->members[member];
    const scene_node *n = &s->nodes[index];
    int64_t ne[TDM_MAX_DIMS];
    memcpy(ne, n->ne2, sizeof ne);
    if (has_y) m->index[index][V_RESULT2] = value_add(m, TDM_VALUE_OUTPUT, TDM_TYPE_I32, ne, false);
    ne[n->params.axis2] = n->cut2[member + 1] - n->cut2[member];
    if (has_x) m->index[index][V_X2] = value_add(m, TDM_VALUE_INPUT, TDM_TYPE_I32, ne, false);
}

static void exchange_add(scene *s, int32_t index, int32_t member) {
    scene_member *m = &s->members[member];
    const scene_node *n = &s->nodes[index];
    int32_t *v = m->index[index];
    int64_t ne[TDM_MAX_DIMS];
    bool is_sender = (n->params.senders >> member & 1) != 0;
    bool has_x = is_sender && n->params.phase != TDM_EXCHANGE_COLLECT;
    bool has_y = n->params.phase != TDM_EXCHANGE_PUBLISH;
    for (int i = 0; i < V_COUNT; i++) v[i] = -1;
    if (!has_y && !is_sender) return; /* this member publishes nothing and has no result */
    scene_shape_x(s, index, member, ne);
    if (has_x)
        v[V_X] = source_add(m, n->params.kind == TDM_EXCHANGE_GATHER ? n->type : TDM_TYPE_F32, ne,
                            n->lie, &v[V_X_BASE]);
    if (has_x && n->in_chain) v[V_X] = copy_add(m, v[V_X], TDM_VALUE_TEMP);
    scene_shape_result(s, index, member, ne);
    if (n->has_residual && has_y)
        v[V_RESIDUAL] = source_add(m, TDM_TYPE_F32, ne, n->lie, &v[V_RESIDUAL_BASE]);
    if (has_y)
        v[V_RESULT] =
            value_add(m, n->in_chain ? TDM_VALUE_TEMP : TDM_VALUE_OUTPUT, n->type, ne, false);
    if (n->params.data_off2 != 0) second_add(s, index, member, has_x, has_y);
    tdm_node *node = node_add(m, TDM_OP_EXCHANGE, 6, v[V_RESULT]);
    node->n_dst = 2;
    node->dst[1] = v[V_RESULT2];
    node->src[0] = v[V_X];
    node->src[1] = ARENA;
    node->src[2] = STEP;
    node->src[3] = v[V_RESIDUAL];
    node->src[4] = v[V_X2];
    node->params.exchange = params_of(s, index, member);
    if (n->in_chain && has_y) v[V_RESULT] = copy_add(m, v[V_RESULT], TDM_VALUE_OUTPUT);
}

static uint64_t value_size(const tdm_value *v) {
    return tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
}

static void plan_drop(scene_member *m) {
    if (m->plan != NULL) queue_ops(m)->plan_destroy(m->plan);
    m->plan = NULL;
    tdm_mem_free(&m->memory);
}

static tdm_status member_prepare(scene *s, int32_t member, tdm_error *err) {
    scene_member *m = &s->members[member];
    const int64_t arena_ne[TDM_MAX_DIMS] = {(int64_t)s->arena_size, 1, 1, 1};
    const int64_t step_ne[TDM_MAX_DIMS] = {STEP_LEN, 1, 1, 1};
    uint64_t size = 0;
    plan_drop(m);
    m->graph = (tdm_graph){.struct_size = sizeof m->graph,
                           .value_size = sizeof(tdm_value),
                           .node_size = sizeof(tdm_node),
                           .partition_size = sizeof(tdm_partition),
                           .kv_size = sizeof(tdm_kv_desc),
                           .values = m->values,
                           .nodes = m->nodes,
                           .names = "",
                           .names_size = 1,
                           .step = -1};
    value_add(m, TDM_VALUE_STATE, TDM_TYPE_I8, arena_ne, false);
    value_add(m, TDM_VALUE_INPUT, TDM_TYPE_I32, step_ne, false);
    for (int32_t i = 0; i < s->n_node; i++) exchange_add(s, i, member);
    tdm_status status = tdm_graph_verify(&m->graph, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < m->graph.n_value; i++) {
        const tdm_value *v = &m->values[i];
        if (v->slot < 0) continue;
        m->bindings[v->slot] = (tdm_binding){m->arena, 0, s->arena_size};
        if (i == ARENA) continue;
        m->bindings[v->slot] = (tdm_binding){NULL, size, value_size(v)};
        size += (value_size(v) + 63) / 64 * 64;
    }
    status = tdm_mem_alloc(m->dev, size + 64, TDM_BUFFER_COMPUTE, &m->memory, err);
    if (status != TDM_OK) return status;
    memset(tdm_mem_host_pointer(&m->memory, TDM_ACCESS_READ | TDM_ACCESS_WRITE), 0xff, size);
    for (int32_t i = 0; i < m->graph.n_slot; i++)
        if (m->bindings[i].buffer == NULL) m->bindings[i].buffer = m->memory.buffer;
    const tdm_plan_params params = {.struct_size = sizeof params};
    status = queue_ops(m)->graph_prepare(m->queue, &m->graph, &params, &m->plan, err);
    return status == TDM_OK ? queue_ops(m)->plan_bind(m->plan, m->bindings, m->graph.n_slot, err)
                            : status;
}

tdm_status scene_prepare(scene *s, const scene_node *nodes, int32_t n_node, tdm_error *err) {
    tdm_status status = TDM_OK;
    s->n_node = n_node;
    memcpy(s->nodes, nodes, (size_t)n_node * sizeof nodes[0]);
    for (int32_t i = 0; i < s->n_member && status == TDM_OK; i++)
        status = member_prepare(s, i, err);
    return status;
}

/* ---- Members --------------------------------------------------------------------------------- */

static tdm_status member_open(scene *s, const scene_params *params, int32_t i, tdm_error *err) {
    scene_member *m = &s->members[i];
    char name[32], threads[16];
    tdm_option options[4];
    tdm_device_spec spec = {.name = name, .plugin = "cpu", .options = options};
    snprintf(name, sizeof name, "member%d", (int)i);
    snprintf(threads, sizeof threads, "%d", params->threads[i] > 0 ? (int)params->threads[i] : 1);
    options[spec.n_option++] = (tdm_option){"threads", threads};
    if (params->isa[i] != NULL) options[spec.n_option++] = (tdm_option){"isa", params->isa[i]};
    if (params->cores[i] != NULL)
        options[spec.n_option++] = (tdm_option){"cores", params->cores[i]};
    if (params->timeout_ms != NULL)
        options[spec.n_option++] = (tdm_option){"exchange-timeout", params->timeout_ms};
    tdm_status status = tdm_runtime_declare(s->rt, &spec, err);
    if (status == TDM_OK) status = tdm_runtime_open(s->rt, name, &m->dev, err);
    if (status == TDM_OK)
        status = queue_ops(m)->create(tdm_open_device_handle(m->dev), &m->queue, err);
    if (status == TDM_OK) status = tdm_semaphore_ops.create(0, &m->done, err);
    if (status == TDM_OK)
        status = tdm_open_device_plugin(m->dev)->buffer->import_host(
            tdm_open_device_handle(m->dev), s->arena, s->arena_size, NULL, &m->arena, err);
    return status;
}

tdm_status scene_open(const scene_params *params, scene **scene_out, tdm_error *err) {
    const tdm_runtime_params runtime = {.struct_size = sizeof runtime,
                                        .plugin_path = params->plugin_path};
    scene *s = calloc(1, sizeof *s);
    if (s == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    s->arena_size = (params->arena_size + 63) / 64 * 64;
    s->arena = aligned_alloc(64, s->arena_size);
    tdm_status status = s->arena != NULL ? tdm_runtime_create(&runtime, &s->rt, err)
                                         : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    if (status == TDM_OK) memset(s->arena, 0, s->arena_size);
    for (; s->n_member < params->n_member && status == TDM_OK; s->n_member++)
        status = member_open(s, params, s->n_member, err);
    if (status != TDM_OK) {
        scene_close(s);
        return status;
    }
    *scene_out = s;
    return TDM_OK;
}

void scene_close(scene *s) {
    if (s == NULL) return;
    for (int32_t i = 0; i < s->n_member; i++) {
        scene_member *m = &s->members[i];
        if (m->dev == NULL) continue;
        queue_ops(m)->destroy(m->queue);
        plan_drop(m);
        tdm_open_device_plugin(m->dev)->buffer->free(m->arena);
        if (m->done != NULL) tdm_semaphore_ops.destroy(m->done);
    }
    tdm_runtime_destroy(s->rt);
    free(s->arena);
    free(s);
}

uint8_t *scene_arena(scene *s) {
    return s->arena;
}

/* ---- Data ------------------------------------------------------------------------------------ */

static uint8_t *value_bytes(scene_member *m, int32_t value) {
    const tdm_binding *b = &m->bindings[m->values[value].slot];
    return (uint8_t *)tdm_mem_host_pointer(&m->memory, TDM_ACCESS_READ | TDM_ACCESS_WRITE) + b->off;
}

/* Copies canonical bytes of shape ne to the places in the base that the view reads. */
static void value_put(scene_member *m, int32_t base, const int64_t *ne, scene_lie lie,
                      const uint8_t *bytes) {
    const tdm_value *v = &m->values[base];
    tdm_type type = (tdm_type)v->type;
    size_t row = tdm_type_row_size(type, ne[0]), wide = tdm_type_row_size(type, v->ne[0]);
    size_t block = (size_t)tdm_type_get_info(type).block_size;
    uint8_t *to = value_bytes(m, base);
    for (int64_t r = 0; r < tdm_shape_rows(ne); r++, bytes += row) {
        int64_t i1 = r % ne[1], outer = r / ne[1];
        if (lie == SCENE_TRANSPOSED) {
            for (int64_t i = 0; i < ne[0]; i++)
                memcpy(to + (outer * ne[0] + i) * (int64_t)wide + i1 * (int64_t)block,
                       bytes + i * (int64_t)block, block);
            continue;
        }
        bool is_sliced = lie == SCENE_SLICED;
        int64_t at = outer * v->ne[1] + i1 + (is_sliced ? PAD_ROWS : 0);
        memcpy(to + at * (int64_t)wide + (is_sliced ? block : 0), bytes, row);
    }
}

void scene_put_x(scene *s, int32_t node, int32_t member, const void *bytes) {
    scene_member *m = &s->members[member];
    int64_t ne[TDM_MAX_DIMS];
    scene_shape_x(s, node, member, ne);
    if (m->index[node][V_X_BASE] >= 0)
        value_put(m, m->index[node][V_X_BASE], ne, s->nodes[node].lie, bytes);
}

void scene_put_residual(scene *s, int32_t node, int32_t member, const float *residual) {
    scene_member *m = &s->members[member];
    int64_t ne[TDM_MAX_DIMS];
    scene_shape_result(s, node, member, ne);
    if (m->index[node][V_RESIDUAL_BASE] >= 0)
        value_put(m, m->index[node][V_RESIDUAL_BASE], ne, s->nodes[node].lie,
                  (const uint8_t *)residual);
}

void scene_put_x2(scene *s, int32_t node, int32_t member, const int32_t *x2) {
    scene_member *m = &s->members[member];
    int32_t value = m->index[node][V_X2];
    if (value >= 0) value_put(m, value, m->values[value].ne, SCENE_DENSE, (const uint8_t *)x2);
}

void *scene_result(scene *s, int32_t node, int32_t member) {
    int32_t value = s->members[member].index[node][V_RESULT];
    return value >= 0 ? value_bytes(&s->members[member], value) : NULL;
}

void *scene_result2(scene *s, int32_t node, int32_t member) {
    int32_t value = s->members[member].index[node][V_RESULT2];
    return value >= 0 ? value_bytes(&s->members[member], value) : NULL;
}

void scene_set_base(scene *s, uint32_t base) {
    s->base = base;
}

/* ---- Running --------------------------------------------------------------------------------- */

tdm_status scene_start(scene *s, int32_t member, uint32_t epoch, tdm_error *err) {
    scene_member *m = &s->members[member];
    tdm_step_header header = {.version = TDM_STEP_VERSION, .size = STEP_LEN};
    header.epoch = (int32_t)epoch;
    header.exchange_base = (int32_t)s->base;
    memcpy(value_bytes(m, STEP), &header, sizeof header);
    const tdm_point done = {m->done, ++m->n_run};
    return queue_ops(m)->graph_compute(m->queue, m->plan, NULL, 0, &done, 1, err);
}

tdm_status scene_wait(scene *s, int32_t member, tdm_error *err) {
    scene_member *m = &s->members[member];
    tdm_status status = tdm_semaphore_ops.wait(m->done, m->n_run, TDM_WAIT_FOREVER, err);
    if (status == TDM_OK) return TDM_OK;
    /* A failed semaphore cannot be used again: the next run gets a new one. */
    tdm_error again = {0};
    tdm_semaphore_ops.destroy(m->done);
    m->done = NULL;
    m->n_run = 0;
    if (tdm_semaphore_ops.create(0, &m->done, &again) != TDM_OK)
        return tdm_fail(err, again.status, "%s", again.message);
    return status;
}
