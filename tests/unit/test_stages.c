/* SPDX-License-Identifier: MIT
 *
 * test_stages.c: the cut of a placed graph (core/stages/cut.h) and the executor of its stages
 * (core/stages/stages.h). Nodes are placed by hand, so that every case is known in advance.
 */
#include <time.h>

#include "core/stages/stages.h"
#include "tests/unit/schedule_fixture.h"

enum { N_ROW = 3, N = 8 * N_ROW, N_NODE = 7, VALUE_SIZE = N * 4 };

/* a = 2 x; mid = a + 1; c = a + mid; d = c w; e = d + a; f = e w; y = f w. The OUTPUT mid is read
 * by a later node, a is read by three stages. */
static tdm_graph *zigzag_graph(int64_t n_row) {
    tdm_builder *b = begin();
    const int32_t w = weight(b, "w", 8, 1, 0);
    const int32_t a = tdm_build_scale(b, input(b, "x", 8, n_row), 2, 0);
    const int32_t mid = tdm_build_scale(b, a, 1, 1);
    const int32_t c = tdm_build_add(b, a, mid);
    const int32_t e = tdm_build_add(b, tdm_build_mul(b, c, w), a);
    const int32_t f = tdm_build_mul(b, e, w);
    tdm_build_name(b, a, "a", -1);
    tdm_build_name(b, c, "c", -1);
    tdm_build_name(b, e, "e", -1);
    tdm_build_name(b, f, "f", -1);
    tdm_build_output(b, mid, "mid");
    tdm_build_output(b, tdm_build_mul(b, f, w), "y");
    return end(b);
}

static const int32_t zigzag_dev[N_NODE] = {0, 1, 0, 1, 1, 0, 1};

static int32_t slot_named(const tdm_graph *graph, const char *name) {
    return tdm_graph_value(graph, value_named(graph, name))->slot;
}

static tdm_cut cut_make(const tdm_graph *graph, const int32_t *node_dev, const int32_t *slot_dev,
                        int32_t caller_dev) {
    const tdm_cut_params params = {graph, node_dev, 2, slot_dev, caller_dev};
    tdm_cut cut;
    memset(&cut, 0x55, sizeof cut);
    OK(tdm_cut_make(&params, &cut, err));
    return cut;
}

/* `text` lists the copies in order: "1<a " is a copy of `a` to device 1 before a stage, "a>0 " one
 * to device 0 after it, "| " ends a stage. */
static void copies_check(const tdm_cut *cut, const char *text) {
    char found[256] = "";
    size_t at = 0;
    for (int32_t s = 0; s < cut->n_stage; s++) {
        const tdm_stage *st = &cut->stages[s];
        for (int32_t i = 0; i < st->n_before + st->n_after; i++) {
            const tdm_stage_copy *copy = &st->copies[i];
            const char *name = tdm_cut_slot_name(cut, copy->slot);
            const char *form = i < st->n_before ? "%2$d<%1$s " : "%1$s>%2$d ";
            assert_int_equal(copy->from, 1 - copy->to);
            at += (size_t)snprintf(found + at, sizeof found - at, form, name, copy->to);
        }
        at += (size_t)snprintf(found + at, sizeof found - at, "| ");
    }
    assert_string_equal(found, text);
}

static void slot_check(const tdm_cut *cut, const char *name, int32_t home, int32_t first,
                       int32_t last, uint32_t devs) {
    const tdm_cut_slot *slot = &cut->slots[slot_named(cut->graph, name)];
    if (slot->home != home || slot->first != first || slot->last != last || slot->devs != devs)
        fail_msg("'%s': home %d, stages %d to %d, devices %x", name, slot->home, slot->first,
                 slot->last, slot->devs);
    assert_int_equal(slot->size, VALUE_SIZE);
}

/* ---- The cut --------------------------------------------------------------------------------- */

