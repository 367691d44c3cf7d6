/* SPDX-License-Identifier: MIT
 *
 * test_schedule.c: graphs over several devices, some of which refuse ops: the placement of nodes
 * and weights, copies, messages, failures of a device, and that running allocates nothing.
 */
#include "tests/unit/schedule_fixture.h"
#include "core/stages/schedule_internal.h"

/* The linker sends the core's allocations here (--wrap). */
static uint64_t n_malloc;
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);
void *__wrap_malloc(size_t size) {
    __atomic_add_fetch(&n_malloc, 1, __ATOMIC_RELAXED);
    return __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size) {
    __atomic_add_fetch(&n_malloc, 1, __ATOMIC_RELAXED);
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *ptr, size_t size) {
    __atomic_add_fetch(&n_malloc, 1, __ATOMIC_RELAXED);
    return __real_realloc(ptr, size);
}

/* ---- a layer --- */

/* A layer as small as can be: y = w2 (w1 (x * scale) * gain) + x, over n_tok rows of 8. */
static tdm_graph *layer_graph(int64_t n_tok) {
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 8, n_tok);
    int32_t h = tdm_build_mul(b, x, weight(b, "scale", 8, 1, 0));
    h = tdm_build_matmul(b, weight(b, "w1", 8, 12, TDM_USAGE_MATMUL), h);
    h = tdm_build_mul(b, h, weight(b, "gain", 12, 1, 0));
    h = tdm_build_matmul(b, weight(b, "w2", 12, 8, TDM_USAGE_MATMUL), h);
    tdm_build_output(b, tdm_build_add(b, h, x), "y");
    return end(b);
}

static tdm_status run_xy(tdm_schedule *schedule, const float *x, float *y, int64_t n_tok,
                         tdm_error *err) {
    const tdm_graph *graph = schedule->graph;
    const uint64_t size = (uint64_t)n_tok * 8 * sizeof(float);
    const tdm_io in = {value_named(graph, "x"), (void *)(uintptr_t)x, size};
    const tdm_io out = {value_named(graph, "y"), y, size};
    return tdm_schedule_run(schedule, &in, 1, &out, 1, err);
}

enum { MAX_TOK = 600 };

/* What a single device that runs everything gives. */
static void layer_expected(const float *x, float *y, int64_t n_tok) {
    log_text before = the_log;
    scene *s = scene_make("", NULL, NULL);
    tdm_schedule *schedule = schedule_make(s, layer_graph(n_tok));
    assert_int_equal(schedule->stages.cut.n_stage, 1);
    OK(run_xy(schedule, x, y, n_tok, err));
    tdm_schedule_destroy(schedule);
    scene_free(s);
    memcpy(the_log.text, before.text, sizeof before.text);
    the_log.len = before.len;
}

static void layer_check(tdm_schedule *schedule, int64_t n_tok, int32_t seed) {
    static float x[8 * MAX_TOK], y[8 * MAX_TOK], expected[8 * MAX_TOK];
    x_fill(x, 8 * n_tok, seed);
    layer_expected(x, expected, n_tok);
    memset(y, 0x55, sizeof y);
    OK(run_xy(schedule, x, y, n_tok, err));
    assert_memory_equal(y, expected, (size_t)n_tok * 8 * sizeof *y);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A known result, which checks the reference of the other tests. */
static void test_one_device(void **state) {
    (void)state;
    scene *s = scene_make("", NULL, NULL);
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 8, 1);
    const int32_t w = weight(b, "w", 8, 8, TDM_USAGE_MATMUL);
    tdm_build_output(b, tdm_build_scale(b, tdm_build_matmul(b, w, x), 2, 1), "y");
    tdm_schedule *schedule = schedule_make(s, end(b));
    float m[64], row[8], y[8];
    x_fill(row, 8, 1);
    OK(tdm_mem_download(&s->w.at[0].mem, 0, m, sizeof m, err));
    OK(run_xy(schedule, row, y, 1, err));
    for (int j = 0; j < 8; j++) {
        float sum = 0;
        for (int i = 0; i < 8; i++) sum += m[8 * j + i] * row[i];
        assert_true(y[j] == 2 * sum + 1);
    }
    assert_int_equal(schedule->stages.cut.n_stage, 1);
    log_has("does not run", 0);
    tdm_schedule_destroy(schedule);
    tdm_schedule_destroy(NULL);
    tdm_scratch_destroy(NULL);
    scene_free(s);
}

