/* SPDX-License-Identifier: MIT
 *
 * test_plan.c: the planner of GPU plugins without a driver: order, barriers, places of temporaries,
 * forms, limits, and what happens when memory runs out. Emitters are stubs (stub_ops.h).
 */
#include "plugins/gpu/plan/print.h"
#include "plugins/gpu/plan/work.h"
#include "tests/gpu/plan_check.h"
#include "tests/gpu/plan_text.h"
#include "tests/gpu/stub_ops.h"
#include "tests/unit/graph_fixture.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);

static int countdown = -1; /* allocations that still succeed; -1 = all do */

static bool runs_out(void) {
    return countdown >= 0 && countdown-- == 0;
}

void *__wrap_malloc(size_t size) {
    return runs_out() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size) {
    return runs_out() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *ptr, size_t size) {
    return runs_out() ? NULL : __real_realloc(ptr, size);
}

static tdm_error error, *err = &error;

static gpu_target target_make(void) {
    return (gpu_target){.name = "test",
                        .subgroup_min = 8,
                        .subgroup_max = 8,
                        .max_group_size = 1024,
                        .max_grid = {65535, 65535, 65535},
                        .shared_size = 16384};
}

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TDM_OK) fail_msg("%s: %s", #call, error.message);                            \
    } while (0)

static tdm_graph *graph_end(tdm_builder *b) {
    tdm_graph *graph = NULL;
    OK(tdm_builder_finish(b, &graph, err));
    tdm_builder_destroy(b);
    return graph;
}

/* A checked plan of the graph, which is freed. */
static gpu_plan *plan_of(tdm_graph *graph) {
    gpu_target target = target_make();
    gpu_plan *plan = NULL;
    OK(gpu_plan_create(&target, graph, &plan, err));
    OK(gpu_plan_check(plan, err));
    tdm_graph_free(graph);
    return plan;
}

static int n_barrier(const gpu_plan *plan) {
    int n = 0;
    for (int32_t i = 0; i < plan->n_step; i++) n += plan->steps[i].has_barrier;
    return n;
}

/* ---- Order and barriers ---- */

