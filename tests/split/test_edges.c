/* SPDX-License-Identifier: MIT
 *
 * test_edges.c: graphs of extreme shapes: no tokens, an axis of length 0, no pages, results that
 * are views of another, one number for all; on groups of one member, with members without shares,
 * of groups, and of the most members possible. A group gives the results of one device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/split/group_rig.h"

/* ---- Graphs ---- */

static int32_t id_base; /* added to partition ids: each graph on a group has ids of its own */

static tdm_partition columns(int32_t id, int32_t n) {
    return (tdm_partition){
        .id = id_base + id, .layer = 0, .n_unit = n, .n_segment = 1, .unit_len = {1}};
}

static int32_t matrix(tdm_builder *b, const char *name, tdm_type type, int64_t k, int64_t n,
                      int32_t id, int32_t axis) {
    int32_t w = tdm_build_weight(b, name, type, (const int64_t[]){k, n, 1, 1}, TDM_USAGE_MATMUL);
    tdm_partition p = columns(id, (int32_t)(axis == 0 ? k : n));
    if (id != 0) tdm_build_set_partition(b, w, tdm_build_partition(b, &p), axis);
    return w;
}

static int32_t input(tdm_builder *b, const char *name, int64_t n, int64_t n_tok) {
    return tdm_build_input(b, name, TDM_TYPE_F32, (const int64_t[]){n, n_tok, 1, 1});
}

/* A cut feed-forward, whose sum is added to its input. */
static void tokens_make(tdm_builder *b, int64_t n_tok) {
    int32_t x = input(b, "x", 32, n_tok);
    int32_t h = tdm_build_matmul(b, matrix(b, "up", TDM_TYPE_F32, 32, 48, 1, 1), x);
    h = tdm_build_act(b, h, TDM_ACT_SILU);
    int32_t y = tdm_build_matmul(b, matrix(b, "down", TDM_TYPE_F32, 48, 32, 1, 0), h);
    int32_t sum = tdm_build_add(b, y, x);
    tdm_build_output(b, tdm_build_rms_norm(b, sum, -1, 1e-5f), "norm");
    tdm_build_output(b, tdm_build_softmax(b, h), "soft");
    tdm_build_output(b, h, "cut");
}

static void no_tokens(tdm_builder *b) {
    tokens_make(b, 0);
}
static void one_token(tdm_builder *b) {
    tokens_make(b, 1);
}

/* An empty slice of the cut axis, concatenated with one that is not empty. */
static void empty_window(tdm_builder *b) {
    const int64_t off[4] = {20, 0, 0, 0}, none[4] = {0, 3, 1, 1}, some[4] = {5, 3, 1, 1};
    int32_t x = input(b, "x", 32, 3);
    int32_t h = tdm_build_matmul(b, matrix(b, "up", TDM_TYPE_F32, 32, 48, 1, 1), x);
    int32_t empty = tdm_build_scale(b, tdm_build_slice(b, h, off, none), 2, 1);
    int32_t window = tdm_build_scale(b, tdm_build_slice(b, h, off, some), 2, 1);
    tdm_build_output(b, tdm_build_softmax(b, empty), "nothing");
    tdm_build_output(b, tdm_build_concat(b, empty, window, 0), "beside");
    tdm_build_output(b, tdm_build_concat(b, empty, tdm_build_softmax(b, window), 0), "whole");
}

/* A product over an axis of length 0 is zero. */
static void empty_columns(tdm_builder *b) {
    int32_t x = input(b, "x", 0, 3), r = input(b, "r", 16, 3);
    int32_t y = tdm_build_matmul(b, matrix(b, "w", TDM_TYPE_F32, 0, 16, 0, 0), x);
    tdm_build_output(b, tdm_build_softmax(b, tdm_build_add(b, y, r)), "soft");
    tdm_build_output(b, y, "zero");
}

/* The same where an empty value is assigned: no member has an addend. */
static void empty_cut(tdm_builder *b) {
    const int64_t off[4] = {20, 0, 0, 0}, none[4] = {0, 3, 1, 1};
    int32_t x = input(b, "x", 32, 3), r = input(b, "r", 3, 3);
    int32_t h = tdm_build_matmul(b, matrix(b, "up", TDM_TYPE_F32, 32, 48, 1, 1), x);
    int32_t w = tdm_build_scale(b, tdm_build_slice(b, h, off, none), 2, 1);
    int32_t y = tdm_build_matmul(b, w, w);
    tdm_build_output(b, tdm_build_act(b, y, TDM_ACT_GELU), "act");
    tdm_build_output(b, tdm_build_softmax(b, tdm_build_add(b, y, r)), "soft");
    tdm_build_output(b, tdm_build_add(b, r, tdm_build_add(b, y, y)), "sum");
}