static void test_fallback(void **state) {
    (void)state;
    scene *s = scene_make("matmul", "", NULL);
    tdm_graph *graph = layer_graph(3);
    int32_t node_dev[MAX_SLOT];
    weights_place(&s->w, s->scratch, s->devs, graph, node_dev);
    const int32_t expected[] = {0, 1, 0, 1, 0};
    assert_int_equal(graph->n_node, 5);
    assert_memory_equal(node_dev, expected, sizeof expected);
    assert_ptr_equal(s->w.at[weight_find(&s->w, "w1")].mem.dev, s->devs[1]);
    assert_ptr_equal(s->w.at[weight_find(&s->w, "gain")].mem.dev, s->devs[0]);
    tdm_schedule *a = schedule_make(s, graph), *b = schedule_make(s, layer_graph(5));
    assert_int_equal(a->stages.cut.n_stage, 5);
    layer_check(a, 3, 1);
    layer_check(b, 5, 2);
    layer_check(a, 3, 3);
    /* Once by name, for two matmuls of two schedules. */
    log_has("main does not run matmul (main does not like matmul); it runs on help", 1);
    log_has("does not run", 1);
    tdm_schedule_destroy(a);
    tdm_schedule_destroy(b);
    scene_free(s);
}

static void test_third_device(void **state) {
    (void)state;
    scene *s = scene_make("matmul,mul", "matmul", "");
    tdm_schedule *schedule = schedule_make(s, layer_graph(4));
    layer_check(schedule, 4, 5);
    log_has("main does not run mul (main does not like mul); it runs on help", 1);
    log_has("main does not run matmul (main does not like matmul); it runs on more", 1);
    tdm_schedule_destroy(schedule);
    scene_free(s);
}

/* A device whose plans hold their temporaries gets no memory for them, but for what crosses. */
static void test_device_that_holds_temps(void **state) {
    (void)state;
    static const char *const refuse[2] = {"refuse=", "refuse=matmul"};
    for (int i = 0; i < 2; i++) {
        scene s = {.rt = runtime_make(FAKE_PLUGIN_DIR), .n_dev = 2};
        declare_of(s.rt, "fake_holds_temps", "main", (const char *const[3]){refuse[i]});
        OK(tdm_runtime_open(s.rt, "main", &s.devs[0], err));
        s.devs[1] = open_fake(s.rt, "help", NULL, NULL);
        OK(tdm_scratch_create(s.rt, s.devs, s.n_dev, &s.scratch, err));
        tdm_schedule *schedule = schedule_make(&s, layer_graph(4));
        assert_int_equal(schedule->stages.cut.n_stage, i == 0 ? 1 : 5);
        layer_check(schedule, 4, i);
        if (i == 0) assert_int_equal(tdm_scratch_size(s.scratch, 0), 2 * 128); /* x and y */
        tdm_schedule_destroy(schedule);
        tdm_scratch_destroy(s.scratch);
        weights_free(&s.w);
        tdm_runtime_destroy(s.rt);
        log_has(", 0 bytes left", 2);
    }
}

static void test_no_device(void **state) {
    (void)state;
    scene *s = scene_make("matmul", "scale", NULL);
    tdm_builder *b = begin();
    tdm_build_output(b, tdm_build_softmax(b, input(b, "x", 8, 1)), "likelihood");
    tdm_graph *graph = end(b);
    int32_t node_dev[4];
    tdm_schedule *schedule = NULL;
    FAILS(TDM_UNSUPPORTED, "softmax 'likelihood': no device runs it: main: op ",
          tdm_schedule_place(s->scratch, graph, NULL, node_dev, NULL, err));
    FAILS(TDM_UNSUPPORTED, "; help: op ",
          tdm_schedule_place(s->scratch, graph, NULL, node_dev, NULL, err));
    const tdm_slot_mem slots[MAX_SLOT] = {{{0}, 0, 0}};
    FAILS(TDM_UNSUPPORTED, "is too hard",
          tdm_schedule_create(s->scratch, graph, slots, &schedule, err)); /* and frees the graph */
    assert_null(schedule);
    /* A weight that has no place. */
    FAILS(TDM_INTERNAL, "'scale' has no memory",
          tdm_schedule_create(s->scratch, layer_graph(1), slots, &schedule, err));
    assert_null(schedule);
    /* And what can be run is not held up by it. */
    schedule = schedule_make(s, layer_graph(2));
    layer_check(schedule, 2, 0);
    tdm_schedule_destroy(schedule);
    tdm_scratch *scratch = NULL;
    FAILS(TDM_INVALID_ARGUMENT, "0 devices", tdm_scratch_create(s->rt, s->devs, 0, &scratch, err));
    FAILS(TDM_INVALID_ARGUMENT, "9 devices", tdm_scratch_create(s->rt, s->devs, 9, &scratch, err));
    scene_free(s);
}

