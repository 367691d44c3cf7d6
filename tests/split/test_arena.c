/* SPDX-License-Identifier: MIT
 *
 * test_arena.c: the memory of exchanges (plugins/meta/exchange/arena.c and peer.c): it grows,
 * moves, is imported where it must be and stays whole when a member refuses. Imports of peer memory
 * are freed before the home's buffer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/meta/exchange/arena.h"

/* A member that counts its imports. */
struct tdm_buffer {
    uint8_t *data;
    uint64_t size;
    bool is_used;
    tdm_buffer *home; /* of an import of peer memory */
    int n_import;     /* of a home */
};

static tdm_buffer imports[16];
static int n_refusal; /* imports from now on until one is refused; 0 = never */

static tdm_status import_host(tdm_device *device, void *ptr, uint64_t size,
                              tdm_import_info *info_out, tdm_buffer **buffer_out, tdm_error *err) {
    (void)device;
    (void)info_out;
    if (n_refusal > 0 && --n_refusal == 0)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no more imports");
    for (int i = 0; i < 16; i++) {
        if (imports[i].is_used) continue;
        imports[i] = (tdm_buffer){.data = ptr, .size = size, .is_used = true};
        *buffer_out = &imports[i];
        return TDM_OK;
    }
    return tdm_fail(err, TDM_INTERNAL, "too many imports");
}

static void import_free(tdm_buffer *buffer) {
    assert_true(buffer->is_used);
    assert_int_equal(buffer->n_import, 0);
    if (buffer->home != NULL) {
        assert_true(buffer->home->is_used);
        buffer->home->n_import--;
    }
    buffer->is_used = false;
}

static tdm_status home_alloc(tdm_device *device, const tdm_buffer_params *params,
                             tdm_buffer **buffer_out, tdm_error *err) {
    assert_int_equal(params->purpose, TDM_BUFFER_ARENA);
    return import_host(device, NULL, params->size, NULL, buffer_out, err);
}

static tdm_status home_fill(tdm_buffer *buffer, uint64_t off, uint64_t size, uint8_t byte,
                            tdm_error *err) {
    (void)err;
    assert_true(buffer->is_used && off + size <= buffer->size && byte == 0);
    return TDM_OK;
}

static tdm_status import_peer(tdm_device *device, tdm_buffer *home, tdm_buffer **buffer_out,
                              tdm_error *err) {
    tdm_status status = import_host(device, NULL, home->size, NULL, buffer_out, err);
    if (status != TDM_OK) return status;
    (*buffer_out)->home = home;
    home->n_import++;
    return TDM_OK;
}

static int n_import(void) {
    int n = 0;
    for (int i = 0; i < 16; i++) n += imports[i].is_used;
    return n;
}

static const tdm_buffer_ops buffer_ops = {.struct_size = sizeof buffer_ops,
                                          .alloc = home_alloc,
                                          .free = import_free,
                                          .fill = home_fill,
                                          .import_host = import_host,
                                          .import_peer = import_peer};
static const tdm_plugin plugin = {
    .struct_size = sizeof plugin, .name = "counting", .buffer = &buffer_ops};

/* Four members: two exchange in their plans, one does not, one has no share. */
static void device_make(meta_device *device, meta_arena *arena) {
    memset(device, 0, sizeof *device);
    memset(arena, 0, sizeof *arena);
    memset(imports, 0, sizeof imports);
    n_refusal = 0;
    device->arena = arena;
    device->n_member = 4;
    device->n_active = 3;
    for (int i = 0; i < 4; i++) {
        device->members[i].name = (const char *[]){"a", "b", "c", "d"}[i];
        device->members[i].acquired.plugin = &plugin;
        device->members[i].share = i < 3 ? 0.25 : 0;
        device->members[i].exchange = i == 0   ? META_EXCHANGE_IN_PLAN
                                      : i == 1 ? META_EXCHANGE_BY_HOST
                                               : META_EXCHANGE_IN_PHASES;
    }
}

