/* SPDX-License-Identifier: MIT
 *
 * claims.c: see claims.h. The order is that in which devices first became members. A device keeps
 * its place while any group has it.
 */
#include "plugins/meta/exec/claims.h"

#include <string.h>

#include "plugins/meta/memory.h"

struct meta_claim {
    struct meta_claim *next;
    int64_t place; /* devices are claimed in ascending order */
    int32_t n_use; /* groups that have it */
    bool is_taken; /* by a run; under the registry's mutex */
    char name[64];
};

tdm_status meta_registry_create(const tdm_host *host, meta_registry *registry, tdm_error *err) {
    *registry = (meta_registry){.host = host};
    if (pthread_mutex_init(&registry->mutex, NULL) != 0)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no mutex");
    if (pthread_cond_init(&registry->released, NULL) != 0) {
        pthread_mutex_destroy(&registry->mutex);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no condition variable");
    }
    return TDM_OK;
}

void meta_registry_destroy(meta_registry *registry) {
    pthread_cond_destroy(&registry->released);
    pthread_mutex_destroy(&registry->mutex);
}

/* The claim of a device, made if no group has it yet. Under the registry's mutex. */
static meta_claim *claim_get(meta_registry *registry, const char *name) {
    meta_claim **at = &registry->first;
    for (; *at != NULL; at = &(*at)->next)
        if (strcmp((*at)->name, name) == 0) return *at;
    meta_claim *claim = meta_alloc(registry->host, sizeof *claim);
    if (claim == NULL) return NULL;
    claim->place = registry->n_made++;
    snprintf(claim->name, sizeof claim->name, "%s", name);
    *at = claim;
    return claim;
}

/* Inserts a claim in order, once. Under the registry's mutex; there is room. */
static void claim_insert(meta_claims *claims, meta_claim *claim) {
    int32_t at = 0;
    while (at < claims->n && claims->claims[at]->place < claim->place) at++;
    if (at < claims->n && claims->claims[at] == claim) return;
    memmove(claims->claims + at + 1, claims->claims + at,
            (size_t)(claims->n - at) * sizeof *claims->claims);
    claims->claims[at] = claim;
    claims->n++;
    claim->n_use++;
}

static tdm_status room_make(meta_claims *claims, int32_t n, tdm_error *err) {
    return meta_grow(claims->registry->host, &claims->claims, &claims->capacity,
                     (int64_t)claims->n + n, sizeof *claims->claims, err);
}

tdm_status meta_claims_add_device(meta_claims *claims, const char *name, tdm_error *err) {
    tdm_status status = room_make(claims, 1, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&claims->registry->mutex);
    meta_claim *claim = claim_get(claims->registry, name);
    if (claim != NULL)
        claim_insert(claims, claim);
    else
        status = meta_no_memory("for a device", err);
    pthread_mutex_unlock(&claims->registry->mutex);
    return status;
}

tdm_status meta_claims_add_group(meta_claims *claims, const meta_claims *group, tdm_error *err) {
    tdm_status status = room_make(claims, group->n, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&claims->registry->mutex);
    for (int32_t i = 0; i < group->n; i++) claim_insert(claims, group->claims[i]);
    pthread_mutex_unlock(&claims->registry->mutex);
    return TDM_OK;
}

bool meta_claims_have(const meta_claims *claims, const char *name) {
    for (int32_t i = 0; i < claims->n; i++)
        if (strcmp(claims->claims[i]->name, name) == 0) return true;
    return false;
}

const char *meta_claims_common(const meta_claims *claims, const meta_claims *other) {
    for (int32_t i = 0; i < other->n; i++)
        if (meta_claims_have(claims, other->claims[i]->name)) return other->claims[i]->name;
    return NULL;
}

void meta_claims_clear(meta_claims *claims) {
    meta_registry *registry = claims->registry;
    if (registry == NULL) return;
    pthread_mutex_lock(&registry->mutex);
    for (int32_t i = 0; i < claims->n; i++) {
        meta_claim **at = &registry->first, *claim = claims->claims[i];
        if (--claim->n_use > 0) continue;
        while (*at != claim) at = &(*at)->next;
        *at = claim->next;
        meta_free(registry->host, claim, sizeof *claim);
    }
    pthread_mutex_unlock(&registry->mutex);
    meta_free(registry->host, claims->claims, (size_t)claims->capacity * sizeof *claims->claims);
    *claims = (meta_claims){0};
}

/* A mutex for each device would do the same. But thread sanitizer stops where a thread holds more
 * locks than it supports, and a large group has as many members. */
void meta_claims_lock(const meta_claims *claims) {
    if (claims->is_off) return;
    meta_registry *registry = claims->registry;
    pthread_mutex_lock(&registry->mutex);
    for (int32_t i = 0; i < claims->n; i++) {
        while (claims->claims[i]->is_taken)
            pthread_cond_wait(&registry->released, &registry->mutex);
        claims->claims[i]->is_taken = true;
    }
    pthread_mutex_unlock(&registry->mutex);
}

void meta_claims_unlock(const meta_claims *claims) {
    if (claims->is_off) return;
    pthread_mutex_lock(&claims->registry->mutex);
    for (int32_t i = 0; i < claims->n; i++) claims->claims[i]->is_taken = false;
    pthread_cond_broadcast(&claims->registry->released);
    pthread_mutex_unlock(&claims->registry->mutex);
}
