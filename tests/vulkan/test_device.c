/* SPDX-License-Identifier: MIT
 *
 * test_device.c: the plugin without the core: opening and closing, memory in pieces and blocks,
 * copies direct and staged, memory of the host, weights that several threads upload, and running
 * out. Skipped where no driver is found.
 *
 *     test_device VULKAN.so
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tandem/plugin.h"
#include "tests/gpu/upload_case.h"
#include "tests/support/random.h"

enum { N_BUFFER = 40, MAX_SIZE = 6 << 20, IMPORT_SIZE = 1 << 16 };

static const tdm_plugin *plugin;
static tdm_instance *instance;

/* The plugin needs the table at entry; nothing here computes, so that none of it is called. */
static const tdm_host_semaphore_ops semaphores = {.struct_size = sizeof semaphores};
static const tdm_host host = {.struct_size = sizeof host, .semaphore = &semaphores};

#define OK(call)                                                                                   \
    do {                                                                                           \
        tdm_error err = {0};                                                                       \
        if ((call) != TDM_OK) fail_msg("%s: %s", #call, err.message);                              \
    } while (0)

static tdm_device *device_open(const char *limits) {
    const tdm_option options[] = {{"allow-cpu", "yes"}, {"test-limits", limits}};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 2, .options = options};
    tdm_device *device = NULL;
    OK(plugin->device->open(instance, &params, &device, &err));
    return device;
}

static uint64_t memory_free(tdm_device *device) {
    tdm_device_info info = {.struct_size = sizeof info};
    OK(plugin->device->get_info(device, &info, &err));
    return info.memory_free;
}

static void pattern(uint8_t *bytes, size_t size, uint64_t seed) {
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(i * 31 + (i >> 8) + seed * 7);
}

static void buffer_check(tdm_buffer *buffer, size_t size, uint64_t seed, uint8_t *bytes) {
    uint8_t *expected = malloc(size + 1);
    assert_non_null(expected);
    pattern(expected, size, seed);
    OK(plugin->buffer->download(buffer, 0, bytes, size, &err));
    assert_memory_equal(bytes, expected, size);
    free(expected);
}

/* Buffers of many sizes come and go; none touches another's bytes. */
static void pieces(const char *limits) {
    tdm_device *device = device_open(limits);
    tdm_buffer *buffers[N_BUFFER] = {NULL};
    size_t sizes[N_BUFFER] = {0};
    uint64_t state = test_seed("device", 3);
    uint64_t before = memory_free(device);
    uint8_t *bytes = malloc(MAX_SIZE);
    assert_non_null(bytes);
    for (int trial = 0; trial < 300; trial++) {
        int i = (int)random_u32_below(&state, N_BUFFER);
        if (buffers[i] != NULL) {
            buffer_check(buffers[i], sizes[i], (uint64_t)i, bytes);
            plugin->buffer->free(buffers[i]);
            buffers[i] = NULL;
            continue;
        }
        sizes[i] = 1 + random_u32_below(&state, trial % 20 == 0 ? MAX_SIZE : 5000);
        const tdm_buffer_params params = {.struct_size = sizeof params, .size = sizes[i]};
        OK(plugin->buffer->alloc(device, &params, &buffers[i], &err));
        pattern(bytes, sizes[i], (uint64_t)i);
        OK(plugin->buffer->upload(buffers[i], 0, bytes, sizes[i], &err));
    }
    for (int i = 0; i < N_BUFFER; i++) {
        if (buffers[i] != NULL) buffer_check(buffers[i], sizes[i], (uint64_t)i, bytes);
        plugin->buffer->free(buffers[i]);
    }
    free(bytes);
    /* All blocks went back to the driver, but for the staging ring. */
    assert_true(memory_free(device) + (UINT64_C(64) << 20) >= before);
    plugin->device->close(device);
}

static void test_pieces(void **state) {
    (void)state;
    pieces("");
}

static void test_pieces_staged(void **state) {
    (void)state;
    pieces("map=no");
}

/* Fills with every misalignment of both ends change exactly their bytes. */
static void test_fill(void **state) {
    (void)state;
    const char *const limits[] = {"", "map=no"};
    for (int mode = 0; mode < 2; mode++) {
        tdm_device *device = device_open(limits[mode]);
        const tdm_buffer_params params = {.struct_size = sizeof params, .size = 64};
        tdm_buffer *buffer = NULL;
        uint8_t seen[64], expected[64];
        OK(plugin->buffer->alloc(device, &params, &buffer, &err));
        for (uint64_t off = 0; off < 6; off++)
            for (uint64_t size = 0; size < 12; size++) {
                memset(expected, 0x11, sizeof expected);
                OK(plugin->buffer->upload(buffer, 0, expected, sizeof expected, &err));
                OK(plugin->buffer->fill(buffer, off, size, 0xa5, &err));
                memset(expected + off, 0xa5, size);
                OK(plugin->buffer->download(buffer, 0, seen, sizeof seen, &err));
                assert_memory_equal(seen, expected, sizeof seen);
            }
        plugin->buffer->free(buffer);
        plugin->device->close(device);
    }
}

/* More than there is, or than one allocation has: a status that names device and sizes, and the
 * device goes on. */
