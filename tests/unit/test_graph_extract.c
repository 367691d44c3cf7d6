/* SPDX-License-Identifier: MIT
 *
 * test_graph_extract.c: parts of graphs read and write the same bytes as the whole: every source
 * and destination of every node, by slot, offset and strides.
 */
#include "core/base/view.h"
#include "graph_fixture.h"

typedef struct whole {
    const tdm_graph *graph;
    tdm_view_place *places;
    int32_t *producer; /* node of each value; -1 = none */
    int32_t *last;     /* last node that touches each base */
} whole;

static whole whole_make(const tdm_graph *graph) {
    whole w = {graph, malloc(((size_t)graph->n_value + 1) * sizeof *w.places),
               malloc(((size_t)graph->n_value + 1) * sizeof *w.producer),
               malloc(((size_t)graph->n_value + 1) * sizeof *w.last)};
    int32_t i, s;
    tdm_view_resolve_all(graph, w.places);
    for (i = 0; i < graph->n_value; i++) w.producer[i] = w.last[i] = -1;
    for (i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        for (s = 0; s < node->n_dst; s++)
            if (node->dst[s] >= 0) w.producer[node->dst[s]] = i;
        for (s = 0; s < node->n_src; s++)
            if (node->src[s] >= 0) w.last[w.places[node->src[s]].base] = i;
    }
    return w;
}

static void whole_free(whole *w) {
    free(w->places);
    free(w->producer);
    free(w->last);
}

/* Value `a` of the whole is value `b` of the part. */
static void same_value(const whole *w, int32_t a, const tdm_graph *part,
                       const tdm_view_place *places, int32_t b, const int32_t *slots, int32_t first,
                       int32_t last) {
    const tdm_view_place *pa, *pb;
    const tdm_value *va, *vb, *base_a, *base_b;
    int32_t want;
    assert_int_equal(a < 0, b < 0);
    if (a < 0) return;
    pa = &w->places[a], pb = &places[b];
    va = tdm_graph_value(w->graph, a), vb = tdm_graph_value(part, b);
    assert_int_equal(va->type, vb->type);
    assert_memory_equal(va->ne, vb->ne, sizeof va->ne);
    assert_string_equal(tdm_graph_value_name(w->graph, a), tdm_graph_value_name(part, b));
    assert_int_equal(pa->off, pb->off);
    assert_memory_equal(pa->nb, pb->nb, sizeof pa->nb);
    base_a = tdm_graph_value(w->graph, pa->base), base_b = tdm_graph_value(part, pb->base);
    assert_int_equal(base_a->slot, slots[base_b->slot]);
    if (base_a->kind != TDM_VALUE_TEMP && base_a->kind != TDM_VALUE_OUTPUT)
        want = base_a->kind;
    else if (w->producer[pa->base] < first)
        want = TDM_VALUE_INPUT;
    else if (base_a->kind == TDM_VALUE_OUTPUT || w->last[pa->base] >= last)
        want = TDM_VALUE_OUTPUT;
    else
        want = TDM_VALUE_TEMP;
    assert_int_equal(base_b->kind, want);
}

/* Which nodes of the whole are in a part: all but views that no node of it reads. */
static bool *taken_find(const tdm_graph *graph, int32_t first, int32_t last) {
    bool *taken = calloc((size_t)graph->n_node + 1, sizeof *taken);
    for (int32_t i = last - 1; i >= 0; i--) {
        const bool is_view = tdm_op_is_view(tdm_graph_node(graph, i)->op);
        taken[i] = !is_view && i >= first;
        for (int32_t k = i + 1; k < last && is_view; k++)
            for (int32_t s = 0; s < TDM_MAX_SRC; s++)
                if (taken[k] &&
                    tdm_graph_node(graph, k)->src[s] == tdm_graph_node(graph, i)->dst[0])
                    taken[i] = true;
    }
    return taken;
}

static void part_check(const whole *w, int32_t first, int32_t count) {
    int32_t *slots = malloc(((size_t)w->graph->n_slot + 1) * sizeof *slots);
    tdm_view_place *places;
    tdm_graph *part = NULL;
    tdm_error err = {0};
    int32_t i, s, n = 0;
    if (tdm_graph_extract(w->graph, first, count, &part, slots, &err) != TDM_OK)
        fail_msg("%s", err.message);
    if (tdm_graph_verify(part, &err) != TDM_OK) fail_msg("%s", err.message);
    places = malloc(((size_t)part->n_value + 1) * sizeof *places);
    tdm_view_resolve_all(part, places);
    bool *taken = taken_find(w->graph, first, first + count);
    for (i = 0; i < first + count; i++) {
        if (!taken[i]) continue;
        const tdm_node *from = tdm_graph_node(w->graph, i), *to = tdm_graph_node(part, n);
        assert_true(n++ < part->n_node);
        assert_int_equal(from->op, to->op);
        assert_memory_equal(&from->params, &to->params, sizeof from->params);
        for (s = 0; s < TDM_MAX_SRC; s++)
            same_value(w, from->src[s], part, places, to->src[s], slots, first, first + count);
        for (s = 0; s < TDM_MAX_DST; s++)
            same_value(w, from->dst[s], part, places, to->dst[s], slots, first, first + count);
    }
    assert_int_equal(n, part->n_node);
    free(taken);
    tdm_graph_free(part);
    free(places);
    free(slots);
}