/* Without memory of the caller's: one copy for each device, however many stages read a value. */
static void test_copies(void **state) {
    (void)state;
    static const int32_t first[6] = {1, 1, 1, 2, 1, 1};
    tdm_graph *graph = zigzag_graph(N_ROW);
    tdm_cut cut = cut_make(graph, zigzag_dev, NULL, -1);
    assert_int_equal(cut.n_stage, 6);
    for (int32_t s = 0; s < 6; s++) {
        assert_int_equal(cut.stages[s].dev, s % 2);
        assert_int_equal(cut.stages[s].graph->n_node, first[s]);
    }
    copies_check(&cut, "| 1<a | 0<mid | 1<c | 0<e | 1<f | ");
    slot_check(&cut, "x", -1, 0, 0, 1);
    slot_check(&cut, "a", 0, 0, 3, 3);
    slot_check(&cut, "mid", 1, 1, 5, 3); /* the caller reads it after the last stage */
    slot_check(&cut, "c", 0, 2, 3, 3);
    slot_check(&cut, "y", 1, 5, 5, 2);
    assert_int_equal(cut.copied_size, 5 * VALUE_SIZE);
    assert_int_equal(cut.max_copy, VALUE_SIZE);
    assert_int_equal(cut.n_weight, 0);
    tdm_cut_free(&cut);
    tdm_cut_free(&cut); /* a cleared one is a no-op */
    tdm_graph_free(graph);
}

/* With memory of the caller's on device 0, OUTPUTs of device 1 are copied there once and are not
 * copied again for a stage that reads them there. */
static void test_caller_on_first(void **state) {
    (void)state;
    tdm_graph *graph = zigzag_graph(N_ROW);
    tdm_cut cut = cut_make(graph, zigzag_dev, NULL, 0);
    copies_check(&cut, "| 1<a mid>0 | | 1<c | 0<e | 1<f y>0 | ");
    slot_check(&cut, "x", -1, 0, 0, 0);
    slot_check(&cut, "mid", 1, 1, 2, 2);
    slot_check(&cut, "y", 1, 5, 5, 2);
    assert_int_equal(cut.copied_size, 6 * VALUE_SIZE);
    tdm_cut_free(&cut);
    tdm_graph_free(graph);
}

/* On device 1: INPUTs are copied to the device that reads them. */
static void test_caller_on_second(void **state) {
    (void)state;
    tdm_graph *graph = zigzag_graph(N_ROW);
    tdm_cut cut = cut_make(graph, zigzag_dev, NULL, 1);
    copies_check(&cut, "0<x | 1<a | 0<mid | 1<c | 0<e | 1<f | ");
    slot_check(&cut, "x", -1, 0, 0, 1);
    slot_check(&cut, "mid", 1, 1, 2, 1);
    slot_check(&cut, "y", 1, 5, 5, 0);
    tdm_cut_free(&cut);
    tdm_graph_free(graph);
}

static int32_t kind_in(const tdm_stage *stage, const char *name) {
    return tdm_graph_value(stage->graph, value_named(stage->graph, name))->kind;
}

/* A weight has one copy for each device that reads it, and none where it lives. The copy of a plain
 * one is an INPUT of its stages, since a group has memory for weights only where it was allocated
 * with them; also where one stage is the whole graph. */
static void test_weights(void **state) {
    (void)state;
    tdm_graph *graph = zigzag_graph(N_ROW);
    int32_t slot_dev[MAX_SLOT];
    const int32_t w = slot_named(graph, "w");
    for (int32_t lives = -1; lives < 2; lives++) {
        for (int32_t i = 0; i < graph->n_slot; i++) slot_dev[i] = -1;
        slot_dev[w] = lives;
        tdm_cut cut = cut_make(graph, zigzag_dev, slot_dev, -1);
        assert_int_equal(cut.n_weight, lives >= 0);
        if (lives >= 0) {
            assert_int_equal(cut.weights[0].slot, w);
            assert_int_equal(cut.weights[0].from, lives);
            assert_int_equal(cut.weights[0].to, 1 - lives);
        }
        assert_int_equal(cut.copied_size, 5 * VALUE_SIZE);
        for (int32_t s = 3; s < cut.n_stage; s++)
            assert_int_equal(kind_in(&cut.stages[s], "w"),
                             lives == 1 - cut.stages[s].dev ? TDM_VALUE_INPUT : TDM_VALUE_WEIGHT);
        tdm_cut_free(&cut);
        cut = cut_make(graph, (const int32_t[N_NODE]){0}, slot_dev, -1);
        assert_int_equal(kind_in(&cut.stages[0], "w"),
                         lives == 1 ? TDM_VALUE_INPUT : TDM_VALUE_WEIGHT);
        tdm_cut_free(&cut);
    }
    tdm_graph_free(graph);
}

