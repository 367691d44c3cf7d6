/* SPDX-License-Identifier: MIT
 *
 * test_cpu_queue.c: the CPU plugin's plans and queues: bindings, order, waits, failures, memory.
 */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "tests/unit/cpu_loaded.h"

/* y = (x + x) * x, over N numbers, with what runs it. */
enum { N = 1000 };
typedef struct fixture {
    loaded l;
    tdm_device *device;
    tdm_graph *graph;
    tdm_buffer *buffer;
    tdm_binding bindings[3];
    int32_t in_slot, out_slot;
} fixture;

/* cores NULL: anywhere. */
static fixture fixture_create_on(const char *n_thread, const char *cores) {
    fixture f = {.l = load()};
    tdm_error err = {0};
    tdm_builder *b = NULL;
    const tdm_option options[] = {{"threads", n_thread}, {"cores", cores}};
    tdm_device_params params = {
        .struct_size = sizeof params, .n_option = cores != NULL ? 2 : 1, .options = options};
    if (f.l.plugin->device->open(f.l.instance, &params, &f.device, &err) != TDM_OK)
        fail_msg("%s", err.message);
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[4]){N, 1, 1, 1});
    int32_t y = tdm_build_mul(b, tdm_build_add(b, x, x), x);
    tdm_build_output(b, y, "y");
    if (tdm_builder_finish(b, &f.graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    assert_int_equal(f.graph->n_slot, 3);
    f.buffer = alloc_bytes(&f.l, f.device, 3 * 4096);
    for (int i = 0; i < 3; i++)
        f.bindings[i] = (tdm_binding){f.buffer, (uint64_t)i * 4096, N * sizeof(float)};
    f.in_slot = tdm_graph_value(f.graph, x)->slot;
    f.out_slot = tdm_graph_value(f.graph, y)->slot;
    float *in = (void *)((uint8_t *)f.l.plugin->buffer->host_pointer(
                             f.buffer, TDM_ACCESS_READ | TDM_ACCESS_WRITE) +
                         f.in_slot * 4096);
    for (int i = 0; i < N; i++) in[i] = (float)i;
    return f;
}

static fixture fixture_create(const char *n_thread) {
    return fixture_create_on(n_thread, NULL);
}

static void fixture_destroy(fixture *f) {
    f->l.plugin->buffer->free(f->buffer);
    f->l.plugin->device->close(f->device);
    tdm_graph_free(f->graph);
    unload(&f->l);
}

static float *fixture_out(const fixture *f) {
    return (void *)((uint8_t *)f->l.plugin->buffer->host_pointer(f->buffer, TDM_ACCESS_READ |
                                                                                TDM_ACCESS_WRITE) +
                    f->out_slot * 4096);
}

static void out_check(const fixture *f) {
    const float *out = fixture_out(f);
    for (int i = 0; i < N; i++) assert_true(out[i] == 2.0f * (float)i * (float)i);
}

static void bindings_are_checked(void **state) {
    (void)state;
    fixture f = fixture_create("2");
    const tdm_device_ops *ops = f.l.plugin->device;
    tdm_error err = {0};
    assert_int_equal(ops->graph_compute_sync(f.device, f.graph, f.bindings, 3, &err), TDM_OK);
    out_check(&f);
    assert_int_equal(ops->graph_compute_sync(f.device, f.graph, f.bindings, 2, &err),
                     TDM_INVALID_ARGUMENT);
    static const struct {
        int64_t off, size;
        tdm_status status;
    } bad[] = {{4, N * 4, TDM_INVALID_ARGUMENT},
               {0, N * 4 - 1, TDM_OUT_OF_RANGE},
               {2 * 4096 + 128, N * 4, TDM_OUT_OF_RANGE},
               {-64, N * 4, TDM_OUT_OF_RANGE},
               {1 << 20, N * 4, TDM_OUT_OF_RANGE}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tdm_binding bindings[3];
        memcpy(bindings, f.bindings, sizeof bindings);
        bindings[f.out_slot].off = (uint64_t)bad[i].off;
        bindings[f.out_slot].size = (uint64_t)bad[i].size;
        assert_int_equal(ops->graph_compute_sync(f.device, f.graph, bindings, 3, &err),
                         bad[i].status);
        assert_non_null(strstr(err.message, "'y'"));
        bindings[f.out_slot].buffer = NULL;
        bindings[f.out_slot].off = 0;
        assert_int_equal(ops->graph_compute_sync(f.device, f.graph, bindings, 3, NULL),
                         TDM_INVALID_ARGUMENT);
    }
    fixture_destroy(&f);
}

static void prepare_without_memory(void **state) {
    (void)state;
    fixture f = fixture_create("2");
    const tdm_queue_ops *ops = f.l.plugin->queue;
    tdm_plan_params params = {.struct_size = sizeof params};
    tdm_queue *queue = NULL;
    assert_int_equal(ops->create(f.device, &queue, NULL), TDM_OK);
    for (int i = 0;; i++) {
        tdm_plan *plan = NULL;
        op_host_fail_after(f.l.host, i);
        tdm_status status = ops->graph_prepare(queue, f.graph, &params, &plan, NULL);
        op_host_fail_after(f.l.host, -1);
        ops->plan_destroy(plan);
        if (status == TDM_OK) break;
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        assert_null(plan);
    }
    params.flags = 1;
    tdm_plan *plan = NULL;
    assert_int_equal(ops->graph_prepare(queue, f.graph, &params, &plan, NULL),
                     TDM_INVALID_ARGUMENT);
    ops->destroy(queue);
    fixture_destroy(&f);
}

/* A chain over two queues, waited for before anything was signalled, many times over. */
static void semaphores_chain(void **state) {
    (void)state;
    static const char *const counts[] = {"1", "2", "3"};
    for (size_t t = 0; t < 3; t++) {
        fixture f = fixture_create(counts[t]);
        const tdm_queue_ops *ops = f.l.plugin->queue;
        const tdm_host_semaphore_ops *sem = op_host_table(f.l.host)->semaphore;
        tdm_plan_params params = {.struct_size = sizeof params};
        tdm_plan_info info = {.struct_size = sizeof info};
        tdm_plan *plans[2] = {NULL};
        tdm_queue *queues[2] = {NULL};
        tdm_point ping = {0}, pong = {0};
        tdm_error err = {0};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ops->create(f.device, &queues[i], &err), TDM_OK);
            assert_int_equal(ops->graph_prepare(queues[i], f.graph, &params, &plans[i], &err),
                             TDM_OK);
            assert_int_equal(ops->plan_bind(plans[i], f.bindings, 3, &err), TDM_OK);
        }
        assert_int_equal(ops->plan_get_info(plans[0], &info, &err), TDM_OK);
        assert_true(info.host_size > 0);
        assert_int_equal(sem->create(0, &ping.semaphore, &err), TDM_OK);
        assert_int_equal(sem->create(0, &pong.semaphore, &err), TDM_OK);
        memset(fixture_out(&f), 0, N * sizeof(float));
        for (uint64_t i = 1; i <= 200; i++) {
            ping.value = pong.value = i;
            /* The second is given first. */
            assert_int_equal(ops->graph_compute(queues[1], plans[1], &ping, 1, &pong, 1, &err),
                             TDM_OK);
            tdm_point before = {pong.semaphore, i - 1};
            assert_int_equal(ops->graph_compute(queues[0], plans[0], &before, 1, &ping, 1, &err),
                             TDM_OK);
        }
        assert_int_equal(sem->wait(pong.semaphore, 200, TDM_WAIT_FOREVER, &err), TDM_OK);
        out_check(&f);
        for (int i = 0; i < 2; i++) {
            ops->plan_destroy(plans[i]);
            ops->destroy(queues[i]);
        }
        sem->destroy(ping.semaphore);
        sem->destroy(pong.semaphore);
        fixture_destroy(&f);
    }
}

