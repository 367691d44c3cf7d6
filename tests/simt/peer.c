/* SPDX-License-Identifier: MIT
 *
 * peer.c: see peer.h.
 */
#include "tests/simt/peer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct memory {
    struct memory *next;
    char *at;
    size_t size;
    char *copy; /* what others reach by a wrong mapping; NULL = not made yet */
    int device;
    bool is_shared;
} memory;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static memory *memories;                                  /* under mutex, as all of these */
static bool is_enabled[SIMT_MAX_DEVICE][SIMT_MAX_DEVICE]; /* from, to */
static simt_peer_mode mode;

void simt_peer_set(const char *word) {
    static const char *const words[] = {[SIMT_PEER_YES] = "yes",
                                        [SIMT_PEER_NO] = "no",
                                        [SIMT_PEER_COPY] = "copy",
                                        [SIMT_PEER_KERNEL] = "kernel"};
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; word != NULL && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0) mode = (simt_peer_mode)i;
    pthread_mutex_unlock(&mutex);
}

bool simt_peer_note(int device, void *at, size_t size, bool is_shared) {
    memory *m = malloc(sizeof *m);
    if (m == NULL) return false;
    pthread_mutex_lock(&mutex);
    *m = (memory){
        .next = memories, .at = at, .size = size, .device = device, .is_shared = is_shared};
    memories = m;
    pthread_mutex_unlock(&mutex);
    return true;
}

void simt_peer_forget(void *at) {
    pthread_mutex_lock(&mutex);
    memory **link = &memories;
    while (*link != NULL && (*link)->at != (char *)at) link = &(*link)->next;
    memory *found = *link;
    if (found != NULL) *link = found->next;
    pthread_mutex_unlock(&mutex);
    if (found != NULL) free(found->copy);
    free(found);
}

bool simt_peer_can(int device, int home) {
    pthread_mutex_lock(&mutex);
    bool can = mode != SIMT_PEER_NO && device != home;
    pthread_mutex_unlock(&mutex);
    return can;
}

bool simt_peer_enable(int device, int home) {
    pthread_mutex_lock(&mutex);
    bool is_new = !is_enabled[device][home];
    is_enabled[device][home] = true;
    pthread_mutex_unlock(&mutex);
    return is_new;
}

void simt_peer_end(int device) {
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < SIMT_MAX_DEVICE; i++) is_enabled[device][i] = is_enabled[i][device] = false;
    pthread_mutex_unlock(&mutex);
}

/* What the device reaches at m->at; NULL = nothing. The caller holds the mutex. */
static char *reached(memory *m, int device, bool is_kernel) {
    if (m->device == device) return m->at;
    if (!m->is_shared || !is_enabled[device][m->device]) return NULL;
    if (mode != SIMT_PEER_COPY && (mode != SIMT_PEER_KERNEL || !is_kernel)) return m->at;
    if (m->copy == NULL && (m->copy = malloc(m->size)) != NULL) memcpy(m->copy, m->at, m->size);
    return m->copy;
}

uint64_t simt_peer_address(int device, uint64_t at, bool is_kernel) {
    char *p = (char *)(uintptr_t)at;
    pthread_mutex_lock(&mutex);
    memory *m = memories;
    while (m != NULL && (p < m->at || (size_t)(p - m->at) >= m->size)) m = m->next;
    if (m != NULL) {
        char *base = reached(m, device, is_kernel);
        at = base != NULL ? (uint64_t)(uintptr_t)(base + (p - m->at)) : 0;
    }
    pthread_mutex_unlock(&mutex);
    return at;
}
