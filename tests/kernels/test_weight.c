/* SPDX-License-Identifier: MIT
 *
 * test_weight.c: weights in private layout. Uploaded in pieces of any size, they are downloaded
 * bit for bit. They take the bytes of their rows, rounded up to a group. Looking up a row is
 * exact.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "tests/kernels/made_weight.h"
#include "tests/kernels/op_run.h"

enum { N_RIG = 5 };

static const char *const rig_isa[N_RIG] = {"plain", "avx2", "avx512", "neon", "plain"};
static const char *const rig_path[N_RIG] = {"fast", "fast", "fast", "fast", "reference"};
static const int rig_lane[N_RIG] = {1, 8, 16, 8, 1}; /* rows of a group */

typedef struct rigs {
    op_rig *rig[N_RIG];
} rigs;

static int setup(void **state) {
    rigs *r = calloc(1, sizeof *r);
    if (r == NULL) return -1;
    *state = r;
    for (int i = 0; i < N_RIG; i++) r->rig[i] = op_rig_open(rig_isa[i], rig_path[i], 1);
    return 0;
}

static int teardown(void **state) {
    rigs *r = *state;
    for (int i = 0; i < N_RIG; i++) op_rig_close(r->rig[i]);
    free(r);
    return 0;
}

/* A weight on a device, behind guard bytes. */
typedef struct held {
    const tdm_buffer_ops *ops;
    tdm_buffer *buffer;
    tdm_tensor_desc desc;
    uint64_t size;
} held;

enum { GUARD = 128 };

static held held_create(op_rig *rig, const tdm_tensor_desc *desc) {
    held h = {.ops = op_rig_plugin(rig)->buffer, .desc = *desc};
    tdm_error err = {0};
    if (h.ops->tensor_size(op_rig_device(rig), desc, &h.size, &err) != TDM_OK) {
        fail_msg("%s", err.message);
    }
    tdm_buffer_params params = {.struct_size = sizeof params, .size = h.size + 2 * GUARD};
    assert_int_equal(h.ops->alloc(op_rig_device(rig), &params, &h.buffer, &err), TDM_OK);
    memset(h.ops->host_pointer(h.buffer, TDM_ACCESS_READ | TDM_ACCESS_WRITE), 0xa5,
           h.size + 2 * GUARD);
    return h;
}

static void held_destroy(held *h) {
    const uint8_t *bytes = h->ops->host_pointer(h->buffer, TDM_ACCESS_READ | TDM_ACCESS_WRITE);
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(bytes[i], 0xa5);
        assert_int_equal(bytes[GUARD + h->size + (uint64_t)i], 0xa5);
    }
    h->ops->free(h->buffer);
}

typedef struct piece {
    int64_t row, n_row, col, n_col;
} piece;

static tdm_status piece_try(held *h, uint8_t *canonical, const piece *p, bool is_upload,
                            tdm_error *err) {
    size_t pitch = tdm_type_row_size(h->desc.type, h->desc.ne[0]);
    uint8_t *at = canonical + pitch * (size_t)p->row + tdm_type_row_size(h->desc.type, p->col);
    return is_upload ? h->ops->tensor_upload(h->buffer, GUARD, &h->desc, at, pitch, p->row,
                                             p->n_row, p->col, p->n_col, err)
                     : h->ops->tensor_download(h->buffer, GUARD, &h->desc, at, pitch, p->row,
                                               p->n_row, p->col, p->n_col, err);
}

static void piece_move(held *h, uint8_t *canonical, const piece *p, bool is_upload) {
    tdm_error err = {0};
    if (piece_try(h, canonical, p, is_upload, &err) != TDM_OK) fail_msg("%s", err.message);
}

