/* SPDX-License-Identifier: MIT
 *
 * test_graph_hash.c: the hash depends on every field that matters and on no other; printing shows
 * every node; the counters count.
 */
#include "core/counters.h"
#include "graph_copy.h"
#include "tests/support/graph_print.h"

static void must_differ(const tdm_graph *a, const tdm_graph *b, const char *what, size_t at) {
    if (tdm_graph_hash(a) == tdm_graph_hash(b)) fail_msg("%s, byte %zu: same hash", what, at);
}

static void must_equal(const tdm_graph *a, const tdm_graph *b) {
    assert_true(tdm_graph_hash(a) == tdm_graph_hash(b));
}

/* Every byte of an element changes the hash, except the n_skip bytes from `skip` on. */
static void bytes_check(const tdm_graph *graph, graph_copy *c, void *element, size_t size,
                        const char *what, size_t skip, size_t n_skip) {
    unsigned char *bytes = element;
    size_t i;
    for (i = 0; i < size; i++) {
        bytes[i] ^= 0x41;
        if (i >= skip && i < skip + n_skip)
            must_equal(graph, &c->g);
        else
            must_differ(graph, &c->g, what, i);
        bytes[i] ^= 0x41;
    }
}

static void test_fields(void **state) {
    tdm_partition p = {.id = 3, .layer = 1, .n_unit = 32, .n_segment = 1, .unit_len = {1}};
    fixture f = fixture_make();
    tdm_graph *graph = NULL;
    graph_copy c;
    (void)state;
    tdm_build_set_partition(f.b, f.w, tdm_build_partition(f.b, &p), 1);
    tdm_build_matmul(f.b, f.w, f.x);
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    assert_true(graph->hash == tdm_graph_hash(graph) && graph->hash != 0);
    c = graph_copy_make(graph);
    must_equal(graph, &c.g);
    bytes_check(graph, &c, &c.values[f.w], sizeof(tdm_value), "value", offsetof(tdm_value, name),
                8); /* name and reserved */
    bytes_check(graph, &c, &c.nodes[0], sizeof(tdm_node), "node", offsetof(tdm_node, reserved), 4);
    bytes_check(graph, &c, &c.partitions[1], sizeof(tdm_partition), "partition", 0, 0);
    bytes_check(graph, &c, &c.partitions[0], sizeof(tdm_partition), "placeholder", 0,
                sizeof(tdm_partition));
    bytes_check(graph, &c, &c.kv[1], sizeof(tdm_kv_desc), "description", 0, sizeof(size_t));
    bytes_check(graph, &c, &c.g.step_caps, sizeof(tdm_step_caps), "capacities", 0, 0);
    c.g.step = -1;
    must_differ(graph, &c.g, "step", 0);
    c.g.step = graph->step;
    c.g.n_slot++;
    must_differ(graph, &c.g, "slots", 0);
    c.g.n_slot--;
    c.names[1] ^= 1;
    c.g.hash = 99;
    must_equal(graph, &c.g);
    graph_copy_free(&c);
    tdm_graph_free(graph);
    tdm_builder_destroy(f.b);
}

/* Elements with fields that a newer version appended. */
static void test_strides(void **state) {
    tdm_graph *graph;
    graph_copy c;
    size_t size = sizeof(tdm_value) + 16;
    char *wide;
    int32_t i;
    tdm_error err = {0};
    (void)state;
    random_begin("graph_hash", 5);
    graph = random_graph(30);
    c = graph_copy_make(graph);
    wide = malloc((size_t)graph->n_value * size);
    memset(wide, 0xee, (size_t)graph->n_value * size);
    for (i = 0; i < graph->n_value; i++)
        memcpy(wide + (size_t)i * size, tdm_graph_value(graph, i), sizeof(tdm_value));
    c.g.values = (const tdm_value *)(const void *)wide;
    c.g.value_size = size;
    must_equal(graph, &c.g);
    if (tdm_graph_verify(&c.g, &err) != TDM_OK) fail_msg("%s", err.message);
    free(wide);
    graph_copy_free(&c);
    tdm_graph_free(graph);
}

static void test_random(void **state) {
    enum { N = 200 };
    static uint64_t hashes[N];
    uint64_t seed;
    int i, j;
    (void)state;
    random_begin("graph_hash", 1);
    seed = random_state;
    for (i = 0; i < N; i++) {
        tdm_graph *a, *b;
        random_state = seed + (uint64_t)i;
        a = random_graph(20);
        random_state = seed + (uint64_t)i;
        b = random_graph(20);
        must_equal(a, b);
        hashes[i] = a->hash;
        for (j = 0; j < i; j++) assert_true(hashes[j] != hashes[i]);
        tdm_graph_free(a);
        tdm_graph_free(b);
    }
}