/* A weight that is read through a view only goes where the reader runs, not where the view
 * is. */
static void test_viewed_weight(void **state) {
    (void)state;
    scene *s = scene_make("mul", "", NULL);
    tdm_builder *b = begin();
    const int32_t h = tdm_build_scale(b, input(b, "x", 8, 1), 2, 0);
    const int32_t w = tdm_build_reshape(b, weight(b, "w", 4, 2, 0), 8, 1, 1, 1);
    tdm_build_output(b, tdm_build_mul(b, h, w), "y");
    tdm_graph *graph = end(b);
    int32_t node_dev[4], slot_dev[MAX_SLOT];
    const int32_t slot = tdm_graph_value(graph, value_named(graph, "w"))->slot;
    OK(tdm_schedule_place(s->scratch, graph, NULL, node_dev, slot_dev, err));
    assert_int_equal(node_dev[0], 0);
    assert_int_equal(node_dev[graph->n_node - 1], 1);
    assert_int_equal(slot_dev[slot], 1);
    tdm_graph_free(graph);
    scene_free(s);
}

/* A weight goes where all that read it can run. */
static void test_shared_weight(void **state) {
    (void)state;
    scene *s = scene_make("matmul", "", NULL);
    tdm_builder *b = begin();
    const int32_t table = weight(b, "table", 8, 10, 0);
    const int32_t id = tdm_build_input(b, "id", TDM_TYPE_I32, (const int64_t[4]){3, 1, 1, 1});
    const int32_t h = tdm_build_scale(b, tdm_build_get_rows(b, table, id, 0), 2, 0);
    tdm_build_output(b, tdm_build_matmul(b, table, h), "y");
    tdm_graph *graph = end(b);
    int32_t node_dev[MAX_SLOT];
    weights_place(&s->w, s->scratch, s->devs, graph, node_dev);
    assert_int_equal(node_dev[0], 1);
    assert_int_equal(node_dev[1], 0);
    assert_int_equal(node_dev[2], 1);
    log_has("main does not run get_rows (shares its data with matmul: main does not like matmul); "
            "it runs on help",
            1);
    tdm_schedule *schedule = schedule_make(s, graph);
    int32_t ids[3] = {7, -1, 2};
    float y[30], m[80];
    const tdm_io in = {value_named(graph, "id"), ids, sizeof ids};
    const tdm_io out = {value_named(graph, "y"), y, sizeof y};
    OK(tdm_schedule_run(schedule, &in, 1, &out, 1, err));
    OK(tdm_mem_download(&s->w.at[0].mem, 0, m, sizeof m, err));
    for (int t = 0; t < 3; t++)
        for (int j = 0; j < 10; j++) {
            float sum = 0;
            for (int i = 0; i < 8 && ids[t] >= 0; i++) sum += m[8 * ids[t] + i] * 2 * m[8 * j + i];
            assert_true(y[10 * t + j] == sum);
        }
    tdm_schedule_destroy(schedule);
    scene_free(s);

    /* Weights that were put where their reader cannot run, or apart from one another. */
    s = scene_make("matmul", "", NULL);
    graph = layer_graph(1);
    tdm_slot_mem slots[MAX_SLOT];
    weights_place(&s->w, s->scratch, s->devs, graph, NULL);
    slots_of(&s->w, graph, slots);
    tdm_slot_mem *w1 = &slots[tdm_graph_value(graph, value_named(graph, "w1"))->slot];
    *w1 = s->w.at[weight_find(&s->w, "scale")];
    FAILS(TDM_UNSUPPORTED, "main, where its data is: main does not like matmul",
          tdm_schedule_create(s->scratch, graph, slots, &schedule, err));
    b = begin();
    tdm_build_output(b,
                     tdm_build_add(b, weight(b, "scale", 8, 1, 0),
                                   tdm_build_reshape(b, weight(b, "w3", 4, 2, 0), 8, 1, 1, 1)),
                     "y");
    graph = end(b);
    slots_of(&s->w, graph, slots);
    slots[tdm_graph_value(graph, value_named(graph, "w3"))->slot] =
        s->w.at[weight_find(&s->w, "w1")];
    FAILS(TDM_UNSUPPORTED, "add 'y': its weights or states live on different devices",
          tdm_schedule_create(s->scratch, graph, slots, &schedule, err));
    scene_free(s);
}