static void failure_passes_on(void **state) {
    (void)state;
    fixture f = fixture_create("2");
    const tdm_queue_ops *ops = f.l.plugin->queue;
    const tdm_host_semaphore_ops *sem = op_host_table(f.l.host)->semaphore;
    tdm_plan_params params = {.struct_size = sizeof params};
    tdm_plan *plan = NULL;
    tdm_queue *queue = NULL;
    tdm_semaphore *start = NULL, *middle = NULL, *end = NULL, *other = NULL;
    tdm_error err = {0}, cause = {0};
    assert_int_equal(ops->create(f.device, &queue, &err), TDM_OK);
    assert_int_equal(ops->graph_prepare(queue, f.graph, &params, &plan, &err), TDM_OK);
    assert_int_equal(ops->plan_bind(plan, f.bindings, 3, &err), TDM_OK);
    assert_int_equal(sem->create(0, &start, &err), TDM_OK);
    assert_int_equal(sem->create(0, &middle, &err), TDM_OK);
    assert_int_equal(sem->create(0, &end, &err), TDM_OK);
    assert_int_equal(sem->create(0, &other, &err), TDM_OK);
    memset(fixture_out(&f), 0x55, N * sizeof(float));
    const tdm_point p_start = {start, 1}, p_middle = {middle, 1},
                    p_ends[2] = {{end, 1}, {other, 7}};
    assert_int_equal(ops->graph_compute(queue, plan, &p_start, 1, &p_middle, 1, &err), TDM_OK);
    assert_int_equal(ops->graph_compute(queue, plan, &p_middle, 1, p_ends, 2, &err), TDM_OK);
    tdm_fail(&cause, TDM_DATA_LOSS, "a cause of some kind");
    (sem->fail)(start, TDM_DATA_LOSS, &cause); /* in brackets: fail() is a macro of cmocka */
    assert_int_equal(sem->wait(end, 1, TDM_WAIT_FOREVER, &err), TDM_DATA_LOSS);
    assert_string_equal(err.message, "a cause of some kind");
    assert_int_equal(sem->wait(other, 7, TDM_WAIT_FOREVER, &err), TDM_DATA_LOSS);
    assert_int_equal(((const uint8_t *)fixture_out(&f))[0], 0x55); /* nothing ran */
    /* The queue goes on with work that does not depend on it. */
    tdm_semaphore *fresh = NULL;
    assert_int_equal(sem->create(0, &fresh, &err), TDM_OK);
    const tdm_point p_fresh = {fresh, 3};
    assert_int_equal(ops->graph_compute(queue, plan, NULL, 0, &p_fresh, 1, &err), TDM_OK);
    assert_int_equal(sem->wait(fresh, 3, TDM_WAIT_FOREVER, &err), TDM_OK);
    out_check(&f);
    ops->plan_destroy(plan);
    ops->destroy(queue);
    sem->destroy(start);
    sem->destroy(middle);
    sem->destroy(end);
    sem->destroy(other);
    sem->destroy(fresh);
    fixture_destroy(&f);
}

