/* SPDX-License-Identifier: MIT
 *
 * test_weight_layout.c: the planes in which GPU plugins keep weights. A download gives the
 * canonical bytes. Parts may be uploaded in any order, and each part changes only its own bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/gpu/layout/weight.h"
#include "tests/support/random.h"

#define SEED 9091u

static const tdm_type types[] = {
#define TYPE_FLOAT(ID) TDM_TYPE_##ID,
#define TYPE_BLOCK     TYPE_FLOAT
#define TYPE_INTEGER(ID)
#define TYPE_(ID, name, number, kind, ...) TYPE_##kind(ID)
    TDM_TYPE_LIST(TYPE_)};
enum { N_TYPE = sizeof types / sizeof types[0], N_BLOCK = 5, N_ROW = 7, GUARD = 64, FILL = 0xa5 };

/* A tensor [5 blocks, 7 rows of two matrices], its canonical bytes and its image in the layout. */
typedef struct tensor {
    gpu_weight_layout layout;
    size_t row_size;
    uint8_t *canonical, *image; /* the image stands between two guards */
} tensor;

static tensor tensor_make(uint64_t *seed, tdm_type type, uint32_t usage) {
    const int64_t ne[] = {N_BLOCK * tdm_type_get_info(type).block_len, N_ROW, 2, 1};
    tensor t;
    tdm_error err = {.struct_size = sizeof err};
    if (gpu_weight_layout_get(type, ne, usage, &t.layout, &err) != TDM_OK)
        fail_msg("%s: %s", tdm_type_name(type), err.message);
    t.row_size = tdm_type_row_size(type, ne[0]);
    t.canonical = malloc(t.row_size * 2 * N_ROW);
    t.image = malloc(t.layout.size + 2 * GUARD);
    assert_non_null(t.canonical);
    assert_non_null(t.image);
    for (size_t i = 0; i < t.row_size * 2 * N_ROW; i++) t.canonical[i] = (uint8_t)random_u64(seed);
    memset(t.image, FILL, t.layout.size + 2 * GUARD);
    return t;
}

static void tensor_free(tensor *t) {
    free(t->canonical);
    free(t->image);
}

/* The part of `step` rows and blocks from (row, block) on, less where the tensor ends. */
static gpu_weight_part part_at(int64_t row, int64_t block, int64_t step) {
    return (gpu_weight_part){row, row + step <= 2 * N_ROW ? step : 2 * N_ROW - row, block,
                             block + step <= N_BLOCK ? step : N_BLOCK - block};
}

static size_t canonical_off(const tensor *t, const gpu_weight_part *p) {
    return (size_t)p->row_first * t->row_size + (size_t)(p->block_first * t->layout.block_size);
}

/* Stores a part in the image. is_staged: through staging memory, as for memory of a device that the
 * host cannot write. */
static void part_store(tensor *t, const gpu_weight_part *p, bool is_staged) {
    const uint8_t *src = t->canonical + canonical_off(t, p);
    if (!is_staged) {
        gpu_weight_store(&t->layout, p, src, t->row_size, t->image + GUARD);
        return;
    }
    for (int plane = 0; plane < t->layout.n_plane; plane++) {
        uint8_t staging[16384];
        gpu_weight_runs runs = gpu_weight_runs_get(&t->layout, plane, p);
        assert_true((uint64_t)runs.n_run * runs.size <= sizeof staging);
        gpu_weight_pack(&t->layout, plane, p, src, t->row_size, staging);
        for (int64_t i = 0; i < runs.n_run; i++)
            memcpy(t->image + GUARD + runs.off + (uint64_t)i * runs.stride,
                   staging + (uint64_t)i * runs.size, runs.size);
    }
}

/* Parts from the last to the first, in both ways: the same image, with nothing beside it. */
static void parts_in_any_order(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int i = 0; i < N_TYPE; i++)
        for (uint32_t usage = 0; usage < 2; usage++) {
            tensor t = tensor_make(&seed, types[i], usage);
            size_t whole = t.layout.size + 2 * GUARD;
            uint8_t *first = malloc(whole);
            const gpu_weight_part all = {0, 2 * N_ROW, 0, N_BLOCK};
            assert_non_null(first);
            part_store(&t, &all, false);
            memcpy(first, t.image, whole);
            for (int is_staged = 0; is_staged < 2; is_staged++)
                for (int64_t step = 1; step < 4; step++) {
                    memset(t.image, FILL, whole);
                    for (int64_t row = 2 * N_ROW - 1; row >= 0; row--)
                        for (int64_t block = N_BLOCK - 1; block >= 0; block--) {
                            gpu_weight_part p = part_at(row, block, step);
                            part_store(&t, &p, is_staged);
                        }
                    if (memcmp(first, t.image, whole) != 0)
                        fail_msg("%s, usage %u: parts of %d give another image",
                                 tdm_type_name(types[i]), (unsigned)usage, (int)step);
                }
            for (int k = 0; k < GUARD; k++) {
                assert_int_equal(t.image[k], FILL);
                assert_int_equal(t.image[whole - 1 - (size_t)k], FILL);
            }
            free(first);
            tensor_free(&t);
        }
}

