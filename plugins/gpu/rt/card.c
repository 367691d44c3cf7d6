/* SPDX-License-Identifier: MIT
 *
 * card.c: see card.h.
 */
#include "plugins/gpu/rt/card.h"

#include <stdlib.h>
#include <time.h>

typedef struct kept_memory {
    struct kept_memory *next;
    rt_memory memory;
    void *module; /* kernels instead of memory; NULL = none */
} kept_memory;

struct rt_card {
    struct rt_card *next;
    /* Of the driver: two libraries number their devices separately. */
    rt_result (*retain)(void **context_out, int device);
    int device;       /* the driver's handle */
    int32_t n_device; /* rt_device of the card; under cards_mutex */
    /* Held for reading by threads that launch, for writing by one that frees. */
    pthread_rwlock_t launch_lock;
    pthread_mutex_t mutex; /* over the fields below */
    rt_card_queue *queues;
    kept_memory *kept;
    uint64_t kept_size; /* bytes of device memory in `kept` */
};

static pthread_mutex_t cards_mutex = PTHREAD_MUTEX_INITIALIZER;
static rt_card *cards; /* of the process; under cards_mutex */

/* The link to the card of the driver's handle, or the link at the list's end, which is NULL. With
 * cards_mutex held. */
static rt_card **handle_find(const rt_device *device, int handle) {
    rt_card **at = &cards;
    while (*at != NULL && ((*at)->retain != device->fn->context_retain || (*at)->device != handle))
        at = &(*at)->next;
    return at;
}

static rt_card **card_find(const rt_device *device) {
    return handle_find(device, device->facts->device);
}

tdm_status rt_card_open(rt_device *device, tdm_error *err) {
    pthread_mutex_lock(&cards_mutex);
    rt_card *card = *card_find(device);
    if (card == NULL && (card = calloc(1, sizeof *card)) != NULL) {
        card->retain = device->fn->context_retain;
        card->device = device->facts->device;
        pthread_rwlock_init(&card->launch_lock, NULL);
        pthread_mutex_init(&card->mutex, NULL);
        card->next = cards;
        cards = card;
    }
    if (card != NULL) card->n_device++;
    pthread_mutex_unlock(&cards_mutex);
    device->card = card;
    return card != NULL ? TDM_OK
                        : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
}

void rt_card_close(rt_device *device) {
    rt_card *card = device->card;
    if (card == NULL) return;
    pthread_mutex_lock(&cards_mutex);
    const bool is_last = --card->n_device == 0;
    if (is_last) *card_find(device) = card->next;
    pthread_mutex_unlock(&cards_mutex);
    if (is_last) {
        (void)rt_card_settle(device, true);
        pthread_rwlock_destroy(&card->launch_lock);
        pthread_mutex_destroy(&card->mutex);
        free(card);
    }
    device->card = NULL;
}

void rt_card_queue_add(rt_card *card, rt_card_queue *queue) {
    pthread_mutex_lock(&card->mutex);
    queue->next = card->queues;
    card->queues = queue;
    pthread_mutex_unlock(&card->mutex);
}

void rt_card_queue_remove(rt_card *card, rt_card_queue *queue) {
    pthread_mutex_lock(&card->mutex);
    rt_card_queue **at = &card->queues;
    while (*at != NULL && *at != queue) at = &(*at)->next;
    if (*at != NULL) *at = queue->next;
    pthread_mutex_unlock(&card->mutex);
}

void rt_card_launch_begin(rt_card *card) {
    pthread_rwlock_rdlock(&card->launch_lock);
}

void rt_card_launch_end(rt_card *card) {
    pthread_rwlock_unlock(&card->launch_lock);
}

static void kept_release(const rt_device *device, const kept_memory *kept) {
    if (kept->module != NULL)
        device->fn->module_unload(kept->module);
    else if (kept->memory.host != NULL)
        device->fn->host_free(kept->memory.host);
    else
        device->fn->memory_free(kept->memory.address);
}

/* With the card's mutex held, and no launch under way. */
static bool is_busy(const rt_card *card) {
    for (const rt_card_queue *q = card->queues; q != NULL; q = q->next)
        if (q->is_busy(q->queue)) return true;
    return false;
}

bool rt_card_settle(rt_device *device, bool waits) {
    rt_card *card = device->card;
    kept_memory *kept = NULL;
    pthread_mutex_lock(&card->mutex);
    const bool has_kept = card->kept != NULL;
    pthread_mutex_unlock(&card->mutex);
    if (!has_kept || (!waits && pthread_rwlock_trywrlock(&card->launch_lock) != 0)) return false;
    pthread_mutex_lock(&card->mutex);
    if (waits || !is_busy(card)) {
        kept = card->kept;
        card->kept = NULL;
        card->kept_size = 0;
    }
    pthread_mutex_unlock(&card->mutex);
    const bool has_freed = kept != NULL;
    while (kept != NULL) {
        kept_memory *next = kept->next;
        kept_release(device, kept);
        free(kept);
        kept = next;
    }
    if (!waits) pthread_rwlock_unlock(&card->launch_lock);
    return has_freed;
}

/* Releases something now or later. */
static void keep(rt_device *device, const kept_memory *what) {
    rt_card *card = device->card;
    kept_memory *node = malloc(sizeof *node);
    if (node == NULL) {
        kept_release(device, what); /* may wait for the card */
        return;
    }
    *node = *what;
    pthread_mutex_lock(&card->mutex);
    node->next = card->kept;
    card->kept = node;
    card->kept_size += what->memory.host == NULL ? what->memory.size : 0;
    pthread_mutex_unlock(&card->mutex);
    (void)rt_card_settle(device, false);
}

void rt_card_free(rt_device *device, const rt_memory *memory) {
    keep(device, &(kept_memory){.memory = *memory});
}

void rt_card_unload(rt_device *device, void *module) {
    keep(device, &(kept_memory){.module = module});
}

rt_card_quiet rt_card_quiet_begin(const rt_device *device, int handle) {
    enum { SLICE_US = 50, N_SLICE = 20000 };
    rt_card_quiet quiet = {.is_own = handle == device->facts->device};
    /* The card of another device may be closed meanwhile. */
    if (!quiet.is_own) pthread_mutex_lock(&cards_mutex);
    rt_card *card = quiet.is_own ? device->card : *handle_find(device, handle);
    for (int i = 0; i < N_SLICE && card != NULL && quiet.card == NULL; i++) {
        if (i > 0) nanosleep(&(struct timespec){.tv_nsec = SLICE_US * 1000}, NULL);
        if (pthread_rwlock_trywrlock(&card->launch_lock) != 0) continue;
        pthread_mutex_lock(&card->mutex);
        if (!is_busy(card)) quiet.card = card;
        pthread_mutex_unlock(&card->mutex);
        if (quiet.card == NULL) pthread_rwlock_unlock(&card->launch_lock);
    }
    return quiet;
}

void rt_card_quiet_end(const rt_card_quiet *quiet) {
    if (quiet->card != NULL) pthread_rwlock_unlock(&quiet->card->launch_lock);
    if (!quiet->is_own) pthread_mutex_unlock(&cards_mutex);
}

uint64_t rt_card_kept(rt_card *card) {
    pthread_mutex_lock(&card->mutex);
    const uint64_t size = card->kept_size;
    pthread_mutex_unlock(&card->mutex);
    return size;
}