/* Several computations of one plan are under way at once and run one after the other. */
static void submissions_queue_up(void **state) {
    (void)state;
    fixture f = fixture_create("2");
    const tdm_queue_ops *ops = f.l.plugin->queue;
    const tdm_host_semaphore_ops *sem = op_host_table(f.l.host)->semaphore;
    tdm_plan_params params = {.struct_size = sizeof params};
    tdm_plan *plan = NULL;
    tdm_queue *queue = NULL;
    tdm_point done = {0}, gate = {.value = 1};
    tdm_error err = {0};
    assert_int_equal(ops->create(f.device, &queue, &err), TDM_OK);
    assert_int_equal(ops->graph_prepare(queue, f.graph, &params, &plan, &err), TDM_OK);
    assert_int_equal(sem->create(0, &done.semaphore, &err), TDM_OK);
    assert_int_equal(sem->create(0, &gate.semaphore, &err), TDM_OK);
    assert_int_equal(ops->graph_compute(queue, plan, NULL, 0, &done, 1, &err),
                     TDM_FAILED_PRECONDITION);
    assert_int_equal(ops->plan_bind(plan, f.bindings, 2, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(ops->plan_bind(plan, f.bindings, 3, &err), TDM_OK);
    for (int i = 0; i < 50; i++) {
        done.value++;
        assert_int_equal(ops->graph_compute(queue, plan, &gate, 1, &done, 1, &err), TDM_OK);
    }
    uint64_t value = 1;
    assert_int_equal(sem->query(done.semaphore, &value, &err), TDM_OK);
    assert_int_equal(value, 0);
    sem->signal(gate.semaphore, 1);
    assert_int_equal(sem->wait(done.semaphore, 50, TDM_WAIT_FOREVER, &err), TDM_OK);
    out_check(&f);
    ops->plan_destroy(plan);
    ops->destroy(queue);
    sem->destroy(done.semaphore);
    sem->destroy(gate.semaphore);
    fixture_destroy(&f);
}

/* In steady use, with one computation at a time, nothing is allocated. */
static void steady_use_allocates_nothing(void **state) {
    (void)state;
    fixture f = fixture_create("2");
    const tdm_queue_ops *ops = f.l.plugin->queue;
    const tdm_host_semaphore_ops *sem = op_host_table(f.l.host)->semaphore;
    tdm_plan_params params = {.struct_size = sizeof params};
    tdm_plan *plan = NULL;
    tdm_queue *queue = NULL;
    tdm_point done = {0};
    tdm_error err = {0};
    int64_t n_alloc = 0;
    assert_int_equal(ops->create(f.device, &queue, &err), TDM_OK);
    assert_int_equal(ops->graph_prepare(queue, f.graph, &params, &plan, &err), TDM_OK);
    assert_int_equal(ops->plan_bind(plan, f.bindings, 3, &err), TDM_OK);
    assert_int_equal(sem->create(0, &done.semaphore, &err), TDM_OK);
    for (int i = 0; i < 300; i++) {
        done.value++;
        assert_int_equal(ops->graph_compute(queue, plan, NULL, 0, &done, 1, &err), TDM_OK);
        assert_int_equal(sem->wait(done.semaphore, done.value, TDM_WAIT_FOREVER, &err), TDM_OK);
        if (i == 0) n_alloc = op_host_n_alloc(f.l.host);
    }
    assert_int_equal(op_host_n_alloc(f.l.host), n_alloc);
    ops->plan_destroy(plan);
    ops->destroy(queue);
    sem->destroy(done.semaphore);
    fixture_destroy(&f);
}

/* Synchronous callers on threads of their own share one device. */
static void *sync_caller(void *arg) {
    fixture *f = arg;
    tdm_buffer *buffer = alloc_bytes(&f->l, f->device, 3 * 4096);
    uint8_t *memory = f->l.plugin->buffer->host_pointer(buffer, TDM_ACCESS_READ | TDM_ACCESS_WRITE);
    tdm_binding bindings[3];
    bool is_right = true;
    for (int i = 0; i < 3; i++) bindings[i] = (tdm_binding){buffer, (uint64_t)i * 4096, 4096};
    float *in = (void *)(memory + f->in_slot * 4096);
    const float *out = (const void *)(memory + f->out_slot * 4096);
    for (int i = 0; i < N; i++) in[i] = (float)i;
    for (int k = 0; k < 50; k++) {
        is_right &= f->l.plugin->device->graph_compute_sync(f->device, f->graph, bindings, 3,
                                                            NULL) == TDM_OK;
        for (int i = 0; i < N; i++) is_right &= out[i] == 2.0f * (float)i * (float)i;
    }
    f->l.plugin->buffer->free(buffer);
    return is_right ? f : NULL;
}

static void callers_take_turns(void **state) {
    (void)state;
    fixture f = fixture_create("3");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sync_caller, &f), 0);
    for (int i = 0; i < 3; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        assert_non_null(result);
    }
    fixture_destroy(&f);
}

