/* SPDX-License-Identifier: MIT
 *
 * claims.h: which group uses which devices. A device runs one computation at a time, and the
 * members of a group wait for each other inside their computations. Two groups with devices in
 * common could so wait for each other for ever: each holds one device and waits for the other.
 * Therefore a run claims all devices of its group before it starts, in one order for all groups of
 * a host, and releases them when it has ended.
 *
 * The devices of a member that is a group are claimed by the outer group; the inner group's own
 * runs then claim nothing. The core puts no adapter before a group. Where another plugin wraps the
 * inner group, the outer group cannot find its devices: it then claims nothing (is_off), and the
 * inner group claims its own.
 */
#ifndef TANDEM_META_CLAIMS_H
#define TANDEM_META_CLAIMS_H

#include <pthread.h>

#include "tandem/plugin.h"

typedef struct meta_claim meta_claim; /* of one device */

/* All devices of a host that are members of groups. Part of the plugin's instance. */
typedef struct meta_registry {
    const tdm_host *host;
    pthread_mutex_t mutex;
    pthread_cond_t released; /* signalled when a run has ended */
    meta_claim *first;       /* in the order in which they are claimed */
    int64_t n_made;
} meta_registry;

/* The devices that a group claims: its own members and those of members that are groups. */
typedef struct meta_claims {
    meta_registry *registry;
    meta_claim **claims; /* [n] each once, in order */
    int32_t n, capacity;
    bool is_off; /* the devices of a member are not known: lock and unlock do nothing */
} meta_claims;

/* [setup] */
tdm_status meta_registry_create(const tdm_host *host, meta_registry *registry, tdm_error *err);
void meta_registry_destroy(meta_registry *registry);

/* Adds the device with this name, or the devices of another group. [setup] */
tdm_status meta_claims_add_device(meta_claims *claims, const char *name, tdm_error *err);
tdm_status meta_claims_add_group(meta_claims *claims, const meta_claims *group, tdm_error *err);
/* Whether the group claims the device with this name. [setup] */
bool meta_claims_have(const meta_claims *claims, const char *name);
/* The name of a device that both groups claim; NULL = none. [setup] */
const char *meta_claims_common(const meta_claims *claims, const meta_claims *other);
/* Removes all devices; the group must not hold their claims (meta_claims_lock). [setup] */
void meta_claims_clear(meta_claims *claims);

/* Waits until no other group holds one of the group's devices, and claims them all. Must be called
 * before device->mutex is locked, not while it is held. Every computation in which members wait for
 * each other needs it: runs, the probe, and measuring. [any-thread] */
void meta_claims_lock(const meta_claims *claims);
void meta_claims_unlock(const meta_claims *claims);

#endif
