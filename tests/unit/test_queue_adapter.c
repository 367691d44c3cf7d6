/* SPDX-License-Identifier: MIT
 *
 * test_queue_adapter.c: the core's queues for a plugin without queues: order, waits before
 * signals, poison. Also run under the thread sanitizer.
 */
#include "tests/unit/runtime_fixture.h"

#include "core/stages/queue_adapter.h"

static const tdm_host_semaphore_ops *const ops = &tdm_semaphore_ops;

/* y = 2 x + 1 over 32 floats; slot 0 is x's or y's. */
enum { N = 32, SIZE = N * sizeof(float) };

typedef struct scene {
    tdm_runtime *rt;
    tdm_open_device *dev;
    tdm_graph *graph;
    tdm_queue_adapter *queue;
    tdm_device_plan *plan;
    tdm_mem mem; /* x, then y, 128 bytes apart */
    int32_t x_slot, y_slot;
    tdm_semaphore *in, *out;
} scene;

static tdm_graph *graph_make(int32_t *x_slot, int32_t *y_slot) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    OK(tdm_builder_create(&b, err));
    const int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[4]){N, 1, 1, 1});
    const int32_t y = tdm_build_scale(b, x, 2, 1);
    tdm_build_output(b, y, "y");
    OK(tdm_builder_finish(b, &graph, err));
    tdm_builder_destroy(b);
    *x_slot = tdm_graph_value(graph, x)->slot;
    *y_slot = tdm_graph_value(graph, y)->slot;
    return graph;
}

/* From x to y or, with is_chained, from y to y. */
static tdm_device_plan *plan_make(const scene *s, bool is_chained) {
    tdm_device_plan *plan = NULL;
    tdm_binding bindings[2];
    bindings[s->x_slot] = (tdm_binding){s->mem.buffer, is_chained ? SIZE : 0, SIZE};
    bindings[s->y_slot] = (tdm_binding){s->mem.buffer, SIZE, SIZE};
    OK(tdm_device_plan_create(s->queue, s->graph, &plan, err));
    OK(tdm_device_plan_bind(plan, bindings, 2, err));
    return plan;
}

static scene scene_make(const char *option0, const char *option1) {
    scene s = {.rt = runtime_make(FAKE_PLUGIN_DIR)};
    s.dev = open_fake(s.rt, "a", option0, option1);
    s.graph = graph_make(&s.x_slot, &s.y_slot);
    OK(tdm_queue_adapter_create(s.dev, &s.queue, err));
    OK(tdm_mem_alloc(s.dev, 2 * SIZE, TDM_BUFFER_ANY, &s.mem, err));
    const uint64_t n_planned = tdm_counter_get(TDM_COUNTER_GRAPHS_PLANNED);
    const uint64_t n_bound = tdm_counter_get(TDM_COUNTER_BINDS);
    s.plan = plan_make(&s, false);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_GRAPHS_PLANNED), n_planned + 1);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_BINDS), n_bound + 1);
    OK(ops->create(0, &s.in, err));
    OK(ops->create(0, &s.out, err));
    return s;
}

static void scene_free(scene *s) {
    tdm_device_plan_destroy(s->plan);
    tdm_queue_adapter_destroy(s->queue);
    tdm_graph_free(s->graph);
    tdm_mem_free(&s->mem);
    ops->destroy(s->in);
    ops->destroy(s->out);
    tdm_runtime_destroy(s->rt);
    log_has("close a, 0 bytes left", 1);
}

static void x_set(const scene *s, float x) {
    float row[N];
    for (int i = 0; i < N; i++) row[i] = x;
    OK(tdm_mem_upload(&s->mem, 0, row, SIZE, err));
}

static float y_get(const scene *s) {
    float row[N];
    OK(tdm_mem_download(&s->mem, SIZE, row, SIZE, err));
    return row[N - 1];
}

static tdm_status submit(const scene *s, tdm_device_plan *plan, uint64_t wait, uint64_t signal,
                         tdm_error *err) {
    const tdm_point point = {s->in, wait}, done = {s->out, signal};
    return tdm_device_plan_compute(plan, &point, wait > 0, &done, signal > 0, err);
}

