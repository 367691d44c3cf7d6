/* SPDX-License-Identifier: MIT
 *
 * stuck.c: whatever a stuck member may still use stays allocated: its queue, the semaphore that it
 * will signal, group plans with their member plans and graphs, its memory, the arena. Freeing it
 * would let the member write to memory that something else uses. What was handed to
 * meta_release_later is released once the member has ended; if it never ends, it is leaked. The
 * member's memory and the arena stay the group's; those that a stuck member may use when the group
 * replaces them are leaked. A group that closes meanwhile is leaked as a whole.
 */
#include "plugins/meta/exec/stuck.h"

/* The functions below that end in _locked are called with stuck_mutex held. Plans and queues are
 * destroyed by any thread, also while another thread finds that a member has ended. */

static bool is_stuck_locked(const meta_device *device, int32_t d) {
    const meta_member *member = &device->members[d];
    uint64_t value = 0;
    if (atomic_load(&member->n_lost) > 0) return true;
    if (member->stuck == NULL) return false;
    return device->host->semaphore->query(member->stuck, &value, NULL) == TDM_OK &&
           value < member->stuck_value;
}

bool meta_member_is_stuck(meta_device *device, int32_t d) {
    pthread_mutex_lock(&device->stuck_mutex);
    bool is_stuck = is_stuck_locked(device, d);
    pthread_mutex_unlock(&device->stuck_mutex);
    return is_stuck;
}

void meta_member_set_stuck(meta_device *device, int32_t d, tdm_semaphore *semaphore,
                           uint64_t value) {
    pthread_mutex_lock(&device->stuck_mutex);
    device->members[d].stuck = semaphore;
    device->members[d].stuck_value = value;
    pthread_mutex_unlock(&device->stuck_mutex);
}

void meta_release_later(meta_device *device, int32_t d, tdm_semaphore *semaphore, uint64_t value,
                        meta_release_fn release, void *what, meta_pending_release *node) {
    *node = (meta_pending_release){
        .d = d, .semaphore = semaphore, .value = value, .release = release, .what = what};
    pthread_mutex_lock(&device->stuck_mutex);
    meta_pending_release **last = &device->pending_releases;
    while (*last != NULL) last = &(*last)->next;
    *last = node;
    pthread_mutex_unlock(&device->stuck_mutex);
}

static bool is_any_stuck_locked(const meta_device *device) {
    for (int32_t d = 0; d < device->n_member; d++)
        if (is_stuck_locked(device, d)) return true;
    return false;
}

static bool is_kept_locked(const meta_device *device, const meta_pending_release *node) {
    uint64_t value = 0;
    if (node->semaphore == NULL)
        return node->d == META_ANY_MEMBER ? is_any_stuck_locked(device)
                                          : is_stuck_locked(device, node->d);
    return device->host->semaphore->query(node->semaphore, &value, NULL) == TDM_OK &&
           value < node->value;
}

bool meta_member_is_kept(meta_device *device, int32_t d) {
    pthread_mutex_lock(&device->stuck_mutex);
    bool is_kept =
        is_stuck_locked(device, d) || device->pending_releases != NULL || device->is_releasing;
    /* A stuck member may use the home's memory, too. */
    if (device->home == &device->members[d]) is_kept = is_kept || is_any_stuck_locked(device);
    pthread_mutex_unlock(&device->stuck_mutex);
    return is_kept;
}

bool meta_has_pending_releases(meta_device *device) {
    pthread_mutex_lock(&device->stuck_mutex);
    bool has_pending = device->pending_releases != NULL || device->is_releasing;
    pthread_mutex_unlock(&device->stuck_mutex);
    return has_pending;
}

/* Takes the oldest pending release out of the list. The order is that of meta_release_later, so
 * that plans are destroyed before their queues. NULL where the list is empty, where the oldest must
 * still be kept, or where another thread is releasing one: that thread then takes the next. */
static meta_pending_release *pending_take(meta_device *device) {
    pthread_mutex_lock(&device->stuck_mutex);
    meta_pending_release *node = device->pending_releases;
    if (node != NULL && (device->is_releasing || is_kept_locked(device, node))) node = NULL;
    if (node != NULL) {
        device->pending_releases = node->next;
        device->is_releasing = true;
    }
    pthread_mutex_unlock(&device->stuck_mutex);
    return node;
}

static void pending_end(meta_device *device, meta_pending_release *node) {
    node->release(device, node->d, node->what); /* frees the node, or gives it back */
    pthread_mutex_lock(&device->stuck_mutex);
    device->is_releasing = false;
    pthread_mutex_unlock(&device->stuck_mutex);
}

bool meta_stuck_members_check(meta_device *device) {
    bool is_all_back = true;
    pthread_mutex_lock(&device->stuck_mutex);
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *member = &device->members[d];
        if (is_stuck_locked(device, d)) {
            is_all_back = false;
            continue;
        }
        if (member->stuck == NULL) continue;
        device->host->semaphore->destroy(member->stuck);
        member->stuck = NULL;
    }
    pthread_mutex_unlock(&device->stuck_mutex);
    for (meta_pending_release *node; (node = pending_take(device)) != NULL;)
        pending_end(device, node);
    return is_all_back;
}
