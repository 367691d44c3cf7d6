/* SPDX-License-Identifier: MIT
 *
 * test_runtime.c: the runtime of CUDA (plugins/gpu/rt) on the emulated driver, without the core:
 * submitting never waits for execution, waits end in time, several threads upload weights, and
 * calls of the driver fail.
 *
 *     test_runtime CUDA.so DRIVER OTHER_DRIVER
 *
 * OTHER_DRIVER: the emulated driver of HIP.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/device/runtime.h"
#include "core/graph/builder.h"
#include "core/graph/builder_nodes.h"
#include "tandem/plugin.h"
#include "tests/gpu/upload_case.h"
#include "tests/simt/driver_calls.h"

/* The emulated driver takes 64 commands of a stream, then its caller waits. */
enum { N = 257, N_ADD = 70, N_SUBMIT = 200, N_WAITER = 4, WEIGHT_SIZE = 8 * 34 };

static const tdm_plugin *plugin;
static tdm_instance *instance;
static const char *driver_path, *other_driver_path;
static char logged[512]; /* the last message of the plugin */

static void host_log(void *context, int32_t level, const char *format, ...) {
    va_list args;
    (void)context;
    (void)level;
    va_start(args, format);
    vsnprintf(logged, sizeof logged, format, args);
    va_end(args);
}

static const tdm_host host = {
    .struct_size = sizeof host, .log = host_log, .semaphore = &tdm_semaphore_ops};

#define OK(call)                                                                                   \
    do {                                                                                           \
        tdm_error err = {0};                                                                       \
        if ((call) != TDM_OK) fail_msg("%s: %s", #call, err.message);                              \
    } while (0)

static const char *launch_early = "no"; /* option of the devices that are opened */

static tdm_device *device_number_open(int32_t index, const char *graphs) {
    const tdm_option options[] = {{"driver", driver_path},
                                  {"graphs", graphs},
                                  {"fusion", "no"},
                                  {"launch-early", launch_early}};
    const tdm_device_params params = {
        .struct_size = sizeof params, .index = index, .n_option = 4, .options = options};
    tdm_device *device = NULL;
    OK(plugin->device->open(instance, &params, &device, &err));
    return device;
}

static tdm_device *device_open(const char *graphs) {
    return device_number_open(0, graphs);
}

/* ---- A bound plan ---------------------------------------------------------------------------- */

/* y = (n_add + 1) x */
typedef struct scene {
    tdm_device *device;
    tdm_graph *graph;
    tdm_queue *queue;
    tdm_plan *plan;
    tdm_buffer *x, *y;
    int32_t x_value, y_value; /* of the graph */
    tdm_semaphore *done;
    int n_add;
    tdm_buffer *weight; /* of life_run */
    void *pinned;       /* of host_alloc */
} scene;

static tdm_buffer *buffer_make(tdm_device *device, tdm_buffer_purpose purpose) {
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = N * sizeof(float), .purpose = purpose};
    tdm_buffer *buffer = NULL;
    OK(plugin->buffer->alloc(device, &params, &buffer, &err));
    return buffer;
}

static tdm_graph *graph_make(int n_add, int32_t *x_out, int32_t *y_out) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    OK(tdm_builder_create(&b, &err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[]){N, 1, 1, 1}), y = x;
    for (int i = 0; i < n_add; i++) y = tdm_build_add(b, y, x);
    tdm_build_output(b, y, "y");
    OK(tdm_builder_finish(b, &graph, &err));
    tdm_builder_destroy(b);
    *x_out = x;
    *y_out = y;
    return graph;
}

static void bindings_set(const scene *s, int32_t x, int32_t y, tdm_binding *bindings) {
    bindings[tdm_graph_value(s->graph, x)->slot] = (tdm_binding){s->x, 0, N * sizeof(float)};
    bindings[tdm_graph_value(s->graph, y)->slot] = (tdm_binding){s->y, 0, N * sizeof(float)};
}

static void scene_bind(const scene *s) {
    /* The device holds temporaries itself: their slots stay empty. */
    tdm_binding bindings[N_ADD + 1] = {{.buffer = NULL}};
    assert_in_range(s->graph->n_slot, 2, N_ADD + 1);
    bindings_set(s, s->x_value, s->y_value, bindings);
    OK(plugin->queue->plan_bind(s->plan, bindings, s->graph->n_slot, &err));
}

