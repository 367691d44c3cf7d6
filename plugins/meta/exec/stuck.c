/* SPDX-License-Identifier: MIT
 *
 * stuck.c: whatever a stuck member may still use stays allocated: its queue, the semaphore that it
 * will signal, group plans with their member plans and graphs, its memory, the arena. It is
 * released once the member has ended. If the member never ends, it is leaked: to free it would let
 * the member write to memory that something else uses.
 */
#include "plugins/meta/exec/stuck.h"

bool meta_member_is_stuck(const meta_device *device, int32_t d) {
    const meta_member *member = &device->members[d];
    uint64_t value = 0;
    if (atomic_load(&member->n_lost) > 0) return true;
    if (member->stuck == NULL) return false;
    return device->host->semaphore->query(member->stuck, &value, NULL) == TDM_OK &&
           value < member->stuck_value;
}

typedef struct meta_pending_release {
    struct meta_pending_release *next;
    int32_t d;
    tdm_semaphore *semaphore; /* NULL: the member's */
    uint64_t value;
    meta_release_fn release;
    void *what;
} meta_pending_release;

static void pending_push(meta_device *device, meta_pending_release *node) {
    node->next = atomic_load(&device->pending_releases);
    while (!atomic_compare_exchange_weak(&device->pending_releases, &node->next, node)) {
    }
}

void meta_release_later(meta_device *device, int32_t d, tdm_semaphore *semaphore, uint64_t value,
                        meta_release_fn release, void *what) {
    meta_pending_release *node = meta_alloc(device->host, sizeof *node);
    if (node == NULL) return; /* leaked: the member may still use it */
    *node = (meta_pending_release){
        .d = d, .semaphore = semaphore, .value = value, .release = release, .what = what};
    pending_push(device, node);
}

static bool is_kept(const meta_device *device, const meta_pending_release *node) {
    uint64_t value = 0;
    if (node->semaphore == NULL) return meta_member_is_stuck(device, node->d);
    return device->host->semaphore->query(node->semaphore, &value, NULL) == TDM_OK &&
           value < node->value;
}

bool meta_member_is_kept(const meta_device *device, int32_t d) {
    if (meta_member_is_stuck(device, d) || atomic_load(&device->pending_releases) != NULL)
        return true;
    /* A stuck member may use the home's memory, too. */
    bool is_used = false;
    for (int32_t i = 0; i < device->n_member && device->home == &device->members[d]; i++)
        is_used = is_used || meta_member_is_stuck(device, i);
    return is_used;
}

bool meta_stuck_members_check(meta_device *device) {
    bool is_all_back = true;
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *member = &device->members[d];
        if (meta_member_is_stuck(device, d)) {
            is_all_back = false;
            continue;
        }
        if (member->stuck == NULL) continue;
        device->host->semaphore->destroy(member->stuck);
        member->stuck = NULL;
    }
    /* In the order in which they were pushed, and none before an earlier one that is kept: plans
     * are destroyed before their queues. */
    meta_pending_release *first = NULL;
    for (meta_pending_release *node = atomic_exchange(&device->pending_releases, NULL), *next;
         node != NULL; node = next) {
        next = node->next;
        node->next = first;
        first = node;
    }
    bool is_behind_kept = false;
    for (meta_pending_release *node = first, *next; node != NULL; node = next) {
        next = node->next;
        is_behind_kept = is_behind_kept || is_kept(device, node);
        if (is_behind_kept) {
            pending_push(device, node);
            continue;
        }
        node->release(device, node->d, node->what);
        meta_free(device->host, node, sizeof *node);
    }
    return is_all_back;
}
