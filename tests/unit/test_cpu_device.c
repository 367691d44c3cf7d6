/* SPDX-License-Identifier: MIT
 *
 * test_cpu_device.c: the CPU plugin's loading and unloading, its device and options, its buffers.
 * Plans and queues are in test_cpu_queue.c, what ops compute in tests/kernels.
 */
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "tests/unit/cpu_loaded.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#define HAS_SANITIZER (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define HAS_SANITIZER 0
#endif

/* ---- Loading --------------------------------------------------------------------------------- */

static void exports_one_symbol(void **state) {
    (void)state;
    char command[5000], line[512];
    snprintf(command, sizeof command, "nm -D --defined-only '%s' 2>/dev/null", plugin_file());
    FILE *pipe = popen(command, "r");
    int n = 0;
    assert_non_null(pipe);
    while (fgets(line, sizeof line, pipe) != NULL) {
        if (strstr(line, " " TDM_PLUGIN_ENTRY_NAME) == NULL) fail_msg("also exports %s", line);
        n++;
    }
    if (pclose(pipe) != 0) {
        print_message("SKIPPED: no nm here to list the plugin's symbols\n");
        skip();
    }
    assert_int_equal(n, 1);
}

static bool is_mapped(void) {
    char line[4096];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) found |= strstr(line, "/cpu.so") != NULL;
    fclose(maps);
    return found;
}

static int thread_count(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* The threads once there are n, else after two seconds: a thread that was joined stays in the list
 * until the kernel has removed it. */
static int thread_count_settled(int n) {
    for (int i = 0; i < 200 && thread_count() != n; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return thread_count();
}

static void unloads_for_real(void **state) {
    (void)state;
    assert_false(is_mapped());
    loaded first = load(); /* a sanitizer's own thread comes with the first one of ours */
    first.plugin->device->close(open_threads(&first, "2"));
    unload(&first);
    /* This thread, and a sanitizer's. */
    int n_thread = thread_count_settled(1);
    for (int i = 0; i < 5; i++) {
        loaded l = load();
        tdm_device *device = open_threads(&l, "3");
        assert_true(is_mapped());
        assert_int_equal(thread_count(), n_thread + 2);
        l.plugin->device->close(device);
        assert_int_equal(thread_count_settled(n_thread), n_thread);
        unload(&l);
        assert_false(is_mapped());
    }
}

static void two_hosts_at_once(void **state) {
    (void)state;
    loaded a = load(), b = load();
    tdm_device *da = open_threads(&a, "2"), *db = open_threads(&b, "1");
    assert_ptr_not_equal(da, db);
    int64_t live = op_host_live_size(b.host);
    a.plugin->device->close(da);
    unload(&a);
    assert_int_equal(op_host_live_size(b.host), live);
    b.plugin->device->close(db);
    unload(&b);
}

static void entry_needs_memory(void **state) {
    (void)state;
    tdm_host host = {.struct_size = sizeof host};
    const tdm_plugin *plugin = NULL;
    tdm_error err = {0};
    void *object = dlopen(plugin_file(), RTLD_NOW | RTLD_LOCAL);
    assert_non_null(object);
    assert_int_equal(entry_find(object)(&host, &plugin, &err), TDM_INVALID_ARGUMENT);
    assert_null(plugin);
    dlclose(object);
}

static void nulls_are_no_ops(void **state) {
    (void)state;
    loaded l = load();
    l.plugin->deinit(NULL);
    l.plugin->device->close(NULL);
    l.plugin->buffer->free(NULL);
    l.plugin->queue->destroy(NULL);
    l.plugin->queue->plan_destroy(NULL);
    unload(&l);
}

/* ---- Devices --------------------------------------------------------------------------------- */

static void describes_itself(void **state) {
    (void)state;
    loaded l = load();
    tdm_error err = {0};
    int32_t n = 0;
    assert_int_equal(l.plugin->device->count(l.instance, NULL, &n, &err), TDM_OK);
    assert_int_equal(n, 1);
    tdm_device_info info = {.struct_size = sizeof info};
    assert_int_equal(l.plugin->device->describe(l.instance, 0, NULL, &info, &err), TDM_OK);
    assert_string_equal(info.name, "cpu0");
    assert_true(info.flags & TDM_DEVICE_IS_HOST);
    assert_int_equal(info.buffer_align, 64);
    assert_true(info.n_thread >= 1);
    assert_true(info.memory_total > 0 && info.memory_free <= info.memory_total);
    print_message("%s, %d threads, %llu MiB, %llu free\n", info.description, info.n_thread,
                  (unsigned long long)info.memory_total >> 20,
                  (unsigned long long)info.memory_free >> 20);
    /* A caller of an older version gets no more than it has room for. */
    union {
        tdm_device_info info;
        uint8_t bytes[sizeof(tdm_device_info)];
    } small;
    memset(&small, 0x77, sizeof small);
    small.info.struct_size = offsetof(tdm_device_info, description);
    assert_int_equal(l.plugin->device->describe(l.instance, 0, NULL, &small.info, &err), TDM_OK);
    assert_string_equal(small.info.name, "cpu0");
    for (size_t i = offsetof(tdm_device_info, description); i < sizeof small; i++)
        assert_int_equal(small.bytes[i], 0x77);
    assert_int_equal(l.plugin->device->describe(l.instance, 1, NULL, &info, &err), TDM_NOT_FOUND);
    unload(&l);
}

static void refuses_bad_options(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } bad[] = {
        {"threads", "0", "threads"},    {"threads", "-1", "threads"},
        {"threads", "two", "threads"},  {"threads", "", "threads"},
        {"threads", "3x", "threads"},   {"threads", "99999999999999999999", "threads"},
        {"cores", "", "cores"},         {"cores", "a", "cores"},
        {"cores", "0-", "cores"},       {"cores", "3-1", "cores"},
        {"cores", "0,,1", "cores"},     {"cores", "0;", "cores"},
        {"cores", "1023", "processor"}, {"cores", "99999999999", "cores"},
        {"isa", "sse9", "avx512"},      {"isa", "", "auto"},
        {"path", "slow", "reference"},  {"Threads", "1", "threads"},
        {"share", "1", "threads"},      {"activation-bits", "16", "auto"},
        {"activation-bits", "", "15"},  {"cores", "4000", "1023"},
        {"isa", "sve", "unknown"},
    };
    loaded l = load();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tdm_device *device = NULL;
        tdm_error err = {0};
        tdm_status status = open_with(&l, bad[i].key, bad[i].value, &device, &err);
        if (status != TDM_INVALID_ARGUMENT || device != NULL)
            fail_msg("%s = '%s' gave %s", bad[i].key, bad[i].value, tdm_status_text(status));
        if (strstr(err.message, bad[i].says) == NULL || strstr(err.message, bad[i].key) == NULL)
            fail_msg("%s = '%s': '%s' does not say '%s'", bad[i].key, bad[i].value, err.message,
                     bad[i].says);
        assert_int_equal(open_with(&l, bad[i].key, bad[i].value, &device, NULL), status);
    }
    unload(&l);
}

