/* SPDX-License-Identifier: MIT
 *
 * test_device.c: the plugin without the core: opening and closing, memory in pieces and blocks,
 * copies direct and staged, memory of the host, weights that several threads upload, and running
 * out. Skipped where no driver is found.
 *
 *     test_device VULKAN.so
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tandem/plugin.h"
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
    assert_true(before - memory_free(device) <= UINT64_C(64) << 20);
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

/* ---- Page-locked memory ---------------------------------------------------------------------- */

enum { N_LOADER = 6, N_ROW = 611, ROW_BLOCKS = 70, N_TENSOR = 3, PIECE_ROWS = 17 };

/* One plane, two planes, and canonical bytes. */
static const struct {
    tdm_type type;
    uint32_t usage;
    int block_len, block_size;
} tensor_kinds[N_TENSOR] = {{TDM_TYPE_F16, TDM_USAGE_MATMUL, 1, 2},
                            {TDM_TYPE_Q8_0, TDM_USAGE_MATMUL, 32, 34},
                            {TDM_TYPE_Q4_0, 0, 32, 18}};

typedef struct loader {
    tdm_device *device;
    tdm_buffer **buffers; /* N_TENSOR */
    uint8_t **bytes;      /* canonical bytes of each */
    int number;
    pthread_t thread;
    tdm_error error;
} loader;

static tdm_tensor_desc kind_desc(int kind) {
    return (tdm_tensor_desc){.struct_size = sizeof(tdm_tensor_desc),
                             .type = tensor_kinds[kind].type,
                             .ne = {ROW_BLOCKS * tensor_kinds[kind].block_len, N_ROW, 1, 1},
                             .usage = tensor_kinds[kind].usage};
}

/* Uploads every N_LOADER-th group of rows of each tensor, from two pieces of memory in turn. Of an
 * odd group the left and the right halves of the rows come by themselves. */
static void *loader_main(void *arg) {
    loader *l = arg;
    const tdm_buffer_ops *ops = plugin->buffer;
    const uint64_t size = PIECE_ROWS * ROW_BLOCKS * 34;
    void *memory[2] = {NULL, NULL};
    tdm_status status = TDM_OK;
    for (int i = 0; i < 2 && status == TDM_OK; i++)
        status = ops->host_alloc(l->device, size, &memory[i], &l->error);
    int turn = 0;
    for (int kind = 0; kind < N_TENSOR; kind++) {
        const tdm_tensor_desc desc = kind_desc(kind);
        const int64_t n_col = desc.ne[0];
        const size_t row = (size_t)(ROW_BLOCKS * tensor_kinds[kind].block_size);
        for (int64_t g = l->number; g * PIECE_ROWS < N_ROW && status == TDM_OK; g += N_LOADER) {
            const int64_t first = g * PIECE_ROWS;
            const int64_t n = N_ROW - first < PIECE_ROWS ? N_ROW - first : PIECE_ROWS;
            uint8_t *piece = memory[turn ^= 1];
            status = ops->upload_finish(l->device, piece, &l->error);
            if (status != TDM_OK) break;
            memcpy(piece, l->bytes[kind] + (size_t)first * row, (size_t)n * row);
            const int64_t n_left = g % 2 != 0 ? n_col / 2 : n_col;
            status = ops->tensor_upload(l->buffers[kind], 0, &desc, piece, row, first, n, 0, n_left,
                                        &l->error);
            if (status == TDM_OK && n_left < n_col)
                status = ops->tensor_upload(l->buffers[kind], 0, &desc, piece + row / 2, row, first,
                                            n, n_left, n_col - n_left, &l->error);
        }
    }
    for (int i = 0; i < 2; i++) ops->host_free(l->device, memory[i], size);
    return NULL;
}

static void tensors_load(const char *limits) {
    tdm_device *device = device_open(limits);
    tdm_buffer *buffers[N_TENSOR];
    uint8_t *bytes[N_TENSOR], *back;
    loader loaders[N_LOADER];
    for (int kind = 0; kind < N_TENSOR; kind++) {
        const tdm_tensor_desc desc = kind_desc(kind);
        const size_t size = (size_t)(N_ROW * ROW_BLOCKS * tensor_kinds[kind].block_size);
        tdm_buffer_params params = {.struct_size = sizeof params, .purpose = TDM_BUFFER_WEIGHT};
        OK(plugin->buffer->tensor_size(device, &desc, &params.size, &err));
        OK(plugin->buffer->alloc(device, &params, &buffers[kind], &err));
        bytes[kind] = malloc(size);
        assert_non_null(bytes[kind]);
        pattern(bytes[kind], size, (uint64_t)kind);
    }
    for (int i = 0; i < N_LOADER; i++) {
        loaders[i] = (loader){.device = device, .buffers = buffers, .bytes = bytes, .number = i};
        assert_int_equal(pthread_create(&loaders[i].thread, NULL, loader_main, &loaders[i]), 0);
    }
    for (int i = 0; i < N_LOADER; i++) {
        pthread_join(loaders[i].thread, NULL);
        if (loaders[i].error.message[0] != '\0') fail_msg("%s", loaders[i].error.message);
    }
    OK(plugin->buffer->upload_finish(device, NULL, &err));
    for (int kind = 0; kind < N_TENSOR; kind++) {
        const tdm_tensor_desc desc = kind_desc(kind);
        const size_t row = (size_t)(ROW_BLOCKS * tensor_kinds[kind].block_size);
        back = malloc(N_ROW * row);
        assert_non_null(back);
        OK(plugin->buffer->tensor_download(buffers[kind], 0, &desc, back, row, 0, N_ROW, 0,
                                           desc.ne[0], &err));
        assert_memory_equal(back, bytes[kind], N_ROW * row);
        free(back);
        free(bytes[kind]);
        plugin->buffer->free(buffers[kind]);
    }
    plugin->device->close(device);
}

/* More threads than there are pieces of staging memory upload parts of tensors. */
static void test_pinned(void **state) {
    (void)state;
    tensors_load("map=no");
    tensors_load("");
}

/* Buffers and page-locked memory may be freed while copies are under way, and the device closed. */
static void test_pinned_freed(void **state) {
    (void)state;
    enum { SIZE = 8 << 20 };
    const tdm_tensor_desc desc = {
        .struct_size = sizeof desc, .type = TDM_TYPE_F32, .ne = {SIZE / 4, 1, 1, 1}};
    tdm_device *device = device_open("map=no");
    for (int order = 0; order < 4; order++) {
        const tdm_buffer_params params = {.struct_size = sizeof params, .size = SIZE};
        tdm_buffer *buffer = NULL;
        void *memory = NULL;
        OK(plugin->buffer->alloc(device, &params, &buffer, &err));
        OK(plugin->buffer->host_alloc(device, SIZE, &memory, &err));
        memset(memory, order, SIZE);
        OK(plugin->buffer->tensor_upload(buffer, 0, &desc, memory, SIZE, 0, 1, 0, SIZE / 4, &err));
        if (order % 2 == 0) plugin->buffer->free(buffer);
        plugin->buffer->host_free(device, memory, SIZE);
        if (order % 2 != 0) plugin->buffer->free(buffer);
    }
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
        cmocka_unit_test(test_pinned),        cmocka_unit_test(test_pinned_freed),
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
