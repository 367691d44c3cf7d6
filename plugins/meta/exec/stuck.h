/* SPDX-License-Identifier: MIT
 *
 * stuck.h: members that were abandoned and may still be computing, and what they use.
 */
#ifndef TANDEM_META_STUCK_H
#define TANDEM_META_STUCK_H

#include "plugins/meta/meta.h"

/* True while an abandoned run may still use the member's memory. The member's queues, plans and
 * memory must then be released with meta_release_later instead of being freed. [any-thread] */
bool meta_member_is_stuck(meta_device *device, int32_t member);
/* The member is stuck until `semaphore`, which is taken over, has reached `value`. [any-thread] */
void meta_member_set_stuck(meta_device *device, int32_t member, tdm_semaphore *semaphore,
                           uint64_t value);
/* True while the member is stuck, or while anything waits to be released or is being released: a
 * kept plan or a kept measurement may use the queues and memory of several members, and all members
 * the memory of the home. The member's queue is then released later. [any-thread] */
bool meta_member_is_kept(meta_device *device, int32_t member);
/* True while anything waits to be released or is being released. [any-thread] */
bool meta_has_pending_releases(meta_device *device);
/* As a member in meta_release_later: what any member may still use. */
enum { META_ANY_MEMBER = -1 };
typedef void (*meta_release_fn)(meta_device *device, int32_t member, void *what);

/* A release that is pending. What is released has it as a field, so that giving it to
 * meta_release_later allocates nothing and cannot fail: the group would otherwise not know of it,
 * and would close while a member uses it. */
typedef struct meta_pending_release {
    struct meta_pending_release *next;
    int32_t d;                /* member, or META_ANY_MEMBER */
    tdm_semaphore *semaphore; /* NULL: the member's */
    uint64_t value;
    meta_release_fn release;
    void *what;
} meta_pending_release;

/* Takes over `what`, which a member may still use. release(device, member, what) is called once
 * `semaphore` has reached `value` or was poisoned (NULL: once the member, or with META_ANY_MEMBER
 * every member, is not stuck any more), and after everything that was given here before. So a plan
 * is destroyed before its queue. meta_stuck_members_check finds that out, for the last time when
 * the group closes; what must be kept then is leaked. `semaphore` belongs to `what` and lives as
 * long, as does `node`, a field of it. release() may free it, or give it here again.
 * [any-thread] */
void meta_release_later(meta_device *device, int32_t member, tdm_semaphore *semaphore,
                        uint64_t value, meta_release_fn release, void *what,
                        meta_pending_release *node);

/* Checks which abandoned members have ended since, and releases what they used. True when no member
 * is stuck any more. Under device->mutex, or when closing. */
bool meta_stuck_members_check(meta_device *device);

#endif
