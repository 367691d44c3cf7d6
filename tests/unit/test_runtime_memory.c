/* SPDX-License-Identifier: MIT
 *
 * test_runtime_memory.c: every allocation of the runtime and the scheduler fails once. The caller
 * gets the failure, nothing leaks (address sanitizer), and existing objects keep working. Also the
 * memory that plugins get from the host.
 */
#include "tests/unit/schedule_fixture.h"

#include "core/runtime.h"
#include "core/device/runtime_internal.h"
#include "core/stages/schedule_internal.h"

/* ---- allocations that fail ------------------------------------------------------------------- */

/* The linker sends the core's allocations here (--wrap). */
static int n_allocation, failing; /* failing: which one, counted from 1; 0 = none */

static bool may_allocate(void) {
    return __atomic_add_fetch(&n_allocation, 1, __ATOMIC_RELAXED) != failing;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t len);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t len);
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
char *__wrap_strndup(const char *text, size_t len) {
    return may_allocate() ? __real_strndup(text, len) : NULL;
}

static void fail_at(int which) {
    failing = which;
    n_allocation = 0;
}

/* Makes `call` fail at each of its allocations in turn, until none is left to fail and it
 * succeeds. */
#define EACH_ALLOCATION(call)                                                                      \
    do {                                                                                           \
        tdm_status each_status = TDM_INTERNAL;                                                     \
        int each = 0;                                                                              \
        while (each_status != TDM_OK) {                                                            \
            tdm_error each_err = {0}, *err = &each_err;                                            \
            assert_true(++each < 1000);                                                            \
            fail_at(each);                                                                         \
            each_status = (call);                                                                  \
            fail_at(0);                                                                            \
            if (each_status != TDM_OK && each_status != TDM_RESOURCE_EXHAUSTED)                    \
                fail_msg("allocation %d: %s", each, each_err.message);                             \
            if (each_status != TDM_OK) assert_true(each_err.message[0] != 0);                      \
        }                                                                                          \
        n_tried += each - 1;                                                                       \
    } while (0)

static int n_tried;

static void test_runtime(void **state) {
    (void)state;
    tdm_runtime *rt = NULL;
    tdm_open_device *dev = NULL;
    const tdm_runtime_params params = {.plugin_path = FAKE_PLUGIN_DIR};
    const tdm_option options[] = {{"name", "a"}, {"refuse", "matmul"}};
    const tdm_device_spec spec = {.name = "a", .plugin = "fake", .options = options, .n_option = 2};
    n_tried = 0;
    setenv("TANDEM_PLUGIN_PATH", "/nowhere", 1);
    EACH_ALLOCATION(tdm_runtime_create(&params, &rt, err));
    unsetenv("TANDEM_PLUGIN_PATH");
    EACH_ALLOCATION(tdm_runtime_declare(rt, &spec, err));
    EACH_ALLOCATION(tdm_runtime_open(rt, "a", &dev, err)); /* loads, too */
    assert_string_equal(tdm_open_device_name(dev), "a");
    assert_int_equal(tdm_runtime_plugin_count(rt), 1);
    /* Without memory load_all leaves plugins out, and a second time loads them. */
    int32_t n = 0, n_all = 0;
    for (int which = 1; which <= 8; which++) {
        fail_at(which);
        assert_int_equal(tdm_runtime_load_all(rt, &n, NULL), TDM_OK);
        fail_at(0);
    }
    OK(tdm_runtime_load_all(rt, &n_all, err));
    assert_true(n_all >= 3 && n <= n_all);
    tdm_runtime_destroy(rt);
    print_message("%d allocations failed\n", n_tried);
    assert_true(n_tried >= 10);
}

static tdm_graph *two_stage_graph(int64_t n_tok) {
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 8, n_tok);
    int32_t h = tdm_build_mul(b, x, weight(b, "scale", 8, 1, 0));
    h = tdm_build_matmul(b, weight(b, "w", 8, 8, TDM_USAGE_MATMUL), h);
    tdm_build_output(b, tdm_build_add(b, h, x), "y");
    return end(b);
}

/* The schedule owns the graph on failure too, so that each trial brings one of its own. */
static tdm_status schedule_try(scene *s, int64_t n_tok, tdm_schedule **schedule_out,
                               tdm_error *err) {
    tdm_slot_mem slots[MAX_SLOT];
    const int which = failing;
    fail_at(0);
    tdm_graph *graph = two_stage_graph(n_tok);
    weights_place(&s->w, s->scratch, s->devs, graph, NULL);
    slots_of(&s->w, graph, slots);
    fail_at(which);
    return tdm_schedule_create(s->scratch, graph, slots, schedule_out, err);
}