/* Cuts rows and columns into random pieces and moves them in a random order. */
static void pieces_move(uint64_t *seed, held *h, uint8_t *canonical, bool is_upload) {
    int64_t n_row = tdm_shape_rows(h->desc.ne), len = tdm_type_get_info(h->desc.type).block_len;
    int64_t n_block = h->desc.ne[0] / len;
    piece *pieces = made_alloc((size_t)(n_row * n_block) * sizeof *pieces);
    int64_t n = 0;
    for (int64_t row = 0; row < n_row;) {
        int64_t rows = 1 + (int64_t)(op_random_next(seed) % 23); /* also whole groups */
        if (rows > n_row - row) rows = n_row - row;
        for (int64_t b = 0; b < n_block;) {
            int64_t blocks = 1 + (int64_t)(op_random_next(seed) % (uint64_t)n_block);
            if (blocks > n_block - b) blocks = n_block - b;
            pieces[n++] = (piece){row, rows, b * len, blocks * len};
            b += blocks;
        }
        row += rows;
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        int64_t other = (int64_t)(op_random_next(seed) % (uint64_t)(i + 1));
        piece_move(h, canonical, &pieces[other], is_upload);
        pieces[other] = pieces[i];
    }
    free(pieces);
}

static void test_round_trip(void **state) {
    rigs *r = *state;
    uint64_t seed = 31;
    print_message("seed %llu\n", (unsigned long long)seed);
    static const uint32_t usages[] = {TDM_USAGE_MATMUL, TDM_USAGE_MATMUL | TDM_USAGE_ROWS,
                                      TDM_USAGE_ROWS, TDM_USAGE_EXPERT, 0};
    for (int i = 0; i < N_RIG; i++) {
        for (int t = 0; t < MADE_TYPES && r->rig[i] != NULL; t++) {
            for (int u = 0; u < 5; u++) {
                int64_t len = tdm_type_get_info(made_types[t]).block_len;
                int64_t k = len > 1 ? 11 * len : 101, n = 1 + (int64_t)(op_random_next(&seed) % 40);
                tdm_tensor_desc desc = {sizeof desc,
                                        made_types[t],
                                        usages[u],
                                        {k, n, usages[u] == TDM_USAGE_EXPERT ? 3 : 1, 1}};
                int64_t n_row = tdm_shape_rows(desc.ne);
                size_t size = tdm_tensor_canonical_size(desc.type, desc.ne);
                uint8_t *want = made_alloc(size), *got = made_alloc(size);
                for (size_t b = 0; b < size; b++) want[b] = (uint8_t)(op_random_next(&seed) >> 40);
                held h = held_create(r->rig[i], &desc);
                int lane = usages[u] & (TDM_USAGE_MATMUL | TDM_USAGE_EXPERT) ? rig_lane[i] : 1;
                assert_int_equal(h.size, size / (size_t)n_row * (size_t)desc.ne[2] *
                                             (size_t)((n + lane - 1) / lane * lane));
                pieces_move(&seed, &h, want, true);
                memset(got, 0, size);
                pieces_move(&seed, &h, got, false);
                assert_memory_equal(got, want, size);
                /* And all at once: whole groups take the way that is meant for them. */
                for (size_t b = 0; b < size; b++) want[b] ^= (uint8_t)(b * 7 + 1);
                piece_move(&h, want, &(piece){0, n_row, 0, k}, true);
                memset(got, 0, size);
                pieces_move(&seed, &h, got, false);
                assert_memory_equal(got, want, size);
                held_destroy(&h);
                free(want);
                free(got);
            }
        }
    }
}

/* Parts large enough for all threads of a device to take them up together, from several threads of
 * the caller at once: the pool is then busy for some. */
typedef struct large {
    held *h;
    uint8_t *canonical;
    piece part;
    tdm_status status;
} large;

static void *large_upload(void *arg) {
    large *l = arg;
    l->status = piece_try(l->h, l->canonical, &l->part, true, NULL);
    return NULL;
}

