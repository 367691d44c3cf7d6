/* SPDX-License-Identifier: MIT
 *
 * test_schedule_split.c: the result of a graph does not depend on how its ops are assigned to
 * devices: random graphs over fake devices, and a real layer on a fake device and the CPU.
 */
#include "tests/unit/random_graph.h"
#include "tests/support/random.h"
#include "core/stages/schedule_internal.h"

#include <math.h>

/* ---- random graphs --------------------------------------------------------------------------- */

/* All outputs of a random graph, one after the other. */
static size_t random_run(scene *s, uint64_t seed, float *y, int32_t *n_stage) {
    int32_t n_output = 0;
    tdm_graph *graph = random_graph(seed, &n_output);
    tdm_schedule *schedule = schedule_make(s, graph);
    float x[48], z[24];
    tdm_io out[48];
    const tdm_io in[2] = {{value_named(graph, "x"), x, sizeof x},
                          {value_named(graph, "z"), z, sizeof z}};
    size_t at = 0;
    x_fill(x, 48, 1);
    x_fill(z, 24, 2);
    for (int32_t i = 0; i < n_output; i++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", i);
        const int32_t value = value_named(graph, name);
        const size_t n = (size_t)tdm_shape_count(tdm_graph_value(graph, value)->ne);
        out[i] = (tdm_io){value, y + at, n * sizeof *y};
        at += n;
    }
    OK(tdm_schedule_run(schedule, in, 2, out, n_output, err));
    OK(tdm_schedule_run(schedule, in, 2, out, n_output, err)); /* nothing is used up */
    *n_stage = schedule->stages.cut.n_stage;
    tdm_schedule_destroy(schedule);
    weights_free(&s->w);
    return at;
}

/* However the ops are assigned, the result is that of one device, bit for bit. */
static void test_random(void **state) {
    (void)state;
    enum { GRAPHS = 150 };
    static const char *const words[] = {"add", "mul", "scale", "matmul", "concat"};
    const uint64_t seed = test_seed("schedule_split", 4711);
    static float expected[48 * 48], y[48 * 48];
    int32_t n_stage = 0, n_cut = 0, most = 0;
    random_state = seed * 2 + 1;
    for (int32_t i = 0; i < GRAPHS; i++) {
        const uint64_t graph_seed = ((uint64_t)draw(1 << 30) << 8) + 1;
        char refuse[3][64] = {"", "", ""};
        for (int32_t d = 0; d < 2; d++) /* the third refuses nothing */
            for (size_t k = 0; k < sizeof words / sizeof *words; k++)
                if (draw(2)) {
                    strcat(refuse[d], words[k]);
                    strcat(refuse[d], ",");
                }
        scene *s = scene_make("", NULL, NULL);
        const size_t n = random_run(s, graph_seed, expected, &n_stage);
        assert_int_equal(n_stage, 1);
        scene_free(s);
        s = scene_make(refuse[0], refuse[1], refuse[2]);
        memset(y, 0x55, sizeof y);
        assert_int_equal(random_run(s, graph_seed, y, &n_stage), n);
        if (memcmp(y, expected, n * sizeof *y) != 0)
            fail_msg("graph %d of seed %llu, refused %s and %s: another result", i,
                     (unsigned long long)seed, refuse[0], refuse[1]);
        n_cut += n_stage > 1;
        most = n_stage > most ? n_stage : most;
        scene_free(s);
    }
    print_message("%d of %d graphs cut, into %d stages at most\n", n_cut, GRAPHS, most);
    assert_true(n_cut > GRAPHS / 2);
}

/* ---- with the CPU plugin --------------------------------------------------------------------- */

static tdm_open_device *open_cpu(tdm_runtime *rt) {
    const tdm_option threads = {"threads", "2"};
    const tdm_device_spec spec = {
        .name = "cpu", .plugin = "cpu", .options = &threads, .n_option = 1};
    tdm_open_device *dev = NULL;
    OK(tdm_runtime_declare(rt, &spec, err));
    OK(tdm_runtime_open(rt, "cpu", &dev, err));
    return dev;
}

