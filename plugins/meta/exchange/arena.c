/* SPDX-License-Identifier: MIT
 *
 * arena.c: allocates the arena and imports it into the members, and keeps the peer memory (peer.c)
 * that flags and data may lie in. exchange_host.c and the devices read and write its words;
 * compile.c computes the offsets and the size.
 *
 * The pages come from the system, not from the host's allocator: most flag lines are never used,
 * and unused pages of such a mapping are zero and take no memory.
 */
#include "plugins/meta/exchange/arena.h"

#include <string.h>
#include <sys/mman.h>

#include "plugins/meta/exec/stuck.h"

enum { PAGE = 4096, MAX_ALIGN = 2 << 20 };

uint64_t meta_arena_align(const meta_device *device) {
    uint64_t align = PAGE;
    for (int32_t d = 0; d < device->n_member; d++) {
        uint64_t own = device->members[d].info.import_align;
        if (meta_is_active(device, d) && own > align && own <= MAX_ALIGN) align = own;
    }
    return align;
}

/* Maps `size` bytes at a multiple of `align`: maps more and unmaps what is before and after. */
static uint8_t *pages_map(uint64_t size, uint64_t align) {
    if (size > SIZE_MAX / 2) return NULL;
    uint8_t *data = mmap(NULL, (size_t)(size + align - PAGE), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if ((void *)data == MAP_FAILED) return NULL;
    size_t before = (size_t)((align - (uintptr_t)data % align) % align);
    size_t after = (size_t)(align - PAGE) - before;
    if (before > 0) munmap(data, before);
    if (after > 0) munmap(data + before + size, after);
    return data + before;
}

static void imports_free(meta_device *device, tdm_buffer *const *imports) {
    for (int32_t d = 0; d < device->n_member; d++)
        if (imports[d] != NULL) meta_member_buffers(&device->members[d])->free(imports[d]);
}

/* Imports the memory into each member whose plans read and write it. imports_out[n_member]; NULL
 * for the others. */
static tdm_status imports_make(meta_device *device, uint8_t *data, uint64_t size, bool is_new,
                               tdm_buffer **imports_out, tdm_error *err) {
    for (int32_t d = 0; d < device->n_member; d++) imports_out[d] = NULL;
    for (int32_t d = 0; d < device->n_member; d++) {
        const meta_member *member = &device->members[d];
        tdm_error inner = {0};
        tdm_status status = TDM_UNSUPPORTED;
        if (!meta_is_active(device, d) || member->exchange == META_EXCHANGE_BY_HOST) continue;
        if (!is_new && member->arena != NULL) continue;
        if (TDM_HAS(meta_member_buffers(member), import_host))
            status = meta_member_buffers(member)->import_host(member->acquired.device, data, size,
                                                              NULL, &imports_out[d], &inner);
        else
            tdm_fail(&inner, status, "it imports no host memory");
        if (status == TDM_OK) continue;
        imports_out[d] = NULL;
        imports_free(device, imports_out);
        return tdm_fail(err, status, "member '%s': %llu bytes for exchanges: %s", member->name,
                        (unsigned long long)size, inner.message);
    }
    return TDM_OK;
}

/* A stuck member may still use the memory of all. */
static bool has_stuck_member(meta_device *device) {
    for (int32_t d = 0; d < device->n_member; d++)
        if (meta_member_is_stuck(device, d)) return true;
    return false;
}

tdm_status meta_arena_reserve(meta_device *device, uint64_t size, tdm_error *err) {
    meta_arena *arena = device->arena;
    tdm_buffer *imports[TDM_MAX_MEMBERS];
    bool is_new = size > arena->size, has_changed = is_new;
    uint8_t *data = arena->data;
    if (size > SIZE_MAX / 2)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for exchanges: %llu bytes",
                        (unsigned long long)size);
    const uint64_t align = meta_arena_align(device);
    size = is_new ? meta_round_up(size, align) : arena->size;
    if (is_new && (data = pages_map(size, align)) == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for exchanges: %llu bytes",
                        (unsigned long long)size);
    tdm_status status = imports_make(device, data, size, is_new, imports, err);
    if (status != TDM_OK) {
        if (is_new) munmap(data, (size_t)size);
        return status;
    }
    if (is_new) {
        meta_arena_release(device);
        arena->data = data;
        arena->size = size;
        memset(arena->seen_ns, 0, sizeof arena->seen_ns);
    }
    for (int32_t d = 0; d < device->n_member; d++) {
        if (imports[d] == NULL) continue;
        device->members[d].arena = imports[d];
        has_changed = true;
    }
    if (has_changed) atomic_fetch_add(&device->generation, 1);
    return TDM_OK;
}

tdm_status meta_arena_reserve_peer(meta_device *device, uint64_t size, tdm_error *err) {
    meta_arena *arena = device->arena;
    meta_peer peer;
    tdm_error inner = {0};
    if (size <= arena->peer.size) return TDM_OK;
    tdm_status status =
        meta_peer_open(device, (int32_t)(device->home - device->members), size, &peer, &inner);
    if (status != TDM_OK)
        return tdm_fail(err, status, "%.400s; exchange-memory = host takes none", inner.message);
    if (!has_stuck_member(device)) meta_peer_close(device, &arena->peer);
    arena->peer = peer;
    atomic_fetch_add(&device->generation, 1);
    return TDM_OK;
}

tdm_status meta_arena_clear(meta_device *device, tdm_error *err) {
    meta_arena *arena = device->arena;
    const uint64_t size = (uint64_t)arena->n_exchange * (uint64_t)device->n_active * 64;
    memset(arena->seen_ns, 0, sizeof arena->seen_ns);
    if (arena->data != NULL) memset(arena->data + META_ARENA_FLAGS, 0, (size_t)size);
    tdm_buffer *home = arena->peer.buffers[arena->peer.home];
    if (home == NULL || size == 0) return TDM_OK;
    return meta_member_buffers(&device->members[arena->peer.home])
        ->fill(home, META_ARENA_FLAGS, size, 0, err);
}

void meta_arena_release(meta_device *device) {
    meta_arena *arena = device->arena;
    bool is_in_use = has_stuck_member(device);
    if (!is_in_use) meta_peer_close(device, &arena->peer);
    arena->peer = (meta_peer){0};
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *member = &device->members[d];
        if (member->arena != NULL && !meta_member_is_stuck(device, d))
            meta_member_buffers(member)->free(member->arena);
        member->arena = NULL;
    }
    if (arena->data != NULL && !is_in_use) munmap(arena->data, (size_t)arena->size);
    arena->data = NULL;
    arena->size = 0;
}

static void abort_word_set(meta_device *device, uint64_t value) {
    if (device->arena->data == NULL) return;
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)device->arena->data;
    atomic_store_explicit(word, value, memory_order_release);
}

void meta_arena_abort(meta_device *device) {
    abort_word_set(device, 1);
}

void meta_arena_calm(meta_device *device) {
    abort_word_set(device, 0);
}
