/* SPDX-License-Identifier: MIT
 *
 * test_graph_memory.c: the memory plan against an independent checker. For every pair of
 * temporaries it determines, node by node, whether both are needed at the same time; then they
 * must not share a byte. The plan is not much larger than the largest sum of live temporaries.
 */
#include "core/base/view.h"
#include "graph_fixture.h"

static bool node_touches(const tdm_graph *graph, const tdm_view_place *places, int32_t node,
                         int32_t value) {
    const tdm_node *n = tdm_graph_node(graph, node);
    int i;
    for (i = 0; i < TDM_MAX_SRC; i++)
        if (n->src[i] >= 0 && places[n->src[i]].base == value) return true;
    for (i = 0; i < TDM_MAX_DST; i++)
        if (n->dst[i] >= 0 && places[n->dst[i]].base == value) return true;
    return false;
}

/* For each node whether `value` must hold its bytes while it runs: between the first and the last
 * node that touch it. */
static void alive_find(const tdm_graph *graph, const tdm_view_place *places, int32_t value,
                       uint8_t *alive) {
    int32_t i, first = -1, last = -1;
    for (i = 0; i < graph->n_node; i++)
        if (node_touches(graph, places, i, value)) {
            if (first < 0) first = i;
            last = i;
        }
    for (i = 0; i < graph->n_node; i++) alive[i] = first >= 0 && i >= first && i <= last;
}

static uint64_t value_size(const tdm_graph *graph, int32_t i) {
    const tdm_value *v = tdm_graph_value(graph, i);
    return tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
}

static bool is_planned(const tdm_graph *graph, int32_t i) {
    const tdm_value *v = tdm_graph_value(graph, i);
    return v->kind == TDM_VALUE_TEMP && v->slot >= 0;
}

/* Returns plan size divided by the largest sum of live bytes. */
static double plan_check(const tdm_graph *graph, uint64_t align) {
    size_t n_node = (size_t)graph->n_node, n_value = (size_t)graph->n_value;
    uint64_t *offsets = malloc(((size_t)graph->n_slot + 1) * sizeof *offsets);
    tdm_view_place *places = malloc((n_value + 1) * sizeof *places);
    uint8_t *alive = calloc(n_value * n_node + 1, 1);
    uint64_t size = 12345, floor = 0;
    int32_t i, j, n;
    tdm_error err = {0};
    if (tdm_graph_plan_memory(graph, align, offsets, &size, &err) != TDM_OK)
        fail_msg("%s", err.message);
    tdm_view_resolve_all(graph, places);
    for (i = 0; i < graph->n_value; i++) {
        uint64_t off, bytes = value_size(graph, i);
        if (tdm_graph_value(graph, i)->slot < 0) continue;
        off = offsets[tdm_graph_value(graph, i)->slot];
        if (!is_planned(graph, i)) {
            assert_true(off == UINT64_MAX);
            continue;
        }
        assert_true(off % align == 0 && off <= size && bytes <= size - off);
        alive_find(graph, places, i, alive + (size_t)i * n_node);
        for (j = 0; j < i; j++) {
            uint64_t other, other_bytes = value_size(graph, j);
            if (!is_planned(graph, j)) continue;
            other = offsets[tdm_graph_value(graph, j)->slot];
            if (off >= other + other_bytes || other >= off + bytes) continue;
            if (bytes == 0 || other_bytes == 0) continue;
            for (n = 0; n < graph->n_node; n++)
                if (alive[(size_t)i * n_node + (size_t)n] && alive[(size_t)j * n_node + (size_t)n])
                    fail_msg("values %d and %d are both needed at node %d and share bytes", (int)i,
                             (int)j, (int)n);
        }
    }
    for (n = 0; n < graph->n_node; n++) {
        uint64_t sum = 0;
        for (i = 0; i < graph->n_value; i++)
            if (is_planned(graph, i) && alive[(size_t)i * n_node + (size_t)n])
                sum += (value_size(graph, i) + align - 1) / align * align;
        if (sum > floor) floor = sum;
    }
    assert_true(size >= floor);
    free(offsets);
    free(places);
    free(alive);
    return floor > 0 ? (double)size / (double)floor : 1;
}

