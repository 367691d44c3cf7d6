/* SPDX-License-Identifier: MIT
 *
 * stop.c: see stop.h.
 */
#include "server/reply/stop.h"

#include <stdlib.h>
#include <string.h>

bool reply_stop_add(reply_stop *stop, const char *text) {
    const size_t len = strlen(text);
    if (len == 0 || len > REPLY_STOP_MAX || stop->n > REPLY_N_STOP_MAX) return false;
    if (stop->n == 0) stop->found = -1;
    char *copy = strdup(text);
    if (copy == NULL) return false;
    stop->strings[stop->n] = copy;
    stop->lens[stop->n++] = len;
    return true;
}

/* Where the first string in the held text begins; n_held = there is none. Sets `found`. */
static size_t find(reply_stop *stop) {
    size_t best = stop->n_held;
    for (int i = 0; i < stop->n; i++) {
        const char *found = memmem(stop->held, stop->n_held, stop->strings[i], stop->lens[i]);
        if (found == NULL || (size_t)(found - stop->held) >= best) continue;
        best = (size_t)(found - stop->held);
        stop->found = i;
    }
    return best;
}

/* How many bytes at the end of the held text may be the beginning of a string: the most of any. */
static size_t n_open(const reply_stop *stop) {
    size_t most = 0;
    for (int i = 0; i < stop->n; i++) {
        size_t n = stop->lens[i] - 1 < stop->n_held ? stop->lens[i] - 1 : stop->n_held;
        while (n > most && memcmp(stop->held + stop->n_held - n, stop->strings[i], n) != 0) n--;
        if (n > most) most = n;
    }
    return most;
}

bool reply_stop_push(reply_stop *stop, const char *text, size_t len, reply_text_fn take,
                     void *user) {
    if (stop->n == 0) {
        if (len > 0) take(user, text, len);
        return true;
    }
    if (stop->found >= 0) return false;
    while (len > 0) {
        const size_t room = sizeof stop->held - stop->n_held, n = len < room ? len : room;
        memcpy(stop->held + stop->n_held, text, n);
        stop->n_held += n;
        text += n;
        len -= n;
        const size_t at = find(stop);
        if (stop->found >= 0) {
            if (at > 0) take(user, stop->held, at);
            stop->n_held = 0;
            return false;
        }
        const size_t n_sure = stop->n_held - n_open(stop);
        if (n_sure > 0) take(user, stop->held, n_sure);
        memmove(stop->held, stop->held + n_sure, stop->n_held - n_sure);
        stop->n_held -= n_sure;
    }
    return true;
}

void reply_stop_flush(reply_stop *stop, reply_text_fn take, void *user) {
    if (stop->n_held > 0) take(user, stop->held, stop->n_held);
    stop->n_held = 0;
}

void reply_stop_clear(reply_stop *stop) {
    for (int i = 0; i < stop->n; i++) free(stop->strings[i]);
    stop->n = 0;
    stop->n_held = 0;
}