static void test_large_parts(void **state) {
    enum { N_PART = 3, PART_ROWS = 700, COLUMNS = 2048 };
    uint64_t seed = 32;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    static const uint32_t usages[] = {TDM_USAGE_MATMUL, TDM_USAGE_ROWS, 0};
    for (int i = 0; i < N_RIG; i++) {
        op_rig *rig = op_rig_open(rig_isa[i], rig_path[i], 3);
        for (int u = 0; u < 3 && rig != NULL; u++) {
            tdm_tensor_desc desc = {
                sizeof desc, TDM_TYPE_Q8_0, usages[u], {COLUMNS, N_PART * PART_ROWS + 1, 1, 1}};
            size_t size = tdm_tensor_canonical_size(desc.type, desc.ne);
            uint8_t *want = made_alloc(size), *got = made_alloc(size);
            for (size_t b = 0; b < size; b++) want[b] = (uint8_t)(op_random_next(&seed) >> 40);
            held h = held_create(rig, &desc);
            large parts[N_PART];
            pthread_t threads[N_PART];
            for (int p = 0; p < N_PART; p++) {
                int64_t n = PART_ROWS + (p == N_PART - 1);
                parts[p] = (large){&h, want, {p * PART_ROWS, n, 0, COLUMNS}, TDM_OK};
                assert_int_equal(pthread_create(&threads[p], NULL, large_upload, &parts[p]), 0);
            }
            for (int p = 0; p < N_PART; p++) {
                pthread_join(threads[p], NULL);
                assert_int_equal(parts[p].status, TDM_OK);
            }
            piece_move(&h, got, &(piece){0, desc.ne[1], 0, COLUMNS}, false);
            assert_memory_equal(got, want, size);
            held_destroy(&h);
            free(want);
            free(got);
        }
        if (rig != NULL) op_rig_close(rig);
    }
}

/* A part that is not inside the tensor, or cuts a block, is refused and changes nothing. */
static void test_bad_parts(void **state) {
    rigs *r = *state;
    static const piece bad[] = {
        {-1, 1, 0, 32}, {0, 6, 0, 32}, {5, 1, 0, 32},  {0, 1, -32, 32},       {0, 1, 0, 96},
        {0, 1, 16, 32}, {0, 1, 0, 31}, {0, -1, 0, 32}, {INT64_MAX, 1, 0, 32}, {0, 1, 0, INT64_MAX}};
    uint8_t bytes[5 * 36] = {0};
    for (int i = 0; i < N_RIG; i++) {
        if (r->rig[i] == NULL) continue;
        tdm_tensor_desc desc = {sizeof desc, TDM_TYPE_Q4_0, TDM_USAGE_MATMUL, {64, 5, 1, 1}};
        held h = held_create(r->rig[i], &desc);
        for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
            tdm_error err = {0};
            tdm_status status = h.ops->tensor_upload(h.buffer, GUARD, &desc, bytes, 36, bad[b].row,
                                                     bad[b].n_row, bad[b].col, bad[b].n_col, &err);
            assert_true(status == TDM_OUT_OF_RANGE || status == TDM_INVALID_ARGUMENT);
            assert_true(err.message[0] != 0);
            status = h.ops->tensor_download(h.buffer, GUARD, &desc, bytes, 36, bad[b].row,
                                            bad[b].n_row, bad[b].col, bad[b].n_col, NULL);
            assert_int_not_equal(status, TDM_OK);
        }
        const uint8_t *kept = h.ops->host_pointer(h.buffer, TDM_ACCESS_READ | TDM_ACCESS_WRITE);
        for (uint64_t b = 0; b < h.size; b++) assert_int_equal(kept[GUARD + b], 0xa5);
        held_destroy(&h);
    }
}