static scene scene_open(const char *graphs, int n_add) {
    scene s = {.device = device_open(graphs), .n_add = n_add};
    const tdm_plan_params params = {.struct_size = sizeof params};
    s.graph = graph_make(n_add, &s.x_value, &s.y_value);
    s.x = buffer_make(s.device, TDM_BUFFER_INPUT);
    s.y = buffer_make(s.device, TDM_BUFFER_OUTPUT);
    float *at = plugin->buffer->host_pointer(s.x, TDM_ACCESS_WRITE);
    assert_non_null(at);
    for (int i = 0; i < N; i++) at[i] = (float)i;
    OK(plugin->queue->create(s.device, &s.queue, &err));
    OK(plugin->queue->graph_prepare(s.queue, s.graph, &params, &s.plan, &err));
    scene_bind(&s);
    OK(tdm_semaphore_ops.create(0, &s.done, &err));
    return s;
}

static void scene_submit(scene *s, uint64_t value) {
    const tdm_point done = {s->done, value};
    OK(plugin->queue->graph_compute(s->queue, s->plan, NULL, 0, &done, 1, &err));
}

static void scene_check(const scene *s) {
    const float *at = plugin->buffer->host_pointer(s->y, TDM_ACCESS_READ);
    assert_non_null(at);
    for (int i = 0; i < N; i++) assert_true(at[i] == (float)(i * (s->n_add + 1)));
}

static void scene_close(scene *s) {
    plugin->queue->plan_destroy(s->plan);
    plugin->queue->destroy(s->queue);
    tdm_semaphore_ops.destroy(s->done);
    plugin->buffer->free(s->x);
    plugin->buffer->free(s->y);
    plugin->buffer->free(s->weight);
    if (s->pinned != NULL) plugin->buffer->host_free(s->device, s->pinned, WEIGHT_SIZE);
    tdm_graph_free(s->graph);
    plugin->device->close(s->device);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* Far more commands than the stream takes, while it runs none: every call returns. A queue that
 * waited in the driver would wait here for ever. */
static void never_waits(const char *graphs, int n_add) {
    scene s = scene_open(graphs, n_add);
    uint64_t value = 99;
    simt_hold(true);
    for (int i = 0; i < N_SUBMIT; i++) scene_submit(&s, (uint64_t)i + 1);
    OK(tdm_semaphore_ops.query(s.done, &value, &err));
    assert_int_equal(value, 0);
    simt_hold(false);
    OK(tdm_semaphore_ops.wait(s.done, N_SUBMIT, TDM_WAIT_FOREVER, &err));
    scene_check(&s);
    /* And again, on a queue that had been full. */
    for (int i = 0; i < 3; i++) {
        scene_submit(&s, (uint64_t)(N_SUBMIT + i + 1));
        OK(tdm_semaphore_ops.wait(s.done, (uint64_t)(N_SUBMIT + i + 1), TDM_WAIT_FOREVER, &err));
    }
    scene_check(&s);
    scene_close(&s);
}

static void test_captured(void **state) {
    (void)state;
    never_waits("yes", 1);
}

static void test_launched(void **state) {
    (void)state;
    never_waits("no", 3);
}

/* One computation is more than the stream takes. */
static void test_launched_long(void **state) {
    (void)state;
    never_waits("no", N_ADD);
}

typedef struct waiter {
    pthread_t thread;
    tdm_semaphore *semaphore;
    uint64_t value;
    tdm_status status;
} waiter;

static void *waiter_main(void *arg) {
    waiter *w = arg;
    tdm_error err = {0};
    w->status = tdm_semaphore_ops.wait(w->semaphore, w->value, UINT64_C(60000000000), &err);
    return NULL;
}

/* A wait that is too short says so and harms nothing; several threads wait for several points. */
static void test_waits(void **state) {
    (void)state;
    scene s = scene_open("yes", 1);
    waiter waiters[N_WAITER];
    tdm_error err = {0};
    static const uint64_t short_ns[] = {0, 1000, 100000, 3000000};
    simt_hold(true);
    for (int i = 0; i < N_WAITER; i++) scene_submit(&s, (uint64_t)i + 1);
    for (size_t i = 0; i < sizeof short_ns / sizeof *short_ns; i++)
        assert_int_equal(tdm_semaphore_ops.wait(s.done, 1, short_ns[i], &err),
                         TDM_DEADLINE_EXCEEDED);
    for (int i = 0; i < N_WAITER; i++) {
        waiters[i] = (waiter){.semaphore = s.done, .value = (uint64_t)(N_WAITER - i)};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, waiter_main, &waiters[i]), 0);
    }
    assert_int_equal(tdm_semaphore_ops.wait(s.done, 2, 2000000, &err), TDM_DEADLINE_EXCEEDED);
    simt_hold(false);
    for (int i = 0; i < N_WAITER; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].status, TDM_OK);
    }
    scene_check(&s);
    scene_close(&s);
}