static void test_wait_before_signal(void **state) {
    (void)state;
    scene s = scene_make(NULL, NULL);
    x_set(&s, 5);
    OK(submit(&s, s.plan, 1, 1, err));
    assert_int_equal(ops->wait(s.out, 1, 10000000, NULL), TDM_DEADLINE_EXCEEDED);
    x_set(&s, 6); /* not begun, so this is what it reads */
    ops->signal(s.in, 1);
    OK(ops->wait(s.out, 1, TDM_WAIT_FOREVER, err));
    assert_true(y_get(&s) == 13);
    tdm_plan_info info = {.device_size = 7};
    OK(tdm_device_plan_get_info(s.plan, &info, err));
    assert_int_equal(info.device_size, 0);
    scene_free(&s);
}

/* Two plans in turn, each waiting for its own last computation: the order is that of submission. */
static void test_order(void **state) {
    (void)state;
    scene s = scene_make("delay-us=300", NULL);
    tdm_device_plan *chained[2] = {plan_make(&s, true), plan_make(&s, true)};
    x_set(&s, 1);
    OK(submit(&s, s.plan, 0, 1, err)); /* 3 */
    for (uint64_t i = 2; i <= 10; i++) OK(submit(&s, chained[i % 2], 0, i, err));
    OK(ops->wait(s.out, 10, TDM_WAIT_FOREVER, err));
    assert_true(y_get(&s) == 2047); /* 2^11 - 1 */
    for (int i = 0; i < 2; i++) tdm_device_plan_destroy(chained[i]);
    scene_free(&s);
}

static void test_poisoned_wait(void **state) {
    (void)state;
    scene s = scene_make(NULL, NULL);
    tdm_error said = {0}, heard = {0};
    OK(tdm_mem_fill(&s.mem, 0, 2 * SIZE, 0, err));
    OK(submit(&s, s.plan, 1, 1, err));
    tdm_fail(&said, TDM_UNAVAILABLE, "the cable is out");
    (ops->fail)(s.in, TDM_UNAVAILABLE, &said);
    assert_int_equal(ops->wait(s.out, 1, TDM_WAIT_FOREVER, &heard), TDM_UNAVAILABLE);
    assert_string_equal(heard.message, "the cable is out");
    assert_true(y_get(&s) == 0); /* skipped */
    /* Work behind it that does not wait for it goes on. */
    tdm_semaphore *fresh = NULL;
    OK(ops->create(0, &fresh, err));
    ops->destroy(s.out);
    s.out = fresh;
    OK(submit(&s, s.plan, 0, 1, err));
    OK(ops->wait(s.out, 1, TDM_WAIT_FOREVER, err));
    assert_true(y_get(&s) == 1);
    scene_free(&s);
}

static void test_failing(void **state) {
    (void)state;
    scene s = scene_make("fail-at=2", NULL);
    tdm_semaphore *second = NULL;
    tdm_error heard = {0};
    OK(ops->create(0, &second, err));
    x_set(&s, 1);
    OK(submit(&s, s.plan, 0, 1, err));
    OK(ops->wait(s.out, 1, TDM_WAIT_FOREVER, err));
    /* All its signals, and all that wait for these, get the reason. */
    const tdm_point signals[2] = {{s.out, 2}, {second, 1}};
    OK(tdm_device_plan_compute(s.plan, NULL, 0, signals, 2, err));
    assert_int_equal(ops->wait(second, 1, TDM_WAIT_FOREVER, &heard), TDM_UNAVAILABLE);
    assert_string_equal(heard.message, "a fell off the bus");
    assert_int_equal(ops->wait(s.out, 2, TDM_WAIT_FOREVER, &heard), TDM_UNAVAILABLE);
    assert_string_equal(heard.message, "a fell off the bus");
    ops->destroy(second);
    scene_free(&s);
}

