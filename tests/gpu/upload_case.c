/* SPDX-License-Identifier: MIT
 *
 * upload_case.c: see upload_case.h.
 */
#include "tests/gpu/upload_case.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        tdm_error err = {0};                                                                       \
        if ((call) != TDM_OK) fail_msg("%s: %s", #call, err.message);                              \
    } while (0)

static uint8_t *pattern_make(size_t size, uint64_t seed) {
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(i * 31 + (i >> 8) + seed * 7);
    return bytes;
}

/* A buffer for the tensor. */
static tdm_buffer *buffer_make(const tdm_plugin *plugin, tdm_device *device,
                               const tdm_tensor_desc *desc) {
    tdm_buffer_params params = {.struct_size = sizeof params, .purpose = TDM_BUFFER_WEIGHT};
    tdm_buffer *buffer = NULL;
    OK(plugin->buffer->tensor_size(device, desc, &params.size, &err));
    OK(plugin->buffer->alloc(device, &params, &buffer, &err));
    return buffer;
}

/* Compares with the tensor's canonical bytes. */
static void buffer_check(const tdm_plugin *plugin, tdm_buffer *buffer, const tdm_tensor_desc *desc,
                         const uint8_t *bytes, size_t row_size) {
    const size_t size = row_size * (size_t)desc->ne[1];
    uint8_t *back = malloc(size);
    assert_non_null(back);
    OK(plugin->buffer->tensor_download(buffer, 0, desc, back, row_size, 0, desc->ne[1], 0,
                                       desc->ne[0], &err));
    assert_memory_equal(back, bytes, size);
    free(back);
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { N_LOADER = 11, N_ROW = 611, ROW_BLOCKS = 70, N_TENSOR = 3, PIECE_ROWS = 17 };
enum { MEMORY_SIZE = PIECE_ROWS * ROW_BLOCKS * 34 };

/* One plane, two planes, and canonical bytes. */
static const struct {
    tdm_type type;
    uint32_t usage;
    int block_len, block_size;
} tensor_kinds[N_TENSOR] = {{TDM_TYPE_F16, TDM_USAGE_MATMUL, 1, 2},
                            {TDM_TYPE_Q8_0, TDM_USAGE_MATMUL, 32, 34},
                            {TDM_TYPE_Q4_0, 0, 32, 18}};

typedef struct loader {
    const tdm_plugin *plugin;
    tdm_device *device;
    tdm_buffer **buffers; /* N_TENSOR */
    uint8_t **bytes;      /* canonical bytes of each */
    int number;
    void *memory[2]; /* used in turn */
    pthread_t thread;
    tdm_error error;
} loader;

static tdm_tensor_desc kind_desc(int kind) {
    return (tdm_tensor_desc){.struct_size = sizeof(tdm_tensor_desc),
                             .type = tensor_kinds[kind].type,
                             .ne = {ROW_BLOCKS * tensor_kinds[kind].block_len, N_ROW, 1, 1},
                             .usage = tensor_kinds[kind].usage};
}

static size_t kind_row(int kind) {
    return (size_t)(ROW_BLOCKS * tensor_kinds[kind].block_size);
}

/* Uploads group g of a tensor's rows from `piece`; an odd group in two calls, for the left and the
 * right halves of the rows. */
static tdm_status group_upload(loader *l, int kind, int64_t g, uint8_t *piece) {
    const tdm_buffer_ops *ops = l->plugin->buffer;
    const tdm_tensor_desc desc = kind_desc(kind);
    const size_t row = kind_row(kind);
    const int64_t n_col = desc.ne[0], first = g * PIECE_ROWS;
    const int64_t n = N_ROW - first < PIECE_ROWS ? N_ROW - first : PIECE_ROWS;
    const int64_t n_left = g % 2 != 0 ? n_col / 2 : n_col;
    tdm_status status = ops->upload_finish(l->device, piece, &l->error);
    if (status != TDM_OK) return status;
    memcpy(piece, l->bytes[kind] + (size_t)first * row, (size_t)n * row);
    status =
        ops->tensor_upload(l->buffers[kind], 0, &desc, piece, row, first, n, 0, n_left, &l->error);
    if (status != TDM_OK || n_left == n_col) return status;
    return ops->tensor_upload(l->buffers[kind], 0, &desc, piece + row / 2, row, first, n, n_left,
                              n_col - n_left, &l->error);
}

/* Uploads every N_LOADER-th group of rows of each tensor. */
static void *loader_main(void *arg) {
    loader *l = arg;
    tdm_status status = TDM_OK;
    int turn = 0;
    for (int kind = 0; kind < N_TENSOR; kind++)
        for (int64_t g = l->number; g * PIECE_ROWS < N_ROW && status == TDM_OK; g += N_LOADER)
            status = group_upload(l, kind, g, l->memory[turn ^= 1]);
    return NULL;
}

static void memory_get(loader *l) {
    for (int i = 0; i < 2; i++) {
        if (l->number % 2 == 0)
            OK(l->plugin->buffer->host_alloc(l->device, MEMORY_SIZE, &l->memory[i], &err));
        else
            l->memory[i] = malloc(MEMORY_SIZE);
        assert_non_null(l->memory[i]);
    }
}

static void memory_release(loader *l) {
    for (int i = 0; i < 2; i++) {
        if (l->number % 2 == 0)
            l->plugin->buffer->host_free(l->device, l->memory[i], MEMORY_SIZE);
        else
            free(l->memory[i]);
    }
}

void upload_case_threads(const tdm_plugin *plugin, tdm_device *device) {
    tdm_buffer *buffers[N_TENSOR];
    uint8_t *bytes[N_TENSOR];
    loader loaders[N_LOADER];
    for (int kind = 0; kind < N_TENSOR; kind++) {
        const tdm_tensor_desc desc = kind_desc(kind);
        buffers[kind] = buffer_make(plugin, device, &desc);
        bytes[kind] = pattern_make(N_ROW * kind_row(kind), (uint64_t)kind);
    }
    for (int i = 0; i < N_LOADER; i++) {
        loaders[i] = (loader){
            .plugin = plugin, .device = device, .buffers = buffers, .bytes = bytes, .number = i};
        memory_get(&loaders[i]);
    }
    for (int i = 0; i < N_LOADER; i++)
        assert_int_equal(pthread_create(&loaders[i].thread, NULL, loader_main, &loaders[i]), 0);
    for (int i = 0; i < N_LOADER; i++) {
        pthread_join(loaders[i].thread, NULL);
        if (loaders[i].error.message[0] != '\0') fail_msg("%s", loaders[i].error.message);
        memory_release(&loaders[i]);
    }
    OK(plugin->buffer->upload_finish(device, NULL, &err));
    for (int kind = 0; kind < N_TENSOR; kind++) {
        const tdm_tensor_desc desc = kind_desc(kind);
        buffer_check(plugin, buffers[kind], &desc, bytes[kind], kind_row(kind));
        free(bytes[kind]);
        plugin->buffer->free(buffers[kind]);
    }
}

/* ---- Long rows ------------------------------------------------------------------------------- */

void upload_case_long_row(const tdm_plugin *plugin, tdm_device *device) {
    enum { N_BLOCK = (3 << 20) / 34, N_LONG = 2, N_FIRST = 1000 };
    const size_t row = (size_t)N_BLOCK * 34;
    const tdm_tensor_desc desc = {.struct_size = sizeof desc,
                                  .type = TDM_TYPE_Q8_0,
                                  .ne = {(int64_t)N_BLOCK * 32, N_LONG, 1, 1},
                                  .usage = TDM_USAGE_MATMUL};
    uint8_t *bytes = pattern_make(N_LONG * row, 3);
    for (int is_divided = 0; is_divided < 2; is_divided++) {
        tdm_buffer *buffer = buffer_make(plugin, device, &desc);
        const int64_t n_first = is_divided ? N_FIRST * 32 : desc.ne[0];
        OK(plugin->buffer->tensor_upload(buffer, 0, &desc, bytes, row, 0, N_LONG, 0, n_first,
                                         &err));
        if (is_divided)
            OK(plugin->buffer->tensor_upload(buffer, 0, &desc, bytes + N_FIRST * 34, row, 0, N_LONG,
                                             n_first, desc.ne[0] - n_first, &err));
        /* Without upload_finish: this memory is not the plugin's. */
        buffer_check(plugin, buffer, &desc, bytes, row);
        plugin->buffer->free(buffer);
    }
    free(bytes);
}

/* ---- Freeing --------------------------------------------------------------------------------- */

void upload_case_freed(const tdm_plugin *plugin, tdm_device *device) {
    enum { SIZE = 8 << 20 };
    const tdm_tensor_desc desc = {
        .struct_size = sizeof desc, .type = TDM_TYPE_F32, .ne = {SIZE / 4, 1, 1, 1}};
    for (int order = 0; order < 4; order++) {
        tdm_buffer *buffer = buffer_make(plugin, device, &desc);
        void *memory = NULL;
        OK(plugin->buffer->host_alloc(device, SIZE, &memory, &err));
        memset(memory, order, SIZE);
        OK(plugin->buffer->tensor_upload(buffer, 0, &desc, memory, SIZE, 0, 1, 0, SIZE / 4, &err));
        if (order % 2 == 0) plugin->buffer->free(buffer);
        plugin->buffer->host_free(device, memory, SIZE);
        if (order % 2 != 0) plugin->buffer->free(buffer);
    }
}
