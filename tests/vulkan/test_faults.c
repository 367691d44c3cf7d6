/* SPDX-License-Identifier: MIT
 *
 * test_faults.c: drivers that fail. Each call of the driver in turn runs out of memory or loses the
 * device: the plugin gives a status with a message that names the device, leaves no object behind,
 * and works when it is opened again. A driver's memory budget limits allocations; import may be
 * refused. Another process may hold the lock of the file of verdicts.
 *
 *     test_faults VULKAN.so FAULT_DRIVER.so
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <vulkan/vulkan_core.h>

#include "core/graph/builder.h"
#include "tests/kernels/op_host.h"
#include "tests/vulkan/fault_driver.h"

enum { N = 1000, K = 32, ROWS = 8, COLUMNS = 9, W_AT = 512 /* of a weight in x */ };
enum { Q_SIZE = N / 4 * 34 /* of a weight of q8_0 with N / 4 rows of a block */ };

static const tdm_plugin *plugin;
static op_host *host;
static fault_state *faults;
static bool had_failed; /* of the last scene: a call failed before the scene was closed */

static const char *const call_names[] = {
#define NAME_(name) "vk" #name,
    FAULT_LIST(NAME_)
#undef NAME_
};

/* ---- A scene that uses all of a device ------------------------------------------------------- */

typedef struct scene {
    tdm_instance *instance;
    tdm_device *device;
    tdm_queue *queue;
    tdm_plan *plan;
    tdm_graph *graph;
    tdm_buffer *buffers[2];
    tdm_semaphore *semaphore;
    tdm_buffer *weight; /* of q8_0 */
    void *pinned[2];    /* of host_alloc: x, and the weight's bytes */
    float x[N], y[N];
} scene;

/* y = x * x + x */
static tdm_graph *graph_make(void) {
    const int64_t ne[TDM_MAX_DIMS] = {N, 1, 1, 1};
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, ne);
    int32_t y = tdm_build_add(b, tdm_build_mul(b, x, x), x);
    tdm_build_output(b, y, "y");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    return graph;
}

static tdm_status scene_open_with(scene *s, const tdm_host *table, const char *limits,
                                  tdm_error *err) {
    const tdm_option options[] = {{"allow-cpu", "yes"}, {"test-limits", limits}};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 2, .options = options};
    tdm_status status = plugin->init(table, &s->instance, err);
    return status == TDM_OK ? plugin->device->open(s->instance, &params, &s->device, err) : status;
}

/* The table of `host` has no functions for graphs: no kernel is checked against the CPU. */
static tdm_status scene_open(scene *s, const char *limits, tdm_error *err) {
    return scene_open_with(s, op_host_table(host), limits, err);
}

static tdm_status scene_prepare(scene *s, tdm_error *err) {
    tdm_binding bindings[8] = {{NULL, 0, 0}};
    tdm_status status = plugin->queue->create(s->device, &s->queue, err);
    for (int i = 0; i < 2 && status == TDM_OK; i++) {
        const tdm_buffer_params params = {.struct_size = sizeof params,
                                          .size = sizeof s->x,
                                          .purpose =
                                              i == 0 ? TDM_BUFFER_WEIGHT : TDM_BUFFER_COMPUTE};
        status = plugin->buffer->alloc(s->device, &params, &s->buffers[i], err);
    }
    if (status == TDM_OK)
        status = plugin->queue->graph_prepare(s->queue, s->graph, NULL, &s->plan, err);
    for (int32_t i = 0; i < s->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(s->graph, i);
        if (v->kind == TDM_VALUE_WEIGHT)
            bindings[v->slot] = (tdm_binding){s->buffers[0], W_AT * 4, sizeof s->x - W_AT * 4};
        if (v->kind == TDM_VALUE_INPUT || v->kind == TDM_VALUE_OUTPUT)
            bindings[v->slot] =
                (tdm_binding){s->buffers[v->kind == TDM_VALUE_OUTPUT], 0, sizeof s->x};
    }
    return status == TDM_OK ? plugin->queue->plan_bind(s->plan, bindings, s->graph->n_slot, err)
                            : status;
}

static const tdm_tensor_desc weight_desc = {.struct_size = sizeof weight_desc,
                                            .type = TDM_TYPE_Q8_0,
                                            .ne = {32, N / 4, 1, 1},
                                            .usage = TDM_USAGE_MATMUL};

static uint8_t weight_byte(int i) {
    return (uint8_t)(i * 31 + i / 256);
}