static void test_out_of_memory(void **state) {
    (void)state;
    tdm_device *device = device_open("alloc=1048576");
    tdm_error err = {0};
    tdm_buffer *buffer = NULL;
    tdm_buffer_params params = {.struct_size = sizeof params, .size = 1048577};
    assert_int_equal(plugin->buffer->alloc(device, &params, &buffer, &err), TDM_RESOURCE_EXHAUSTED);
    assert_null(buffer);
    assert_non_null(strstr(err.message, "vulkan0"));
    assert_non_null(strstr(err.message, "1048577"));
    params.size = UINT64_MAX;
    assert_int_equal(plugin->buffer->alloc(device, &params, &buffer, &err), TDM_RESOURCE_EXHAUSTED);
    params.size = 1048576;
    OK(plugin->buffer->alloc(device, &params, &buffer, &err));
    plugin->buffer->free(buffer);
    plugin->device->close(device);
}

static void test_import(void **state) {
    (void)state;
    tdm_device *device = device_open("");
    tdm_device_info info = {.struct_size = sizeof info};
    OK(plugin->device->get_info(device, &info, &err));
    if (info.import_align == 0) {
        print_message("skipped: the driver imports no host memory\n");
        plugin->device->close(device);
        return;
    }
    uint8_t *memory = aligned_alloc(info.import_align, IMPORT_SIZE), seen[IMPORT_SIZE];
    tdm_buffer *imported = NULL, *own = NULL;
    tdm_error err = {0};
    assert_non_null(memory);
    pattern(memory, IMPORT_SIZE, 5);
    OK(plugin->buffer->import_host(device, memory, IMPORT_SIZE, NULL, &imported, &err));
    const tdm_buffer_params params = {.struct_size = sizeof params, .size = IMPORT_SIZE};
    OK(plugin->buffer->alloc(device, &params, &own, &err));
    /* The device reads what the host wrote, and the host what the device wrote. */
    OK(plugin->buffer->copy(own, 0, imported, 0, IMPORT_SIZE, &err));
    OK(plugin->buffer->download(own, 0, seen, IMPORT_SIZE, &err));
    assert_memory_equal(seen, memory, IMPORT_SIZE);
    pattern(seen, IMPORT_SIZE, 6);
    OK(plugin->buffer->upload(own, 0, seen, IMPORT_SIZE, &err));
    OK(plugin->buffer->copy(imported, 0, own, 0, IMPORT_SIZE, &err));
    assert_memory_equal(seen, memory, IMPORT_SIZE);
    plugin->buffer->free(imported);
    plugin->buffer->free(own);
    imported = NULL;
    assert_int_equal(
        plugin->buffer->import_host(device, memory + 1, IMPORT_SIZE - 4096, NULL, &imported, &err),
        TDM_UNSUPPORTED);
    assert_null(imported);
    free(memory);
    plugin->device->close(device);
}

/* ---- Weights --------------------------------------------------------------------------------- */

static void uploads_check(const char *limits) {
    tdm_device *device = device_open(limits);
    upload_case_threads(plugin, device);
    upload_case_long_row(plugin, device);
    plugin->device->close(device);
}

static void test_uploads(void **state) {
    (void)state;
    uploads_check("map=no");
    uploads_check("");
}

static void test_uploads_freed(void **state) {
    (void)state;
    tdm_device *device = device_open("map=no");
    upload_case_freed(plugin, device);
    plugin->device->close(device);
}

/* Opened twice at once, and again after closing; a software driver only with the option for it. */
static void test_open(void **state) {
    (void)state;
    tdm_device *first = device_open(""), *second = device_open("");
    assert_ptr_not_equal(first, second);
    plugin->device->close(first);
    plugin->device->close(second);
    plugin->device->close(device_open(""));
    plugin->device->close(NULL);
    const tdm_option option = {"allow-cpu", "perhaps"};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 1, .options = &option};
    tdm_error err = {0};
    tdm_device *device = NULL;
    assert_int_equal(plugin->device->open(instance, &params, &device, &err), TDM_INVALID_ARGUMENT);
    int32_t n = -1;
    OK(plugin->device->count(instance, NULL, &n, &err));
    const tdm_device_params none = {.struct_size = sizeof none, .index = n};
    assert_int_equal(plugin->device->open(instance, &none, &device, &err), TDM_NOT_FOUND);
    assert_true(err.message[0] != '\0');
    assert_null(device);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),          cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_pieces_staged), cmocka_unit_test(test_fill),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_import),
        cmocka_unit_test(test_uploads),       cmocka_unit_test(test_uploads_freed),
    };
    tdm_plugin_entry_fn entry;
    tdm_error err = {0};
    if (argc != 2) return 2;

    void *object = dlopen(argv[1], RTLD_NOW);
    if (object == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&entry = dlsym(object, TDM_PLUGIN_ENTRY_NAME);
    if (entry(&host, &plugin, &err) != TDM_OK || plugin->init(&host, &instance, &err) != TDM_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const tdm_option option = {"allow-cpu", "yes"};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 1, .options = &option};
    int32_t n = 0;
    plugin->device->count(instance, &params, &n, &err);
    if (n == 0) {
        printf("skipped: %s\n", err.message);
        plugin->deinit(instance);
        return 77;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    plugin->deinit(instance);
    return rc;
}