/* Outputs that other outputs are computed from, and partial sums with several readers. */
static void shared_results(tdm_builder *b) {
    int32_t x = input(b, "x", 32, 4);
    int32_t h = tdm_build_matmul(b, matrix(b, "up", TDM_TYPE_F32, 32, 48, 1, 1), x);
    int32_t y = tdm_build_matmul(b, matrix(b, "down", TDM_TYPE_F32, 48, 32, 1, 0), h);
    int32_t a = tdm_build_add(b, y, x), c = tdm_build_add(b, a, y), d = tdm_build_add(b, c, c);
    tdm_build_output(b, y, "y");
    tdm_build_output(b, a, "a");
    tdm_build_output(b, c, "c");
    tdm_build_output(b, d, "d");
    tdm_build_output(b, tdm_build_copy(b, tdm_build_reshape(b, a, 64, 2, 1, 1), TDM_TYPE_F32),
                     "view");
    tdm_build_output(b, tdm_build_mul(b, d, h = tdm_build_act(b, y, TDM_ACT_RELU)), "mul");
    tdm_build_output(b, h, "relu");
}

/* A bias of one number, of one for each token, of one for each column. */
static void biases(tdm_builder *b) {
    int32_t x = input(b, "x", 32, 4);
    int32_t h = tdm_build_matmul(b, matrix(b, "up", TDM_TYPE_F32, 32, 48, 1, 1), x);
    int32_t y = tdm_build_matmul(b, matrix(b, "down", TDM_TYPE_F32, 48, 32, 1, 0), h);
    int32_t one = input(b, "one", 1, 1), row = input(b, "row", 1, 4),
            column = input(b, "col", 32, 1);
    y = tdm_build_add(b, tdm_build_add(b, tdm_build_add(b, y, one), row), column);
    tdm_build_output(b, tdm_build_mul(b, tdm_build_mul(b, y, row), column), "y");
    tdm_build_output(b, tdm_build_mul(b, tdm_build_add(b, h, one), row), "h");
}

/* A sum divided by 0 is infinite, with its own sign: not NaN, as addends of both signs would
 * give. */
static void divided_by_zero(tdm_builder *b) {
    int32_t x = input(b, "x", 32, 4);
    int32_t h = tdm_build_matmul(b, matrix(b, "up", TDM_TYPE_F32, 32, 48, 1, 1), x);
    int32_t y = tdm_build_matmul(b, matrix(b, "down", TDM_TYPE_F32, 48, 32, 1, 0), h);
    int32_t zero = tdm_build_scale(b, input(b, "row", 1, 4), 0, 0);
    tdm_build_output(b, tdm_build_clamp(b, tdm_build_div(b, y, zero), -2, 2), "sign");
    tdm_build_output(b, tdm_build_clamp(b, tdm_build_div(b, h, zero), -2, 2), "cut");
}

/* K-quant rows cut inside superblocks. */
static void superblocks(tdm_builder *b) {
    int32_t x = input(b, "x", 32, 2);
    int32_t h = tdm_build_matmul(b, matrix(b, "up", TDM_TYPE_F32, 32, 256, 1, 1), x);
    int32_t y = tdm_build_matmul(b, matrix(b, "down", TDM_TYPE_Q4_K, 256, 32, 1, 0), h);
    tdm_build_output(b, tdm_build_add(b, y, x), "y");
}

/* TOP_K with both outputs: values and ids. */
static void choice(tdm_builder *b) {
    int32_t x = input(b, "x", 32, 5), id = -1;
    int32_t h = tdm_build_matmul(b, matrix(b, "up", TDM_TYPE_F32, 32, 48, 1, 1), x);
    int32_t best = tdm_build_top_k(b, h, 3, 100, &id);
    tdm_build_output(b, best, "best");
    tdm_build_output(b, id, "id");
}

static const tdm_kv_desc cache = {.struct_size = sizeof cache,
                                  .type_k = TDM_TYPE_F32,
                                  .type_v = TDM_TYPE_F32,
                                  .head_dim_k = 8,
                                  .head_dim_v = 8,
                                  .n_head_kv = 3};
