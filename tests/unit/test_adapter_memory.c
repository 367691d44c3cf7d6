/* SPDX-License-Identifier: MIT
 *
 * test_adapter_memory.c: every allocation of an acquired device fails once. The caller gets the
 * error, nothing leaks (address sanitizer), and the next attempt succeeds. A run allocates
 * nothing.
 */
#include "tests/unit/adapter_fixture.h"

/* The linker sends the core's allocations here (--wrap); those of plugins are their own. */
static int n_allocation, failing; /* failing: which one, counted from 1; 0 = none */

static bool may_allocate(void) {
    return __atomic_add_fetch(&n_allocation, 1, __ATOMIC_RELAXED) !=
           __atomic_load_n(&failing, __ATOMIC_RELAXED);
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);
char *__wrap_strdup(const char *text);
void *__wrap_malloc(size_t size) {
    return may_allocate() ? __real_malloc(size) : NULL;
}
void *__wrap_calloc(size_t n, size_t size) {
    return may_allocate() ? __real_calloc(n, size) : NULL;
}
void *__wrap_realloc(void *ptr, size_t size) {
    return may_allocate() ? __real_realloc(ptr, size) : NULL;
}
char *__wrap_strdup(const char *text) {
    return may_allocate() ? __real_strdup(text) : NULL;
}

static void fail_at(int which) {
    __atomic_store_n(&failing, which, __ATOMIC_RELAXED);
    __atomic_store_n(&n_allocation, 0, __ATOMIC_RELAXED);
}

/* A weight that both sides read, one that the CPU alone reads, and values that cross both ways. */
static tdm_graph *graph_make(void) {
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 8, 3), gain = weight(b, "gain", 8, 1, 0);
    int32_t h = tdm_build_mul(b, x, gain);
    h = tdm_build_matmul(b, weight(b, "w", 8, 8, TDM_USAGE_MATMUL), h);
    h = tdm_build_add(b, tdm_build_scale(b, h, 2, 1), gain);
    tdm_build_output(b, h, "y");
    return end(b);
}

/* From acquiring to the result. */
static tdm_status attempt(tdm_runtime *rt, const tdm_graph *graph, float *y, tdm_error *err) {
    acquired l = {.got = {.struct_size = sizeof l.got}};
    bound_plan n = {0};
    float row[24];
    x_fill(row, 24, 1);
    tdm_status status = tdm_adapter_acquire(rt, "m", &l.got, err);
    if (status != TDM_OK) return status;
    status = tdm_semaphore_ops.create(0, &l.done, err);
    if (status == TDM_OK) status = l.got.plugin->queue->create(l.got.device, &l.queue, err);
    if (status == TDM_OK) status = bound_try(&n, &l, graph, true, err);
    if (status == TDM_OK) {
        const tdm_binding *x = bound_binding(&n, "x"), *at = bound_binding(&n, "y");
        const tdm_buffer_ops *ops = l.got.plugin->buffer;
        float ones[64];
        for (int i = 0; i < 64; i++) ones[i] = 1;
        const tdm_binding *gain = bound_binding(&n, "gain"), *w = bound_binding(&n, "w");
        const tdm_tensor_desc desc = desc_of(tdm_graph_value(graph, value_named(graph, "w")));
        status = ops->upload(gain->buffer, gain->off, ones, 32, err);
        if (status == TDM_OK)
            status = ops->tensor_upload(w->buffer, w->off, &desc, ones, 32, 0, 8, 0, 8, err);
        if (status == TDM_OK) status = ops->upload(x->buffer, x->off, row, sizeof row, err);
        if (status == TDM_OK) status = bound_bind(&n, err);
        if (status == TDM_OK) status = bound_run(&n, err);
        if (status == TDM_OK) status = ops->download(at->buffer, at->off, y, 24 * sizeof *y, err);
        bound_end(&n);
    }
    l.got.plugin->queue->destroy(l.queue);
    tdm_semaphore_ops.destroy(l.done);
    tdm_adapter_release(rt, &l.got);
    return status;
}

static tdm_runtime *runtime_failing(void) {
    tdm_runtime *rt = runtime_make(both_path);
    tdm_open_device *dev = NULL;
    declare(rt, "m", (const char *const[3]){"refuse=matmul,add"});
    OK(tdm_runtime_open(rt, "m", &dev, err)); /* the runtime's own allocations have other tests */
    return rt;
}

static void test_each_allocation(void **state) {
    (void)state;
    tdm_graph *graph = graph_make();
    tdm_status status = TDM_INTERNAL;
    float expected[24], y[24];
    int n = 0;
    x_fill(expected, 24, 1);
    for (int i = 0; i < 3; i++) {
        float sum = 0;
        for (int k = 0; k < 8; k++) sum += expected[8 * i + k];
        for (int k = 0; k < 8; k++) expected[8 * i + k] = 2 * sum + 2;
    }
    while (status != TDM_OK) {
        tdm_runtime *rt = runtime_failing();
        tdm_error err = {0};
        assert_true(++n < 1000);
        fail_at(n);
        status = attempt(rt, graph, y, &err);
        fail_at(0);
        if (status != TDM_OK && status != TDM_RESOURCE_EXHAUSTED)
            fail_msg("allocation %d: %s: %s", n, tdm_status_text(status), err.message);
        if (status != TDM_OK && err.message[0] == 0) fail_msg("allocation %d: no message", n);
        tdm_error again = {0};
        if (attempt(rt, graph, y, &again) != TDM_OK)
            fail_msg("after allocation %d: %s", n, again.message);
        assert_memory_equal(y, expected, sizeof y);
        tdm_runtime_destroy(rt);
        log_has("close m, 0 bytes left", 1);
    }
    print_message("%d allocations failed in turn\n", n - 1);
    assert_true(n > 40);
    tdm_graph_free(graph);
}

static void test_running_allocates_nothing(void **state) {
    (void)state;
    tdm_graph *graph = graph_make();
    tdm_runtime *rt = runtime_failing();
    acquired l = acquire(rt, "m");
    bound_plan n = bound_begin(&l, graph);
    float x[24] = {0};
    bound_put(&n, "x", x, sizeof x);
    OK(bound_run(&n, err));
    fail_at(0);
    const uint64_t counted = tdm_counter_get(TDM_COUNTER_ALLOCATIONS);
    for (int i = 0; i < 20; i++) OK(bound_run(&n, err));
    assert_int_equal(__atomic_load_n(&n_allocation, __ATOMIC_RELAXED), 0);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_ALLOCATIONS), counted);
    bound_end(&n);
    release(rt, &l);
    tdm_runtime_destroy(rt);
    tdm_graph_free(graph);
}

int main(void) {
    both_path_set();
    if (!has_cpu()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation),
        cmocka_unit_test(test_running_allocates_nothing),
    };
    return cmocka_run_group_tests_name("adapter_memory", tests, NULL, NULL);
}
