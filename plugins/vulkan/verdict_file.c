/* SPDX-License-Identifier: MIT
 *
 * verdict_file.c: see verdict_file.h.
 */
#include "plugins/vulkan/verdict_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 1000, LOCK_PAUSE_NS = 10000000 /* 10 s in all */ };

bool vk_verdict_is_bad(int32_t verdict) {
    return verdict == VK_VERDICT_WRONG || verdict == VK_VERDICT_FATAL;
}

const vk_verdict_row *vk_verdict_list_find(const vk_verdict_list *list, uint64_t pipeline) {
    for (int32_t i = 0; i < list->n; i++)
        if (list->rows[i].pipeline == pipeline) return &list->rows[i];
    return NULL;
}

bool vk_verdict_list_reserve(vk_verdict_list *list, int32_t n) {
    if (list->room - list->n >= n) return true;
    int32_t room = 2 * list->room + n + 64;
    vk_verdict_row *grown = realloc(list->rows, (size_t)room * sizeof *grown);
    if (grown == NULL) return false;
    list->rows = grown;
    list->room = room;
    return true;
}

static int caution(int32_t verdict) {
    switch (verdict) {
    case VK_VERDICT_FATAL: return 3;
    case VK_VERDICT_WRONG: return 2;
    case VK_VERDICT_RIGHT: return 1;
    default: return 0;
    }
}

void vk_verdict_list_add(vk_verdict_list *list, const vk_verdict_row *row) {
    for (int32_t i = 0; i < list->n; i++) {
        if (list->rows[i].pipeline != row->pipeline) continue;
        if (caution(row->verdict) > caution(list->rows[i].verdict)) list->rows[i] = *row;
        return;
    }
    list->rows[list->n++] = *row;
}

bool vk_verdict_file_read(const char *path, const vk_cache_key *key,
                          bool (*is_known)(uint64_t code), vk_verdict_list *list) {
    size_t size = 0;
    vk_verdict_row *rows = vk_cache_read(path, key, &size);
    int32_t n = rows != NULL && size % sizeof *rows == 0 ? (int32_t)(size / sizeof *rows) : 0;
    bool has_room = vk_verdict_list_reserve(list, n);
    for (int32_t i = 0; i < n && has_room; i++) {
        rows[i].kernel[sizeof rows[i].kernel - 1] = '\0';
        if (is_known(rows[i].code)) vk_verdict_list_add(list, &rows[i]);
    }
    free(rows);
    return has_room;
}

/* Locks a file beside `path` and returns its descriptor; closing it releases the lock. -1 where it
 * cannot be locked within 10 s: a process may be stopped while it holds the lock. */
static int lock_take(const char *path) {
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    char name[4200];
    int n = snprintf(name, sizeof name, "%s.lock", path);
    if (n < 0 || (size_t)n >= sizeof name || !vk_cache_folder_make(path)) return -1;
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
        if (errno != EWOULDBLOCK && errno != EINTR) break;
        nanosleep(&pause, NULL);
    }
    close(fd);
    return -1;
}

bool vk_verdict_file_merge(const char *path, const vk_cache_key *key,
                           bool (*is_known)(uint64_t code), vk_verdict_list *list) {
    /* Without a lock, as on some file systems, the last writer's rows stay. */
    int lock = lock_take(path);
    bool is_written = vk_verdict_file_read(path, key, is_known, list) &&
                      vk_cache_write(path, key, list->rows, (size_t)list->n * sizeof *list->rows);
    if (lock >= 0) close(lock);
    return is_written;
}
