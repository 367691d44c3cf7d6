/* SPDX-License-Identifier: MIT
 *
 * graph.c: checks of supports_op, graph_supports and running, independent of what the ops compute.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "certify/chain.h"

/* ---- supports_op ---- */

static uint64_t bytes_hash(const void *bytes, size_t size, uint64_t hash) {
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

/* FNV-1a over all bytes of a graph that a plugin can read. */
static uint64_t graph_bytes_hash(const tdm_graph *g) {
    uint64_t hash = bytes_hash(g, sizeof *g, 0xcbf29ce484222325u);
    hash = bytes_hash(g->values, (size_t)g->n_value * g->value_size, hash);
    hash = bytes_hash(g->nodes, (size_t)g->n_node * g->node_size, hash);
    return bytes_hash(g->names, (size_t)g->names_size, hash);
}

static certify_verdict pure_check(certify *c) {
    certify_chain chain;
    certify_verdict verdict = certify_chain_open(c, 3, 33, 5, &chain);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_graph *graph = chain.rig.graph;
    uint64_t hash = graph_bytes_hash(graph);
    int64_t n_alloc = c->host.n_alloc;
    int n_thread = certify_thread_count();
    for (int i = 0; i < 100; i++)
        if (c->plugin->device->supports_op(c->device, graph, i % graph->n_node, NULL) != TDM_OK)
            return certify_fail(c, "answered yes, then no");
    if (graph_bytes_hash(graph) != hash) return certify_fail(c, "changed the graph");
    if (c->host.n_alloc != n_alloc)
        return certify_fail(c, "allocated %lld times", (long long)(c->host.n_alloc - n_alloc));
    if (certify_thread_count() != n_thread) return certify_fail(c, "started or ended a thread");
    return CERTIFY_PASSED;
}

/* An op of a later version, which a device of this version must refuse. */
static certify_verdict refuse_check(certify *c) {
    certify_chain chain;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_chain_open(c, 1, 8, 1, &chain);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_graph graph = *chain.rig.graph;
    tdm_node node = *tdm_graph_node(&graph, 0);
    node.op = 9999;
    graph.nodes = &node;
    graph.node_size = sizeof node;
    tdm_status status = c->plugin->device->supports_op(c->device, &graph, 0, &err);
    verdict = certify_expect(c, "op 9999, which does not exist,", status, TDM_UNSUPPORTED);
    if (verdict == CERTIFY_PASSED && err.message[0] == 0)
        return certify_fail(c, "refused op 9999 without a reason");
    return verdict;
}

typedef struct asker {
    certify *c;
    const tdm_graph *graph;
    pthread_t thread;
    bool is_wrong;
} asker;

static void *asker_main(void *arg) {
    asker *a = arg;
    for (int i = 0; i < 500; i++)
        for (int32_t n = 0; n < a->graph->n_node; n++)
            if (a->c->plugin->device->supports_op(a->c->device, a->graph, n, NULL) != TDM_OK)
                a->is_wrong = true;
    return NULL;
}

static certify_verdict threads_check(certify *c) {
    certify_chain chain;
    asker askers[4];
    certify_verdict verdict = certify_chain_open(c, 4, 33, 5, &chain);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (int i = 0; i < 4; i++) {
        askers[i] = (asker){.c = c, .graph = chain.rig.graph};
        if (pthread_create(&askers[i].thread, NULL, asker_main, &askers[i]) != 0)
            return certify_skip(c, "cannot start threads");
    }
    for (int i = 0; i < 4; i++) pthread_join(askers[i].thread, NULL);
    for (int i = 0; i < 4; i++)
        if (askers[i].is_wrong)
            return certify_fail(c, "returned something else when called from 4 threads");
    return CERTIFY_PASSED;
}

/* ---- Running ---- */

/* Six nodes, whose five temporaries share memory as the host's planner places them. */
static certify_verdict memory_check(certify *c) {
    certify_chain chain;
    tdm_buffer *shared;
    uint64_t size = 0, *offs;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_chain_open(c, 6, 45, 3, &chain);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_graph *graph = chain.rig.graph;
    offs = calloc((size_t)graph->n_slot + 1, sizeof *offs);
    if (offs == NULL || tdm_graph_plan_memory(graph, c->align, offs, &size, &err) != TDM_OK)
        return certify_skip(c, "the suite cannot plan memory: %.200s", err.message);
    verdict = certify_alloc(c, size, &shared);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind == TDM_VALUE_TEMP && v->slot >= 0)
            certify_rig_bind(&chain.rig, i, shared, offs[v->slot], chain.rig.sizes[i]);
    }
    free(offs);
    verdict = certify_rig_run(&chain.rig);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_rig_judge(&chain.rig, "with temporaries in shared memory", chain.nmse);
    return verdict;
}