/* Uploads x, and a weight of q8_0, which a device arranges in its own way, from page-locked
 * memory. */
static tdm_status scene_load(scene *s, tdm_error *err) {
    const tdm_buffer_ops *ops = plugin->buffer;
    const tdm_tensor_desc x = {.struct_size = sizeof x, .type = TDM_TYPE_F32, .ne = {N, 1, 1, 1}};
    tdm_buffer_params params = {.struct_size = sizeof params, .purpose = TDM_BUFFER_WEIGHT};
    tdm_status status = ops->tensor_size(s->device, &weight_desc, &params.size, err);
    if (status == TDM_OK) status = ops->alloc(s->device, &params, &s->weight, err);
    if (status == TDM_OK) status = ops->host_alloc(s->device, sizeof s->x, &s->pinned[0], err);
    if (status == TDM_OK) status = ops->host_alloc(s->device, Q_SIZE, &s->pinned[1], err);
    if (status != TDM_OK) return status;
    memcpy(s->pinned[0], s->x, sizeof s->x);
    for (int i = 0; i < Q_SIZE; i++) ((uint8_t *)s->pinned[1])[i] = weight_byte(i);
    status = ops->tensor_upload(s->buffers[0], 0, &x, s->pinned[0], sizeof s->x, 0, 1, 0, N, err);
    return status != TDM_OK ? status
                            : ops->tensor_upload(s->weight, 0, &weight_desc, s->pinned[1], 34, 0,
                                                 N / 4, 0, 32, err);
}

static tdm_status scene_run(scene *s, tdm_error *err) {
    const tdm_host_semaphore_ops *ops = op_host_table(host)->semaphore;
    tdm_status status = scene_load(s, err);
    if (status == TDM_OK) status = plugin->buffer->upload_finish(s->device, NULL, err);
    if (status == TDM_OK) status = ops->create(0, &s->semaphore, err);
    if (status != TDM_OK) return status;
    const tdm_point done = {s->semaphore, 1};
    status = plugin->queue->graph_compute(s->queue, s->plan, NULL, 0, &done, 1, err);
    if (status == TDM_OK) status = ops->wait(s->semaphore, 1, (uint64_t)60 * 1000000000, err);
    return status == TDM_OK ? plugin->buffer->download(s->buffers[1], 0, s->y, sizeof s->y, err)
                            : status;
}

static void scene_close(scene *s) {
    const tdm_host_semaphore_ops *ops = op_host_table(host)->semaphore;
    if (s->plan != NULL) plugin->queue->plan_destroy(s->plan);
    if (s->queue != NULL) plugin->queue->destroy(s->queue);
    if (s->semaphore != NULL) ops->destroy(s->semaphore);
    for (int i = 0; i < 2; i++)
        if (s->buffers[i] != NULL) plugin->buffer->free(s->buffers[i]);
    if (s->weight != NULL) plugin->buffer->free(s->weight);
    if (s->pinned[0] != NULL) plugin->buffer->host_free(s->device, s->pinned[0], sizeof s->x);
    if (s->pinned[1] != NULL) plugin->buffer->host_free(s->device, s->pinned[1], Q_SIZE);
    plugin->device->close(s->device);
    plugin->deinit(s->instance);
    tdm_graph_free(s->graph);
}

/* The whole scene; what the driver had to keep for it is gone afterwards. */
static tdm_status scene_play(const char *limits, tdm_error *err) {
    scene s = {.graph = graph_make()};
    for (int i = 0; i < N; i++) s.x[i] = (float)(i % 97) - 50;
    tdm_status status = scene_open(&s, limits, err);
    if (status == TDM_OK) status = scene_prepare(&s, err);
    if (status == TDM_OK) status = scene_run(&s, err);
    for (int i = 0; i < N && status == TDM_OK; i++) assert_true(s.y[i] == s.x[i] * s.x[i] + s.x[i]);
    had_failed = faults->has_failed != 0;
    scene_close(&s);
    return status;
}

/* ---- Each call in turn ----------------------------------------------------------------------- */

static bool names_device(const char *message) {
    return strstr(message, "vulkan") != NULL || strstr(message, "Vulkan") != NULL;
}