/* A norm, a gated layer and a softmax, of which the fake device runs half. */
static tdm_graph *mixed_graph(void) {
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 64, 3);
    int32_t h = tdm_build_rms_norm(b, x, weight(b, "norm", 64, 1, 0), 1e-5f);
    const int32_t gate = tdm_build_matmul(b, weight(b, "gate", 64, 96, TDM_USAGE_MATMUL), h);
    const int32_t up = tdm_build_matmul(b, weight(b, "up", 64, 96, TDM_USAGE_MATMUL), h);
    h = tdm_build_glu(b, gate, up, TDM_ACT_SILU);
    h = tdm_build_scale(b, h, 0.01f, 0);
    h = tdm_build_matmul(b, weight(b, "down", 96, 64, TDM_USAGE_MATMUL), h);
    h = tdm_build_add(b, h, x);
    tdm_build_output(b, tdm_build_softmax(b, h), "y");
    return end(b);
}

static void mixed_run(scene *s, float *y, int32_t *n_stage) {
    float x[192];
    x_fill(x, 192, 9);
    OK(tdm_scratch_create(s->rt, s->devs, s->n_dev, &s->scratch, err));
    tdm_schedule *schedule = schedule_make(s, mixed_graph());
    const tdm_graph *graph = schedule->graph;
    const tdm_io in = {value_named(graph, "x"), x, sizeof x};
    const tdm_io out = {value_named(graph, "y"), y, sizeof x};
    for (int i = 0; i < 3; i++) OK(tdm_schedule_run(schedule, &in, 1, &out, 1, err));
    *n_stage = schedule->stages.cut.n_stage;
    tdm_schedule_destroy(schedule);
    tdm_scratch_destroy(s->scratch);
    weights_free(&s->w);
    tdm_runtime_destroy(s->rt);
}

static void test_cpu(void **state) {
    (void)state;
    const char *dir = getenv("TANDEM_PLUGIN_DIR");
    char path[4096];
    float expected[192], y[192];
    int32_t n_stage = 0;
    if (dir == NULL) {
        print_message("SKIP: TANDEM_PLUGIN_DIR does not say where cpu.so is\n");
        skip();
    }
    snprintf(path, sizeof path, "%s:%s", FAKE_PLUGIN_DIR, dir);
    scene alone = {.rt = runtime_make(path), .n_dev = 1};
    alone.devs[0] = open_cpu(alone.rt);
    mixed_run(&alone, expected, &n_stage);
    assert_int_equal(n_stage, 1);
    log_has("does not run", 0);

    scene mixed = {.rt = runtime_make(path), .n_dev = 2};
    mixed.devs[0] = open_fake(mixed.rt, "main", NULL, NULL);
    mixed.devs[1] = open_cpu(mixed.rt);
    mixed_run(&mixed, y, &n_stage);
    assert_int_equal(n_stage, 5); /* norm | matmuls | glu | scale, matmul, add | softmax */
    log_has("main does not run rms_norm", 1);
    log_has("main does not run glu", 1);
    log_has("main does not run softmax", 1);
    log_has("does not run", 3);
    for (int i = 0; i < 192; i++) assert_true(fabsf(y[i] - expected[i]) < 1e-5f);

    /* And the other way round: the CPU runs it all, the other device is never used. */
    scene other = {.rt = runtime_make(path), .n_dev = 2};
    other.devs[0] = open_cpu(other.rt);
    other.devs[1] = open_fake(other.rt, "help", NULL, NULL);
    mixed_run(&other, y, &n_stage);
    assert_int_equal(n_stage, 1);
    assert_memory_equal(y, expected, sizeof y);
}

int main(void) {
    unsetenv("TANDEM_PLUGIN_PATH");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_cpu),
    };
    return cmocka_run_group_tests_name("schedule_split", tests, NULL, NULL);
}