/* Shapes in turn over one scratch, which grows under the schedules made before. */
static void test_shapes(void **state) {
    (void)state;
    static const int64_t shapes[] = {1, 7, 2, 300, 1, 33, MAX_TOK};
    enum { N = sizeof shapes / sizeof *shapes };
    scene *s = scene_make("matmul", "", NULL);
    tdm_schedule *schedules[N];
    uint64_t size = 0, n_grown = 0;
    for (int32_t i = 0; i < N; i++) {
        schedules[i] = schedule_make(s, layer_graph(shapes[i]));
        assert_true(tdm_scratch_size(s->scratch, 1) >= size);
        n_grown += tdm_scratch_size(s->scratch, 1) > size;
        size = tdm_scratch_size(s->scratch, 1);
        for (int32_t k = i; k >= 0; k--) layer_check(schedules[k], shapes[k], i + k);
    }
    assert_true(n_grown >= 3);
    for (int32_t i = 0; i < 20; i++) layer_check(schedules[i % N], shapes[i % N], i);
    /* Destroying some does not change the others. */
    for (int32_t i = 0; i < N; i++) {
        tdm_schedule_destroy(schedules[i]);
        if (i + 1 < N) layer_check(schedules[i + 1], shapes[i + 1], i);
    }
    scene_free(s);
}

/* Steady running: no counter moves, and the core calls no allocator. */
static void test_steady(void **state) {
    (void)state;
    scene *s = scene_make("matmul", "", NULL);
    tdm_schedule *a = schedule_make(s, layer_graph(1)), *b = schedule_make(s, layer_graph(40));
    static float x[320], y[320];
    uint64_t before[TDM_COUNTER_STEADY_COUNT_];
    x_fill(x, 320, 1);
    OK(run_xy(a, x, y, 1, err)); /* the first binds anew: b grew the scratch */
    for (int i = 0; i < TDM_COUNTER_STEADY_COUNT_; i++) before[i] = tdm_counter_get((tdm_counter)i);
    const uint64_t n_before = __atomic_load_n(&n_malloc, __ATOMIC_RELAXED);
    for (int32_t i = 0; i < 50; i++) {
        OK(run_xy(a, x, y, 1, err));
        OK(run_xy(b, x, y, 40, err));
    }
    assert_int_equal(__atomic_load_n(&n_malloc, __ATOMIC_RELAXED), n_before);
    for (int i = 0; i < TDM_COUNTER_STEADY_COUNT_; i++)
        if (tdm_counter_get((tdm_counter)i) != before[i])
            fail_msg("%s moved", tdm_counter_name((tdm_counter)i));
    /* Not so the first run, nor a new shape: these counters can move. */
    tdm_schedule *c = schedule_make(s, layer_graph(200));
    assert_true(tdm_counter_get(TDM_COUNTER_GRAPHS_BUILT) > before[TDM_COUNTER_GRAPHS_BUILT]);
    assert_true(tdm_counter_get(TDM_COUNTER_GRAPHS_PLANNED) > before[TDM_COUNTER_GRAPHS_PLANNED]);
    assert_true(tdm_counter_get(TDM_COUNTER_BYTES_ALLOCATED) > before[TDM_COUNTER_BYTES_ALLOCATED]);
    tdm_schedule_destroy(a);
    tdm_schedule_destroy(b);
    tdm_schedule_destroy(c);
    scene_free(s);
}

static void test_failing_compute(void **state) {
    (void)state;
    scene *s = scene_make("matmul", NULL, NULL);
    s->devs[s->n_dev++] = open_fake(s->rt, "help", "fail-at=4", NULL);
    tdm_scratch_destroy(s->scratch);
    OK(tdm_scratch_create(s->rt, s->devs, s->n_dev, &s->scratch, err));
    tdm_schedule *a = schedule_make(s, layer_graph(2)), *b = schedule_make(s, layer_graph(3));
    float x[24], y[24];
    x_fill(x, 24, 4);
    layer_check(a, 2, 0);
    FAILS(TDM_UNAVAILABLE, "help fell off the bus", run_xy(b, x, y, 3, err));
    for (int32_t i = 0; i < 3; i++) { /* it still works, and so do the others */
        layer_check(b, 3, i);
        layer_check(a, 2, i);
    }
    tdm_schedule_destroy(a);
    tdm_schedule_destroy(b);
    scene_free(s);
}