/* Fails call number 1, 2, … of each kind, until the scene has no such call any more. */
static void walk(VkResult result, const char *limits, tdm_status wanted) {
    int32_t n_walked = 0;
    for (int call = 0; call < FAULT_COUNT_; call++)
        for (int32_t n = 0; n < 100; n++) {
            tdm_error err = {0};
            faults->call = call;
            faults->n_left = n;
            faults->result = result;
            faults->has_failed = 0;
            tdm_status status = scene_play(limits, &err);
            faults->call = FAULT_COUNT_;
            if (faults->n_object != 0 || faults->allocated != 0)
                fail_msg("%s, call %d: %d objects are left", call_names[call], (int)n + 1,
                         (int)faults->n_object);
            if (!faults->has_failed) break;
            n_walked++;
            /* Memory of another type, or a block of another size, may do. A device lost while it is
             * closed fails nothing. */
            if (status == TDM_OK && (result != VK_ERROR_DEVICE_LOST || !had_failed)) continue;
            if (status == TDM_OK) fail_msg("%s, call %d: no failure", call_names[call], (int)n + 1);
            if (!names_device(err.message) || (status != wanted && call != FAULT_CreateInstance &&
                                               call != FAULT_EnumeratePhysicalDevices))
                fail_msg("%s, call %d: status %d, '%s'", call_names[call], (int)n + 1, (int)status,
                         err.message);
            err = (tdm_error){0};
            if (n == 0 && scene_play(limits, &err) != TDM_OK)
                fail_msg("opened again after %s: %s", call_names[call], err.message);
        }
    assert_true(n_walked >= FAULT_COUNT_);
}

static void test_lost(void **state) {
    (void)state;
    walk(VK_ERROR_DEVICE_LOST, "map=no part=1", TDM_UNAVAILABLE);
}

static void test_out_of_device_memory(void **state) {
    (void)state;
    walk(VK_ERROR_OUT_OF_DEVICE_MEMORY, "map=no", TDM_RESOURCE_EXHAUSTED);
}

static void test_out_of_host_memory(void **state) {
    (void)state;
    walk(VK_ERROR_OUT_OF_HOST_MEMORY, "", TDM_RESOURCE_EXHAUSTED);
}

/* ---- Submissions ----------------------------------------------------------------------------- */

static int32_t submits_of(const char *limits) {
    tdm_error err = {0};
    faults->n_submit = 0;
    if (scene_play(limits, &err) != TDM_OK) fail_msg("%s", err.message);
    return faults->n_submit;
}

/* A small plan is one submission. Its two steps are estimated at 2.4 us each: with parts of 3 us
 * there is one for each, and with parts of 1 us one for each of their two workgroups. */
static void test_submissions(void **state) {
    (void)state;
    const int32_t n_open = submits_of("fuse=no") - 1; /* a check of the driver */
    assert_true(n_open == 0 || n_open == 1);
    assert_int_equal(submits_of("fuse=no part=3"), n_open + 2);
    assert_int_equal(submits_of("fuse=no part=1"), n_open + 4);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static uint64_t memory_free(tdm_device *device) {
    tdm_device_info info = {.struct_size = sizeof info};
    tdm_error err = {0};
    assert_int_equal(plugin->device->get_info(device, &info, &err), TDM_OK);
    return info.memory_free;
}

/* Beyond the driver's account a status names what is free, and the device goes on. */
static void test_budget(void **state) {
    (void)state;
    const uint64_t mib = 1 << 20;
    scene s = {.graph = graph_make()};
    tdm_error err = {0};
    tdm_buffer *buffers[2] = {NULL, NULL};
    tdm_buffer_params params = {.struct_size = sizeof params, .size = 48 * mib};
    faults->budget = 100 * mib;
    assert_int_equal(scene_open(&s, "", &err), TDM_OK);
    assert_true(memory_free(s.device) == 100 * mib);
    assert_int_equal(plugin->buffer->alloc(s.device, &params, &buffers[0], &err), TDM_OK);
    assert_true(memory_free(s.device) == 52 * mib);
    params.size = 60 * mib;
    assert_int_equal(plugin->buffer->alloc(s.device, &params, &buffers[1], &err),
                     TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "vulkan0"));
    assert_non_null(strstr(err.message, "62914560"));
    assert_non_null(strstr(err.message, "54525952"));
    /* Others leave memory, and take it. */
    faults->budget = 120 * mib;
    assert_int_equal(plugin->buffer->alloc(s.device, &params, &buffers[1], &err), TDM_OK);
    faults->budget = 10 * mib;
    assert_true(memory_free(s.device) == 0);
    plugin->buffer->free(buffers[1]);
    params.size = 1;
    assert_int_equal(plugin->buffer->alloc(s.device, &params, &buffers[1], &err),
                     TDM_RESOURCE_EXHAUSTED);
    plugin->buffer->free(buffers[0]);
    /* A small piece where a whole block has no room. */
    assert_int_equal(plugin->buffer->alloc(s.device, &params, &buffers[1], &err), TDM_OK);
    plugin->buffer->free(buffers[1]);
    scene_close(&s);
    faults->budget = 0;
    assert_int_equal(faults->n_object, 0);
}