static void test_print(void **state) {
    fixture f = fixture_make();
    tdm_graph *graph = NULL;
    tdm_attention_params p = fixture_attention(&f);
    int32_t y = tdm_build_matmul(f.b, f.w, f.x);
    char *text;
    (void)state;
    tdm_build_name(f.b, y, "product", 2);
    tdm_build_attention(f.b, f.q, f.step, f.state, -1, &p, NULL);
    tdm_build_output(f.b, tdm_build_scale(f.b, y, 0.5f, -1), "logits");
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    text = graph_print(graph);
    assert_non_null(text);
#define SHOWS(words)                                                                               \
    if (strstr(text, words) == NULL) fail_msg("'%s' is not in:\n%s", words, text)
    SHOWS("graph of 3 nodes, 16 values, 16 slots; step: 5 tokens, 2 sequences");
    SHOWS("cache  0: k q8_0 [16] v q4_0 [16], 2 heads, pages of 64, class 0 rotate_k rotate_v\n");
    SHOWS("cache  1: k q8_0 [16] v q8_0 [8], 2 heads, pages of 64, class 0 rotate_k rotate_v "
          "v_from_k\n");
    SHOWS("weight %6 'w' q8_0 [64, 32] for matmul\n");
    SHOWS("   0  matmul    %13 'blk.2.product' f32 [32, 5] <- %6 'w', %3 'x', -\n");
    SHOWS("   1  attention %14 'attention.14' f32 [16, 4, 5] <- %4 'q', %0 'step', %1 "
          "'blk.0.cache', -, -, - kv=0 heads=0 of 4");
    SHOWS("'logits' f32 [32, 5] output <- %13 'blk.2.product' scale=0.5 bias=-1\n");
    free(text);
    tdm_graph_free(graph);
    tdm_builder_destroy(f.b);
    /* every op prints */
    random_begin("graph_print", 12);
    {
        bool seen[TDM_OP_COUNT_] = {false};
        int i, n_missing = 0;
        for (i = 0; i < 60; i++) {
            int32_t n, lines = 0;
            char *at;
            graph = random_graph(80);
            text = graph_print(graph);
            for (n = 0; n < graph->n_node; n++) seen[tdm_graph_node(graph, n)->op] = true;
            for (at = text; *at != '\0'; at++) lines += *at == '\n';
            for (n = 0; n < graph->n_value; n++) {
                int32_t kind = tdm_graph_value(graph, n)->kind;
                lines -= kind != TDM_VALUE_TEMP && kind != TDM_VALUE_OUTPUT;
            }
            assert_int_equal(lines, 1 + graph->n_kv + graph->n_node);
            free(text);
            tdm_graph_free(graph);
        }
        for (i = 1; i < TDM_OP_COUNT_; i++)
            if (!seen[i] && i != TDM_OP_EXCHANGE) {
                printf("no random graph has %s\n", tdm_op_name(i));
                n_missing++;
            }
        assert_int_equal(n_missing, 0);
    }
}

static void test_counters(void **state) {
    uint64_t built = tdm_counter_get(TDM_COUNTER_GRAPHS_BUILT);
    uint64_t hashed = tdm_counter_get(TDM_COUNTER_GRAPHS_HASHED);
    fixture f = fixture_make();
    tdm_graph *graph = NULL;
    int i;
    (void)state;
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_GRAPHS_BUILT), built + 1);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_GRAPHS_HASHED), hashed + 1);
    tdm_build_fail(f.b, TDM_IO, "no");
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_IO);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_GRAPHS_BUILT), built + 1);
    tdm_counter_add(TDM_COUNTER_BYTES_ALLOCATED, 5);
    tdm_counter_add(TDM_COUNTER_COUNT_, 5);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_COUNT_), 0);
    for (i = 0; i < TDM_COUNTER_COUNT_; i++)
        assert_string_not_equal(tdm_counter_name((tdm_counter)i), "?");
    assert_string_equal(tdm_counter_name(TDM_COUNTER_COUNT_), "?");
    tdm_graph_free(graph);
    tdm_builder_destroy(f.b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),   cmocka_unit_test(test_strides),
        cmocka_unit_test(test_random),   cmocka_unit_test(test_print),
        cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
