/* SPDX-License-Identifier: MIT
 *
 * test_split_set.c: layouts that callers declare. For any declared layout of inputs, weights and
 * temporaries, all results are those of one device. A layout that a group cannot take is refused
 * by name, and earlier declarations stay.
 *
 *     TANDEM_SEED=N    the first case's seed; TANDEM_CASES=N: how many
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/split/declare.h"
#include "tests/split/trial.h"

enum { BLOCK = 10 };

/* ---- Random graphs with random declarations ---- */

static void test_random(void **state) {
    (void)state;
    const char *seed_text = getenv("TANDEM_SEED"), *cases = getenv("TANDEM_CASES");
    uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : 5;
    uint64_t n_case = cases != NULL ? strtoull(cases, NULL, 10) : 400;
    int64_t n_declared = 0, n_ill_posed = 0, n_refused = 0;
    printf("%d cases from TANDEM_SEED=%llu\n", (int)n_case, (unsigned long long)seed);
    for (uint64_t i = 0; i < n_case;) {
        static choices topology, graph;
        group_topology t;
        group_rig *rig = NULL;
        tdm_error err = {0};
        char words[1024];
        choices_begin(&topology, seed + i);
        group_topology_draw(&topology, &t);
        t.reduce_type = "f32";
        t.is_nested = false;
        t.n_declared = 6;
        group_topology_print(&t, words, sizeof words);
        if (group_rig_open(&t, &rig, &err) != TDM_OK) fail_msg("%s: %s", words, err.message);
        for (uint64_t k = 0; k < BLOCK && i < n_case; k++, i++) {
            trial_result result;
            choices_begin(&graph, (seed + i) * 2654435761u + 1);
            trial_run(rig, &t, &graph, (int32_t)k * TRIAL_PARTITIONS, &result);
            if (result.why[0] != '\0') {
                group_rig_close(rig);
                fail_msg("seed %llu: %s\n  %s\nagain: TANDEM_SEED=%llu TANDEM_CASES=%llu",
                         (unsigned long long)(seed + i), result.why, words,
                         (unsigned long long)(seed + i - k), (unsigned long long)(k + 1));
            }
            n_declared += result.n_declared;
            n_ill_posed += result.is_ill_posed;
            n_refused += result.is_refused;
        }
        group_rig_close(rig);
    }
    printf("%lld layouts declared, %lld cases that noise moves as much, %lld refused\n",
           (long long)n_declared, (long long)n_ill_posed, (long long)n_refused);
    assert_true(n_declared > (int64_t)n_case);
    assert_true(n_ill_posed * 50 <= (int64_t)n_case + 50);
}

/* ---- By hand ---- */

typedef struct hand {
    group_rig *rig;
    tdm_open_device *dev;
    tdm_device *group;
    const tdm_plugin *plugin;
} hand;

static void hand_open(const group_topology *t, hand *h) {
    tdm_error err = {0};
    if (group_rig_open(t, &h->rig, &err) != TDM_OK) fail_msg("%s", err.message);
    h->dev = group_rig_group(h->rig);
    h->group = tdm_open_device_handle(h->dev);
    h->plugin = tdm_open_device_plugin(h->dev);
}

static const group_topology three = {.n_member = 3,
                                     .shares = {1, 1, 1},
                                     .path = "reference",
                                     .split = "tensor",
                                     .attention = "heads",
                                     .experts = "hidden",
                                     .reduce_type = "f32",
                                     .check = "off"};

enum { X, Y, Z }; /* values of the graph: z = relu(2 x) */

static tdm_graph *chain_make(int64_t width) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[]){width, 4, 1, 1});
    int32_t y = tdm_build_scale(b, x, 2, 0);
    int32_t z = tdm_build_act(b, y, TDM_ACT_RELU);
    tdm_build_name(b, y, "y", -1);
    tdm_build_output(b, z, "z");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    assert_true(x == X && y == Y && z == Z);
    return graph;
}