/* The queue has an event for each of 64 computations. A wait for computation 1 that begins when
 * computation 65 was submitted does not wait for 65. */
static void test_wait_late(void **state) {
    enum { N_EVENT = 64 };
    (void)state;
    scene s = scene_open("yes", 1);
    tdm_semaphore *first = NULL;
    OK(tdm_semaphore_ops.create(0, &first, &err));
    const tdm_point point = {first, 1};
    OK(plugin->queue->graph_compute(s.queue, s.plan, NULL, 0, &point, 1, &err));
    for (int i = 1; i < N_EVENT; i++) scene_submit(&s, (uint64_t)i);
    OK(tdm_semaphore_ops.wait(s.done, N_EVENT - 1, TDM_WAIT_FOREVER, &err));
    simt_hold(true);
    scene_submit(&s, N_EVENT);
    OK(tdm_semaphore_ops.wait(first, 1, UINT64_C(5000000000), &err));
    simt_hold(false);
    OK(tdm_semaphore_ops.wait(s.done, N_EVENT, TDM_WAIT_FOREVER, &err));
    scene_check(&s);
    tdm_semaphore_ops.destroy(first);
    scene_close(&s);
}

/* Memory that the driver does not lock is refused, and the device goes on. */
static void test_import_refused(void **state) {
    (void)state;
    tdm_device *device = device_open("yes");
    char *memory = aligned_alloc(4096, 4 * 4096);
    tdm_buffer *first = NULL, *second = NULL;
    tdm_error err = {0};
    assert_non_null(memory);
    OK(plugin->buffer->import_host(device, memory, 2 * 4096, NULL, &first, &err));
    /* Half of it is locked already. */
    assert_int_equal(
        plugin->buffer->import_host(device, memory + 4096, 2 * 4096, NULL, &second, &err),
        TDM_UNSUPPORTED);
    assert_null(second);
    assert_non_null(strstr(err.message, "8192 bytes of host memory"));
    assert_non_null(strstr(err.message, "cuMemHostRegister"));
    OK(plugin->buffer->import_host(device, memory + 2 * 4096, 2 * 4096, NULL, &second, &err));
    plugin->buffer->free(second);
    plugin->buffer->free(first);
    free(memory);
    plugin->device->close(device);
}

/* Memory that two devices import stays locked until the second has released it, also where the one
 * that locked it is closed before. */
static void test_import_twice(void **state) {
    enum { SIZE = 8192, CU_ALREADY_REGISTERED = 712 };
    (void)state;
    for (int first = 0; first < 2; first++) {
        tdm_device *devices[2];
        tdm_buffer *buffers[2];
        char *memory = aligned_alloc(4096, SIZE);
        void *context = NULL;
        assert_non_null(memory);
        const long before = simt_live();
        for (int i = 0; i < 2; i++) {
            devices[i] = device_number_open(i, "yes");
            OK(plugin->buffer->import_host(devices[i], memory, SIZE, NULL, &buffers[i], &err));
        }
        plugin->buffer->free(buffers[first]);
        plugin->device->close(devices[first]);
        assert_int_equal(cu.context_retain(&context, 1 - first), 0);
        assert_int_equal(cu.context_set(context), 0);
        assert_int_equal(cu.host_register(memory, SIZE, 1), CU_ALREADY_REGISTERED);
        plugin->buffer->free(buffers[1 - first]);
        assert_int_equal(cu.host_register(memory, SIZE, 1), 0);
        assert_int_equal(cu.host_unregister(memory), 0);
        plugin->device->close(devices[1 - first]);
        assert_int_equal(cu.context_release(1 - first), 0);
        assert_int_equal(simt_live(), before);
        free(memory);
    }
}

/* Memory that is freed while the card computes is freed later: the driver would wait for the
 * computation, which may wait for this thread. The plan, the queue and the buffer are those of
 * another device on the same card, whose closing does not wait either. */
static void test_freed_later(void **state) {
    (void)state;
    const long before = simt_live();
    scene s = scene_open("yes", 1), other = scene_open("yes", 2);
    tdm_device_info info = {.struct_size = sizeof info}, kept = {.struct_size = sizeof kept};
    tdm_buffer *buffer = NULL;
    const tdm_buffer_params params = {.struct_size = sizeof params, .size = 64 << 20};
    OK(plugin->buffer->alloc(s.device, &params, &buffer, &err));
    scene_submit(&other, 1);
    OK(tdm_semaphore_ops.wait(other.done, 1, TDM_WAIT_FOREVER, &err));
    scene_check(&other);
    OK(plugin->device->get_info(s.device, &info, &err));
    const long n_wait = simt_waits();
    simt_hold(true);
    scene_submit(&s, 1);
    plugin->buffer->free(buffer);
    OK(plugin->device->get_info(s.device, &kept, &err));
    assert_int_equal(kept.memory_free, info.memory_free + params.size);
    scene_submit(&s, 2); /* launches do not wait for what is kept */
    scene_close(&other);
    assert_int_equal(simt_waits(), n_wait);
    simt_hold(false);
    OK(tdm_semaphore_ops.wait(s.done, 2, TDM_WAIT_FOREVER, &err));
    scene_check(&s);
    OK(plugin->device->get_info(s.device, &info, &err));
    assert_true(info.memory_free >= kept.memory_free);
    assert_int_equal(simt_waits(), n_wait);
    scene_close(&s);
    assert_int_equal(simt_live(), before);
}