static void test_random(void **state) {
    int round;
    (void)state;
    random_begin("graph_extract", 99);
    for (round = 0; round < 100; round++) {
        tdm_graph *graph = random_graph(60);
        whole w = whole_make(graph);
        int32_t at = 0;
        part_check(&w, 0, graph->n_node);
        while (at < graph->n_node) {
            int32_t count = 1 + (int32_t)random_below(12);
            if (count > graph->n_node - at) count = graph->n_node - at;
            part_check(&w, at, count);
            at += count;
        }
        part_check(&w, graph->n_node, 0);
        whole_free(&w);
        tdm_graph_free(graph);
    }
}

/* base -> slice -> reshape | copy: the part behind the bar gets the base and both view nodes. */
static void test_views_cross(void **state) {
    fixture f = fixture_make();
    tdm_graph *graph = NULL, *part = NULL;
    int32_t slots[64];
    int32_t base = tdm_build_scale(f.b, f.x, 1, 0);
    int32_t slice = tdm_build_slice(f.b, base, NE(0, 1, 0, 0), NE(64, 2, 1, 1));
    int32_t flat = tdm_build_reshape(f.b, slice, 128, 1, 1, 1);
    int32_t copy = tdm_build_copy(f.b, flat, TDM_TYPE_F16);
    (void)state;
    tdm_build_output(f.b, copy, "out");
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    assert_int_equal(graph->n_node, 4);

    assert_int_equal(tdm_graph_extract(graph, 3, 1, &part, slots, NULL), TDM_OK);
    assert_int_equal(part->n_node, 3);
    assert_int_equal(part->n_value, 4);
    assert_int_equal(part->n_slot, 2);
    assert_int_equal(tdm_graph_node(part, 0)->op, TDM_OP_SLICE);
    assert_int_equal(tdm_graph_node(part, 1)->op, TDM_OP_RESHAPE);
    assert_int_equal(slots[0], tdm_graph_value(graph, base)->slot);
    assert_int_equal(tdm_graph_value(part, 0)->kind, TDM_VALUE_INPUT);
    assert_int_equal(part->step, -1);
    assert_int_equal(part->step_caps.n_tok, 0);
    assert_int_not_equal(part->hash, 0);
    tdm_graph_free(part);

    /* before the bar the base is what others read; its views are left out */
    assert_int_equal(tdm_graph_extract(graph, 0, 3, &part, slots, NULL), TDM_OK);
    assert_int_equal(part->n_node, 1);
    assert_int_equal(part->n_slot, 2);
    assert_int_equal(tdm_graph_value(part, 1)->kind, TDM_VALUE_OUTPUT);
    assert_int_equal(slots[1], tdm_graph_value(graph, base)->slot);
    tdm_graph_free(part);
    tdm_graph_free(graph);
    tdm_builder_destroy(f.b);
}

static void test_state_order(void **state) {
    fixture f = fixture_make();
    tdm_graph *graph = NULL, *part = NULL;
    tdm_attention_params p = fixture_attention(&f);
    int32_t slots[64], i;
    const int32_t want[] = {TDM_OP_KV_WRITE, TDM_OP_ATTENTION, TDM_OP_KV_COPY};
    (void)state;
    tdm_build_scale(f.b, f.x, 1, 0);
    tdm_build_kv_write(f.b, f.k, f.k, f.step, f.state, f.kv);
    tdm_build_attention(f.b, f.q, f.step, f.state, -1, &p, NULL);
    tdm_build_kv_copy(f.b, f.step, f.state, f.kv);
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    assert_int_equal(tdm_graph_extract(graph, 1, 3, &part, slots, NULL), TDM_OK);
    for (i = 0; i < 3; i++) assert_int_equal(tdm_graph_node(part, i)->op, want[i]);
    assert_int_equal(tdm_graph_value(part, tdm_graph_node(part, 0)->src[3])->kind, TDM_VALUE_STATE);
    assert_int_equal(tdm_graph_node(part, 0)->src[3], tdm_graph_node(part, 1)->src[2]);
    assert_int_equal(tdm_graph_node(part, 0)->src[2], part->step);
    assert_int_equal(part->step_caps.n_tok, FIX_TOK);
    tdm_graph_free(part);
    tdm_graph_free(graph);
    tdm_builder_destroy(f.b);
}

static void test_range(void **state) {
    tdm_graph *graph, *part = NULL;
    int32_t slots[512];
    tdm_error err = {0};
    const int32_t bad[][2] = {{-1, 1}, {0, -1}, {0, 10000}, {10000, 0}, {INT32_MAX, INT32_MAX}};
    size_t i;
    (void)state;
    random_begin("graph_extract", 3);
    graph = random_graph(5);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tdm_graph_extract(graph, bad[i][0], bad[i][1], &part, slots, &err),
                         TDM_INVALID_ARGUMENT);
        assert_null(part);
    }
    tdm_graph_free(graph);
    tdm_graph_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_views_cross),
        cmocka_unit_test(test_state_order),
        cmocka_unit_test(test_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