static void takes_good_options(void **state) {
    (void)state;
    static const struct {
        const char *key, *value;
        int n_thread; /* 0: whatever is the default */
    } good[] = {{NULL, NULL, 0},
                {"threads", "1", 1},
                {"threads", "7", 7},
                {"isa", "auto", 0},
                {"isa", "plain", 0},
                {"path", "fast", 0},
                {"path", "reference", 0},
                {"activation-bits", "8", 0},
                {"activation-bits", "15", 0},
                {"activation-bits", "auto", 0}};
    loaded l = load();
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        tdm_device *device = NULL;
        tdm_error err = {0};
        if (open_with(&l, good[i].key, good[i].value, &device, &err) != TDM_OK)
            fail_msg("%s", err.message);
        tdm_device_info info = {.struct_size = sizeof info};
        assert_int_equal(l.plugin->device->get_info(device, &info, &err), TDM_OK);
        if (good[i].n_thread != 0) assert_int_equal(info.n_thread, good[i].n_thread);
        l.plugin->device->close(device);
    }
    unload(&l);
}

/* Devices that may differ in a bit have different descriptions. */
static void names_what_differs(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } unlike[] = {{"activation-bits", "8", "8-bit activations"},
                  {"activation-bits", "15", "15-bit activations"},
                  {"isa", "plain", "plain kernels"},
                  {"path", "reference", "reference path"}};
    loaded l = load();
    for (size_t i = 0; i < sizeof unlike / sizeof unlike[0]; i++) {
        tdm_device_info info = {.struct_size = sizeof info}, usual = info;
        tdm_device *device = NULL;
        tdm_error err = {0};
        assert_int_equal(open_with(&l, NULL, NULL, &device, &err), TDM_OK);
        assert_int_equal(l.plugin->device->get_info(device, &usual, &err), TDM_OK);
        l.plugin->device->close(device);
        assert_int_equal(open_with(&l, unlike[i].key, unlike[i].value, &device, &err), TDM_OK);
        assert_int_equal(l.plugin->device->get_info(device, &info, &err), TDM_OK);
        l.plugin->device->close(device);
        assert_non_null(strstr(info.description, unlike[i].says));
        assert_null(strstr(usual.description, unlike[i].says));
    }
    unload(&l);
}