/* A thread that frees imported memory, loads kernels for another device of the card, and closes
 * that. */
typedef struct waiting_calls {
    tdm_buffer *import;
    _Atomic bool has_ended;
} waiting_calls;

static void *waiting_calls_make(void *arg) {
    waiting_calls *w = arg;
    plugin->buffer->free(w->import);
    scene other = scene_open("yes", 1);
    scene_close(&other);
    atomic_store(&w->has_ended, true);
    return NULL;
}

/* Calls of the driver that wait for the card are made while nothing computes there: a computation
 * may wait for another member, whose launch the driver's locks would hold up. */
static void test_calls_wait_for_a_gap(void **state) {
    enum { SIZE = 1 << 20 };
    (void)state;
    const long before = simt_live();
    scene s = scene_open("yes", 1);
    waiting_calls w = {0};
    pthread_t thread;
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 4096, SIZE), 0);
    OK(plugin->buffer->import_host(s.device, memory, SIZE, NULL, &w.import, &err));
    const long n_wait = simt_waits();
    simt_hold(true);
    scene_submit(&s, 1);
    assert_int_equal(pthread_create(&thread, NULL, waiting_calls_make, &w), 0);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_false(atomic_load(&w.has_ended));
    scene_submit(&s, 2); /* launches do not wait for the other thread */
    simt_hold(false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(simt_waits(), n_wait);
    OK(tdm_semaphore_ops.wait(s.done, 2, TDM_WAIT_FOREVER, &err));
    scene_check(&s);
    scene_close(&s);
    assert_int_equal(simt_live(), before);
    free(memory);
}

/* The first launch of a kernel does not wait for what the device computes, as a driver may do that
 * loads kernels lazily. */
static void test_first_launch(void **state) {
    (void)state;
    static const char *const graphs[] = {"yes", "no"};
    for (size_t g = 0; g < 2; g++) {
        scene s = scene_open(graphs[g], 1);
        scene_submit(&s, 1);
        OK(tdm_semaphore_ops.wait(s.done, 1, TDM_WAIT_FOREVER, &err));
        scene other = scene_open(graphs[g], 1); /* its device loads the kernels for itself */
        const long n_wait = simt_waits();
        simt_hold(true);
        scene_submit(&s, 2);
        scene_submit(&other, 1);
        const long n_more = simt_waits();
        simt_hold(false);
        assert_int_equal(n_more, n_wait);
        OK(tdm_semaphore_ops.wait(other.done, 1, TDM_WAIT_FOREVER, &err));
        scene_check(&other);
        OK(tdm_semaphore_ops.wait(s.done, 2, TDM_WAIT_FOREVER, &err));
        scene_close(&other);
        scene_close(&s);
    }
}

/* An allocation that fits only with memory that is kept gets it, and waits for it. */
static void test_kept_memory_needed(void **state) {
    (void)state;
    scene s = scene_open("yes", 1);
    tdm_device_info info = {.struct_size = sizeof info};
    tdm_buffer *first = NULL, *second = NULL;
    OK(plugin->device->get_info(s.device, &info, &err));
    const tdm_buffer_params params = {.struct_size = sizeof params,
                                      .size = info.memory_free - (1 << 20)};
    OK(plugin->buffer->alloc(s.device, &params, &first, &err));
    const long n_wait = simt_waits();
    simt_hold(true);
    scene_submit(&s, 1);
    plugin->buffer->free(first);
    assert_int_equal(simt_waits(), n_wait);
    OK(plugin->buffer->alloc(s.device, &params, &second, &err));
    assert_int_equal(simt_waits(), n_wait + 1);
    simt_hold(false);
    OK(tdm_semaphore_ops.wait(s.done, 1, TDM_WAIT_FOREVER, &err));
    plugin->buffer->free(second);
    scene_close(&s);
}