/* A weight is not copied to a device whose stage has a view of it that only another stage reads; in
 * one stage it is left out where only a view reads it. */
static void test_viewed_weight(void **state) {
    (void)state;
    tdm_builder *b = begin();
    const int32_t w = weight(b, "w", 4, 2, 0);
    const int32_t h = tdm_build_scale(b, input(b, "x", 8, 1), 2, 0);
    const int32_t flat = tdm_build_reshape(b, w, 8, 1, 1, 1);
    tdm_build_output(b, tdm_build_mul(b, h, flat), "y");
    tdm_graph *graph = end(b);
    int32_t slot_dev[MAX_SLOT];
    for (int32_t i = 0; i < graph->n_slot; i++) slot_dev[i] = -1;
    slot_dev[slot_named(graph, "w")] = 1;
    tdm_cut cut = cut_make(graph, (const int32_t[3]){0, 0, 1}, slot_dev, -1);
    assert_int_equal(cut.n_weight, 0);
    assert_int_equal(cut.stages[0].graph->n_node, 1);
    assert_int_equal(cut.stages[1].graph->n_node, 2);
    tdm_cut_free(&cut);
    tdm_graph_free(graph);

    b = begin();
    tdm_build_reshape(b, weight(b, "w", 4, 2, 0), 8, 1, 1, 1);
    tdm_build_output(b, tdm_build_scale(b, input(b, "x", 8, 1), 2, 0), "y");
    graph = end(b);
    for (int32_t i = 0; i < graph->n_slot; i++) slot_dev[i] = -1;
    slot_dev[slot_named(graph, "w")] = 1;
    cut = cut_make(graph, (const int32_t[2]){0, 0}, slot_dev, -1);
    assert_int_equal(cut.n_weight, 0);
    assert_int_equal(cut.n_stage, 1);
    assert_int_equal(cut.stages[0].graph->n_node, 1);
    tdm_cut_free(&cut);
    tdm_graph_free(graph);
}

/* A graph on one device is its own stage; one without nodes has no stages; a stage of views alone
 * gets nothing; a view that is read in another stage makes its base cross. */
static void test_small(void **state) {
    (void)state;
    static const int32_t zeros[N_NODE] = {0};
    tdm_graph *graph = zigzag_graph(N_ROW);
    tdm_cut cut = cut_make(graph, zeros, NULL, -1);
    assert_int_equal(cut.n_stage, 1);
    assert_ptr_equal(cut.stages[0].graph, graph);
    assert_null(cut.stages[0].own_graph);
    copies_check(&cut, "| ");
    tdm_cut_free(&cut);
    tdm_graph_free(graph);

    tdm_builder *b = begin();
    input(b, "x", 8, 1);
    graph = end(b);
    cut = cut_make(graph, zeros, NULL, -1);
    assert_int_equal(cut.n_stage, 0);
    assert_int_equal(cut.slots[0].first, -1);
    tdm_cut_free(&cut);
    tdm_graph_free(graph);

    b = begin();
    const int32_t a = tdm_build_scale(b, input(b, "x", 8, N_ROW), 2, 0);
    const int32_t r = tdm_build_reshape(b, a, N, 1, 1, 1);
    tdm_build_name(b, a, "a", -1);
    tdm_build_output(b, tdm_build_scale(b, r, 3, 0), "y");
    graph = end(b);
    cut = cut_make(graph, (const int32_t[3]){0, 1, 0}, NULL, -1);
    assert_int_equal(cut.n_stage, 3);
    copies_check(&cut, "| | | ");
    assert_int_equal(cut.stages[1].graph->n_node, 0);
    tdm_cut_free(&cut);
    cut = cut_make(graph, (const int32_t[3]){0, 0, 1}, NULL, -1);
    copies_check(&cut, "| 1<a | ");
    assert_int_equal(cut.stages[1].graph->n_node, 2); /* the view is derived again */
    tdm_cut_free(&cut);
    tdm_graph_free(graph);
}

