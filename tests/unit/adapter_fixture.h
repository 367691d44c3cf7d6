/* SPDX-License-Identifier: MIT
 *
 * adapter_fixture.h: acquires devices and uses their buffers, plans and queues only through the
 * table, as a group does. For test_adapter*.c.
 */
#ifndef TANDEM_TEST_ADAPTER_FIXTURE_H
#define TANDEM_TEST_ADAPTER_FIXTURE_H

#include "core/stages/adapter.h"
#include "tests/unit/schedule_fixture.h"
#include "tests/support/random.h"

/* An acquired device with a queue. */
typedef struct acquired {
    tdm_acquired_device got;
    tdm_queue *queue;
    tdm_semaphore *done;
    uint64_t value; /* that `done` reaches after the last submission */
} acquired;

static inline acquired acquire(tdm_runtime *rt, const char *name) {
    acquired l = {.got = {.struct_size = sizeof l.got}};
    OK(tdm_adapter_acquire(rt, name, &l.got, err));
    OK(l.got.plugin->queue->create(l.got.device, &l.queue, err));
    OK(tdm_semaphore_ops.create(0, &l.done, err));
    return l;
}

static inline void release(tdm_runtime *rt, acquired *l) {
    l->got.plugin->queue->destroy(l->queue);
    tdm_semaphore_ops.destroy(l->done);
    tdm_adapter_release(rt, &l->got);
}

/* A graph ready to run: its weights and states in one buffer of items, the rest in another. */
typedef struct bound_plan {
    acquired *l;
    const tdm_graph *graph;
    tdm_plan *plan;
    tdm_buffer *kept, *compute;
    tdm_binding bindings[MAX_SLOT];
} bound_plan;

static inline uint64_t aligned(uint64_t size) {
    return (size + 255) / 256 * 256;
}

static inline tdm_tensor_desc desc_of(const tdm_value *v) {
    tdm_tensor_desc desc = {
        .struct_size = sizeof desc, .type = (tdm_type)v->type, .usage = v->usage};
    memcpy(desc.ne, v->ne, sizeof desc.ne);
    return desc;
}

/* As weight_upload of schedule_fixture.h: contents follow from the name. */
static inline void bound_weight_upload(const bound_plan *n, int32_t value) {
    const tdm_value *v = tdm_graph_value(n->graph, value);
    const tdm_tensor_desc desc = desc_of(v);
    const int64_t count = tdm_shape_count(v->ne);
    float *x = malloc((size_t)count * sizeof *x);
    uint64_t random = 0;
    assert_non_null(x);
    for (const char *c = tdm_graph_value_name(n->graph, value); *c != 0; c++)
        random = random * 31 + (uint8_t)*c;
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)((int32_t)(random_u64(&random) >> 60) - 8) / 8;
    }
    OK(n->l->got.plugin->buffer->tensor_upload(
        n->bindings[v->slot].buffer, n->bindings[v->slot].off, &desc, x,
        (uint64_t)v->ne[0] * sizeof *x, 0, tdm_shape_rows(v->ne), 0, v->ne[0], err));
    free(x);
}

/* Memory for weights and states, with items or without. */
static inline tdm_status bound_keep(bound_plan *n, bool with_items, tdm_error *err) {
    static tdm_tensor_desc descs[MAX_SLOT];
    static tdm_buffer_item items[MAX_SLOT];
    const tdm_buffer_ops *ops = n->l->got.plugin->buffer;
    tdm_buffer_params params = {.struct_size = sizeof params, .purpose = TDM_BUFFER_WEIGHT};
    for (int32_t i = 0; i < n->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(n->graph, i);
        tdm_buffer_item *item = &items[params.n_item];
        if (v->kind != TDM_VALUE_WEIGHT && v->kind != TDM_VALUE_STATE) continue;
        *item = (tdm_buffer_item){.off = params.size};
        if (v->kind == TDM_VALUE_WEIGHT) {
            descs[params.n_item] = desc_of(v);
            item->tensor = &descs[params.n_item];
            OK(ops->tensor_size(n->l->got.device, item->tensor, &item->size, err));
        } else {
            item->kv = tdm_graph_kv(n->graph, 0);
            item->n_page = v->ne[1];
            item->size = (uint64_t)tdm_shape_count(v->ne);
        }
        n->bindings[v->slot] = (tdm_binding){NULL, item->off, item->size};
        params.size += aligned(item->size);
        params.n_item++;
    }
    params.items = items;
    if (!with_items) params.items = NULL, params.n_item = 0;
    tdm_status status = ops->alloc(n->l->got.device, &params, &n->kept, err);
    for (int32_t i = 0; i < n->graph->n_value && status == TDM_OK; i++) {
        const tdm_value *v = tdm_graph_value(n->graph, i);
        if (v->kind == TDM_VALUE_WEIGHT || v->kind == TDM_VALUE_STATE)
            n->bindings[v->slot].buffer = n->kept;
    }
    return status;
}