static uint64_t page_size; /* of it, on the current device */

/* Attention over a cache without pages. */
static void no_pages(tdm_builder *b) {
    const tdm_step_caps caps = {.n_tok = 3, .n_seq = 1, .n_out = 3, .n_class = 1};
    tdm_partition heads = columns(3, 3);
    int32_t kv = 0, step = tdm_build_step(b, &caps);
    int32_t q = tdm_build_input(b, "q", TDM_TYPE_F32, (const int64_t[]){8, 6, 3, 1});
    int32_t k = tdm_build_input(b, "k", TDM_TYPE_F32, (const int64_t[]){8, 3, 3, 1});
    int32_t state = tdm_build_state(b, "cache", &cache, page_size, 0, &kv);
    tdm_build_set_partition(b, state, tdm_build_partition(b, &heads), 0);
    tdm_build_kv_write(b, k, k, step, state, kv);
    const tdm_attention_params params = {
        .kv = kv, .heads_per_kv = 2, .n_head_all = 6, .is_causal = 1};
    tdm_build_output(b, tdm_build_attention(b, q, step, state, -1, &params, NULL), "o");
}

typedef struct edge {
    const char *name;
    void (*make)(tdm_builder *b);
} edge;

static const edge edges[] = {
    {"no tokens", no_tokens},
    {"one token", one_token},
    {"empty window", empty_window},
    {"empty columns", empty_columns},
    {"empty cut", empty_cut},

    {"shared results", shared_results},
    {"biases", biases},
    {"divided by zero", divided_by_zero},
    {"superblocks", superblocks},
    {"choice", choice},
    {"no pages", no_pages},
};

/* ---- Running ---- */

static uint64_t seed_of(const char *name) {
    uint64_t seed = 7;
    while (*name != '\0') seed = seed * 131 + (uint64_t)*name++;
    return seed;
}

static float *numbers(uint64_t seed, int64_t n, float scale) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; x != NULL && i < n; i++)
        x[i] = (float)((double)(int64_t)random_u64(&seed) / 9.3e18) * scale;
    return x;
}

static void *weight_bytes(void *context, const tdm_graph *graph, int32_t value) {
    const tdm_value *v = tdm_graph_value(graph, value);
    int64_t n = tdm_shape_count(v->ne);
    float *x = numbers(seed_of(tdm_graph_value_name(graph, value)), n, 0.3f);
    (void)context;
    if (x == NULL || v->type == TDM_TYPE_F32) return x;
    void *bytes = malloc(tdm_tensor_canonical_size((tdm_type)v->type, v->ne));
    if (bytes != NULL) tdm_row_quantize((tdm_type)v->type, x, bytes, n, NULL);
    free(x);
    return bytes;
}

/* A step of padding alone. */
static int32_t *step_make(const tdm_step_caps *caps) {
    tdm_step_header h = {0};
    assert_int_equal(tdm_step_layout(caps, &h, NULL), TDM_OK);
    int32_t *step = calloc((size_t)h.size, sizeof *step);
    assert_non_null(step);
    memcpy(step, &h, sizeof h);
    for (int32_t t = 0; t < caps->n_tok; t++)
        step[h.pos_off + t] = step[h.cls[0].write_off + t] = -1;
    return step;
}

enum { MAX_IO = 16 };

typedef struct result {
    void *data[MAX_IO];
    tdm_value values[MAX_IO];
    int32_t n;
} result;

static tdm_graph *graph_make(const edge *e) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    e->make(b);
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s: %s", e->name, err.message);
    tdm_builder_destroy(b);
    return graph;
}