/* Where the driver allows no more allocations the plugin makes none, and names that limit. */
static void test_allocation_limit(void **state) {
    (void)state;
    enum { MAX = 24 };
    scene s = {.graph = graph_make()};
    tdm_error err = {0};
    tdm_buffer *buffers[MAX + 1] = {NULL};
    const tdm_buffer_params params = {.struct_size = sizeof params, .size = 5 << 20};
    int n = 0;
    faults->max_allocation = MAX;
    assert_int_equal(scene_open(&s, "", &err), TDM_OK);
    while (n <= MAX && plugin->buffer->alloc(s.device, &params, &buffers[n], &err) == TDM_OK) n++;
    assert_int_equal(n, MAX);
    assert_int_equal(err.status, TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "allows 24 allocations"));
    assert_int_equal(faults->n_allocation, MAX);
    assert_int_equal(faults->n_beyond, 0);
    plugin->buffer->free(buffers[--n]);
    assert_int_equal(plugin->buffer->alloc(s.device, &params, &buffers[n], &err), TDM_OK);
    for (; n >= 0; n--) plugin->buffer->free(buffers[n]);
    scene_close(&s);
    faults->max_allocation = 0;
    assert_int_equal(faults->n_object, 0);
}

/* A driver that takes no memory of the host: unsupported, and all else works. */
static void test_import_refused(void **state) {
    (void)state;
    const int calls[] = {FAULT_GetMemoryHostPointerPropertiesEXT, FAULT_AllocateMemory};
    for (int i = 0; i < 2; i++) {
        scene s = {.graph = graph_make()};
        tdm_error err = {0};
        tdm_buffer *imported = NULL;
        uint8_t *memory = aligned_alloc(65536, 65536);
        assert_non_null(memory);
        assert_int_equal(scene_open(&s, "", &err), TDM_OK);
        faults->call = calls[i];
        faults->n_left = 0;
        faults->result = VK_ERROR_INVALID_EXTERNAL_HANDLE;
        assert_int_equal(
            plugin->buffer->import_host(s.device, memory, 65536, NULL, &imported, &err),
            TDM_UNSUPPORTED);
        faults->call = FAULT_COUNT_;
        assert_null(imported);
        assert_non_null(strstr(err.message, "vulkan0"));
        assert_int_equal(scene_prepare(&s, &err), TDM_OK);
        assert_int_equal(scene_run(&s, &err), TDM_OK);
        scene_close(&s);
        free(memory);
        assert_int_equal(faults->n_object, 0);
    }
}

/* A driver that is short of memory when it imports, in the test of imports or later: that import
 * fails, the next one succeeds. */
static void test_import_short(void **state) {
    (void)state;
    const int calls[] = {FAULT_GetMemoryHostPointerPropertiesEXT, FAULT_AllocateMemory};
    tdm_device_info info = {.struct_size = sizeof info};
    for (int i = 0; i < 2; i++) {
        scene s = {.graph = graph_make()};
        tdm_error err = {0};
        tdm_buffer *imported = NULL;
        uint8_t *memory = aligned_alloc(65536, 65536);
        assert_non_null(memory);
        assert_int_equal(scene_open(&s, "", &err), TDM_OK);
        assert_int_equal(plugin->device->get_info(s.device, &info, &err), TDM_OK);
        for (int k = 0; k < 2 && info.import_align != 0 && info.import_align <= 65536; k++) {
            faults->call = calls[i];
            faults->n_left = 0;
            faults->result = VK_ERROR_OUT_OF_HOST_MEMORY;
            assert_int_equal(
                plugin->buffer->import_host(s.device, memory, 65536, NULL, &imported, &err),
                TDM_RESOURCE_EXHAUSTED);
            faults->call = FAULT_COUNT_;
            assert_null(imported);
            if (plugin->buffer->import_host(s.device, memory, 65536, NULL, &imported, &err) !=
                TDM_OK)
                fail_msg("%s", err.message);
            plugin->buffer->free(imported);
            imported = NULL;
        }
        scene_close(&s);
        free(memory);
        assert_int_equal(faults->n_object, 0);
    }
}