/* Too much page-locked memory: what was asked for and what there is. */
static void test_host_memory(void **state) {
    (void)state;
    tdm_device *device = device_open("yes");
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = UINT64_C(1) << 62, .purpose = TDM_BUFFER_INPUT};
    tdm_buffer *buffer = NULL;
    tdm_error err = {0};
    assert_int_equal(plugin->buffer->alloc(device, &params, &buffer, &err), TDM_RESOURCE_EXHAUSTED);
    assert_null(buffer);
    assert_non_null(strstr(err.message, "4611686018427387904 bytes of page-locked host memory"));
    assert_non_null(strstr(err.message, "bytes of the machine are free"));
    plugin->buffer->free(buffer_make(device, TDM_BUFFER_INPUT));
    plugin->device->close(device);
}

/* The measured limits lie in the range of real processors. Where there is no memory for the
 * measurement of bandwidth, that limit is 0 and the call succeeds. */
static void test_limits(void **state) {
    (void)state;
    tdm_device *device = device_open("yes");
    tdm_device_limits limits = {.struct_size = sizeof limits};
    tdm_device_info before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    OK(plugin->device->get_info(device, &before, &err));
    OK(plugin->device->measure_limits(device, &limits, &err));
    OK(plugin->device->get_info(device, &after, &err));
    assert_true(limits.read_bandwidth > 1e6 && limits.read_bandwidth < 1e13);
    assert_true(limits.int8_peak > 1e3 && limits.f32_peak > 1e3);
    assert_int_equal(after.memory_free, before.memory_free);
    const tdm_buffer_params params = {.struct_size = sizeof params,
                                      .size = before.memory_free - (8 << 20)};
    tdm_buffer *buffer = NULL;
    OK(plugin->buffer->alloc(device, &params, &buffer, &err));
    limits.read_bandwidth = -1;
    OK(plugin->device->measure_limits(device, &limits, &err));
    assert_true(limits.read_bandwidth == 0);
    plugin->buffer->free(buffer);
    plugin->device->close(device);
}

/* A driver that ends no capture: the plan is launched one by one, and the log says so. */
static void test_not_captured(void **state) {
    (void)state;
    enum { CU_CAPTURE_UNJOINED = 904 };
    logged[0] = '\0';
    simt_fail("capture_end", 1, CU_CAPTURE_UNJOINED);
    scene s = scene_open("yes", 3);
    simt_fail("", 0, 0);
    assert_non_null(strstr(logged, "cuStreamEndCapture failed: error 904"));
    assert_non_null(strstr(logged, "one by one"));
    scene_submit(&s, 1);
    OK(tdm_semaphore_ops.wait(s.done, 1, TDM_WAIT_FOREVER, &err));
    scene_check(&s);
    scene_close(&s);
}

/* launch-early: each addition but the first starts before the one whose result it reads has ended.
 * Where the call for early launches fails, the plan is launched one by one, with ordinary
 * launches. */
static void test_launched_early(void **state) {
    enum { CU_INVALID_VALUE = 1 };
    (void)state;
    launch_early = "yes";
    never_waits("yes", N_ADD);
    logged[0] = '\0';
    simt_fail("launch_ex", 2, CU_INVALID_VALUE);
    scene s = scene_open("yes", 3);
    simt_fail("", 0, 0);
    assert_non_null(strstr(logged, "cuLaunchKernelEx failed"));
    scene_submit(&s, 1);
    OK(tdm_semaphore_ops.wait(s.done, 1, TDM_WAIT_FOREVER, &err));
    scene_check(&s);
    scene_close(&s);
    const tdm_option options[] = {
        {"driver", driver_path}, {"graphs", "no"}, {"launch-early", "yes"}};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 3, .options = options};
    tdm_device *device = NULL;
    tdm_error err = {0};
    assert_int_equal(plugin->device->open(instance, &params, &device, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "launch-early = yes: it needs graphs = yes"));
    launch_early = "no";
}

/* A driver without memory for one graph: that plan is launched one by one, later ones are
 * graphs. */
static void test_graph_without_memory(void **state) {
    (void)state;
    enum { CU_OUT_OF_MEMORY = 2 };
    logged[0] = '\0';
    simt_fail("graph_instantiate", 1, CU_OUT_OF_MEMORY);
    scene s = scene_open("yes", 3);
    simt_fail("", 0, 0);
    assert_non_null(strstr(logged, "cuGraphInstantiateWithFlags failed: "));
    assert_non_null(strstr(logged, "one by one"));
    uint64_t submitted = simt_submissions();
    scene_submit(&s, 1);
    OK(tdm_semaphore_ops.wait(s.done, 1, TDM_WAIT_FOREVER, &err));
    assert_in_range(simt_submissions() - submitted, 3, 4);
    scene_check(&s);
    scene_bind(&s);
    submitted = simt_submissions();
    scene_submit(&s, 2);
    OK(tdm_semaphore_ops.wait(s.done, 2, TDM_WAIT_FOREVER, &err));
    assert_int_equal(simt_submissions() - submitted, 1);
    scene_check(&s);
    scene_close(&s);
}