/* With cores and no threads there is one thread for each core. */
static void cores_set_threads(void **state) {
    (void)state;
    cpu_set_t set;
    char list[64];
    int first = 0;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    while (!CPU_ISSET(first, &set)) first++;
    snprintf(list, sizeof list, "%d", first);
    loaded l = load();
    tdm_device *device = NULL;
    tdm_error err = {0};
    if (open_with(&l, "cores", list, &device, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_device_info info = {.struct_size = sizeof info};
    assert_int_equal(l.plugin->device->get_info(device, &info, &err), TDM_OK);
    assert_int_equal(info.n_thread, 1);
    l.plugin->device->close(device);
    unload(&l);
}

/* Whichever allocation fails, opening fails cleanly. */
static void open_without_memory(void **state) {
    (void)state;
    loaded l = load();
    int n_failed = 0;
    for (int i = 0;; i++) {
        tdm_device *device = NULL;
        tdm_error err = {0};
        op_host_fail_after(l.host, i);
        tdm_status status = open_with(&l, "threads", "2", &device, &err);
        op_host_fail_after(l.host, -1);
        if (status == TDM_OK) {
            l.plugin->device->close(device);
            break;
        }
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        n_failed++;
    }
    assert_true(n_failed >= 2);
    unload(&l);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void oversized_alloc(void **state) {
    (void)state;
    const uint64_t sizes[] = {(uint64_t)1 << 50, UINT64_MAX, UINT64_MAX - 63, INT64_MAX};
    loaded l = load();
    tdm_device *device = open_threads(&l, "1");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tdm_buffer_params params = {.struct_size = sizeof params, .size = sizes[i]};
        tdm_buffer *buffer = NULL;
        tdm_error err = {0};
        char asked[32];
        snprintf(asked, sizeof asked, "%llu", (unsigned long long)sizes[i]);
        assert_int_equal(l.plugin->buffer->alloc(device, &params, &buffer, &err),
                         TDM_RESOURCE_EXHAUSTED);
        assert_null(buffer);
        assert_non_null(strstr(err.message, asked));
        assert_non_null(strstr(err.message, "free"));
    }
    tdm_buffer *buffer = alloc_bytes(&l, device, 100);
    uint8_t in[100], out[100] = {0};
    memset(in, 0x31, sizeof in);
    assert_int_equal(l.plugin->buffer->upload(buffer, 0, in, 100, NULL), TDM_OK);
    assert_int_equal(l.plugin->buffer->download(buffer, 0, out, 100, NULL), TDM_OK);
    assert_memory_equal(in, out, 100);
    l.plugin->buffer->free(buffer);
    l.plugin->device->close(device);
    unload(&l);
}

/* Pages that are not written cost nothing: 256 MiB are allocated, and almost none are resident. */
static void large_buffers_stay_untouched(void **state) {
    (void)state;
    const char *perturb = getenv("MALLOC_PERTURB_");
    if (HAS_SANITIZER || (perturb != NULL && strcmp(perturb, "0") != 0)) {
        print_message("SKIPPED: the allocator writes what it hands out\n");
        skip();
    }
    loaded l = load();
    tdm_device *device = open_threads(&l, "1");
    long before = 0, after = 0, pages;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_true(f != NULL && fscanf(f, "%ld %ld", &pages, &before) == 2);
    fclose(f);
    tdm_buffer *buffer = alloc_bytes(&l, device, 256 << 20);
    f = fopen("/proc/self/statm", "r");
    assert_true(f != NULL && fscanf(f, "%ld %ld", &pages, &after) == 2);
    fclose(f);
    assert_int_equal(
        (uintptr_t)l.plugin->buffer->host_pointer(buffer, TDM_ACCESS_WRITE) % (2 << 20), 0);
    assert_true((after - before) * 4096 < 8 << 20);
    l.plugin->buffer->free(buffer);
    l.plugin->device->close(device);
    unload(&l);
}

static void ranges_are_checked(void **state) {
    (void)state;
    loaded l = load();
    const tdm_buffer_ops *ops = l.plugin->buffer;
    tdm_device *device = open_threads(&l, "1");
    tdm_buffer *buffer = alloc_bytes(&l, device, 64), *empty = alloc_bytes(&l, device, 0);
    uint8_t in[64] = {0}, want[64], out[64];
    memset(want, 0x42, sizeof want);
    assert_int_equal(ops->fill(buffer, 0, 64, 0x42, NULL), TDM_OK);
    const uint64_t bad[][2] = {{1, 64}, {65, 0},         {0, 65},
                               {64, 1}, {UINT64_MAX, 2}, {2, UINT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ops->upload(buffer, bad[i][0], in, bad[i][1], NULL), TDM_OUT_OF_RANGE);
        assert_int_equal(ops->download(buffer, bad[i][0], in, bad[i][1], NULL), TDM_OUT_OF_RANGE);
        assert_int_equal(ops->fill(buffer, bad[i][0], bad[i][1], 1, NULL), TDM_OUT_OF_RANGE);
        assert_int_equal(ops->copy(buffer, bad[i][0], buffer, 0, bad[i][1], NULL),
                         TDM_OUT_OF_RANGE);
        assert_int_equal(ops->copy(buffer, 0, buffer, bad[i][0], bad[i][1], NULL),
                         TDM_OUT_OF_RANGE);
    }
    assert_int_equal(ops->copy(buffer, 0, buffer, 8, 16, NULL), TDM_INVALID_ARGUMENT);
    assert_int_equal(ops->download(buffer, 0, out, 64, NULL), TDM_OK);
    assert_memory_equal(out, want, 64);
    assert_int_equal(ops->upload(buffer, 64, NULL, 0, NULL), TDM_OK);
    assert_int_equal(ops->upload(empty, 0, NULL, 0, NULL), TDM_OK);
    assert_int_equal(ops->upload(empty, 0, in, 1, NULL), TDM_OUT_OF_RANGE);
    ops->free(empty);
    ops->free(buffer);
    l.plugin->device->close(device);
    unload(&l);
}

/* Parts of a plain tensor go to their rows and columns, and come back. */
static void plain_tensor_parts(void **state) {
    (void)state;
    loaded l = load();
    const tdm_buffer_ops *ops = l.plugin->buffer;
    tdm_device *device = open_threads(&l, "1");
    tdm_tensor_desc desc = {.struct_size = sizeof desc, .type = TDM_TYPE_F32, .ne = {6, 2, 2, 1}};
    uint64_t size = 0;
    assert_int_equal(ops->tensor_size(device, &desc, &size, NULL), TDM_OK);
    assert_int_equal(size, 96);
    tdm_buffer *buffer = alloc_bytes(&l, device, 128);
    float in[24], out[24];
    for (int i = 0; i < 24; i++) in[i] = (float)i;
    assert_int_equal(ops->tensor_upload(buffer, 32, &desc, in, 24, 0, 2, 0, 6, NULL), TDM_OK);
    assert_int_equal(ops->tensor_upload(buffer, 32, &desc, in + 12, 24, 2, 2, 0, 4, NULL), TDM_OK);
    assert_int_equal(ops->tensor_upload(buffer, 32, &desc, in + 16, 24, 2, 2, 4, 2, NULL), TDM_OK);
    assert_int_equal(ops->tensor_download(buffer, 32, &desc, out, 24, 0, 4, 0, 6, NULL), TDM_OK);
    assert_memory_equal(in, out, sizeof in);
    float part[2];
    assert_int_equal(ops->tensor_download(buffer, 32, &desc, part, 4, 1, 2, 5, 1, NULL), TDM_OK);
    assert_true(part[0] == 11.0f && part[1] == 17.0f);
    const int64_t bad[][4] = {{-1, 1, 0, 6}, {4, 1, 0, 6},  {0, 5, 0, 6}, {0, 1, -1, 2},
                              {0, 1, 5, 2},  {0, -1, 0, 6}, {0, 1, 0, 7}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ops->tensor_upload(buffer, 32, &desc, in, 24, bad[i][0], bad[i][1],
                                            bad[i][2], bad[i][3], NULL),
                         TDM_OUT_OF_RANGE);
    assert_int_equal(ops->tensor_upload(buffer, 64, &desc, in, 24, 0, 1, 0, 6, NULL),
                     TDM_OUT_OF_RANGE);
    tdm_tensor_desc odd = desc;
    odd.type = TDM_TYPE_Q8_0;
    assert_int_equal(ops->tensor_size(device, &odd, &size, NULL), TDM_INVALID_ARGUMENT);
    odd.type = (tdm_type)5;
    assert_int_equal(ops->tensor_size(device, &odd, &size, NULL), TDM_UNSUPPORTED);
    odd = desc;
    for (int i = 0; i < 4; i++) odd.ne[i] = (int64_t)1 << 40;
    assert_int_equal(ops->tensor_size(device, &odd, &size, NULL), TDM_INVALID_ARGUMENT);
    ops->free(buffer);
    l.plugin->device->close(device);
    unload(&l);
}

static void imported_memory_is_shared(void **state) {
    (void)state;
    loaded l = load();
    const tdm_buffer_ops *ops = l.plugin->buffer;
    tdm_device *device = open_threads(&l, "1");
    _Alignas(64) uint8_t memory[128] = {1, 2, 3};
    tdm_import_info info = {.struct_size = sizeof info};
    tdm_buffer *buffer = NULL;
    tdm_error err = {0};
    assert_int_equal(ops->import_host(device, memory, 128, &info, &buffer, &err), TDM_OK);
    assert_true(info.is_coherent && info.has_atomic32 && info.has_atomic64 && info.is_pollable);
    assert_ptr_equal(ops->host_pointer(buffer, TDM_ACCESS_WRITE), memory);
    assert_int_equal(ops->fill(buffer, 0, 3, 9, &err), TDM_OK);
    assert_int_equal(memory[2], 9);
    ops->free(buffer);
    assert_int_equal(memory[2], 9);
    assert_int_equal(ops->import_host(device, memory + 1, 8, NULL, &buffer, &err), TDM_UNSUPPORTED);
    assert_int_equal(ops->import_host(device, NULL, 8, NULL, &buffer, &err), TDM_INVALID_ARGUMENT);
    l.plugin->device->close(device);
    unload(&l);
}

/* ---- Limits ---------------------------------------------------------------------------------- */

/* The values depend on the machine; they must exist and be possible. With one thread none can be
 * unknown, since no two threads have to run at the same time. */
static void limits_are_measured(void **state) {
    (void)state;
    static const struct {
        const char *isa, *arithmetic;
    } ways[] = {{"amx", "AMX"},
                {"avx512", "AVX-512 VNNI"},
                {"avx2", "AVX"},
                {"neon", "NEON"},
                {"plain", "plain C"}};
    loaded l = load();
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const tdm_option options[] = {{"isa", ways[i].isa}, {"threads", "1"}};
        const tdm_device_params params = {
            .struct_size = sizeof params, .n_option = 2, .options = options};
        tdm_device *device = NULL;
        tdm_error err = {0};
        int64_t before = op_host_live_size(l.host), kept = 0;
        tdm_status status = l.plugin->device->open(l.instance, &params, &device, &err);
        if (status == TDM_UNSUPPORTED) {
            print_message("SKIPPED: %s\n", err.message);
            continue;
        }
        assert_int_equal(status, TDM_OK);
        for (int look = 0; look < 2; look++) {
            tdm_device_limits limits = {.struct_size = sizeof limits};
            assert_int_equal(l.plugin->device->measure_limits(device, &limits, &err), TDM_OK);
            print_message("%s: %.1f GB/s, %.3f TOP/s of 8 bits, %.3f TFLOP/s\n", limits.arithmetic,
                          limits.read_bandwidth / 1e9, limits.int8_peak / 1e12,
                          limits.f32_peak / 1e12);
            assert_memory_equal(limits.arithmetic, ways[i].arithmetic, strlen(ways[i].arithmetic));
            assert_true(limits.int8_peak > 0 && limits.f32_peak > 0);
            /* values beyond these would be mistakes of the arithmetic */
            assert_true(limits.read_bandwidth < 1e14 && limits.int8_peak < 1e16);
            assert_true(limits.f32_peak < 1e15 && limits.f32_peak > 1e6);
            /* the second measurement uses the memory that the first one kept */
            if (look > 0) assert_int_equal(op_host_live_size(l.host), kept);
            kept = op_host_live_size(l.host);
        }
        l.plugin->device->close(device);
        assert_int_equal(op_host_live_size(l.host), before);
    }
    unload(&l);
}

/* Measuring puts the calling thread where worker 0 belongs, and back. */
static void limits_leave_the_caller(void **state) {
    (void)state;
    loaded l = load();
    cpu_set_t before, after;
    char last[16];
    int cpu = 0;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &before)) cpu = i;
    snprintf(last, sizeof last, "%d", cpu);
    tdm_device *device = NULL;
    tdm_error err = {0};
    tdm_device_limits limits = {.struct_size = sizeof limits};
    assert_int_equal(open_with(&l, "cores", last, &device, &err), TDM_OK);
    assert_int_equal(l.plugin->device->measure_limits(device, &limits, &err), TDM_OK);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    l.plugin->device->close(device);
    unload(&l);
}