/* Units 0 .. 7 of each row: who has which. */
static tdm_layout rows_layout(int32_t n_member, const int64_t *lo, const int64_t *hi) {
    tdm_layout layout = {.struct_size = sizeof layout,
                         .kind = TDM_LAYOUT_SPLIT,
                         .n_member = n_member,
                         .n_segment = 1,
                         .outer = 4,
                         .inner = 1};
    layout.segments[0].n_unit = 8;
    for (int32_t d = 0; d < n_member; d++) {
        layout.segments[0].lo[d] = lo[d];
        layout.segments[0].hi[d] = hi[d];
    }
    return layout;
}

static tdm_status declare(const hand *h, const tdm_graph *graph, int32_t value,
                          const tdm_layout *layout, tdm_error *err) {
    memset(err, 0, sizeof *err);
    return h->plugin->split->split_set(h->group, graph, value, layout, err);
}

/* How a fresh plan lays a value out. */
static tdm_layout layout_of(const hand *h, const tdm_graph *graph, int32_t value) {
    tdm_plan *plan = NULL;
    tdm_layout layout = {.struct_size = sizeof layout};
    tdm_error err = {0};
    tdm_queue *queue = NULL;
    if (h->plugin->queue->create(h->group, &queue, &err) != TDM_OK ||
        h->plugin->queue->graph_prepare(queue, graph, NULL, &plan, &err) != TDM_OK)
        fail_msg("%s", err.message);
    assert_int_equal(h->plugin->split->split_get(h->group, plan, value, &layout, &err), TDM_OK);
    h->plugin->queue->plan_destroy(plan);
    h->plugin->queue->destroy(queue);
    return layout;
}

/* Parts in any order of members come out where they belong. */
static void test_order(void **state) {
    static const int64_t cuts[][2][3] = {
        {{0, 3, 5}, {3, 5, 8}}, {{5, 3, 0}, {8, 5, 3}}, {{4, 0, 0}, {8, 6, 0}},
        {{0, 0, 2}, {2, 0, 8}}, {{0, 1, 4}, {4, 6, 8}}, {{0, 0, 0}, {8, 8, 8}},
    };
    (void)state;
    hand h;
    hand_open(&three, &h);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        for (int32_t value = X; value <= Z; value++) {
            float x[32], z[32] = {0};
            tdm_graph *graph = chain_make(8);
            tdm_layout layout = rows_layout(3, cuts[i][0], cuts[i][1]);
            tdm_schedule *schedule = NULL;
            group_load *load = NULL;
            tdm_error err = {0};
            for (int k = 0; k < 32; k++) x[k] = (float)(k % 5 - 1) * (float)(k + 1);
            if (declare(&h, graph, value, &layout, &err) != TDM_OK) fail_msg("%s", err.message);
            assert_int_equal(group_load_create(h.rig, h.dev, graph, NULL, NULL, &load, &err),
                             TDM_OK);
            if (group_load_schedule(load, graph, &schedule, &err) != TDM_OK)
                fail_msg("%s", err.message);
            const tdm_io in = {X, x, sizeof x}, out = {Z, z, sizeof z};
            if (tdm_schedule_run(schedule, &in, 1, &out, 1, &err) != TDM_OK)
                fail_msg("%s", err.message);
            for (int k = 0; k < 32; k++)
                if (z[k] != (x[k] > 0 ? 2 * x[k] : 0))
                    fail_msg("cut %zu of value %d: element %d is %g", i, (int)value, k,
                             (double)z[k]);
            tdm_schedule_destroy(schedule);
            group_load_destroy(load);
        }
    group_rig_close(h.rig);
}

/* Members take their parts of one layout out of larger parts of another whose segments have other
 * lengths, and whose ranges begin elsewhere. Which elements a member needs follows from the
 * elements' numbers, not from the numbers of the segments. */
