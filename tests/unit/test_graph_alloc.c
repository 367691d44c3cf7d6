/* SPDX-License-Identifier: MIT
 *
 * test_graph_alloc.c: builder, verifier, memory plan and extraction when each of their allocations
 * fails in turn: a status, no leak (address sanitizer), and success at the next attempt. Linked
 * with wrappers around malloc, calloc and realloc.
 */
#include "graph_fixture.h"

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

/* Builds a graph that makes every array grow; TDM_OK or how it failed. */
static tdm_status build(tdm_graph **graph_out, tdm_error *err) {
    const tdm_step_caps caps = {FIX_TOK, 2, FIX_OUT, 8, 3, 1};
    tdm_kv_desc desc = fixture_kv_desc();
    tdm_partition p = {.id = 1, .layer = -1, .n_unit = 64, .n_segment = 1, .unit_len = {1}};
    tdm_builder *b = NULL;
    int32_t x, i, kv;
    tdm_status status = tdm_builder_create(&b, err);
    if (status != TDM_OK) return status;
    tdm_build_step(b, &caps);
    for (i = 0; i < 40; i++) tdm_build_state(b, "s", &desc, 64, 2, &kv);
    x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(64, 5, 1, 1));
    for (i = 0; i < 50; i++) {
        x = tdm_build_scale(b, x, 2, 0);
        p.id = i;
        tdm_build_set_partition(b, x, tdm_build_partition(b, &p), 0);
        tdm_build_name(b, x, "a name that is long enough to need room", i);
    }
    tdm_build_output(b, x, "out");
    status = tdm_builder_finish(b, graph_out, err);
    tdm_builder_destroy(b);
    return status;
}

static void test_build(void **state) {
    tdm_graph *graph = NULL;
    int i, n_failed = 0;
    (void)state;
    for (i = 0;; i++) {
        tdm_error err = {0};
        tdm_status status;
        countdown = i;
        status = build(&graph, &err);
        countdown = -1;
        if (status == TDM_OK) break;
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        assert_true(err.message[0] != '\0');
        assert_null(graph);
        n_failed++;
    }
    printf("graph_alloc: building survived the failure of each of %d allocations\n", n_failed);
    assert_true(n_failed > 10);
    tdm_graph_free(graph);
}

static void test_services(void **state) {
    tdm_graph *graph = NULL, *part = NULL;
    uint64_t *offsets, size = 0;
    int32_t *slots;
    int i;
    tdm_status status;
    tdm_error err = {0};
    (void)state;
    assert_int_equal(build(&graph, &err), TDM_OK);
    offsets = malloc((size_t)graph->n_slot * sizeof *offsets);
    slots = malloc((size_t)graph->n_slot * sizeof *slots);
    assert_true(offsets != NULL && slots != NULL);
    for (i = 0;; i++) {
        countdown = i;
        status = tdm_graph_verify(graph, &err);
        countdown = -1;
        if (status == TDM_OK) break;
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
    }
    assert_true(i > 0);
    for (i = 0;; i++) {
        countdown = i;
        status = tdm_graph_plan_memory(graph, 64, offsets, &size, &err);
        countdown = -1;
        if (status == TDM_OK) break;
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        assert_int_equal(size, 0);
    }
    assert_true(i > 3);
    for (i = 0;; i++) {
        countdown = i;
        status = tdm_graph_extract(graph, 5, 20, &part, slots, &err);
        countdown = -1;
        if (status == TDM_OK) break;
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        assert_null(part);
    }
    assert_true(i > 5);
    free(slots);
    free(offsets);
    tdm_graph_free(part);
    tdm_graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),
        cmocka_unit_test(test_services),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