static certify_verdict repeat_check(certify *c) {
    certify_chain a, b;
    certify_verdict verdict = certify_chain_open(c, 2, 40, 3, &a);
    if (verdict == CERTIFY_PASSED) verdict = certify_chain_create(c, 3, 17, 1, &b);
    for (int i = 0; verdict == CERTIFY_PASSED && i < 6; i++) {
        certify_chain *chain = i % 2 ? &b : &a;
        certify_rig_fill(&chain->rig, chain->x, 1 + i);
        verdict = certify_rig_run(&chain->rig);
        if (verdict == CERTIFY_PASSED)
            verdict = certify_rig_judge(&chain->rig, "two graphs in turn", chain->nmse);
    }
    return verdict;
}

/* A copy of `array` with a larger stride and filled gaps. NULL without memory. */
static void *spread(const void *array, int32_t n, size_t size, size_t stride) {
    uint8_t *out = malloc(((size_t)n + 1) * stride);
    if (out == NULL) return NULL;
    memset(out, 0xee, ((size_t)n + 1) * stride);
    for (int32_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * stride, (const uint8_t *)array + (size_t)i * size, size);
    return out;
}

/* A graph of a later version: every struct has grown. */
static certify_verdict stride_check(certify *c) {
    certify_chain chain;
    struct {
        tdm_graph graph;
        uint8_t more[64];
    } later;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_chain_open(c, 3, 21, 4, &chain);
    if (verdict == CERTIFY_PASSED) verdict = certify_rig_upload(&chain.rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_graph *graph = chain.rig.graph;
    memset(&later, 0xee, sizeof later);
    later.graph = *graph;
    later.graph.struct_size = sizeof later;
    later.graph.value_size = graph->value_size + 24;
    later.graph.node_size = graph->node_size + 40;
    later.graph.values =
        spread(graph->values, graph->n_value, graph->value_size, later.graph.value_size);
    later.graph.nodes =
        spread(graph->nodes, graph->n_node, graph->node_size, later.graph.node_size);
    if (later.graph.values == NULL || later.graph.nodes == NULL)
        return certify_skip(c, "out of memory");
    for (int32_t i = 0; i < graph->n_node; i++)
        if (c->plugin->device->supports_op(c->device, &later.graph, i, &err) != TDM_OK)
            return certify_fail(c, "supports_op refused it: %.300s", err.message);
    chain.rig.graph = &later.graph;
    tdm_status status = certify_rig_compute(&chain.rig, &err);
    chain.rig.graph = graph;
    if (status != TDM_OK) return certify_fail(c, "computing gave: %.300s", err.message);
    verdict = certify_rig_download(&chain.rig);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_rig_judge(&chain.rig, "a graph of larger structs", chain.nmse);
    return verdict;
}

/* An input that no node reads has no memory. */
static certify_verdict unused_check(certify *c) {
    certify_chain chain;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_chain_open(c, 2, 21, 4, &chain);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_graph *graph = chain.rig.graph, larger = *graph;
    enum { MAX_SLOT = 64 };
    tdm_binding bindings[MAX_SLOT] = {{0}};
    if (graph->n_slot + 1 > MAX_SLOT)
        return certify_skip(c, "the suite's own graph: too many slots");
    tdm_value *values = spread(graph->values, graph->n_value, graph->value_size, graph->value_size);
    if (values == NULL) return certify_skip(c, "out of memory");
    values[graph->n_value] = *tdm_graph_value(graph, chain.x);
    values[graph->n_value].slot = graph->n_slot;
    larger.values = values;
    larger.n_value++;
    larger.n_slot++;
    larger.hash = 0;
    if (tdm_graph_verify(&larger, &err) != TDM_OK)
        return certify_skip(c, "the suite's own graph: %.300s", err.message);
    verdict = certify_rig_upload(&chain.rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_binding *whole = chain.rig.bindings;
    memcpy(bindings, whole, (size_t)graph->n_slot * sizeof bindings[0]);
    chain.rig.bindings = bindings;
    chain.rig.graph = &larger;
    tdm_status status = certify_rig_compute(&chain.rig, &err);
    chain.rig.bindings = whole;
    chain.rig.graph = graph;
    if (status != TDM_OK) return certify_fail(c, "%s", err.message);
    verdict = certify_rig_download(&chain.rig);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_rig_judge(&chain.rig, "beside an unbound slot", chain.nmse);
    return verdict;
}

static certify_verdict empty_check(certify *c) {
    certify_chain chain;
    certify_verdict verdict = certify_chain_open(c, 2, 16, 0, &chain);
    return verdict == CERTIFY_PASSED ? certify_rig_run(&chain.rig) : verdict;
}

/* The host does not call supports_op for views. A graph may contain views between nodes that are
 * supported. */
static certify_verdict views_check(certify *c) {
    certify_chain chain;
    certify_verdict verdict = certify_chain_open_viewed(c, 3, 12, 6, &chain);
    if (verdict == CERTIFY_PASSED && !certify_rig_is_supported(&chain.rig))
        return certify_fail(c, "supports_op refuses a RESHAPE that nothing reads: %.300s",
                            c->failure.message);
    if (verdict == CERTIFY_PASSED) verdict = certify_rig_run(&chain.rig);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_rig_judge(&chain.rig, "beside a view", chain.nmse);
    return verdict;
}

static const certify_check checks[] = {
    {"graph.supports-pure", 0,
     "device.h: supports_op: \"Pure: reads the graph alone, allocates nothing.\"", pure_check},
    {"graph.supports-refuses", 0,
     "device.h: supports_op: \"TDM_UNSUPPORTED with the reason if not\"", refuse_check},
    {"graph.supports-threads", 0,
     "plugin.h: \"[any-thread] at any time, from any thread, also at once\"; device.h: supports_op",
     threads_check},
    {"graph.memory", 0,
     "graph.h: \"two temporaries that never live at the same time, in the order of the nodes, may "
     "be bound to the same bytes\"",
     memory_check},
    {"graph.repeat", 0,
     "device.h: graph_compute_sync: \"Runs a whole verified graph and returns when it is done.\"",
     repeat_check},
    {"graph.stride", 0,
     "graph.h: tdm_graph: \"the arrays' stride, so that […] both may grow by appended fields\"",
     stride_check},
    {"graph.unused-slot", 0,
     "queue.h: tdm_binding: \"Slots that no node uses may have a NULL buffer.\"", unused_check},
    {"graph.views", 0,
     "op.h: Views: \"no bytes move; the device derives the strides. […] Every device accepts view "
     "nodes\"",
     views_check},
    {"graph.empty", 0,
     "tensor.h: \"No dimension is negative; 0 makes an empty tensor, which is an ordinary thing.\"",
     empty_check},
};
const certify_table certify_graph_table = CERTIFY_SHARED_TABLE(checks);
