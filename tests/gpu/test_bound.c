/* SPDX-License-Identifier: MIT
 *
 * test_bound.c: what GPU plugins share of binding a plan to memory, without any driver: the checks
 * of bindings, the addresses of operands, and scratch that plans of a queue share.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/gpu/queue/bound.h"

struct tdm_buffer {
    gpu_place place;
};

/* ---- Memory that counts ---------------------------------------------------------------------- */

typedef struct fake_memory {
    uint64_t size;
} fake_memory;

static int n_alive;
static uint64_t next_address = 0x10000, limit = UINT64_MAX;

static tdm_status fake_alloc(void *context, uint64_t size, void *memory, uint64_t *address_out,
                             tdm_error *err) {
    fake_memory *m = memory;
    assert_ptr_equal(context, &n_alive);
    assert_int_equal(m->size, 0);
    if (size > limit)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%llu", (unsigned long long)size);
    m->size = size;
    *address_out = next_address;
    next_address += 0x10000;
    n_alive++;
    return TDM_OK;
}

static void fake_free(void *context, void *memory) {
    assert_ptr_equal(context, &n_alive);
    assert_int_not_equal(((fake_memory *)memory)->size, 0);
    n_alive--;
}

static const gpu_scratch_driver driver = {
    .memory_size = sizeof(fake_memory), .alloc = fake_alloc, .free = fake_free};

/* ---- Plans ----------------------------------------------------------------------------------- */

enum { N_SLOT = 3 };
static int devices[2];
static const tdm_device *const device = (const tdm_device *)(const void *)&devices[0];
static tdm_buffer buffers[2];

static void bound_make(gpu_bound *bound, gpu_scratch_pool *pool, uint64_t scratch_size) {
    static const uint64_t sizes[N_SLOT] = {512, 0, 64}; /* slot 1 is not used */
    gpu_plan *steps = calloc(1, sizeof *steps);
    assert_non_null(steps);
    steps->n_slot = N_SLOT;
    steps->slot_sizes = malloc(sizeof sizes);
    assert_non_null(steps->slot_sizes);
    memcpy(steps->slot_sizes, sizes, sizeof sizes);
    steps->scratch_size = scratch_size;
    assert_int_equal(gpu_bound_init(bound, steps, pool, NULL), TDM_OK);
    bound->constants = 0x700;
    bound->counters = 0x900;
    for (int i = 0; i < 2; i++) buffers[i].place = (gpu_place){device, 0x100000u << i, 4096};
}

static gpu_place buffer_place(const tdm_buffer *buffer) {
    return buffer->place;
}

static const tdm_binding good[N_SLOT] = {
    {&buffers[0], 256, 512}, {NULL, 0, 0}, {&buffers[1], 4096 - 256, 256}};

static tdm_status bind(gpu_bound *bound, const tdm_binding *bindings, int32_t n, tdm_error *err) {
    return gpu_bound_bind(bound, device, buffer_place, bindings, n, err);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void test_checks(void **state) {
    (void)state;
    static const struct {
        tdm_binding slot;
        tdm_status status;
        const char *text;
    } bad[] = {
        {{NULL, 0, 512}, TDM_INVALID_ARGUMENT, "card: slot 0 has no buffer"},
        {{&buffers[0], 0, 511}, TDM_INVALID_ARGUMENT, "bound to 511 bytes and needs 512"},
        {{&buffers[0], 3840, 512}, TDM_OUT_OF_RANGE, "512 bytes at 3840 are not inside"},
        {{&buffers[0], UINT64_MAX - 255, 512}, TDM_OUT_OF_RANGE, "not inside a buffer of 4096"},
        {{&buffers[0], 128, 512}, TDM_INVALID_ARGUMENT, "offset 128 is not a multiple of 256"},
    };
    gpu_scratch_pool pool, other;
    gpu_bound bound;
    gpu_scratch_pool_init(&pool, &driver, &n_alive, "card");
    gpu_scratch_pool_init(&other, &driver, &n_alive, "card");
    bound_make(&bound, &pool, 0);
    assert_int_equal(gpu_bound_check(&bound, &pool, NULL), TDM_FAILED_PRECONDITION);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tdm_binding bindings[N_SLOT];
        tdm_error err = {0};
        assert_int_equal(bind(&bound, good, N_SLOT, &err), TDM_OK);
        memcpy(bindings, good, sizeof good);
        bindings[0] = bad[i].slot;
        assert_int_equal(bind(&bound, bindings, N_SLOT, &err), bad[i].status);
        if (strstr(err.message, bad[i].text) == NULL) fail_msg("%s", err.message);
        assert_int_equal(gpu_bound_check(&bound, &pool, NULL), TDM_FAILED_PRECONDITION);
    }
    assert_int_equal(bind(&bound, good, N_SLOT - 1, NULL), TDM_INVALID_ARGUMENT);
    buffers[1].place.device = (const tdm_device *)(const void *)&devices[1];
    assert_int_equal(bind(&bound, good, N_SLOT, NULL), TDM_INVALID_ARGUMENT);
    buffers[1].place.device = device;
    assert_int_equal(bind(&bound, good, N_SLOT, NULL), TDM_OK);
    assert_int_equal(gpu_bound_check(&bound, &pool, NULL), TDM_OK);
    assert_int_equal(gpu_bound_check(&bound, &other, NULL), TDM_FAILED_PRECONDITION);
    gpu_bound_free(&bound);
    gpu_bound_free(&bound); /* nothing is left */
    gpu_scratch_pool_destroy(&pool);
    gpu_scratch_pool_destroy(&other);
    assert_int_equal(n_alive, 0);
}