/* Threads of this process that may run on exactly the processors of `set`. */
static int pinned_count(const cpu_set_t *set) {
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        cpu_set_t own;
        if (e->d_name[0] == '.' || sched_getaffinity(atoi(e->d_name), sizeof own, &own) != 0)
            continue;
        n += CPU_EQUAL(&own, set);
    }
    closedir(dir);
    return n;
}

/* `cores` holds the device's own threads, and leaves the caller's where it was. */
static void threads_stay_on_cores(void **state) {
    (void)state;
    cpu_set_t all, one;
    char list[32];
    int first = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) {
        print_message("SKIPPED: one processor, nothing to choose\n");
        skip();
    }
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    snprintf(list, sizeof list, "%d", first);
    int before = pinned_count(&one);
    fixture f = fixture_create_on("3", list);
    const tdm_queue_ops *ops = f.l.plugin->queue;
    const tdm_host_semaphore_ops *sem = op_host_table(f.l.host)->semaphore;
    tdm_plan_params params = {.struct_size = sizeof params};
    tdm_plan *plan = NULL;
    tdm_queue *queue = NULL;
    tdm_point done = {.value = 1};
    tdm_error err = {0};
    assert_int_equal(ops->create(f.device, &queue, &err), TDM_OK);
    assert_int_equal(ops->graph_prepare(queue, f.graph, &params, &plan, &err), TDM_OK);
    assert_int_equal(ops->plan_bind(plan, f.bindings, 3, &err), TDM_OK);
    assert_int_equal(sem->create(0, &done.semaphore, &err), TDM_OK);
    assert_int_equal(ops->graph_compute(queue, plan, NULL, 0, &done, 1, &err), TDM_OK);
    assert_int_equal(sem->wait(done.semaphore, 1, TDM_WAIT_FOREVER, &err), TDM_OK);
    out_check(&f);
    assert_int_equal(pinned_count(&one), before + 3); /* two of the pool and the queue's */
    cpu_set_t now;
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &all));
    ops->plan_destroy(plan);
    ops->destroy(queue);
    sem->destroy(done.semaphore);
    fixture_destroy(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bindings_are_checked), cmocka_unit_test(prepare_without_memory),
        cmocka_unit_test(semaphores_chain),     cmocka_unit_test(failure_passes_on),
        cmocka_unit_test(submissions_queue_up), cmocka_unit_test(steady_use_allocates_nothing),
        cmocka_unit_test(callers_take_turns),   cmocka_unit_test(threads_stay_on_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