/* So does a part of a tensor that the calling thread arranges itself. */
static void upload_leaves_the_caller(void **state) {
    (void)state;
    enum { COLUMNS = 1024, ROWS = 160 };
    static float rows[ROWS][COLUMNS], kept[ROWS][COLUMNS];
    loaded l = load();
    const tdm_buffer_ops *ops = l.plugin->buffer;
    const tdm_tensor_desc desc = {
        sizeof desc, TDM_TYPE_F32, TDM_USAGE_MATMUL, {COLUMNS, ROWS, 1, 1}};
    cpu_set_t before, after;
    char last[16];
    int cpu = 0;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &before)) cpu = i;
    snprintf(last, sizeof last, "%d", cpu);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) rows[r][c] = (float)(r * COLUMNS + c);
    tdm_device *device = NULL;
    tdm_buffer *buffer = NULL;
    tdm_error err = {0};
    assert_int_equal(open_with(&l, "cores", last, &device, &err), TDM_OK);
    tdm_buffer_params params = {.struct_size = sizeof params};
    assert_int_equal(ops->tensor_size(device, &desc, &params.size, &err), TDM_OK);
    assert_int_equal(ops->alloc(device, &params, &buffer, &err), TDM_OK);
    assert_int_equal(
        ops->tensor_upload(buffer, 0, &desc, rows, sizeof rows[0], 0, ROWS, 0, COLUMNS, &err),
        TDM_OK);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(
        ops->tensor_download(buffer, 0, &desc, kept, sizeof kept[0], 0, ROWS, 0, COLUMNS, &err),
        TDM_OK);
    assert_memory_equal(kept, rows, sizeof rows);
    ops->free(buffer);
    l.plugin->device->close(device);
    unload(&l);
}