static void test_addresses(void **state) {
    (void)state;
    gpu_scratch_pool pool;
    gpu_bound bound;
    gpu_args args;
    gpu_step step = {.operand = {{GPU_SPACE_SLOT, 0, 8, 4},
                                 {GPU_SPACE_SCRATCH, 7, 16, 4},
                                 {GPU_SPACE_CONSTANT, 0, 32, 4},
                                 {GPU_SPACE_NONE, 0, 64, 4},
                                 {GPU_SPACE_SLOT, 2, 0, 4},
                                 {GPU_SPACE_COUNTER, 0, 12, 4}},
                     .word = {5, -6}};
    gpu_scratch_pool_init(&pool, &driver, &n_alive, "card");
    bound_make(&bound, &pool, 1000);
    assert_int_equal(bind(&bound, good, N_SLOT, NULL), TDM_OK);
    gpu_bound_args(&bound, &step, &args);
    const uint64_t expected[GPU_MAX_OPERAND] = {
        0x100000 + 256 + 8, bound.scratch->address + 16, 0x700 + 32, 0, 0x200000 + 4096 - 256,
        0x900 + 12};
    assert_memory_equal(args.address, expected, sizeof expected);
    assert_memory_equal(args.word, step.word, sizeof args.word);
    gpu_bound_free(&bound);
    gpu_scratch_pool_destroy(&pool);
    assert_int_equal(n_alive, 0);
}

/* The pool gives its largest piece to all plans; an older piece lives as long as a bound plan has
 * it. */
static void test_scratch(void **state) {
    (void)state;
    gpu_scratch_pool pool;
    gpu_bound small, equal, large;
    gpu_scratch_pool_init(&pool, &driver, &n_alive, "card");
    bound_make(&small, &pool, 1000);
    bound_make(&equal, &pool, 999);
    assert_int_equal(bind(&small, good, N_SLOT, NULL), TDM_OK);
    assert_int_equal(bind(&equal, good, N_SLOT, NULL), TDM_OK);
    assert_ptr_equal(small.scratch, equal.scratch);
    assert_int_equal(n_alive, 1);
    bound_make(&large, &pool, 1001);
    limit = 1000;
    tdm_error err = {0};
    assert_int_equal(bind(&large, good, N_SLOT, &err), TDM_RESOURCE_EXHAUSTED);
    assert_string_equal(err.message, "1001");
    assert_int_equal(n_alive, 1);
    limit = UINT64_MAX;
    assert_int_equal(bind(&large, good, N_SLOT, NULL), TDM_OK);
    assert_int_equal(n_alive, 2);
    assert_ptr_not_equal(small.scratch, large.scratch);
    gpu_bound_unbind(&small);
    assert_int_equal(n_alive, 2); /* `equal` still has it */
    assert_int_equal(bind(&equal, good, N_SLOT, NULL), TDM_OK);
    assert_ptr_equal(equal.scratch, large.scratch);
    assert_int_equal(n_alive, 1);
    gpu_bound_free(&large);
    gpu_bound_free(&equal);
    gpu_bound_free(&small);
    assert_int_equal(n_alive, 1); /* the pool's */
    gpu_scratch_pool_destroy(&pool);
    assert_int_equal(n_alive, 0);
}

/* The first piece has room for all plans that are prepared, where there is memory for that. */
static void test_expected_scratch(void **state) {
    (void)state;
    for (int has_memory = 0; has_memory < 2; has_memory++) {
        gpu_scratch_pool pool;
        gpu_bound small, large;
        gpu_scratch_pool_init(&pool, &driver, &n_alive, "card");
        bound_make(&small, &pool, 1000);
        bound_make(&large, &pool, 1001);
        limit = has_memory ? UINT64_MAX : 1000;
        assert_int_equal(bind(&small, good, N_SLOT, NULL), TDM_OK);
        assert_int_equal(small.scratch->size, has_memory ? 1001 : 1000);
        limit = UINT64_MAX;
        assert_int_equal(bind(&large, good, N_SLOT, NULL), TDM_OK);
        assert_int_equal(n_alive, has_memory ? 1 : 2);
        gpu_bound_free(&large);
        gpu_bound_free(&small);
        gpu_scratch_pool_destroy(&pool);
        assert_int_equal(n_alive, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_expected_scratch),
    };
    return cmocka_run_group_tests_name("gpu_bound", tests, NULL, NULL);
}
