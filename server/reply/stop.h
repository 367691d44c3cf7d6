/* SPDX-License-Identifier: MIT
 *
 * stop.h: finds strings that end a text, in text that comes in pieces. A piece that may be the
 * beginning of such a string is held back until it is decided.
 */
#ifndef TANDEM_SERVER_STOP_H
#define TANDEM_SERVER_STOP_H

#include <stdbool.h>
#include <stddef.h>

#define REPLY_N_STOP_MAX 16  /* strings of a request; one more may end a turn in the template */
#define REPLY_STOP_MAX   256 /* bytes of a string */

/* One thread at a time. Cleared = no strings. */
typedef struct reply_stop {
    char *strings[REPLY_N_STOP_MAX + 1];
    size_t lens[REPLY_N_STOP_MAX + 1];
    int n;
    int found;                     /* index of the string that was found; -1 = none yet. Set by the
                                      first reply_stop_add */
    char held[2 * REPLY_STOP_MAX]; /* [n_held] text that is held back */
    size_t n_held;
} reply_stop;

/* Receives text that is certain. */
typedef void (*reply_text_fn)(void *user, const char *text, size_t len);

/* Adds a string of 1 to REPLY_STOP_MAX bytes. False: too many, too long, or no memory. */
bool reply_stop_add(reply_stop *stop, const char *text);
/* Adds text, and passes what cannot be a part of a string. Returns false once a string was found:
 * the text ends before it, and no more is passed. */
bool reply_stop_push(reply_stop *stop, const char *text, size_t len, reply_text_fn take,
                     void *user);
/* The text ends: passes what was held back. */
void reply_stop_flush(reply_stop *stop, reply_text_fn take, void *user);
/* Frees the strings; no string is left. */
void reply_stop_clear(reply_stop *stop);

#endif