static void test_other_segments(void **state) {
    static const struct {
        int32_t n_segment;
        int64_t n_unit[3], lo[3][3], hi[3][3]; /* [segment][member] */
    } from[] =
        {
            {2, {5, 3}, {{0, 0, 0}, {0, 0, 0}}, {{1, 5, 5}, {1, 3, 3}}},
            {2, {5, 3}, {{0, 0, 0}, {0, 0, 0}}, {{1, 5, 5}, {1, 3, 3}}},
            {3, {2, 3, 3}, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, {{1, 2, 2}, {1, 3, 3}, {1, 3, 3}}},
        },
      to[] = {
          {2, {6, 2}, {{0, 1, 4}, {0, 0, 0}}, {{1, 4, 6}, {0, 2, 0}}},
          {2, {7, 1}, {{0, 3, 1}, {0, 0, 0}}, {{1, 7, 3}, {0, 0, 1}}},
          {2, {4, 4}, {{0, 2, 1}, {0, 2, 0}}, {{1, 4, 2}, {0, 4, 2}}},
      };
    (void)state;
    hand h;
    hand_open(&three, &h);
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        float x[32], z[32] = {0};
        tdm_graph *graph = chain_make(8);
        tdm_layout layouts[2];
        tdm_schedule *schedule = NULL;
        group_load *load = NULL;
        tdm_error err = {0};
        for (int k = 0; k < 2; k++) {
            const int32_t n_segment = k == 0 ? from[i].n_segment : to[i].n_segment;
            layouts[k] = rows_layout(3, (const int64_t[3]){0}, (const int64_t[3]){0});
            layouts[k].n_segment = n_segment;
            for (int32_t s = 0; s < n_segment; s++) {
                tdm_layout_segment *segment = &layouts[k].segments[s];
                segment->n_unit = k == 0 ? from[i].n_unit[s] : to[i].n_unit[s];
                for (int32_t d = 0; d < 3; d++) {
                    segment->lo[d] = k == 0 ? from[i].lo[s][d] : to[i].lo[s][d];
                    segment->hi[d] = k == 0 ? from[i].hi[s][d] : to[i].hi[s][d];
                }
            }
        }
        for (int k = 0; k < 32; k++) x[k] = (float)(k + 1);
        if (declare(&h, graph, X, &layouts[0], &err) != TDM_OK ||
            declare(&h, graph, Y, &layouts[1], &err) != TDM_OK)
            fail_msg("case %zu: %s", i, err.message);
        assert_int_equal(layout_of(&h, graph, X).n_segment, from[i].n_segment);
        assert_int_equal(layout_of(&h, graph, Y).n_segment, to[i].n_segment);
        assert_int_equal(group_load_create(h.rig, h.dev, graph, NULL, NULL, &load, &err), TDM_OK);
        if (group_load_schedule(load, graph, &schedule, &err) != TDM_OK)
            fail_msg("%s", err.message);
        const tdm_io in = {X, x, sizeof x}, out = {Z, z, sizeof z};
        if (tdm_schedule_run(schedule, &in, 1, &out, 1, &err) != TDM_OK)
            fail_msg("%s", err.message);
        for (int k = 0; k < 32; k++)
            if (z[k] != 2 * x[k])
                fail_msg("case %zu: element %d is %g, not %g", i, k, (double)z[k],
                         (double)(2 * x[k]));
        tdm_schedule_destroy(schedule);
        group_load_destroy(load);
    }
    group_rig_close(h.rig);
}