static void test_bad_arguments(void **state) {
    (void)state;
    scene s = scene_make(NULL, NULL);
    tdm_binding bindings[3] = {{0}};
    tdm_point points[TDM_QUEUE_MAX_POINTS + 1] = {{0}};
    const int32_t too_many = TDM_QUEUE_MAX_POINTS + 1;
    FAILS(TDM_INVALID_ARGUMENT, "17 waits",
          tdm_device_plan_compute(s.plan, points, too_many, NULL, 0, err));
    FAILS(TDM_INVALID_ARGUMENT, "17 signals",
          tdm_device_plan_compute(s.plan, NULL, 0, points, too_many, err));
    FAILS(TDM_INVALID_ARGUMENT, "3 bindings for 2 slots",
          tdm_device_plan_bind(s.plan, bindings, 3, err));
    FAILS(TDM_FAILED_PRECONDITION, "not bound",
          tdm_device_plan_compute(s.plan, NULL, 0, NULL, 0, err));
    tdm_queue_adapter_destroy(NULL);
    tdm_device_plan_destroy(NULL);
    scene_free(&s);
}

/* A plan may be submitted again while it is under way, and the caller does not wait. */
static void test_submit_ahead(void **state) {
    (void)state;
    enum { N_SUBMIT = 20 };
    scene s = scene_make("delay-us=100", NULL);
    tdm_device_plan *chained = plan_make(&s, true);
    x_set(&s, 0);
    OK(tdm_mem_fill(&s.mem, 0, 2 * SIZE, 0, err));
    for (uint64_t i = 1; i <= N_SUBMIT; i++) OK(submit(&s, chained, 1, i, err));
    uint64_t value = 1;
    OK(ops->query(s.out, &value, err));
    assert_int_equal(value, 0);
    ops->signal(s.in, 1);
    OK(ops->wait(s.out, N_SUBMIT, TDM_WAIT_FOREVER, err));
    assert_true(y_get(&s) == (1 << N_SUBMIT) - 1);
    tdm_device_plan_destroy(chained);
    scene_free(&s);
}

/* A device without queues computes one graph at a time, however many queues it has. */
static void test_two_queues(void **state) {
    (void)state;
    enum { QUEUES = 3, ROUNDS = 20 };
    scene s = scene_make("delay-us=200", NULL);
    tdm_queue_adapter *queues[QUEUES];
    tdm_device_plan *plans[QUEUES];
    tdm_semaphore *done[QUEUES];
    tdm_mem mems[QUEUES] = {{0}};
    for (int i = 0; i < QUEUES; i++) {
        OK(tdm_queue_adapter_create(s.dev, &queues[i], err));
        OK(tdm_device_plan_create(queues[i], s.graph, &plans[i], err));
        OK(ops->create(0, &done[i], err));
        OK(tdm_mem_alloc(s.dev, 2 * SIZE, TDM_BUFFER_ANY, &mems[i], err));
        OK(tdm_mem_fill(&mems[i], 0, 2 * SIZE, 0, err));
        tdm_binding bindings[2];
        bindings[s.x_slot] = (tdm_binding){mems[i].buffer, 0, SIZE};
        bindings[s.y_slot] = (tdm_binding){mems[i].buffer, SIZE, SIZE};
        OK(tdm_device_plan_bind(plans[i], bindings, 2, err));
    }
    for (uint64_t round = 1; round <= ROUNDS; round++)
        for (int i = 0; i < QUEUES; i++) {
            const tdm_point point = {done[i], round};
            OK(tdm_device_plan_compute(plans[i], NULL, 0, &point, 1, err));
        }
    for (int i = 0; i < QUEUES; i++) {
        OK(ops->wait(done[i], ROUNDS, TDM_WAIT_FOREVER, err));
        tdm_device_plan_destroy(plans[i]);
        tdm_queue_adapter_destroy(queues[i]);
        ops->destroy(done[i]);
        tdm_mem_free(&mems[i]);
    }
    scene_free(&s);
}

int main(void) {
    unsetenv("TANDEM_PLUGIN_PATH");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_before_signal), cmocka_unit_test(test_order),
        cmocka_unit_test(test_poisoned_wait),      cmocka_unit_test(test_failing),
        cmocka_unit_test(test_bad_arguments),      cmocka_unit_test(test_submit_ahead),
        cmocka_unit_test(test_two_queues),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