/* ---- The executor ---------------------------------------------------------------------------- */

/* Stages of the zigzag on two fake devices; x, mid and y lie in the stages' memory or, with
 * caller_dev >= 0, in `outside`. w lives on device 0. */
typedef struct rig {
    tdm_runtime *rt;
    tdm_graph *graph;
    tdm_stages stages;
    tdm_stage_queues queues;
    tdm_stage_memory memory;
    tdm_slot_mem outside[MAX_SLOT];
} rig;

static tdm_status rig_locate(void *owner, int32_t slot, int32_t dev, tdm_slot_mem *out,
                             tdm_error *err) {
    const rig *r = owner;
    const tdm_slot_mem *at = &r->outside[slot];
    if (at->mem.dev != NULL && at->mem.dev != r->stages.devs[dev].dev)
        return tdm_fail(err, TDM_INTERNAL, "slot %d is on another device than %d", slot, dev);
    *out = *at;
    return TDM_OK;
}

static void outside_alloc(rig *r, const char *name, int32_t dev) {
    const int32_t slot = slot_named(r->graph, name);
    const uint64_t size = r->stages.cut.slots[slot].size;
    tdm_slot_mem *at = &r->outside[slot];
    OK(tdm_mem_alloc(r->stages.devs[dev].dev, size + 256, TDM_BUFFER_COMPUTE, &at->mem, err));
    at->off = 128;
    at->size = size;
}

static const char *const sound[2] = {NULL, NULL};
static const float w_data[8] = {1, -1, 2, 0.5f, 1, 0.25f, -2, 1};

/* Memory of one purpose. A value that a stage reads before it was written is not a number. */
static void memory_alloc(tdm_open_device *dev, uint64_t size, tdm_buffer_purpose purpose,
                         tdm_mem *out) {
    OK(tdm_mem_alloc(dev, size + 64, purpose, out, err));
    OK(tdm_mem_fill(out, 0, size + 64, 0xff, err));
}

static rig *rig_make_borders(int32_t caller_dev, int64_t n_row, const char *const option[2],
                             bool separates_borders) {
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->rt = runtime_make(FAKE_PLUGIN_DIR);
    r->graph = zigzag_graph(n_row);
    const tdm_stage_device devs[2] = {
        {open_fake(r->rt, "left", option[0], NULL), 128, true, false, separates_borders},
        {open_fake(r->rt, "right", option[1], NULL), 128, true, false, separates_borders}};
    int32_t slot_dev[MAX_SLOT];
    for (int32_t i = 0; i < r->graph->n_slot; i++) slot_dev[i] = -1;
    slot_dev[slot_named(r->graph, "w")] = 0;
    const tdm_cut_params params = {r->graph, zigzag_dev, 2, slot_dev, caller_dev};
    OK(tdm_stages_create(&params, devs, &r->stages, err));
    for (int32_t d = 0; d < 2; d++) {
        OK(tdm_queue_adapter_create(devs[d].dev, &r->queues.queues[d], err));
        memory_alloc(devs[d].dev, r->stages.need[d], TDM_BUFFER_COMPUTE, &r->memory.mem[d]);
        memory_alloc(devs[d].dev, r->stages.need_in[d], TDM_BUFFER_INPUT, &r->memory.in[d]);
        memory_alloc(devs[d].dev, r->stages.need_out[d], TDM_BUFFER_OUTPUT, &r->memory.out[d]);
    }
    OK(tdm_semaphore_ops.create(0, &r->queues.semaphore, err));
    OK(tdm_stage_memory_grow_staging(&r->memory, r->stages.staging_size, err));
    OK(tdm_stages_plan(&r->stages, &r->queues, err));
    outside_alloc(r, "w", 0);
    const tdm_slot_mem *w = &r->outside[slot_named(r->graph, "w")];
    OK(tdm_mem_upload(&w->mem, w->off, w_data, sizeof w_data, err));
    for (int32_t i = 0; i < 3 && caller_dev >= 0; i++)
        outside_alloc(r, ((const char *const[3]){"x", "mid", "y"})[i], caller_dev);
    return r;
}