/* Memory for the rest: temporaries by lifetime, then inputs and outputs. */
static inline tdm_status bound_compute_memory(bound_plan *n, tdm_error *err) {
    const tdm_buffer_ops *ops = n->l->got.plugin->buffer;
    uint64_t off[MAX_SLOT], size = 0;
    tdm_buffer_params params = {.struct_size = sizeof params, .purpose = TDM_BUFFER_COMPUTE};
    assert_true(n->graph->n_slot <= MAX_SLOT);
    tdm_status status = tdm_graph_plan_memory(n->graph, 256, off, &size, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < n->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(n->graph, i);
        if (v->slot < 0 || v->kind == TDM_VALUE_WEIGHT || v->kind == TDM_VALUE_STATE) continue;
        tdm_binding *b = &n->bindings[v->slot];
        b->size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
        b->off = v->kind == TDM_VALUE_TEMP ? off[v->slot] : size;
        if (v->kind != TDM_VALUE_TEMP) size += aligned(b->size);
    }
    params.size = size;
    status = ops->alloc(n->l->got.device, &params, &n->compute, err);
    for (int32_t i = 0; i < n->graph->n_value && status == TDM_OK; i++) {
        const tdm_value *v = tdm_graph_value(n->graph, i);
        if (v->slot >= 0 && v->kind != TDM_VALUE_WEIGHT && v->kind != TDM_VALUE_STATE)
            n->bindings[v->slot].buffer = n->compute;
    }
    return status;
}

static inline void bound_end(bound_plan *n) {
    const tdm_plugin *p = n->l->got.plugin;
    p->queue->plan_destroy(n->plan);
    p->buffer->free(n->compute);
    p->buffer->free(n->kept);
    memset(n, 0, sizeof *n);
}

/* Memory and a plan for a graph, not bound yet. A failure frees what was made. */
static inline tdm_status bound_try(bound_plan *n, acquired *l, const tdm_graph *graph,
                                   bool with_items, tdm_error *err) {
    static const tdm_plan_params params = {.struct_size = sizeof params};
    memset(n, 0, sizeof *n);
    n->l = l;
    n->graph = graph;
    tdm_status status = bound_keep(n, with_items, err);
    if (status == TDM_OK) status = bound_compute_memory(n, err);
    if (status == TDM_OK)
        status = l->got.plugin->queue->graph_prepare(l->queue, graph, &params, &n->plan, err);
    if (status != TDM_OK) bound_end(n);
    return status;
}

static inline tdm_status bound_bind(bound_plan *n, tdm_error *err) {
    return n->l->got.plugin->queue->plan_bind(n->plan, n->bindings, n->graph->n_slot, err);
}

static inline bound_plan bound_begin(acquired *l, const tdm_graph *graph) {
    bound_plan n;
    OK(bound_try(&n, l, graph, true, err));
    OK(bound_bind(&n, err));
    for (int32_t i = 0; i < graph->n_value; i++)
        if (tdm_graph_value(graph, i)->kind == TDM_VALUE_WEIGHT) bound_weight_upload(&n, i);
    return n;
}

static inline const tdm_binding *bound_binding(const bound_plan *n, const char *name) {
    return &n->bindings[tdm_graph_value(n->graph, value_named(n->graph, name))->slot];
}

static inline void bound_put(const bound_plan *n, const char *name, const void *data, size_t size) {
    const tdm_binding *b = bound_binding(n, name);
    OK(n->l->got.plugin->buffer->upload(b->buffer, b->off, data, size, err));
}

static inline void bound_take(const bound_plan *n, const char *name, void *data, size_t size) {
    const tdm_binding *b = bound_binding(n, name);
    OK(n->l->got.plugin->buffer->download(b->buffer, b->off, data, size, err));
}

static inline tdm_status bound_submit(bound_plan *n, tdm_error *err) {
    const tdm_point done = {n->l->done, ++n->l->value};
    return n->l->got.plugin->queue->graph_compute(n->l->queue, n->plan, NULL, 0, &done, 1, err);
}

static inline tdm_status bound_wait(const bound_plan *n, tdm_error *err) {
    return tdm_semaphore_ops.wait(n->l->done, n->l->value, TDM_WAIT_FOREVER, err);
}

static inline tdm_status bound_run(bound_plan *n, tdm_error *err) {
    tdm_status status = bound_submit(n, err);
    return status == TDM_OK ? bound_wait(n, err) : status;
}

/* ---- runtimes with a fake device and the CPU ---- */

static char both_path[4096]; /* fake plugins and the CPU's */

/* Called first. */
static inline void both_path_set(void) {
    const char *dir = getenv("TANDEM_PLUGIN_DIR");
    unsetenv("TANDEM_PLUGIN_PATH");
    if (dir != NULL) snprintf(both_path, sizeof both_path, "%s:%s", FAKE_PLUGIN_DIR, dir);
}

static inline bool has_cpu(void) {
    if (both_path[0] != 0) return true;
    print_message("SKIP: TANDEM_PLUGIN_DIR does not say where cpu.so is\n");
    return false;
}

/* A runtime with the device "m" of the fake plugin, and "cpu". */
static inline tdm_runtime *runtime_with(const char *option0, const char *option1) {
    tdm_runtime *rt = runtime_make(both_path[0] != 0 ? both_path : FAKE_PLUGIN_DIR);
    const tdm_option threads = {"threads", "1"};
    const tdm_device_spec cpu = {
        .name = "cpu", .plugin = "cpu", .options = &threads, .n_option = 1};
    declare(rt, "m", (const char *const[3]){option0, option1});
    OK(tdm_runtime_declare(rt, &cpu, err));
    return rt;
}

static inline void runtime_end(tdm_runtime *rt) {
    tdm_runtime_destroy(rt);
    log_has("close m, 0 bytes left", 1);
}

#endif