/* Where no memory is coherent, the plugin flushes what it maps, and imports no memory of the host,
 * which it does not map. */
static void test_incoherent(void **state) {
    (void)state;
    scene s = {.graph = graph_make()};
    tdm_error err = {0};
    tdm_buffer *imported = NULL;
    void *memory = aligned_alloc(65536, 65536);
    assert_non_null(memory);
    memset(memory, 0, 65536);
    for (int i = 0; i < N; i++) s.x[i] = (float)i;
    faults->is_incoherent = 1;
    assert_int_equal(scene_open(&s, "", &err), TDM_OK);
    assert_int_equal(plugin->buffer->import_host(s.device, memory, 65536, NULL, &imported, &err),
                     TDM_UNSUPPORTED);
    assert_null(imported);
    assert_int_equal(scene_prepare(&s, &err), TDM_OK);
    assert_int_equal(scene_run(&s, &err), TDM_OK);
    for (int i = 0; i < N; i++) assert_true(s.y[i] == s.x[i] * s.x[i] + s.x[i]);
    scene_close(&s);
    free(memory);
    faults->is_incoherent = 0;
    assert_int_equal(faults->n_object, 0);
}

/* Uploads from page-locked memory are submitted, one submission for each, and not awaited. Where
 * the driver has no memory that the host caches, any serves, and uploads from it are awaited. */
static void test_pinned(void **state) {
    (void)state;
    for (int is_uncached = 0; is_uncached < 2; is_uncached++)
        for (int is_incoherent = 0; is_incoherent < 2; is_incoherent++) {
            scene s = {.graph = graph_make()};
            tdm_error err = {0};
            uint8_t back[Q_SIZE];
            float x[N];
            for (int i = 0; i < N; i++) s.x[i] = (float)i;
            faults->is_incoherent = is_incoherent;
            faults->is_uncached = is_uncached;
            assert_int_equal(scene_open(&s, "map=no", &err), TDM_OK);
            assert_int_equal(scene_prepare(&s, &err), TDM_OK);
            const int32_t n_wait = faults->n_wait, n_submit = faults->n_submit;
            if (scene_load(&s, &err) != TDM_OK) fail_msg("%s", err.message);
            if (is_uncached) {
                assert_true(faults->n_wait > n_wait);
            } else {
                assert_int_equal(faults->n_wait, n_wait);
                assert_int_equal(faults->n_submit, n_submit + 2);
            }
            assert_int_equal(plugin->buffer->upload_finish(s.device, s.pinned[0], &err), TDM_OK);
            memset(s.pinned[0], 0xaa, sizeof s.x);
            assert_int_equal(plugin->buffer->upload_finish(s.device, NULL, &err), TDM_OK);
            memset(s.pinned[1], 0xaa, Q_SIZE);
            assert_int_equal(plugin->buffer->download(s.buffers[0], 0, x, sizeof x, &err), TDM_OK);
            assert_memory_equal(x, s.x, sizeof x);
            assert_int_equal(plugin->buffer->tensor_download(s.weight, 0, &weight_desc, back, 34, 0,
                                                             N / 4, 0, 32, &err),
                             TDM_OK);
            for (int i = 0; i < Q_SIZE; i++) assert_int_equal(back[i], weight_byte(i));
            scene_close(&s);
            faults->is_incoherent = faults->is_uncached = 0;
            assert_int_equal(faults->n_object, 0);
        }
}

/* A driver may make smaller buffers than it allocates memory. */
static void test_buffer_limit(void **state) {
    (void)state;
    const uint64_t mib = 1 << 20;
    scene s = {.graph = graph_make()};
    tdm_error err = {0};
    tdm_buffer *buffer = NULL;
    tdm_buffer_params params = {.struct_size = sizeof params, .size = 40 * mib};
    tdm_device_info info = {.struct_size = sizeof info};
    faults->max_buffer = 40 * mib;
    assert_int_equal(scene_open(&s, "", &err), TDM_OK);
    assert_int_equal(plugin->device->get_info(s.device, &info, &err), TDM_OK);
    assert_true(info.max_buffer == 40 * mib);
    assert_int_equal(plugin->buffer->alloc(s.device, &params, &buffer, &err), TDM_OK);
    plugin->buffer->free(buffer);
    params.size++;
    assert_int_equal(plugin->buffer->alloc(s.device, &params, &buffer, &err),
                     TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "41943040"));
    err = (tdm_error){0};
    void *memory = aligned_alloc(65536, 41 * mib);
    assert_non_null(memory);
    assert_int_equal(plugin->buffer->import_host(s.device, memory, 41 * mib, NULL, &buffer, &err),
                     TDM_UNSUPPORTED);
    if (info.import_align != 0) assert_non_null(strstr(err.message, "41943040"));
    free(memory);
    scene_close(&s);
    faults->max_buffer = 0;
    assert_int_equal(faults->n_object, 0);
}