/* Three chains of three that meet at the end: as many rounds as the longest chain has steps. */
static tdm_graph *chains(void) {
    tdm_builder *b = NULL;
    int32_t last[3];
    OK(tdm_builder_create(&b, err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(64, 5, 1, 1));
    for (int c = 0; c < 3; c++) {
        last[c] = x;
        for (int i = 0; i < 3; i++) last[c] = tdm_build_scale(b, last[c], 2, 0);
    }
    int32_t sum = tdm_build_add(b, tdm_build_add(b, last[0], last[1]), last[2]);
    tdm_build_output(b, sum, "sum");
    return graph_end(b);
}

static void test_rounds(void **state) {
    (void)state;
    gpu_plan *plan = plan_of(chains());
    assert_int_equal(plan->n_step, 11);
    assert_int_equal(n_barrier(plan), 4);
    assert_false(plan->steps[0].has_barrier);
    for (int i = 0; i < 9; i++) {
        /* Step i of the list is number i / 3 of chain i % 3. */
        assert_int_equal(plan->steps[i].order, i % 3 * 3 + i / 3);
        assert_int_equal(plan->steps[i].has_barrier, i == 3 || i == 6);
    }
    gpu_plan_destroy(plan);
}

/* The checker refuses the plan without any one of its barriers. */
static void barriers_remove(gpu_plan *plan) {
    for (int32_t i = 0; i < plan->n_step; i++) {
        if (!plan->steps[i].has_barrier) continue;
        plan->steps[i].has_barrier = false;
        assert_int_equal(gpu_plan_check(plan, err), TDM_INTERNAL);
        assert_non_null(strstr(error.message, "no barrier is between them"));
        plan->steps[i].has_barrier = true;
    }
    OK(gpu_plan_check(plan, err));
}

static void test_each_barrier_is_needed(void **state) {
    (void)state;
    gpu_plan *plan = plan_of(chains());
    barriers_remove(plan);
    gpu_plan_destroy(plan);
}

static void test_checker_sees_order(void **state) {
    (void)state;
    gpu_plan *plan = plan_of(chains());
    /* The two last steps are the sums; the second reads what the first writes. */
    gpu_step kept = plan->steps[9];
    plan->steps[9] = plan->steps[10];
    plan->steps[10] = kept;
    assert_int_equal(gpu_plan_check(plan, err), TDM_INTERNAL);
    gpu_plan_destroy(plan);
}

static void test_checker_sees_ranges(void **state) {
    (void)state;
    gpu_plan *plan = plan_of(chains());
    gpu_operand *o = &plan->steps[0].operand[1];
    assert_int_equal(o->space, GPU_SPACE_SLOT);
    o->size++;
    assert_int_equal(gpu_plan_check(plan, err), TDM_INTERNAL);
    assert_non_null(strstr(error.message, "operand 1 ends at byte 1281 of memory of 1280 bytes"));
    o->size--;
    o->off = UINT64_MAX;
    assert_int_equal(gpu_plan_check(plan, err), TDM_INTERNAL);
    o->off = 0;
    o->index = plan->n_slot;
    assert_int_equal(gpu_plan_check(plan, err), TDM_INTERNAL);
    o->index = 0;
    o->space = GPU_SPACE_AREA;
    assert_int_equal(gpu_plan_check(plan, err), TDM_INTERNAL);
    gpu_plan_destroy(plan);
}

static void test_checker_sees_counters(void **state) {
    (void)state;
    gpu_plan *plan = plan_of(chains());
    plan->counters_size = 12;
    plan->steps[0].operand[4] = (gpu_operand){GPU_SPACE_COUNTER, 0, 0, 8};
    plan->steps[3].operand[5] = (gpu_operand){GPU_SPACE_COUNTER, 0, 8, 4};
    assert_int_equal(gpu_plan_check(plan, err), TDM_OK);
    plan->steps[0].operand[4].size = 12;
    assert_int_equal(gpu_plan_check(plan, err), TDM_INTERNAL);
    assert_non_null(strstr(error.message, "have the same counters"));
    plan->counters_size = 8;
    assert_int_equal(gpu_plan_check(plan, err), TDM_INTERNAL);
    assert_non_null(strstr(error.message, "of memory of 8 bytes"));
    gpu_plan_destroy(plan);
}

/* A temporary that takes another's bytes while that is still read. */
static void test_checker_sees_owners(void **state) {
    (void)state;
    gpu_plan *plan = plan_of(chains());
    gpu_operand *o = &plan->steps[3].operand[0]; /* the second value of the first chain */
    uint64_t kept = o->off;
    /* Chain 1's second value is still to be read when chain 0's is written in its place. */
    o->off = plan->steps[4].operand[0].off;
    for (int32_t i = 4; i < plan->n_step; i++)
        for (int k = 1; k < 3; k++)
            if (plan->steps[i].operand[k].space == GPU_SPACE_SCRATCH &&
                plan->steps[i].operand[k].index == o->index)
                plan->steps[i].operand[k].off = o->off;
    plan->steps[4].has_barrier = true; /* so that writing twice is no hazard */
    assert_int_equal(gpu_plan_check(plan, err), TDM_INTERNAL);
    assert_non_null(strstr(error.message, "another temporary has taken"));
    o->off = kept;
    gpu_plan_destroy(plan);
}

/* Nodes that change a state keep their order; those that only read it share a round. */
static void test_state_order(void **state) {
    (void)state;
    fixture f = fixture_make();
    tdm_attention_params params = fixture_attention(&f);
    tdm_build_kv_write(f.b, f.k, f.k, f.step, f.state, f.kv);
    for (int i = 0; i < 3; i++) {
        int32_t o = tdm_build_attention(f.b, f.q, f.step, f.state, -1, &params, NULL);
        tdm_build_output(f.b, o, i == 0 ? "a" : i == 1 ? "b" : "c");
    }
    tdm_build_kv_copy(f.b, f.step, f.state, f.kv);
    gpu_plan *plan = plan_of(graph_end(f.b));
    int32_t written = -1;
    for (int32_t i = 0; i < plan->n_step; i++)
        if (plan->steps[i].node == 4) written = i;
    /* Sources of the write, the write, three reads of the state, then the copy beside what the
     * reads lead to. */
    assert_int_equal(written, plan->n_step - 1);
    assert_int_equal(plan->n_step, 9);
    assert_int_equal(n_barrier(plan), 3);
    barriers_remove(plan);
    gpu_plan_destroy(plan);
}

/* A step that waits for no other is launched in the round before its reader. */
static void test_late_sources(void **state) {
    (void)state;
    tdm_builder *b = NULL;
    OK(tdm_builder_create(&b, err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(64, 5, 1, 1));
    int32_t early = tdm_build_scale(b, x, 3, 0), y = x;
    for (int i = 0; i < 10; i++) y = tdm_build_scale(b, y, 2, 0);
    tdm_build_output(b, tdm_build_add(b, y, early), "y");
    gpu_plan *plan = plan_of(graph_end(b));
    assert_int_equal(plan->n_step, 12);
    assert_int_equal(n_barrier(plan), 10);
    assert_int_equal(plan->steps[9].order, 0);
    assert_int_equal(plan->scratch_size, 3 * 1280);
    gpu_plan_destroy(plan);
}

/* ---- Places ---- */

/* A chain of any length needs two places. */
static void test_long_chain(void **state) {
    enum { N = 3000 };
    (void)state;
    tdm_builder *b = NULL;
    OK(tdm_builder_create(&b, err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(63, 5, 1, 1));
    for (int i = 0; i < N; i++) x = tdm_build_scale(b, x, 2, 0);
    tdm_build_output(b, x, "y");
    gpu_plan *plan = plan_of(graph_end(b));
    assert_int_equal(plan->n_step, N);
    assert_int_equal(n_barrier(plan), N - 1);
    assert_int_equal(plan->scratch_size, 2 * 1280); /* 63 * 5 * 4 = 1260, rounded up to 256 */
    for (int32_t i = 0; i < N; i++)
        for (int k = 0; k < 2; k++)
            if (plan->steps[i].operand[k].space == GPU_SPACE_SCRATCH)
                assert_int_equal(plan->steps[i].operand[k].off % 256, 0);
    gpu_plan_destroy(plan);
}

/* Bytes for a slot come from its value; a temporary's slot needs none. */
static void test_slot_sizes(void **state) {
    (void)state;
    tdm_builder *b = NULL;
    OK(tdm_builder_create(&b, err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(64, 5, 1, 1));
    int32_t part = tdm_build_slice(b, x, NE(0, 1, 0, 0), NE(32, 2, 1, 1));
    int32_t y = tdm_build_scale(b, part, 1, 0);
    tdm_build_output(b, tdm_build_scale(b, y, 1, 0), "z");
    gpu_plan *plan = plan_of(graph_end(b));
    assert_int_equal(plan->n_slot, 3);
    assert_int_equal(plan->slot_sizes[0], 1280);
    assert_int_equal(plan->slot_sizes[1], 0);
    assert_int_equal(plan->slot_sizes[2], 256);
    /* Rows 1 and 2, 32 of 64 elements of each: to the end of the last. */
    assert_int_equal(plan->steps[0].operand[1].off, 256);
    assert_int_equal(plan->steps[0].operand[1].size, 256 + 128);
    gpu_plan_destroy(plan);
}

static void test_nothing(void **state) {
    (void)state;
    tdm_builder *b = NULL;
    OK(tdm_builder_create(&b, err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(64, 0, 1, 1));
    x = tdm_build_scale(b, tdm_build_scale(b, x, 1, 0), 1, 0);
    tdm_build_output(b, tdm_build_scale(b, x, 1, 0), "z");
    gpu_plan *plan = plan_of(graph_end(b));
    assert_int_equal(n_barrier(plan), 0); /* no bytes, no conflict */
    assert_int_equal(plan->scratch_size, 0);
    gpu_plan_destroy(plan);
    OK(tdm_builder_create(&b, err));
    plan = plan_of(graph_end(b));
    assert_int_equal(plan->n_step, 0);
    gpu_plan_destroy(plan);
}

/* ---- Forms ---- */

/* Nodes that read the same view share its form; another view has another. */
static void test_forms(void **state) {
    (void)state;
    tdm_builder *b = NULL;
    int32_t n_form = 0;
    OK(tdm_builder_create(&b, err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(64, 5, 1, 1));
    int32_t y = tdm_build_scale(b, x, 1, 0);
    char name[16];
    for (int i = 0; i < 40; i++) {
        int32_t of = i % 2 == 0 ? y : tdm_build_slice(b, y, NE(0, 1, 0, 0), NE(64, 4, 1, 1));
        snprintf(name, sizeof name, "out%d", i);
        tdm_build_output(b, tdm_build_scale(b, of, 2, 0), name);
    }
    stub_seed = 7;
    gpu_plan *plan = plan_of(graph_end(b));
    stub_seed = 0;
    for (int32_t i = 0; i < plan->n_step; i++) n_form += plan->steps[i].operand[0].size < 1024;
    assert_int_equal(n_form, 2); /* a byte for each element: 320 and 256 */
    barriers_remove(plan);
    gpu_plan_destroy(plan);
}

/* ---- Fusing ---- */

static void test_fused_chain(void **state) {
    (void)state;
    tdm_graph *graph = chains();
    gpu_target target = target_make();
    gpu_plan *plan = NULL;
    stub_fusing = STUB_FUSE_ALL;
    OK(gpu_plan_create(&target, graph, &plan, err));
    OK(gpu_plan_check(plan, err));
    /* The first two of each chain of three become one step, so do the third of the first chain and
     * the first sum. The values between them are not written. */
    assert_int_equal(plan->n_step, 7);
    assert_int_equal(n_barrier(plan), 3);
    assert_true(plan->scratch_size <= 6 * 1280);
    barriers_remove(plan);
    gpu_plan_destroy(plan);
    target.is_unfused = true;
    OK(gpu_plan_create(&target, graph, &plan, err));
    assert_int_equal(plan->n_step, 11);
    gpu_plan_destroy(plan);
    target.is_unfused = false;
    stub_fusing = STUB_FUSE_REFUSED;
    OK(gpu_plan_create(&target, graph, &plan, err));
    assert_int_equal(plan->n_step, 11);
    gpu_plan_destroy(plan);
    stub_fusing = STUB_FUSE_NONE;
    tdm_graph_free(graph);
}

/* Two nodes become one step that writes both values where others read the first (kind 2), or the
 * caller does (kind 3). A node between the two that reads it forbids the fusion (kind 1). */
static void test_fused_readers(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        tdm_builder *b = NULL;
        OK(tdm_builder_create(&b, err));
        int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(64, 5, 1, 1)), z = -1;
        int32_t w = tdm_build_weight(b, "w", TDM_TYPE_F32, NE(64, 1, 1, 1), 0);
        int32_t y = tdm_build_scale(b, x, 2, 0);
        if (kind == 1) z = tdm_build_mul(b, tdm_build_clamp(b, y, 0, 1), w);
        tdm_build_output(b, tdm_build_scale(b, y, 3, 0), "out");
        if (kind == 2) z = tdm_build_mul(b, y, w);
        if (z >= 0) tdm_build_output(b, z, "also");
        if (kind == 3) tdm_build_output(b, y, "too");
        stub_fusing = STUB_FUSE_ALL;
        gpu_plan *plan = plan_of(graph_end(b));
        stub_fusing = STUB_FUSE_NONE;
        static const int n_step[] = {1, 3, 3, 2};
        assert_int_equal(plan->n_step, n_step[kind]);
        assert_int_equal(plan->steps[0].node, kind == 1 ? 0 : 1);
        assert_int_equal(plan->scratch_size, kind == 0 || kind == 3 ? 0 : 1280);
        gpu_plan_destroy(plan);
    }
}

/* Two nodes are not fused where a node between them changes a state that the first reads. */
static void test_fused_state(void **state) {
    (void)state;
    fixture f = fixture_make();
    tdm_attention_params params = fixture_attention(&f);
    int32_t o = tdm_build_attention(f.b, f.q, f.step, f.state, -1, &params, NULL);
    tdm_build_kv_write(f.b, f.k, f.k, f.step, f.state, f.kv);
    tdm_build_output(f.b, tdm_build_scale(f.b, o, 1, 0), "out");
    stub_fusing = STUB_FUSE_ALL;
    gpu_plan *plan = plan_of(graph_end(f.b));
    stub_fusing = STUB_FUSE_NONE;
    /* Attention (node 0) is not fused with the scale (node 2): it would read what node 1 wrote. */
    int n_found = 0;
    for (int32_t i = 0; i < plan->n_step; i++) {
        if (plan->steps[i].node != 2) continue;
        n_found++;
        for (int k = 0; k < 3; k++)
            assert_true(plan->steps[i].operand[k].space != GPU_SPACE_SLOT || k == 0);
    }
    assert_int_equal(n_found, 1);
    gpu_plan_destroy(plan);
}

/* ---- Limits ---- */

static void refused(const tdm_graph *graph, const gpu_target *target, const char *text) {
    gpu_plan *plan = NULL;
    assert_int_equal(gpu_plan_supports(target, graph, 0, err), TDM_UNSUPPORTED);
    assert_string_equal(error.message, text);
    assert_int_equal(gpu_plan_create(target, graph, &plan, err), TDM_UNSUPPORTED);
    assert_string_equal(error.message, text);
    assert_null(plan);
}

static void test_limits(void **state) {
    (void)state;
    tdm_graph *graph = chains();
    gpu_target target = target_make();
    OK(gpu_plan_supports(&target, graph, 0, err));
    target.max_trips = 65535;
    stub_trips = 65535;
    OK(gpu_plan_supports(&target, graph, 0, err));
    stub_trips++;
    refused(graph, &target,
            "test: SCALE (node 0): kernel pair: 65536 loop iterations in an invocation; the device "
            "runs up to 65535");
    stub_trips = 0;
    target.max_range = 1280;
    OK(gpu_plan_supports(&target, graph, 0, err));
    target.max_range--;
    refused(
        graph, &target,
        "test: SCALE (node 0): kernel pair: an operand of 1280 bytes; the device has up to 1279");
    target.max_range = 0;
    target.max_group_size = 64;
    OK(gpu_plan_supports(&target, graph, 0, err));
    target.max_group_size--;
    refused(graph, &target,
            "test: SCALE (node 0): kernel pair: workgroups of 64 threads; the device has up to 63");
    tdm_graph_free(graph);
}

static void test_grids(void **state) {
    (void)state;
    tdm_graph *graph = chains();
    gpu_target target = target_make();
    gpu_emit e = {.target = &target, .graph = graph, .node = tdm_graph_node(graph, 0)};
    gpu_step step = gpu_step_make(&e, GPU_KERNEL_PAIR, 64);
    OK(gpu_step_grid(&e, &step, 65535, err));
    assert_int_equal(step.grid[0], 65535);
    assert_int_equal(step.grid[1], 1);
    OK(gpu_step_grid(&e, &step, 65536, err));
    assert_int_equal(step.grid[0], 32768);
    assert_int_equal(step.grid[1], 2);
    OK(gpu_step_grid(&e, &step, INT64_C(65535) * 65535, err));
    assert_int_equal(step.grid[0], 65535);
    assert_int_equal(step.grid[1], 65535);
    assert_int_equal(gpu_step_grid(&e, &step, INT64_C(65535) * 65535 + 1, err), TDM_UNSUPPORTED);
    /* No workgroup at all is no step: the emitter should have appended none. */
    OK(gpu_step_grid(&e, &step, 0, err));
    assert_int_equal(gpu_emit_step(&e, &step, err), TDM_UNSUPPORTED);
    tdm_graph_free(graph);
}

static void test_words(void **state) {
    (void)state;
    tdm_graph *graph = chains();
    gpu_target target = target_make();
    gpu_emit e = {.target = &target, .graph = graph, .node = tdm_graph_node(graph, 0)};
    gpu_value v = {.type = TDM_TYPE_F32, .ne = {8, 1, 3, 1}, .nb = {4, 999999999999, 64, 0}};
    int32_t word[4];
    OK(gpu_words_strides(&e, word, &v, NE(8, 7, 3, 1), err));
    assert_memory_equal(word, ((int32_t[4]){1, 0, 16, 0}), sizeof word);
    v.nb[2] = INT64_C(4) << 31;
    assert_int_equal(gpu_words_strides(&e, word, &v, NE(8, 7, 3, 1), err), TDM_UNSUPPORTED);
    assert_int_equal(gpu_words_shape(&e, word, NE(8, INT64_C(1) << 31, 3, 1), err),
                     TDM_UNSUPPORTED);
    OK(gpu_words_shape(&e, word, NE(8, INT32_MAX, 0, 1), err));
    assert_memory_equal(word, ((int32_t[4]){8, INT32_MAX, 0, 1}), sizeof word);
    v = (gpu_value){.type = TDM_TYPE_F32, .ne = {8, 0, 3, 1}, .nb = {4, 32, 7, 1}};
    assert_true(gpu_value_is_contiguous(&v));
    v.ne[1] = 1;
    assert_false(gpu_value_is_contiguous(&v));
    v.nb[2] = 32;
    v.nb[1] = 5;
    assert_true(gpu_value_is_contiguous(&v));
    v = (gpu_value){.type = TDM_TYPE_Q8_0, .ne = {64, 2, 1, 1}, .nb = {34, 102, 0, 0}};
    assert_true(gpu_value_has_dense_rows(&v));
    assert_false(gpu_value_is_contiguous(&v));
    tdm_graph_free(graph);
}

/* ---- Text ---- */

static tdm_graph *layers(void) {
    tdm_builder *b = NULL;
    char name[64];
    OK(tdm_builder_create(&b, err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(64, 5, 1, 1));
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "blk.%d.w", i);
        int32_t w = tdm_build_weight(b, name, TDM_TYPE_F32, NE(64, 1, 1, 1), 0);
        x = tdm_build_scale(b, tdm_build_mul(b, x, w), 2, 0);
    }
    int32_t w = tdm_build_weight(b, "last", TDM_TYPE_F32, NE(64, 1, 1, 1), 0);
    tdm_build_output(b, tdm_build_mul(b, x, w), "y");
    return graph_end(b);
}

static void test_text(void **state) {
    (void)state;
    gpu_target target = target_make();
    tdm_graph *graph = layers();
    gpu_plan *plan = NULL;
    OK(gpu_plan_create(&target, graph, &plan, err));
    plan->steps[1].spec[1] = 5;
    plan->steps[1].word[2] = -7;
    plan->steps[1].grid[1] = 4;
    char *text = gpu_plan_text(plan, graph, true);
    assert_string_equal(text, "7 steps, 6 barriers, 2560 bytes of scratch, 0 of constants\n"
                              "pair 64x1: t0:1280 = x:1280 blk.0.w:256\n"
                              "----\n"
                              "pair(0 5) 64x1,4,1: t1@1280:1280 = t0:1280 {0 0 -7}\n"
                              "----\n"
                              "pair 64x1: t2:1280 = t1@1280:1280 blk.1.w:256\n"
                              "----\n"
                              "pair 64x1: t3@1280:1280 = t2:1280\n"
                              "----\n"
                              "pair 64x1: t4:1280 = t3@1280:1280 blk.2.w:256\n"
                              "----\n"
                              "pair 64x1: t5@1280:1280 = t4:1280\n"
                              "----\n"
                              "pair 64x1: y:1280 = t5@1280:1280 last:256\n");
    free(text);
    plan->steps[6].weight_size = 100;
    text = gpu_plan_cost_text(plan, graph);
    assert_string_equal(
        text,
        "outside layers: 1 dispatches, 1 barriers, 100 bytes of weights, 1280 of temporaries, "
        "1280 of inputs and outputs\n"
        "layer 0: 2 dispatches, 1 barriers, 256 bytes of weights, 3840 of temporaries, 1280 of "
        "inputs and outputs\n"
        "layers 1 to 2, each: 2 dispatches, 2 barriers, 256 bytes of weights, 5120 of "
        "temporaries, 0 of inputs and outputs\n"
        "all: 7 dispatches, 6 barriers, 868 bytes of weights, 15360 of temporaries, 2560 of "
        "inputs and outputs\n");
    free(text);
    for (int i = 0; i < 4; i++) {
        countdown = i;
        text = i % 2 == 0 ? gpu_plan_text(plan, graph, false) : gpu_plan_cost_text(plan, graph);
        countdown = -1;
        if (i < 2) assert_null(text);
        free(text);
    }
    gpu_plan_destroy(plan);
    tdm_graph_free(graph);
}

/* ---- Memory runs out ---- */

static void test_memory(void **state) {
    gpu_target target = target_make();
    tdm_graph *graph = chains();
    gpu_plan *plan = NULL;
    int n_failed = 0;
    (void)state;
    stub_seed = 7;
    for (int i = 0; plan == NULL; i++) {
        countdown = i;
        tdm_status status = gpu_plan_create(&target, graph, &plan, err);
        countdown = -1;
        if (status == TDM_OK) break;
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(error.message, "no memory for a plan"));
        assert_null(plan);
        n_failed++;
    }
    assert_true(n_failed >= 10);
    OK(gpu_plan_check(plan, err));
    countdown = 0;
    assert_int_equal(gpu_plan_check(plan, err), TDM_RESOURCE_EXHAUSTED);
    countdown = -1;
    stub_seed = 0;
    gpu_plan_destroy(plan);
    gpu_plan_destroy(NULL);
    tdm_graph_free(graph);
}

/* Every kernel of products counts its arithmetic: rows times columns times k. */
static void test_work(void **state) {
    (void)state;
    const gpu_kernel products[] = {GPU_KERNEL_PRODUCT_ROW,       GPU_KERNEL_PRODUCT_LANE,
                                   GPU_KERNEL_PRODUCT_TILE,      GPU_KERNEL_PRODUCT_ROW_DOT,
                                   GPU_KERNEL_PRODUCT_TILE_DOT,  GPU_KERNEL_PRODUCT_TILE_MATRIX,
                                   GPU_KERNEL_PRODUCT_TILE_BLOCK};
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        gpu_step step = {.kernel = products[i],
                         .word = {[0] = 64, [1] = 256, [2] = 512, [16] = 3},
                         .operand = {[1] = {.size = 1000}, [2] = {.size = 100}}};
        step.spec[4] = GPU_PRODUCT_PLAIN;
        assert_true(gpu_step_work(&step).ops == 64.0 * 256 * 512 * 3);
        assert_true(gpu_step_work(&step).bytes == 1100);
        step.weight_size = 10;
        assert_true(gpu_step_work(&step).bytes == 110);
        step.word[2] = 8; /* few columns: memory decides */
        assert_true(gpu_step_work(&step).ops == 0);
        assert_false(gpu_step_work(&step).is_upper);
        /* Pairs of one token have an expert each; those of more tokens may share them. */
        step.spec[4] = GPU_PRODUCT_PAIRS;
        step.word[3] = 8;
        assert_false(gpu_step_work(&step).is_upper);
        step.word[2] = 16;
        assert_true(gpu_step_work(&step).is_upper);
        /* Few tiles have many columns. */
        step.spec[4] = GPU_PRODUCT_SORTED;
        step.spec[3] = 32;
        step.word[2] = 8;
        assert_true(gpu_step_work(&step).ops == 64.0 * 256 * 8 * 32);
        assert_true(gpu_step_work(&step).is_upper);
    }
    /* Both matrices of GLU are read to the same extent, and multiplied. */
    const gpu_step glu = {.kernel = GPU_KERNEL_PRODUCT_ROW,
                          .word = {[0] = 64, [1] = 256, [2] = 512},
                          .operand = {[1] = {.size = 1000}, [3] = {.size = 1000}},
                          .spec = {[7] = GPU_PRODUCT_END_GLU},
                          .weight_size = 10};
    assert_true(gpu_step_work(&glu).bytes == 20);
    assert_true(gpu_step_work(&glu).ops == 2.0 * 64 * 256 * 512);
    /* A cache of two KV heads of 64 and 32 elements, 100 slots. */
    const struct {
        tdm_type type;
        int32_t flags;
        uint64_t size; /* of the slot's rows of a head */
    } caches[] = {{TDM_TYPE_F16, 0, 192},
                  {TDM_TYPE_Q4_0, 0, 54},
                  {TDM_TYPE_F16, GPU_ATTENTION_V_FROM_K, 128}};
    for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
        gpu_step attention = {
            .kernel = GPU_KERNEL_ATTENTION_TILE,
            .word = {[7] = 100, [8] = 8, [19] = 2},
            .spec = {caches[i].type, caches[i].type, 64, 32, [5] = caches[i].flags},
            .operand = {[2] = {.size = 2 * 100 * caches[i].size}}};
        const double once = 8 * 100.0 * (64 + 32);
        assert_true(gpu_step_work(&attention).ops == 4 * 100 * once);
        assert_true(gpu_step_work(&attention).is_upper);
        attention.word[7] = 8;
        assert_true(gpu_step_work(&attention).ops == 8 * once);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_each_barrier_is_needed),
        cmocka_unit_test(test_checker_sees_order),
        cmocka_unit_test(test_checker_sees_ranges),
        cmocka_unit_test(test_checker_sees_counters),
        cmocka_unit_test(test_checker_sees_owners),
        cmocka_unit_test(test_state_order),
        cmocka_unit_test(test_late_sources),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_slot_sizes),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_fused_chain),
        cmocka_unit_test(test_fused_readers),
        cmocka_unit_test(test_fused_state),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