static void test_random(void **state) {
    static const uint64_t aligns[] = {1, 32, 64, 256, 4096};
    double sum = 0, worst = 0;
    int i, n = 150;
    (void)state;
    random_begin("graph_memory", 4711);
    for (i = 0; i < n; i++) {
        tdm_graph *graph = random_graph(10 + (int)random_below(120));
        double ratio = plan_check(graph, aligns[random_below(5)]);
        sum += ratio;
        if (ratio > worst) worst = ratio;
        tdm_graph_free(graph);
    }
    printf("graph_memory: plan / largest live sum: mean %.3f, worst %.3f\n", sum / n, worst);
    assert_true(sum / n < 1.05 && worst < 1.4);
}

/* A chain of layers as a transformer has them: two buffers' worth whatever the depth. */
static void test_chain(void **state) {
    fixture f = fixture_make();
    tdm_graph *graph = NULL;
    int32_t x = f.x, i;
    uint64_t offsets[512], size;
    (void)state;
    for (i = 0; i < 50; i++) {
        int32_t h = tdm_build_rms_norm(f.b, x, f.norm, 1e-5f);
        h = tdm_build_matmul(f.b, f.w, h);
        x = tdm_build_add(f.b, x, tdm_build_concat(f.b, h, h, 0));
    }
    tdm_build_output(f.b, x, "out");
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    assert_true(graph->n_slot <= 512);
    assert_int_equal(tdm_graph_plan_memory(graph, 0, offsets, &size, NULL), TDM_OK);
    assert_true(size <= 4 * 64 * FIX_TOK * 4);
    assert_true(plan_check(graph, 64) < 1.5);
    tdm_graph_free(graph);
    tdm_builder_destroy(f.b);
}

/* A view keeps its base's bytes: the base would be free after node 1 without it. */
static void test_view_keeps_base(void **state) {
    fixture f = fixture_make();
    tdm_graph *graph = NULL;
    int32_t base = tdm_build_scale(f.b, f.x, 1, 0);
    int32_t view = tdm_build_permute(f.b, base, 1, 0, 2, 3);
    int32_t other = tdm_build_scale(f.b, f.x, 2, 0);
    int32_t last = tdm_build_copy(f.b, view, TDM_TYPE_F32);
    uint64_t offsets[64], size;
    (void)state;
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    assert_int_equal(tdm_graph_plan_memory(graph, 64, offsets, &size, NULL), TDM_OK);
    assert_int_not_equal(offsets[tdm_graph_value(graph, base)->slot],
                         offsets[tdm_graph_value(graph, other)->slot]);
    assert_int_not_equal(offsets[tdm_graph_value(graph, base)->slot],
                         offsets[tdm_graph_value(graph, last)->slot]);
    assert_int_equal(size, 2 * 64 * FIX_TOK * 4); /* `last` takes the place of `other` */
    tdm_graph_free(graph);
    tdm_builder_destroy(f.b);
}

static void test_edges(void **state) {
    fixture f = fixture_make();
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    uint64_t offsets[64], size = 7;
    int32_t none =
        tdm_build_scale(f.b, tdm_build_input(f.b, NULL, TDM_TYPE_F32, NE(64, 0, 1, 1)), 1, 0);
    (void)state;
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    assert_int_equal(tdm_graph_plan_memory(graph, 48, offsets, &size, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "48"));
    assert_int_equal(size, 7);
    assert_int_equal(tdm_graph_plan_memory(graph, UINT64_C(1) << 63, offsets, &size, &err), TDM_OK);
    assert_int_equal(size, 0);
    assert_int_equal(offsets[tdm_graph_value(graph, none)->slot], 0);
    tdm_graph_free(graph);
    /* three temporaries of 2^63 bytes each, rounded up, are too many */
    {
        int32_t x = tdm_build_input(f.b, NULL, TDM_TYPE_F32, NE(8, 1, 1, 1));
        int32_t y = tdm_build_scale(f.b, x, 1, 0), z = tdm_build_scale(f.b, y, 1, 0);
        tdm_build_add(f.b, y, z);
        assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
        assert_int_equal(tdm_graph_plan_memory(graph, UINT64_C(1) << 63, offsets, &size, &err),
                         TDM_OUT_OF_RANGE);
        tdm_graph_free(graph);
    }
    tdm_builder_destroy(f.b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_view_keeps_base),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