/* A host without `log`: what would be logged is not, and the device works. */
static void test_no_log(void **state) {
    enum { CU_INVALID_VALUE = 1, CU_OUT_OF_MEMORY = 2 };
    static const tdm_host silent = {.struct_size = sizeof silent, .semaphore = &tdm_semaphore_ops};
    static const struct {
        const char *name;
        int result;
    } failures[] = {{"host_register", CU_INVALID_VALUE}, /* kernels do not wait */
                    {"graph_instantiate", CU_OUT_OF_MEMORY},
                    {"capture_end", CU_INVALID_VALUE}};
    tdm_instance *logging = instance;
    (void)state;
    OK(plugin->init(&silent, &instance, &err));
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        simt_fail(failures[i].name, 1, failures[i].result);
        scene s = scene_open("yes", 1);
        assert_true(simt_has_failed());
        simt_fail("", 0, 0);
        scene_submit(&s, 1);
        OK(tdm_semaphore_ops.wait(s.done, 1, TDM_WAIT_FOREVER, &err));
        scene_check(&s);
        scene_close(&s);
    }
    plugin->deinit(instance);
    instance = logging;
}

/* The driver of another API has no device, and does not stay loaded. */
static void test_other_driver(void **state) {
    const tdm_option options[] = {{"driver", other_driver_path}};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 1, .options = options};
    int32_t n = -1;
    tdm_error err = {0};
    (void)state;
    assert_int_equal(plugin->device->count(instance, &params, &n, &err), TDM_OK);
    assert_int_equal(n, 0);
    assert_non_null(strstr(err.message, "the library is a driver of HIP, not of CUDA"));
    assert_null(dlopen(other_driver_path, RTLD_NOW | RTLD_NOLOAD));
}

/* The driver fails to say an attribute of the device, each in turn. Without one that the kernels
 * need, the device does not open. */
static void test_no_attribute(void **state) {
    enum { CU_INVALID_VALUE = 1, N_NEEDED = 5 /* RT_GROUP_SIZE .. RT_SHARED_SIZE, RT_WAVE_SIZE */ };
    const tdm_option options[] = {{"driver", driver_path}};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 1, .options = options};
    int n_refused = 0;
    bool has_failed = true;
    (void)state;
    for (int i = 1; has_failed; i++) {
        tdm_instance *own = NULL;
        tdm_device *device = NULL;
        tdm_error err = {0};
        OK(plugin->init(&host, &own, &err));
        simt_fail("device_attribute", i, CU_INVALID_VALUE);
        tdm_status status = plugin->device->open(own, &params, &device, &err);
        has_failed = simt_has_failed();
        simt_fail("", 0, 0);
        if (status == TDM_OK) {
            plugin->device->close(device);
        } else {
            assert_int_equal(status, TDM_UNSUPPORTED);
            assert_null(device);
            assert_non_null(strstr(err.message, "the kernels need waves of 32 or 64"));
            n_refused++;
        }
        plugin->deinit(own);
    }
    assert_int_equal(n_refused, N_NEEDED);
}

/* A driver that takes none of the kernels: the device does not open. */
static void test_no_kernels(void **state) {
    (void)state;
    enum { CU_NO_BINARY = 209 };
    const tdm_option options[] = {{"driver", driver_path}};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 1, .options = options};
    tdm_device *device = NULL;
    tdm_error err = {0};
    simt_fail("module_load", 1, CU_NO_BINARY);
    assert_int_equal(plugin->device->open(instance, &params, &device, &err), TDM_UNSUPPORTED);
    simt_fail("", 0, 0);
    assert_null(device);
    assert_non_null(strstr(err.message, "cuModuleLoadDataEx failed: error 209"));
    assert_non_null(
        strstr(err.message, "this device is sm_90: build the plugin with -Dptx_targets=sm_90"));
}

/* ---- Weights --------------------------------------------------------------------------------- */

static void test_uploads(void **state) {
    (void)state;
    tdm_device *device = device_open("yes");
    const long before = simt_live();
    upload_case_threads(plugin, device);
    upload_case_long_row(plugin, device);
    upload_case_freed(plugin, device);
    assert_int_equal(simt_live(), before + 1); /* the ring */
    plugin->device->close(device);
}

/* ---- Each call of the driver fails in turn --------------------------------------------------- */

#ifdef TANDEM_SANITIZED
enum { FAIL_STEP = 7 };
#else
enum { FAIL_STEP = 1 };
#endif