static void test_grows(void **state) {
    meta_device device;
    meta_arena arena;
    (void)state;
    device_make(&device, &arena);
    assert_int_equal(meta_arena_reserve(&device, 100, NULL), TDM_OK);
    assert_true(arena.size >= 100 && arena.size % 4096 == 0);
    assert_int_equal((uintptr_t)arena.data % 4096, 0);
    assert_int_equal(n_import(), 2);
    assert_null(device.members[1].arena);
    assert_null(device.members[3].arena);
    uint32_t generation = device.generation;
    memset(arena.data, 0xff, (size_t)arena.size);
    /* Nothing to do is nothing done. */
    assert_int_equal(meta_arena_reserve(&device, 100, NULL), TDM_OK);
    assert_int_equal(device.generation, generation);
    assert_int_equal(arena.data[0], 0xff);
    /* A larger one is fresh: no flag of the old one is in it. */
    assert_int_equal(meta_arena_reserve(&device, 1 << 20, NULL), TDM_OK);
    assert_true(device.generation != generation);
    for (uint64_t i = 0; i < arena.size; i++) assert_int_equal(arena.data[i], 0);
    assert_int_equal(n_import(), 2);
    assert_ptr_equal(device.members[0].arena->data, arena.data);
    assert_int_equal(device.members[2].arena->size, arena.size);
    meta_arena_release(&device);
    assert_int_equal(n_import(), 0);
    assert_null(arena.data);
    meta_arena_release(&device);
}

/* Address and size are multiples of what the members demand, also where that is more than a
 * page. */
static void test_alignment(void **state) {
    meta_device device;
    meta_arena arena;
    (void)state;
    device_make(&device, &arena);
    device.members[0].info.import_align = 1 << 20;
    device.members[2].info.import_align = 65536;
    device.members[1].info.import_align = 1 << 30; /* more than any member gets */
    device.members[3].info.import_align = 2 << 20; /* without a share */
    assert_int_equal(meta_arena_align(&device), 1 << 20);
    for (uint64_t size = 100; size < 20000000; size *= 20) {
        assert_int_equal(meta_arena_reserve(&device, size, NULL), TDM_OK);
        assert_int_equal((uintptr_t)arena.data % (1 << 20), 0);
        assert_int_equal(arena.size % (1 << 20), 0);
        arena.data[0] = arena.data[arena.size - 1] = 1;
        meta_arena_release(&device);
    }
}

/* A member trusted after the arena was made gets it, too. */
static void test_imports_later(void **state) {
    meta_device device;
    meta_arena arena;
    (void)state;
    device_make(&device, &arena);
    device.members[0].exchange = device.members[2].exchange = META_EXCHANGE_BY_HOST;
    assert_int_equal(meta_arena_reserve(&device, 64, NULL), TDM_OK);
    assert_int_equal(n_import(), 0);
    uint32_t generation = device.generation;
    device.members[2].exchange = META_EXCHANGE_IN_PHASES;
    assert_int_equal(meta_arena_reserve(&device, 64, NULL), TDM_OK);
    assert_int_equal(n_import(), 1);
    assert_true(device.generation != generation);
    meta_arena_release(&device);
}

static void test_refused(void **state) {
    meta_device device;
    meta_arena arena;
    (void)state;
    device_make(&device, &arena);
    assert_int_equal(meta_arena_reserve(&device, 64, NULL), TDM_OK);
    uint8_t *data = arena.data;
    for (int n = 1; n <= 2; n++) {
        tdm_error err = {0};
        n_refusal = n;
        assert_int_equal(meta_arena_reserve(&device, 1 << 20, &err), TDM_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(err.message, n == 1 ? "'a'" : "'c'"));
        assert_ptr_equal(arena.data, data);
        assert_int_equal(n_import(), 2);
        assert_ptr_equal(device.members[0].arena->data, data);
    }
    n_refusal = 0;
    assert_int_equal(meta_arena_reserve(&device, UINT64_MAX - 8, NULL), TDM_RESOURCE_EXHAUSTED);
    assert_int_equal(meta_arena_reserve(&device, 1 << 20, NULL), TDM_OK);
    meta_arena_release(&device);
    assert_int_equal(n_import(), 0);
}