/* Without memory limits are unknown, and nothing fails. */
static void limits_without_memory(void **state) {
    (void)state;
    loaded l = load();
    for (int64_t n = 0; n < 2; n++) { /* the memory to read, the notes on each thread */
        int64_t live = op_host_live_size(l.host);
        tdm_device *device = open_threads(&l, "2");
        tdm_device_limits limits = {.struct_size = sizeof limits};
        tdm_error err = {0};
        op_host_fail_after(l.host, n);
        assert_int_equal(l.plugin->device->measure_limits(device, &limits, &err), TDM_OK);
        op_host_fail_after(l.host, -1);
        assert_true(limits.read_bandwidth == 0);
        assert_true(limits.int8_peak == 0 && limits.f32_peak == 0);
        l.plugin->device->close(device);
        assert_int_equal(op_host_live_size(l.host), live);
    }
    unload(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exports_one_symbol),        cmocka_unit_test(unloads_for_real),
        cmocka_unit_test(two_hosts_at_once),         cmocka_unit_test(entry_needs_memory),
        cmocka_unit_test(nulls_are_no_ops),          cmocka_unit_test(describes_itself),
        cmocka_unit_test(refuses_bad_options),       cmocka_unit_test(takes_good_options),
        cmocka_unit_test(cores_set_threads),         cmocka_unit_test(open_without_memory),
        cmocka_unit_test(oversized_alloc),           cmocka_unit_test(large_buffers_stay_untouched),
        cmocka_unit_test(ranges_are_checked),        cmocka_unit_test(plain_tensor_parts),
        cmocka_unit_test(imported_memory_is_shared), cmocka_unit_test(limits_are_measured),
        cmocka_unit_test(limits_leave_the_caller),   cmocka_unit_test(upload_leaves_the_caller),
        cmocka_unit_test(limits_without_memory),     cmocka_unit_test(names_what_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