static void test_bad_tensors(void **state) {
    rigs *r = *state;
    const tdm_tensor_desc bad[] = {
        {sizeof bad[0], TDM_TYPE_I32, TDM_USAGE_MATMUL, {32, 4, 1, 1}},
        {sizeof bad[0], (tdm_type)5, TDM_USAGE_MATMUL, {32, 4, 1, 1}},
        {sizeof bad[0], (tdm_type)-1, TDM_USAGE_ROWS, {32, 4, 1, 1}},
        {sizeof bad[0], TDM_TYPE_Q4_0, TDM_USAGE_MATMUL, {31, 4, 1, 1}},
        {sizeof bad[0], TDM_TYPE_Q4_0, TDM_USAGE_MATMUL, {-32, 4, 1, 1}},
        {sizeof bad[0], TDM_TYPE_Q4_0, TDM_USAGE_MATMUL, {32, -4, 1, 1}},
        {sizeof bad[0], TDM_TYPE_F32, TDM_USAGE_MATMUL, {INT64_C(1) << 40, INT64_C(1) << 40, 1, 1}},
        {sizeof bad[0], TDM_TYPE_F32, TDM_USAGE_EXPERT, {4, 4, INT64_C(1) << 40, INT64_C(1) << 40}},
    };
    for (int i = 0; i < N_RIG; i++) {
        if (r->rig[i] == NULL) continue;
        for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
            uint64_t size = 77;
            tdm_error err = {0};
            tdm_status status = op_rig_plugin(r->rig[i])->buffer->tensor_size(
                op_rig_device(r->rig[i]), &bad[b], &size, &err);
            assert_int_not_equal(status, TDM_OK);
            assert_true(err.message[0] != 0);
            assert_int_equal(size, 77);
        }
    }
}

/* GET_ROWS reads exact values out of the layout that matmul has. */
static void test_rows(void **state) {
    rigs *r = *state;
    uint64_t seed = 32;
    enum { N = 21 };
    static int32_t ids[] = {0, 20, 7, 8, 15, 16, -1, 21, 3};
    enum { M = sizeof ids / sizeof ids[0] };
    for (int t = 0; t < MADE_TYPES; t++) {
        int64_t len = tdm_type_get_info(made_types[t]).block_len, k = len > 1 ? 3 * len : 301;
        uint8_t *w = made_weight_create(&seed, made_types[t], MADE_RANDOM, k, N);
        float *got = made_alloc((size_t)k * M * sizeof *got),
              *want = made_alloc((size_t)k * sizeof *want);
        for (int u = 0; u < 2; u++) {
            tdm_builder *b = NULL;
            tdm_graph *graph = NULL;
            tdm_error err = {0};
            int64_t w_ne[] = {k, N, 1, 1}, id_ne[] = {M, 1, 1, 1};
            assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
            int32_t wv =
                tdm_build_weight(b, "w", made_types[t], w_ne,
                                 u == 0 ? TDM_USAGE_ROWS : TDM_USAGE_ROWS | TDM_USAGE_MATMUL);
            int32_t id = tdm_build_input(b, "id", TDM_TYPE_I32, id_ne);
            int32_t y = tdm_build_get_rows(b, wv, id, 0);
            tdm_build_output(b, y, "y");
            if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
            tdm_builder_destroy(b);
            op_arg args[] = {
                {.value = wv, .data = w}, {.value = id, .data = ids}, {.value = y, .data = got}};
            for (int i = 0; i < N_RIG; i++) {
                if (r->rig[i] == NULL) continue;
                op_rig_run(r->rig[i], graph, args, 3);
                for (int j = 0; j < M; j++) {
                    memset(want, 0, (size_t)k * sizeof *want);
                    if (ids[j] >= 0 && ids[j] < N)
                        made_weight_row(made_types[t], w, k, ids[j], want);
                    assert_memory_equal(got + j * k, want, (size_t)k * sizeof *want);
                }
            }
            tdm_graph_free(graph);
        }
        free(w);
        free(got);
        free(want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_large_parts),
        cmocka_unit_test(test_bad_parts),  cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests_name("weight", tests, setup, teardown);
}