/* y = x / |x| * sqrt(N), in groups that may be large */
static tdm_graph *norm_make(void) {
    const int64_t ne[TDM_MAX_DIMS] = {N, 1, 1, 1};
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, ne);
    tdm_build_output(b, tdm_build_rms_norm(b, x, -1, 0), "y");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    return graph;
}

/* The most threads of a group in the scene on a driver with this limit of subgroups in a group. */
static int32_t max_group_get(int32_t group_subgroups) {
    scene s = {.graph = norm_make()};
    tdm_error err = {0};
    char limits[32];
    for (int i = 0; i < N; i++) s.x[i] = i % 2 == 0 ? 2 : -2;
    faults->group_subgroups = group_subgroups;
    faults->max_group = 0;
    snprintf(limits, sizeof limits, "subgroup=%d", (int)faults->subgroup);
    tdm_status status = scene_open(&s, limits, &err);
    if (status == TDM_OK) status = scene_prepare(&s, &err);
    if (status == TDM_OK) status = scene_run(&s, &err);
    if (status != TDM_OK) fail_msg("%s", err.message);
    for (int i = 0; i < N; i++) assert_true(s.y[i] * 2 == s.x[i]);
    tdm_device_limits measured = {.struct_size = sizeof measured};
    assert_int_equal(plugin->device->measure_limits(s.device, &measured, &err), TDM_OK);
    assert_true(measured.read_bandwidth > 0 && measured.f32_peak > 0);
    scene_close(&s);
    faults->group_subgroups = 0;
    assert_int_equal(faults->n_object, 0);
    return faults->max_group;
}

/* A pipeline that names the size of its subgroups has a group of no more of them than the driver
 * allows. */
static void test_group_subgroups(void **state) {
    (void)state;
    const int32_t most = max_group_get(1024);
    assert_true(most >= 2 * faults->subgroup);
    assert_int_equal(max_group_get(most / 2 / faults->subgroup), most / 2);
}

/* Where a driver offers several sizes of subgroups, pipelines name one: 16 where 32 is the largest,
 * 32 where there are larger ones. */
static void test_subgroup_choice(void **state) {
    static const int32_t rows[][2] = {{32, 16}, {64, 32}, {128, 32}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tdm_error err = {0};
        faults->max_subgroup = rows[i][0];
        faults->named_subgroup = -1;
        if (scene_play("", &err) != TDM_OK) fail_msg("%s", err.message);
        assert_int_equal(faults->named_subgroup, rows[i][1]);
    }
    faults->max_subgroup = 0;
    faults->named_subgroup = -1;
    tdm_error err = {0};
    if (scene_play("", &err) != TDM_OK) fail_msg("%s", err.message);
    assert_int_equal(faults->named_subgroup, 0);
}

/* Matrices of 8 rows and 8 columns are not used. */
static void test_small_matrix(void **state) {
    (void)state;
    for (int has_matrix = 1; has_matrix <= 2; has_matrix++) {
        scene s = {.graph = graph_make()};
        tdm_error err = {0};
        tdm_device_info info = {.struct_size = sizeof info};
        faults->has_matrix = has_matrix;
        assert_int_equal(scene_open(&s, "", &err), TDM_OK);
        assert_int_equal(plugin->device->get_info(s.device, &info, &err), TDM_OK);
        assert_int_equal(strstr(info.description, "matrices") != NULL, has_matrix == 1);
        scene_close(&s);
    }
    faults->has_matrix = 0;
    assert_int_equal(faults->n_object, 0);
}