static rig *rig_make(int32_t caller_dev, int64_t n_row, const char *const option[2]) {
    return rig_make_borders(caller_dev, n_row, option, false);
}

static void rig_free(rig *r) {
    tdm_stages_free(&r->stages);
    tdm_stage_queues_destroy(&r->queues);
    tdm_stage_memory_free(&r->memory);
    for (int32_t i = 0; i < MAX_SLOT; i++) tdm_mem_free(&r->outside[i].mem);
    tdm_graph_free(r->graph);
    tdm_runtime_destroy(r->rt);
    log_has(", 0 bytes left", 2);
    free(r);
}

static tdm_slot_mem place_of(const rig *r, const char *name, int32_t dev) {
    const int32_t slot = slot_named(r->graph, name);
    tdm_slot_mem at;
    tdm_stages_place(&r->stages, &r->memory, slot, dev, &at);
    return at.mem.dev != NULL ? at : r->outside[slot];
}

static tdm_status rig_run(rig *r, const float *x, float *mid, float *y, int32_t caller_dev,
                          tdm_error *err) {
    const tdm_slot_mem in = place_of(r, "x", caller_dev < 0 ? 0 : caller_dev);
    const tdm_slot_mem out[2] = {place_of(r, "mid", caller_dev < 0 ? 1 : caller_dev),
                                 place_of(r, "y", caller_dev < 0 ? 1 : caller_dev)};
    tdm_status status = tdm_mem_upload(&in.mem, in.off, x, in.size, err);
    if (status == TDM_OK) status = tdm_stages_copy_weight(&r->stages, 0, &r->memory, err);
    if (status == TDM_OK) status = tdm_stages_run(&r->stages, &r->queues, &r->memory, err);
    for (int32_t i = 0; i < 2 && status == TDM_OK; i++)
        status = tdm_mem_download(&out[i].mem, out[i].off, i == 0 ? mid : y, out[i].size, err);
    return status;
}

static void run_check(rig *r, int32_t caller_dev, int32_t seed) {
    float x[N], mid[N + 1], y[N + 1];
    x_fill(x, N, seed);
    for (int32_t i = 0; i <= N; i++) mid[i] = y[i] = 777;
    OK(rig_run(r, x, mid, y, caller_dev, err));
    for (int32_t i = 0; i < N; i++) {
        const float w = w_data[i % 8], a = 2 * x[i], m = a + 1;
        assert_float_equal(mid[i], m, 0);
        assert_float_equal(y[i], ((a + m) * w + a) * w * w, 0);
    }
    assert_float_equal(mid[N], 777, 0);
    assert_float_equal(y[N], 777, 0);
}