/* What comes back is what went in, as a whole and in parts through staging memory. */
static void canonical_bytes_come_back(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int i = 0; i < N_TYPE; i++) {
        tensor t = tensor_make(&seed, types[i], TDM_USAGE_MATMUL);
        const gpu_weight_part all = {0, 2 * N_ROW, 0, N_BLOCK};
        size_t size = t.row_size * 2 * N_ROW;
        uint8_t *back = malloc(size);
        assert_non_null(back);
        part_store(&t, &all, true);
        memset(back, FILL, size);
        gpu_weight_load(&t.layout, &all, t.image + GUARD, back, t.row_size);
        assert_memory_equal(back, t.canonical, size);
        memset(back, FILL, size);
        for (int64_t row = 0; row < 2 * N_ROW; row += 3)
            for (int64_t block = 0; block < N_BLOCK; block += 3) {
                gpu_weight_part p = part_at(row, block, 3);
                for (int plane = 0; plane < t.layout.n_plane; plane++) {
                    uint8_t staging[16384];
                    gpu_weight_runs runs = gpu_weight_runs_get(&t.layout, plane, &p);
                    for (int64_t r = 0; r < runs.n_run; r++)
                        memcpy(staging + (uint64_t)r * runs.size,
                               t.image + GUARD + runs.off + (uint64_t)r * runs.stride, runs.size);
                    gpu_weight_unpack(&t.layout, plane, &p, staging, back + canonical_off(&t, &p),
                                      t.row_size);
                }
            }
        assert_memory_equal(back, t.canonical, size);
        free(back);
        tensor_free(&t);
    }
}

/* The planes of a type hold each byte of a block once, begin at multiples of 16 and do not
 * overlap. */
static void planes_cover_blocks(void **state) {
    (void)state;
    for (int i = 0; i < N_TYPE; i++) {
        gpu_weight_layout l;
        bool is_held[256] = {false};
        const int64_t ne[] = {3 * tdm_type_get_info(types[i]).block_len, 5, 1, 1};
        uint64_t end = 0;
        assert_int_equal(gpu_weight_layout_get(types[i], ne, TDM_USAGE_ROWS, &l, NULL), TDM_OK);
        for (int p = 0; p < l.n_plane; p++) {
            assert_int_equal(l.planes[p].off % 16, 0);
            assert_true(l.planes[p].off >= end);
            end = l.planes[p].off + 15u * (uint64_t)l.planes[p].unit;
            for (int b = l.planes[p].block_off; b < l.planes[p].block_off + l.planes[p].unit; b++) {
                assert_true(b < l.block_size);
                assert_false(is_held[b]);
                is_held[b] = true;
            }
        }
        for (int b = 0; b < l.block_size; b++) assert_true(is_held[b]);
        assert_int_equal(l.size, end);
    }
}

static void refusals(void **state) {
    (void)state;
    gpu_weight_layout l = {.n_plane = 77};
    tdm_error err = {.struct_size = sizeof err};
    uint64_t size = 12345;
    const int64_t odd[] = {33, 2, 1, 1}, huge[] = {INT64_MAX / 32 * 32, INT64_MAX, 2, 1};
    const int64_t empty[] = {32, 0, 1, 1};
    assert_int_equal(gpu_weight_size(TDM_TYPE_I32, odd, 1, &size, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "i32"));
    assert_int_equal(gpu_weight_size((tdm_type)63, odd, 1, &size, &err), TDM_UNSUPPORTED);
    assert_int_equal(gpu_weight_size(TDM_TYPE_Q4_0, odd, 1, &size, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "33"));
    assert_int_equal(gpu_weight_layout_get(TDM_TYPE_Q4_0, huge, 1, &l, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(size, 12345);
    assert_int_equal(l.n_plane, 77);
    assert_int_equal(gpu_weight_size(TDM_TYPE_Q4_0, empty, 1, &size, &err), TDM_OK);
    assert_int_equal(size, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_in_any_order),
        cmocka_unit_test(canonical_bytes_come_back),
        cmocka_unit_test(planes_cover_blocks),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