/* What the kernels need and a driver lacks is named where there is no device. */
static void test_left_out(void **state) {
    (void)state;
    const tdm_option option = {"allow-cpu", "yes"};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 1, .options = &option};
    for (int lacks = 0; lacks < 2; lacks++) {
        tdm_instance *instance = NULL;
        tdm_error err = {0};
        int32_t n = -1;
        faults->has_no_int64 = lacks;
        assert_int_equal(plugin->init(op_host_table(host), &instance, &err), TDM_OK);
        assert_int_equal(plugin->device->count(instance, &params, &n, &err), TDM_OK);
        assert_true(lacks ? n == 0 : n > 0);
        assert_true((strstr(err.message, "is left out: the driver lacks shaderInt64") != NULL) ==
                    (lacks != 0));
        plugin->deinit(instance);
    }
    faults->has_no_int64 = 0;
    assert_int_equal(faults->n_object, 0);
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* The file of the real loader goes to the one for tests, which takes its place. */
static bool driver_take(const char *path) {
    void *real = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    Dl_info info;
    void *get = real != NULL ? dlsym(real, "vkGetInstanceProcAddr") : NULL;
    if (get == NULL || dladdr(get, &info) == 0) return false;
    char name[sizeof faults->real];
    snprintf(name, sizeof name, "%s", info.dli_fname);
    dlclose(real);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    faults = library != NULL ? dlsym(library, "fault_state_now") : NULL;
    if (faults == NULL) return false;
    memcpy(faults->real, name, sizeof name);
    return true;
}

/* ---- Caches ---------------------------------------------------------------------------------- */

static char cache_folder[] = "/tmp/tandem-faults-XXXXXX";

/* What is kept about pipelines under faults does not reach the user's cache. The driver's own
 * cache stays in its place: compiling takes most of the time. */
static bool cache_make(void) {
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char usual[4096];
    if (base == NULL) snprintf(usual, sizeof usual, "%s/.cache", home != NULL ? home : "/tmp");
    if (mkdtemp(cache_folder) == NULL) return false;
    setenv("MESA_SHADER_CACHE_DIR", base != NULL ? base : usual, 0);
    setenv("XDG_CACHE_HOME", cache_folder, 1);
    return true;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *at) {
    (void)status, (void)kind, (void)at;
    return remove(path);
}

static void cache_remove(void) {
    nftw(cache_folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* y = w x, with 9 columns: a product on tiles. */
static tdm_graph *product_make(void) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t w = tdm_build_weight(b, "w", TDM_TYPE_F16, (const int64_t[]){K, ROWS, 1, 1}, 0);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[]){K, COLUMNS, 1, 1});
    tdm_build_output(b, tdm_build_matmul(b, w, x), "y");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    return graph;
}

/* A driver says that it has cooperative matrices, and compiles no shader on them: another kernel
 * computes the product, at the next start without an attempt. */
static void test_matrix(void **state) {
    (void)state;
    tdm_error err = {0};
    scene s = {.graph = product_make()};
    for (int i = 0; i < K * COLUMNS; i++) s.x[i] = (float)(i % 7 - 3);
    for (int i = 0; i < K * ROWS; i++) memcpy((char *)&s.x[W_AT] + 2 * i, "\x00\x3c", 2); /* 1 */
    faults->has_matrix = 1;
    tdm_status status = scene_open(&s, "lanes=no", &err);
    tdm_device_info info = {.struct_size = sizeof info};
    if (status == TDM_OK) status = plugin->device->get_info(s.device, &info, &err);
    if (status == TDM_OK) assert_non_null(strstr(info.description, "matrices"));
    if (status == TDM_OK) status = scene_prepare(&s, &err);
    if (status == TDM_OK) status = scene_run(&s, &err);
    if (status != TDM_OK) fail_msg("%s", err.message);
    for (int c = 0; c < COLUMNS; c++) {
        float sum = 0;
        for (int k = 0; k < K; k++) sum += s.x[K * c + k];
        for (int r = 0; r < ROWS; r++) assert_true(s.y[ROWS * c + r] == sum);
    }
    scene_close(&s);
    s = (scene){.graph = product_make()};
    assert_int_equal(scene_open(&s, "lanes=no", &err), TDM_OK);
    assert_int_equal(plugin->device->get_info(s.device, &info, &err), TDM_OK);
    assert_non_null(strstr(info.description, "wrong: product_tile_matrix"));
    scene_close(&s);
    faults->has_matrix = 0;
    assert_int_equal(faults->n_object, 0);
}

/* Where subgroups of all sizes have the same registers, a kernel that needs many of them names the
 * smallest, unless its groups then have more subgroups than the driver allows, or the size is
 * given. */