static void test_no_memory(void **state) {
    (void)state;
    scene *s = scene_make("matmul", NULL, NULL);
    s->devs[s->n_dev++] = open_fake(s->rt, "help", "memory=20000", NULL);
    tdm_scratch_destroy(s->scratch);
    OK(tdm_scratch_create(s->rt, s->devs, s->n_dev, &s->scratch, err));
    tdm_schedule *a = schedule_make(s, layer_graph(2)), *b = NULL;
    const uint64_t size = tdm_scratch_size(s->scratch, 1);
    tdm_graph *graph = layer_graph(MAX_TOK);
    tdm_slot_mem slots[MAX_SLOT];
    slots_of(&s->w, graph, slots);
    FAILS(TDM_RESOURCE_EXHAUSTED,
          "device 'help': ", tdm_schedule_create(s->scratch, graph, slots, &b, err));
    FAILS(TDM_RESOURCE_EXHAUSTED, "a smaller ubatch-size needs less",
          tdm_schedule_create(s->scratch, layer_graph(MAX_TOK), slots, &b, err));
    assert_null(b);
    assert_int_equal(tdm_scratch_size(s->scratch, 1), size);
    layer_check(a, 2, 1); /* main's part of the scratch may have grown by now */
    b = schedule_make(s, layer_graph(4));
    layer_check(b, 4, 1);
    tdm_schedule_destroy(a);
    tdm_schedule_destroy(b);
    scene_free(s);
}

static void test_io(void **state) {
    (void)state;
    scene *s = scene_make("matmul", "", NULL);
    tdm_schedule *schedule = schedule_make(s, layer_graph(4));
    const tdm_graph *graph = schedule->graph;
    float x[32], y[32], expected[32];
    x_fill(x, 32, 2);
    layer_expected(x, expected, 4);
    const int32_t in = value_named(graph, "x"), out = value_named(graph, "y");
    const struct {
        tdm_io in, out;
        tdm_status status;
        const char *text;
    } wrong[] = {
        {{out, x, 8}, {out, y, 8}, TDM_INVALID_ARGUMENT, "is not an input"},
        {{in, x, 8}, {in, y, 8}, TDM_INVALID_ARGUMENT, "is not an output"},
        {{-1, x, 8}, {out, y, 8}, TDM_INVALID_ARGUMENT, "value -1"},
        {{in, x, 8}, {graph->n_value, y, 8}, TDM_INVALID_ARGUMENT, "is not an output"},
        {{in, x, sizeof x + 1}, {out, y, 8}, TDM_OUT_OF_RANGE, "129 bytes for 'x'"},
        {{in, x, 8}, {out, y, sizeof y + 1}, TDM_OUT_OF_RANGE, "129 bytes for 'y'"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        FAILS(wrong[i].status, wrong[i].text,
              tdm_schedule_run(schedule, &wrong[i].in, 1, &wrong[i].out, 1, err));
    /* A prefix goes in, the rest stays as it was; a prefix comes out. */
    OK(run_xy(schedule, x, y, 4, err));
    const tdm_io one = {in, x + 8, 8 * sizeof *x}, two = {out, y, 16 * sizeof *y};
    memset(y, 0x55, sizeof y);
    OK(tdm_schedule_run(schedule, &one, 1, &two, 1, err));
    assert_memory_equal(y, expected + 8, 8 * sizeof *y);
    assert_memory_equal(y + 8, expected + 8, 8 * sizeof *y);
    uint8_t untouched[16 * sizeof *y];
    memset(untouched, 0x55, sizeof untouched);
    assert_memory_equal(y + 16, untouched, sizeof untouched);
    OK(tdm_schedule_run(schedule, NULL, 0, NULL, 0, err)); /* nothing in, nothing out */
    uint64_t scratch = 1;
    assert_true(tdm_schedule_plan_size(schedule, &scratch) == 0);
    assert_true(scratch == 0);
    tdm_schedule_destroy(schedule);
    scene_free(s);
}

int main(void) {
    unsetenv("TANDEM_PLUGIN_PATH");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device),    cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_third_device),  cmocka_unit_test(test_device_that_holds_temps),
        cmocka_unit_test(test_no_device),     cmocka_unit_test(test_viewed_weight),
        cmocka_unit_test(test_shared_weight), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_steady),        cmocka_unit_test(test_failing_compute),
        cmocka_unit_test(test_no_memory),     cmocka_unit_test(test_io),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