static tdm_status device_run(group_rig *rig, tdm_open_device *dev, const edge *e, result *out,
                             tdm_error *err) {
    if (tdm_open_device_kv_page_size(dev, &cache, &page_size, err) != TDM_OK)
        fail_msg("%s", err->message);
    tdm_graph *graph = graph_make(e);
    group_load *load = NULL;
    tdm_schedule *schedule = NULL;
    tdm_io in[MAX_IO], io[MAX_IO];
    int32_t n_in = 0;
    memset(out, 0, sizeof *out);
    tdm_status status = group_load_prepare(rig, dev, graph, err);
    if (status == TDM_OK)
        status = group_load_create(rig, dev, graph, weight_bytes, NULL, &load, err);
    if (status != TDM_OK) tdm_graph_free(graph);
    if (status == TDM_OK) status = group_load_schedule(load, graph, &schedule, err);
    for (int32_t i = 0; status == TDM_OK && i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        uint64_t size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
        if (i == graph->step)
            in[n_in++] = (tdm_io){i, step_make(&graph->step_caps), size};
        else if (v->kind == TDM_VALUE_INPUT)
            in[n_in++] = (tdm_io){
                i, numbers(seed_of(tdm_graph_value_name(graph, i)), tdm_shape_count(v->ne), 1),
                size};
        if (v->kind != TDM_VALUE_OUTPUT) continue;
        out->values[out->n] = *v;
        out->data[out->n] = calloc(1, size + 1);
        io[out->n] = (tdm_io){i, out->data[out->n], size};
        out->n++;
    }
    for (int k = 0; k < 2 && status == TDM_OK; k++)
        status = tdm_schedule_run(schedule, in, n_in, io, out->n, err);
    for (int32_t i = 0; i < n_in; i++) free(in[i].data);
    tdm_schedule_destroy(schedule);
    group_load_destroy(load);
    return status;
}

static void result_free(result *r) {
    for (int32_t i = 0; i < r->n; i++) free(r->data[i]);
}

static void compare(const edge *e, const char *words, const result *got, const result *want) {
    assert_int_equal(got->n, want->n);
    for (int32_t i = 0; i < got->n; i++) {
        const tdm_value *v = &want->values[i];
        int64_t n = tdm_shape_count(v->ne);
        const float *x = got->data[i], *y = want->data[i];
        if (v->type == TDM_TYPE_I32) {
            assert_memory_equal(x, y, (size_t)n * sizeof *x);
            continue;
        }
        double error = 0, power = 1e-12;
        for (int64_t k = 0; k < n; k++) {
            error += ((double)x[k] - y[k]) * ((double)x[k] - y[k]);
            power += (double)y[k] * y[k];
        }
        if (!(error <= 1e-9 * power))
            fail_msg("%s, output %d: NMSE %.2e\n  %s", e->name, (int)i, error / power, words);
    }
}

static void topology_run(group_topology t) {
    char words[1024];
    group_rig *rig = NULL;
    tdm_error err = {0};
    t.path = "reference";
    t.split = "tensor";
    t.experts = "hidden";
    t.reduce_type = "f32";
    t.check = "replicas";
    if (t.attention == NULL) t.attention = "replicate";
    group_topology_print(&t, words, sizeof words);
    if (group_rig_open(&t, &rig, &err) != TDM_OK) fail_msg("%s: %s", words, err.message);
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        result got, want;
        id_base = 10 * (int32_t)i;
        if (device_run(rig, group_rig_single(rig), &edges[i], &want, &err) != TDM_OK)
            fail_msg("%s, on one device: %s", edges[i].name, err.message);
        if (device_run(rig, group_rig_group(rig), &edges[i], &got, &err) != TDM_OK)
            fail_msg("%s: %s\n  %s", edges[i].name, err.message, words);
        compare(&edges[i], words, &got, &want);
        result_free(&got);
        result_free(&want);
    }
    if (group_rig_n_warning(rig) != 0) fail_msg("%s", group_rig_warning(rig));
    group_rig_close(rig);
}

static void test_even(void **state) {
    (void)state;
    topology_run((group_topology){.n_member = 3, .shares = {1, 1, 1}});
    topology_run((group_topology){.n_member = 3, .shares = {1, 1, 1}, .attention = "heads"});
    topology_run((group_topology){.n_member = 3, .shares = {1, 1, 1}, .attention = "sequence"});
}

static void test_zeros(void **state) {
    (void)state;
    topology_run((group_topology){.n_member = 4, .shares = {0, 3, 0, 1}});
    topology_run((group_topology){.n_member = 3, .shares = {0, 0, 1}});
}

static void test_one(void **state) {
    (void)state;
    topology_run((group_topology){.n_member = 1, .shares = {1}});
}

static void test_nested(void **state) {
    (void)state;
    topology_run((group_topology){.n_member = 3, .shares = {1, 1, 1}, .is_nested = true});
    topology_run((group_topology){.n_member = 4, .shares = {3, 1, 2, 0}, .is_nested = true});
}

static void test_most(void **state) {
    (void)state;
    group_topology t = {.n_member = TDM_MAX_MEMBERS};
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) t.shares[d] = 1;
    topology_run(t);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),    cmocka_unit_test(test_even), cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_nested), cmocka_unit_test(test_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