static void test_abort_word(void **state) {
    meta_device device;
    meta_arena arena;
    uint64_t word;
    (void)state;
    device_make(&device, &arena);
    meta_arena_abort(&device); /* without an arena this is a no-op */
    assert_int_equal(meta_arena_reserve(&device, 64, NULL), TDM_OK);
    meta_arena_abort(&device);
    memcpy(&word, arena.data, sizeof word);
    assert_true(word != 0);
    meta_arena_calm(&device);
    memcpy(&word, arena.data, sizeof word);
    assert_true(word == 0);
    meta_arena_release(&device);
}

/* Peer memory of member b, for three members; d has no share. */
static void test_peer(void **state) {
    meta_device device;
    meta_arena arena;
    tdm_error err = {0};
    (void)state;
    device_make(&device, &arena);
    for (int i = 0; i < 3; i++) device.members[i].exchange = META_EXCHANGE_IN_PLAN;
    assert_false(meta_uses_peer(&device));
    device.home = &device.members[1];
    assert_true(meta_uses_peer(&device));
    device.members[2].exchange = META_EXCHANGE_IN_PHASES;
    assert_false(meta_uses_peer(&device));
    device.members[2].exchange = META_EXCHANGE_IN_PLAN;
    assert_int_equal(meta_arena_reserve(&device, 64, NULL), TDM_OK);
    assert_int_equal(meta_arena_reserve_peer(&device, 1000, NULL), TDM_OK);
    assert_int_equal(n_import(), 3 + 3);
    assert_ptr_equal(arena.peer.buffers[0]->home, arena.peer.buffers[1]);
    assert_null(arena.peer.buffers[1]->home);
    assert_null(arena.peer.buffers[3]);
    uint32_t generation = device.generation;
    assert_int_equal(meta_arena_reserve_peer(&device, 1000, NULL), TDM_OK);
    assert_int_equal(device.generation, generation);
    arena.n_exchange = 2;
    assert_int_equal(meta_arena_clear(&device, NULL), TDM_OK);
    /* A refusal, of the home's memory or of an import, leaves the old one. */
    for (int n = 1; n <= 3; n++) {
        n_refusal = n;
        assert_int_equal(meta_arena_reserve_peer(&device, 2000, &err), TDM_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(err.message, n == 1 ? "'b'" : n == 2 ? "'a'" : "'c'"));
        assert_non_null(strstr(err.message, "exchange-memory = host"));
        assert_int_equal(arena.peer.size, 1000);
        assert_int_equal(n_import(), 3 + 3);
    }
    n_refusal = 0;
    assert_int_equal(meta_arena_reserve_peer(&device, 2000, NULL), TDM_OK);
    assert_true(device.generation != generation);
    assert_int_equal(arena.peer.size, 2000);
    assert_int_equal(n_import(), 3 + 3);
    meta_arena_release(&device);
    assert_int_equal(n_import(), 0);
    assert_int_equal(meta_arena_clear(&device, NULL), TDM_OK);
}

static void test_round_up(void **context) {
    (void)context;
    assert_true(meta_round_up(0, 64) == 0 && meta_round_up(1, 64) == 64);
    assert_true(meta_round_up(64, 64) == 64 && meta_round_up(65, 64) == 128);
    assert_true(meta_round_up(7, 3) == 9 && meta_round_up(7, 1) == 7);
    assert_true(meta_round_up(UINT64_MAX - 63, 64) == UINT64_MAX - 63);
    assert_true(meta_round_up(UINT64_MAX - 62, 64) == UINT64_MAX);
    assert_true(meta_round_up(UINT64_MAX, 4096) == UINT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer),      cmocka_unit_test(test_grows),
        cmocka_unit_test(test_alignment), cmocka_unit_test(test_imports_later),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_abort_word),
        cmocka_unit_test(test_round_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