static void test_run(void **state) {
    (void)state;
    for (int32_t caller_dev = -1; caller_dev < 2; caller_dev++) {
        rig *r = rig_make(caller_dev, N_ROW, sound);
        OK(tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
        for (int32_t seed = 0; seed < 3; seed++) run_check(r, caller_dev, seed);
        rig_free(r);
    }
}

/* Values that cross lie in OUTPUT memory where the device that makes them does not read them, and
 * in INPUT memory where one node reads them once. Those that live at once share no byte. */
static void test_borders(void **state) {
    (void)state;
    static const struct {
        const char *name;
        char places[3]; /* on each device: m, i, o as in tdm_stage_memory; - = none */
    } cases[] = {{"a", "mm"}, {"mid", "io"}, {"c", "oi"}, {"e", "io"}, {"f", "oi"}};
    rig *r = rig_make_borders(-1, N_ROW, sound, true);
    OK(tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int32_t d = 0; d < 2; d++) {
            const tdm_slot_mem at = place_of(r, cases[i].name, d);
            const char place = at.mem.buffer == r->memory.mem[d].buffer   ? 'm'
                               : at.mem.buffer == r->memory.in[d].buffer  ? 'i'
                               : at.mem.buffer == r->memory.out[d].buffer ? 'o'
                                                                          : '-';
            if (place != cases[i].places[d])
                fail_msg("'%s' on device %d: %c", cases[i].name, d, place);
        }
    /* c and f live one after the other; mid and y are read at the end. */
    assert_int_equal(r->stages.need_out[0], 128);
    assert_int_equal(r->stages.need_in[1], 128);
    for (int32_t seed = 0; seed < 3; seed++) run_check(r, -1, seed);
    rig_free(r);
}

/* A device that does not answer is given up by name: later calls fail at once, and destroying keeps
 * what it may still use. */
static void test_time_limit(void **state) {
    static rig *volatile kept; /* for leak checkers: nothing of it is freed; volatile keeps it */
    (void)state;
    rig *r = kept = rig_make(-1, N_ROW, (const char *const[2]){"delay-us=150000", NULL});
    float x[N], mid[N + 1], y[N + 1];
    x_fill(x, N, 1);
    OK(tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    r->rt->wait_limit_ns = 20000000;
    FAILS(TDM_DEADLINE_EXCEEDED, "device 'left': a computation has not ended after 0.02 s",
          rig_run(r, x, mid, y, -1, err));
    FAILS(TDM_UNAVAILABLE, "device 'left': does not answer", rig_run(r, x, mid, y, -1, err));
    FAILS(TDM_UNAVAILABLE, "device 'left': does not answer",
          tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    tdm_mem none = {0};
    FAILS(TDM_UNAVAILABLE, "device 'left': does not answer",
          tdm_mem_alloc(r->stages.devs[0].dev, 16, TDM_BUFFER_ANY, &none, err));
    FAILS(TDM_UNAVAILABLE, "device 'left': does not answer",
          tdm_mem_fill(&r->memory.mem[0], 0, 1, 0, err));
    tdm_runtime_destroy(r->rt);
    log_has("device 'left' does not answer: devices and plugins are not closed", 1);
    log_has("close left", 0);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* its thread comes back */
}

/* Memory may move between runs: binding follows it. */
static void test_moved_memory(void **state) {
    (void)state;
    rig *r = rig_make(-1, N_ROW, sound);
    OK(tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    run_check(r, -1, 1);
    for (int32_t d = 0; d < 2; d++) {
        tdm_mem moved = {0};
        tdm_open_device *dev = r->memory.mem[d].dev;
        OK(tdm_mem_alloc(dev, r->stages.need[d], TDM_BUFFER_COMPUTE, &moved, err));
        tdm_mem_free(&r->memory.mem[d]);
        r->memory.mem[d] = moved;
    }
    OK(tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    run_check(r, -1, 2);
    rig_free(r);
}

/* Values that live at the same time share no byte; others do. */
static void test_layout(void **state) {
    (void)state;
    rig *r = rig_make(-1, N_ROW, sound);
    const tdm_cut *cut = &r->stages.cut;
    const int32_t w = slot_named(r->graph, "w");
    for (int32_t d = 0; d < 2; d++) {
        const uint64_t *off = r->stages.off[d];
        for (int32_t i = 0; i < r->graph->n_slot; i++) {
            const tdm_cut_slot *a = &cut->slots[i];
            if (off[i] == TDM_NO_PLACE) continue;
            assert_int_equal(off[i] % 128, 0);
            assert_true(off[i] + a->size <= r->stages.border_size[d]);
            for (int32_t j = 0; j < i; j++) {
                const tdm_cut_slot *b = &cut->slots[j];
                bool meet = i == w || j == w || (a->first <= b->last && b->first <= a->last);
                if (off[j] == TDM_NO_PLACE || !meet) continue;
                if (off[i] < off[j] + b->size && off[j] < off[i] + a->size)
                    fail_msg("device %d: '%s' lies on '%s'", d, tdm_cut_slot_name(cut, i),
                             tdm_cut_slot_name(cut, j));
            }
        }
    }
    assert_int_equal(r->stages.off[0][w], TDM_NO_PLACE);
    /* a, mid, c and e live at once on device 1; then w, then the temporary d of one stage. */
    assert_int_equal(r->stages.border_size[1], 5 * 128);
    assert_int_equal(r->stages.need[1], 5 * 128 + 128);
    assert_int_equal(r->stages.staging_size, VALUE_SIZE);
    rig_free(r);
}

/* A stage in the middle fails: the error is the device's, later stages do not run, and the next run
 * works. Had stage 4 run after stage 3 failed, it would have been the third computation of left,
 * and the second run would not fail. */
static void test_failure_in_the_middle(void **state) {
    (void)state;
    float x[N], mid[N], y[N];
    rig *r = rig_make(-1, N_ROW, (const char *const[2]){"fail-at=3", "fail-at=2"});
    x_fill(x, N, 1);
    OK(tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    FAILS(TDM_UNAVAILABLE, "right fell off the bus", rig_run(r, x, mid, y, -1, err));
    FAILS(TDM_UNAVAILABLE, "left fell off the bus", rig_run(r, x, mid, y, -1, err));
    for (int32_t seed = 0; seed < 2; seed++) run_check(r, -1, seed);
    rig_free(r);
}

/* What is bound to nothing, or lies elsewhere, is named before anything runs. */
static void test_bad_bindings(void **state) {
    (void)state;
    rig *r = rig_make(0, N_ROW, sound);
    tdm_slot_mem *w = &r->outside[slot_named(r->graph, "w")];
    tdm_slot_mem *y = &r->outside[slot_named(r->graph, "y")], kept = *y;
    *y = (tdm_slot_mem){0};
    FAILS(TDM_INVALID_ARGUMENT, "'y' is bound to nothing",
          tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    *y = kept;
    kept = *w;
    *w = (tdm_slot_mem){0};
    FAILS(TDM_INVALID_ARGUMENT, "'w' is bound to nothing",
          tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    *w = kept;
    w->mem.dev = r->stages.devs[1].dev;
    FAILS(TDM_INTERNAL, "is on another device",
          tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    *w = kept;
    OK(tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    run_check(r, 0, 1);
    rig_free(r);
}

/* Values without elements take no bytes, and their copies do nothing. */
static void test_no_rows(void **state) {
    (void)state;
    rig *r = rig_make(-1, 0, sound);
    assert_int_equal(r->stages.need[0], 0x200); /* an alignment for each value without bytes */
    assert_int_equal(r->stages.need[1], 0x300); /* and w */
    OK(tdm_stages_bind(&r->stages, &r->memory, rig_locate, r, err));
    OK(tdm_stages_copy_weight(&r->stages, 0, &r->memory, err));
    OK(tdm_stages_run(&r->stages, &r->queues, &r->memory, err));
    rig_free(r);
}

int main(void) {
    unsetenv("TANDEM_PLUGIN_PATH");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_caller_on_first),
        cmocka_unit_test(test_caller_on_second),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_viewed_weight),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_borders),
        cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_moved_memory),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_failure_in_the_middle),
        cmocka_unit_test(test_bad_bindings),
        cmocka_unit_test(test_no_rows),
    };
    return cmocka_run_group_tests_name("stages", tests, NULL, NULL);
}