static void test_small_subgroup(void **state) {
    static const struct {
        const char *limits;
        int32_t max_subgroup, group_subgroups, named;
    } rows[] = {{"", 32, 0, 0}, {"", 32, 15, 16}, {"subgroup=16", 32, 0, 16}, {"", 64, 0, 32}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tdm_error err = {0};
        scene s = {.graph = product_make()};
        faults->max_subgroup = rows[i].max_subgroup;
        faults->group_subgroups = rows[i].group_subgroups;
        faults->named_subgroup = -1;
        tdm_status status = scene_open(&s, rows[i].limits, &err);
        if (status == TDM_OK) status = scene_prepare(&s, &err);
        if (status != TDM_OK) fail_msg("%s", err.message);
        assert_int_equal(faults->named_subgroup,
                         rows[i].named != 0 ? rows[i].named : faults->subgroup);
        scene_close(&s);
    }
    faults->max_subgroup = faults->group_subgroups = 0;
    assert_int_equal(faults->n_object, 0);
}

/* ---- Verdicts -------------------------------------------------------------------------------- */

static void *prepare_main(void *arg) {
    tdm_error err = {0};
    (void)scene_prepare(arg, &err);
    return NULL;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A thread that has checked kernels waits some seconds for the lock of the file of verdicts, which
 * another process may hold. supports_op, which reads the verdicts where a kernel is wrong, does not
 * wait for that thread. */
static void test_verdict_lock(void **state) {
    const char *limits = "fuse=no wrong=pair";
    const tdm_host_graph_ops graph_ops = {.struct_size = sizeof graph_ops,
                                          .verify = tdm_graph_verify};
    tdm_host table = *op_host_table(host);
    scene first = {.graph = graph_make()}, s = {.graph = graph_make()};
    char pattern[128];
    tdm_error err = {0};
    pthread_t thread;
    glob_t found;
    (void)state;
    table.graph = &graph_ops;
    assert_int_equal(scene_open_with(&first, &table, limits, &err), TDM_OK);
    assert_int_equal(scene_prepare(&first, &err), TDM_UNSUPPORTED); /* makes the files */
    scene_close(&first);
    snprintf(pattern, sizeof pattern, "%s/tandem/*.checkedpair", cache_folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(unlink(found.gl_pathv[0]), 0); /* so that kernels are checked again */
    globfree(&found);
    strcat(pattern, ".lock");
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    int lock = open(found.gl_pathv[0], O_RDWR | O_CLOEXEC);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    globfree(&found);
    assert_int_equal(scene_open_with(&s, &table, limits, &err), TDM_OK);
    assert_int_equal(plugin->device->supports_op(s.device, s.graph, 0, &err), TDM_OK);
    assert_int_equal(pthread_create(&thread, NULL, prepare_main, &s), 0);
    const double start = now_s();
    double end = start + 60, longest = 0;
    while (now_s() < end) {
        const double before = now_s();
        tdm_status status = plugin->device->supports_op(s.device, s.graph, 0, &err);
        const double took = now_s() - before;
        if (took > longest) longest = took;
        /* The wrong kernel is known: the file follows. */
        if (status != TDM_OK && end == start + 60) end = now_s() + 0.5;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    close(lock);
    pthread_join(thread, NULL);
    assert_true(end < start + 60);
    if (longest > 5) fail_msg("supports_op took %.1f s", longest);
    scene_close(&s);
    assert_int_equal(faults->n_object, 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_submissions),
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_small_subgroup),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_allocation_limit),
        cmocka_unit_test(test_import_refused),
        cmocka_unit_test(test_import_short),
        cmocka_unit_test(test_incoherent),
        cmocka_unit_test(test_pinned),
        cmocka_unit_test(test_buffer_limit),
        cmocka_unit_test(test_group_subgroups),
        cmocka_unit_test(test_subgroup_choice),
        cmocka_unit_test(test_small_matrix),
        cmocka_unit_test(test_verdict_lock),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_out_of_device_memory),
        cmocka_unit_test(test_out_of_host_memory),
    };
    if (argc != 3) return 2;
    if (!cache_make()) {
        print_error("no folder for caches in /tmp\n");
        return 1;
    }
    atexit(cache_remove);
    if (!driver_take(argv[2])) {
        print_message("skipped: no Vulkan loader\n");
        return 77;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    tdm_plugin_entry_fn entry = NULL;
    if (library != NULL) *(void **)&entry = dlsym(library, TDM_PLUGIN_ENTRY_NAME);
    host = op_host_create();
    tdm_error err = {0};
    if (entry == NULL || entry(op_host_table(host), &plugin, &err) != TDM_OK) {
        print_error("no plugin: %s\n", library == NULL ? dlerror() : err.message);
        return 1;
    }
    if (scene_play("", &err) == TDM_NOT_FOUND) {
        print_message("skipped: %s\n", err.message);
        return 77;
    }
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    return !op_host_destroy(host) + n_failed;
}