/* Uploads a weight from the plugin's memory and from other memory, through the ring, and as plain
 * bytes. */
static tdm_status weight_load(scene *s, tdm_error *err) {
    const tdm_buffer_ops *ops = plugin->buffer;
    const uint8_t other[WEIGHT_SIZE] = {1};
    tdm_tensor_desc desc = {.struct_size = sizeof desc,
                            .type = TDM_TYPE_Q8_0,
                            .ne = {32, 8, 1, 1},
                            .usage = TDM_USAGE_MATMUL};
    tdm_buffer_params params = {.struct_size = sizeof params, .purpose = TDM_BUFFER_WEIGHT};
    tdm_status status = ops->tensor_size(s->device, &desc, &params.size, err);
    if (status == TDM_OK) status = ops->alloc(s->device, &params, &s->weight, err);
    if (status == TDM_OK) status = ops->host_alloc(s->device, WEIGHT_SIZE, &s->pinned, err);
    if (status != TDM_OK) return status;
    memset(s->pinned, 0, WEIGHT_SIZE);
    status = ops->tensor_upload(s->weight, 0, &desc, s->pinned, 34, 0, 8, 0, 32, err);
    if (status == TDM_OK)
        status = ops->tensor_upload(s->weight, 0, &desc, other, 34, 0, 8, 0, 32, err);
    desc.usage = 0;
    if (status == TDM_OK)
        status = ops->tensor_upload(s->weight, 0, &desc, s->pinned, 34, 0, 8, 0, 32, err);
    return status == TDM_OK ? ops->upload_finish(s->device, NULL, err) : status;
}

/* From the opening of a device to a computation that has ended, as far as it goes. */
static tdm_status life_run(tdm_instance *own, const tdm_option *options, scene *s, tdm_error *err) {
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 5, .options = options};
    const tdm_buffer_params input = {
        .struct_size = sizeof input, .size = N * sizeof(float), .purpose = TDM_BUFFER_INPUT};
    const tdm_buffer_params output = {
        .struct_size = sizeof output, .size = N * sizeof(float), .purpose = TDM_BUFFER_OUTPUT};
    const tdm_plan_params plan = {.struct_size = sizeof plan};
    tdm_binding bindings[N_ADD + 1] = {{.buffer = NULL}};
    int32_t x, y;
    s->graph = graph_make(s->n_add, &x, &y);
    tdm_status status = plugin->device->open(own, &params, &s->device, err);
    if (status == TDM_OK) status = plugin->buffer->alloc(s->device, &input, &s->x, err);
    if (status == TDM_OK) status = plugin->buffer->alloc(s->device, &output, &s->y, err);
    if (status == TDM_OK) status = weight_load(s, err);
    if (status == TDM_OK) status = plugin->queue->create(s->device, &s->queue, err);
    if (status == TDM_OK)
        status = plugin->queue->graph_prepare(s->queue, s->graph, &plan, &s->plan, err);
    if (status != TDM_OK) return status;
    bindings_set(s, x, y, bindings);
    status = plugin->queue->plan_bind(s->plan, bindings, s->graph->n_slot, err);
    if (status == TDM_OK) status = tdm_semaphore_ops.create(0, &s->done, err);
    const tdm_point done = {s->done, 1};
    if (status == TDM_OK)
        status = plugin->queue->graph_compute(s->queue, s->plan, NULL, 0, &done, 1, err);
    return status == TDM_OK ? tdm_semaphore_ops.wait(s->done, 1, TDM_WAIT_FOREVER, err) : status;
}

/* One life of a device in which call number n of the function fails with `result`: nothing may be
 * left. False where there were fewer calls. */
static bool call_fails(const char *name, long n, int result, const tdm_option *options) {
    scene s = {.n_add = 2};
    tdm_instance *own = NULL;
    tdm_error why = {0};
    const long before = simt_live();
    OK(plugin->init(&host, &own, &err));
    simt_fail(name, n, result);
    tdm_status status = life_run(own, options, &s, &why);
    const bool has_failed = simt_has_failed();
    simt_fail("", 0, 0);
    if (status != TDM_OK && why.message[0] == '\0') fail_msg("call %ld: no message", n);
    scene_close(&s);
    plugin->deinit(own);
    if (simt_live() != before)
        fail_msg("call %ld of '%s' gives %d: %ld objects of the driver are left (%s)", n, name,
                 result, simt_live() - before, why.message);
    return has_failed;
}