static void test_schedule(void **state) {
    (void)state;
    n_tried = 0;
    scene *s = scene_make("matmul", "", NULL);
    tdm_scratch_destroy(s->scratch);
    EACH_ALLOCATION(tdm_scratch_create(s->rt, s->devs, s->n_dev, &s->scratch, err));
    tdm_schedule *small = NULL, *large = NULL;
    EACH_ALLOCATION(schedule_try(s, 1, &small, err));
    float x[8], y[8], before[8];
    x_fill(x, 8, 3);
    const tdm_graph *graph = small->graph;
    const tdm_io in = {value_named(graph, "x"), x, sizeof x};
    tdm_io out = {value_named(graph, "y"), before, sizeof before};
    OK(tdm_schedule_run(small, &in, 1, &out, 1, err));
    EACH_ALLOCATION(schedule_try(s, 500, &large, err));
    out.data = y;
    OK(tdm_schedule_run(small, &in, 1, &out, 1, err)); /* the scratch grew under it */
    assert_memory_equal(y, before, sizeof y);
    tdm_graph *placed = two_stage_graph(2);
    int32_t node_dev[8];
    tdm_slot_mem slots[MAX_SLOT];
    slots_of(&s->w, placed, slots);
    EACH_ALLOCATION(tdm_schedule_place(s->scratch, placed, slots, node_dev, NULL, err));
    tdm_graph_free(placed);
    tdm_schedule_destroy(small);
    tdm_schedule_destroy(large);
    scene_free(s);
    print_message("%d allocations failed\n", n_tried);
    assert_true(n_tried >= 30);
}

static void test_copies(void **state) {
    (void)state;
    scene *s = scene_make("", "", NULL);
    tdm_mem a = {0}, b = {0};
    OK(tdm_mem_alloc(s->devs[0], 100, TDM_BUFFER_ANY, &a, err));
    OK(tdm_mem_alloc(s->devs[1], 100, TDM_BUFFER_ANY, &b, err));
    n_tried = 0;
    EACH_ALLOCATION(tdm_mem_fill(&a, 0, 100, 3, err));
    EACH_ALLOCATION(tdm_mem_copy(&b, 0, &a, 0, 100, err));
    assert_int_equal(n_tried, 2);
    uint8_t bytes[100] = {0};
    OK(tdm_mem_download(&b, 0, bytes, 100, err));
    assert_int_equal(bytes[99], 3);
    tdm_mem_free(&a);
    tdm_mem_free(&b);
    tdm_semaphore *semaphore = NULL;
    EACH_ALLOCATION(tdm_semaphore_ops.create(0, &semaphore, err));
    tdm_semaphore_ops.destroy(semaphore);
    scene_free(s);
}

/* ---- what plugins get ------------------------------------------------------------------------ */

static void test_host_table(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_make(FAKE_PLUGIN_DIR);
    char file[] = "/some/where.so";
    tdm_loaded_plugin loaded = {.rt = rt, .file = file};
    tdm_host_table_fill(&loaded);
    const tdm_host *host = &loaded.host;
    assert_int_equal(host->struct_size, sizeof *host);
    const uint64_t n_before = tdm_counter_get(TDM_COUNTER_ALLOCATIONS);
    static const size_t aligns[] = {0, 1, 2, 8, 64, 4096}, sizes[] = {0, 1, 63, 65, 5000};
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            void *ptr = host->alloc(host->context, sizes[k], aligns[i]);
            assert_non_null(ptr);
            assert_int_equal((uintptr_t)ptr % (aligns[i] > 0 ? aligns[i] : 64), 0);
            memset(ptr, 1, sizes[k]);
            host->free(host->context, ptr, sizes[k]);
        }
    assert_int_equal(tdm_counter_get(TDM_COUNTER_ALLOCATIONS) - n_before, 30);
    assert_null(host->alloc(host->context, SIZE_MAX, 64));
    assert_null(host->alloc(host->context, SIZE_MAX - 63, 64));
    host->free(host->context, NULL, 0);

    /* Lines begin with the plugin's name, or with its file's while the name is not known; lines
     * below the level are left out. */
    log_clear();
    host->log(host->context, TDM_LOG_WARN, "%d lines", 2);
    host->log(host->context, TDM_LOG_DEBUG, "noise");
    log_has("/some/where.so: 2 lines\n", 1);
    log_has("noise", 0);
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    host->log(host->context, TDM_LOG_ERROR, "%s", text); /* cut, not refused */
    log_has("/some/where.so: xxxx", 1);

    /* Graph services, semaphores, devices. */
    tdm_graph *graph = two_stage_graph(2);
    OK(host->graph->verify(graph, err));
    assert_true(host->graph->hash(graph) != 0);
    tdm_semaphore *semaphore = NULL;
    OK(host->semaphore->create(3, &semaphore, err));
    host->semaphore->destroy(semaphore);
    tdm_acquired_device lent = {.struct_size = sizeof lent};
    FAILS(TDM_NOT_FOUND, "device 'b': not declared",
          host->device_acquire(host->context, "b", &lent, err));
    declare(rt, "b", NULL);
    OK(host->device_acquire(host->context, "b", &lent, err));
    assert_string_equal(lent.plugin->name, "fake");
    assert_non_null(lent.device);
    host->device_release(host->context, &lent);
    assert_null(lent.device);
    tdm_graph_free(graph);
    tdm_runtime_destroy(rt);
}

int main(void) {
    unsetenv("TANDEM_PLUGIN_PATH");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runtime),
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_host_table),
    };
    return cmocka_run_group_tests_name("runtime_memory", tests, NULL, NULL);
}