/* A refused declaration leaves the one before. */
static void test_refusals(void **state) {
    (void)state;
    group_topology t = three;
    t.shares[1] = 0;
    hand h;
    hand_open(&t, &h);
    tdm_graph *graph = chain_make(8);
    tdm_layout good = rows_layout(3, (const int64_t[]){0, 0, 6}, (const int64_t[]){6, 0, 8});
    tdm_error err;
    assert_int_equal(declare(&h, graph, Y, &good, &err), TDM_OK);
    tdm_layout before = layout_of(&h, graph, Y);
    assert_int_equal(before.kind, TDM_LAYOUT_SPLIT);
    assert_int_equal(before.segments[0].hi[0] * before.inner, 6);

    tdm_layout bad = rows_layout(3, (const int64_t[]){0, 2, 6}, (const int64_t[]){2, 6, 8});
    assert_int_equal(declare(&h, graph, Y, &bad, &err), TDM_UNSUPPORTED); /* m1 has no share */
    assert_non_null(strstr(err.message, "'m1'"));
    bad = rows_layout(2, (const int64_t[]){0, 6}, (const int64_t[]){6, 8});
    assert_int_equal(declare(&h, graph, Y, &bad, &err), TDM_INVALID_ARGUMENT);
    bad = rows_layout(3, (const int64_t[]){0, 0, 7}, (const int64_t[]){6, 0, 8});
    assert_int_equal(declare(&h, graph, Y, &bad, &err), TDM_INVALID_ARGUMENT); /* a hole */
    bad = good;
    bad.outer = 3;
    assert_int_equal(declare(&h, graph, Y, &bad, &err), TDM_UNSUPPORTED); /* not its shape */
    assert_non_null(strstr(err.message, "'y'"));
    bad = good;
    bad.kind = TDM_LAYOUT_PARTIAL_SUM;
    assert_int_equal(declare(&h, graph, Y, &bad, &err), TDM_UNSUPPORTED);
    bad.kind = TDM_LAYOUT_REPLICATED;
    bad.replica = 7;
    assert_int_equal(declare(&h, graph, Y, &bad, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(declare(&h, graph, -1, &good, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(declare(&h, graph, 3, &good, &err), TDM_INVALID_ARGUMENT);
    tdm_layout after = layout_of(&h, graph, Y);
    assert_memory_equal(&before, &after, sizeof before);

    bad = (tdm_layout){.struct_size = sizeof bad, .kind = TDM_LAYOUT_REPLICATED, .n_member = 3};
    assert_int_equal(declare(&h, graph, Y, &bad, &err), TDM_OK); /* taken back */
    after = layout_of(&h, graph, Y);
    assert_int_equal(after.kind, TDM_LAYOUT_REPLICATED);
    tdm_graph_free(graph);
    group_rig_close(h.rig);
}

/* A weight in its member's own layout stays as it is assigned; the op that would need it otherwise
 * is named. */
static void test_private(void **state) {
    (void)state;
    hand h;
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    hand_open(&three, &h);
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t w =
        tdm_build_weight(b, "w", TDM_TYPE_F32, (const int64_t[]){8, 4, 1, 1}, TDM_USAGE_MATMUL);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[]){8, 1, 1, 1});
    int32_t y = tdm_build_matmul(b, w, x);
    tdm_build_output(b, y, "product");
    assert_int_equal(tdm_builder_finish(b, &graph, &err), TDM_OK);
    tdm_builder_destroy(b);
    tdm_layout layout = rows_layout(3, (const int64_t[]){0, 3, 6}, (const int64_t[]){3, 6, 8});
    assert_int_equal(declare(&h, graph, w, &layout, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "(matmul, 'product')"));
    assert_non_null(strstr(err.message, "'w'"));
    assert_int_equal(layout_of(&h, graph, w).kind, TDM_LAYOUT_REPLICATED);
    tdm_graph_free(graph);
    group_rig_close(h.rig);
}

/* What was declared of a graph that is gone does not concern the next one at its address. */
static void test_address(void **state) {
    (void)state;
    hand h;
    hand_open(&three, &h);
    tdm_graph *narrow = chain_make(8), *wide = chain_make(16), place = *narrow;
    tdm_layout layout = rows_layout(3, (const int64_t[]){0, 3, 6}, (const int64_t[]){3, 6, 8});
    tdm_error err;
    assert_int_equal(declare(&h, &place, Y, &layout, &err), TDM_OK);
    assert_int_equal(layout_of(&h, &place, Y).kind, TDM_LAYOUT_SPLIT);
    assert_int_equal(layout_of(&h, narrow, Y).kind, TDM_LAYOUT_REPLICATED);
    place = *wide;
    assert_int_equal(layout_of(&h, &place, Y).kind, TDM_LAYOUT_REPLICATED);
    tdm_graph_free(narrow);
    tdm_graph_free(wide);
    group_rig_close(h.rig);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),    cmocka_unit_test(test_other_segments),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_private),
        cmocka_unit_test(test_address),  cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