/* Nothing is left, whether the failure ends the opening, the computation or the device. */
static void test_each_call_fails(void **state) {
    enum { CU_INVALID_VALUE = 1, CU_OUT_OF_MEMORY = 2, CU_LAUNCH_FAILED = 719 };
    static const struct {
        int result;
        const char *exchange, *graphs, *early;
    } ways[] = {{CU_INVALID_VALUE, "auto", "yes", "no"},
                {CU_OUT_OF_MEMORY, "phases", "yes", "yes"},
                {CU_LAUNCH_FAILED, "phases", "no", "no"}};
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        const tdm_option options[] = {{"driver", driver_path},
                                      {"graphs", ways[w].graphs},
                                      {"exchange", ways[w].exchange},
                                      {"launch-early", ways[w].early},
                                      {"fusion", "no"}};
        long n = 1;
        (void)call_fails("event_query", 1, ways[w].result, options); /* "any" leaves it out */
        assert_int_equal(call_fails("launch_ex", 1, ways[w].result, options),
                         strcmp(ways[w].early, "yes") == 0);
        while (call_fails("any", n, ways[w].result, options)) n += FAIL_STEP;
        assert_in_range(n, 100, 1000);
    }
}

/* ---- What the emulated driver refuses, as real ones do --------------------------------------- */

enum { CU_INVALID_CONTEXT = 201, CU_CAPTURE_UNSUPPORTED = 900, CU_CAPTURE_INVALIDATED = 901 };

static void test_refusals(void **state) {
    (void)state;
    void *context = NULL, *stream = NULL, *graph = NULL;
    uint64_t memory = 0, other = 0;
    assert_int_equal(cu.context_set(NULL), 0);
    assert_int_equal(cu.memory_alloc(&memory, 64), CU_INVALID_CONTEXT);
    assert_int_equal(cu.context_retain(&context, 0), 0);
    assert_int_equal(cu.context_set(context), 0);
    assert_int_equal(cu.memory_alloc(&memory, 64), 0);
    assert_int_equal(cu.stream_create(&stream, 1), 0);
    assert_int_equal(cu.capture_begin(stream, 1), 0);
    assert_int_equal(cu.memory_alloc(&other, 64), CU_CAPTURE_UNSUPPORTED);
    assert_int_equal(cu.capture_end(stream, &graph), CU_CAPTURE_INVALIDATED);
    assert_null(graph);
    assert_int_equal(cu.capture_begin(stream, 1), 0);
    assert_int_equal(cu.capture_end(stream, &graph), 0);
    assert_int_equal(cu.graph_destroy(graph), 0);
    assert_int_equal(cu.context_set(NULL), 0);
    assert_int_equal(cu.memory_free(memory), CU_INVALID_CONTEXT);
    assert_int_equal(cu.stream_destroy(stream), CU_INVALID_CONTEXT);
    assert_int_equal(cu.context_set(context), 0);
    assert_int_equal(cu.memory_free(memory), 0);
    assert_int_equal(cu.stream_destroy(stream), 0);
    assert_int_equal(cu.context_release(0), 0);
    assert_int_equal(cu.context_set(NULL), 0);
}

static int plugin_begin(void **state) {
    (void)state;
    tdm_error err = {0};
    if (plugin->init(&host, &instance, &err) == TDM_OK) return 0;
    printf("%s\n", err.message);
    return -1;
}

static int plugin_end(void **state) {
    (void)state;
    plugin->deinit(instance);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captured),
        cmocka_unit_test(test_launched),
        cmocka_unit_test(test_launched_long),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_import_refused),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_not_captured),
        cmocka_unit_test(test_no_kernels),
        cmocka_unit_test(test_each_call_fails),
        cmocka_unit_test(test_launched_early),
        cmocka_unit_test(test_uploads),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_graph_without_memory),
        cmocka_unit_test(test_wait_late),
        cmocka_unit_test(test_no_log),
        cmocka_unit_test(test_other_driver),
        cmocka_unit_test(test_no_attribute),
        cmocka_unit_test(test_import_twice),
        cmocka_unit_test(test_freed_later),
        cmocka_unit_test(test_calls_wait_for_a_gap),
        cmocka_unit_test(test_kept_memory_needed),
        cmocka_unit_test(test_first_launch),
    };
    tdm_status (*entry)(const tdm_host *, const tdm_plugin **, tdm_error *) = NULL;
    tdm_error err = {0};
    if (argc != 4) return 2;
    driver_path = argv[2];
    other_driver_path = argv[3];
    if (!driver_symbol_get(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), "tdm_plugin_entry_v0", &entry) ||
        !driver_calls_get(dlopen(argv[2], RTLD_NOW | RTLD_LOCAL)) ||
        entry(&host, &plugin, &err) != TDM_OK)
        return 1;
    return cmocka_run_group_tests(tests, plugin_begin, plugin_end);
}
