/* SPDX-License-Identifier: MIT
 *
 * chat_history.h: the messages of a conversation, as a list and as JSON, for files and for the chat
 * template.
 */
#ifndef TANDEM_RUNNER_CHAT_HISTORY_H
#define TANDEM_RUNNER_CHAT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "tandem/status.h"

typedef struct runner_chat_message {
    char *role;    /* "system", "user", "assistant", or any role of a loaded file */
    char *content; /* NUL-terminated */
} runner_chat_message;

/* Cleared = empty. */
typedef struct runner_chat_history {
    runner_chat_message *messages; /* [n] */
    size_t n, capacity;
} runner_chat_history;

/* Appends a message; copies both texts. [setup] */
tdm_status runner_chat_history_add(runner_chat_history *history, const char *role,
                                   const char *content, tdm_error *err);
/* Keeps the first n messages. [setup] */
void runner_chat_history_truncate(runner_chat_history *history, size_t n);
/* 1 if the first message has the role "system", else 0. [any-thread] */
size_t runner_chat_history_n_system(const runner_chat_history *history);
/* Empties it and releases everything. [setup] */
void runner_chat_history_clear(runner_chat_history *history);

/* Makes the input of a template as JSON: the system's message and those from index `first` on,
 * is_open (whether the beginning of the assistant's next turn is to be rendered), and the texts of
 * the tokens that begin and end a text. The caller frees *json_out with free(). [setup] */
tdm_status runner_chat_history_context(const runner_chat_history *history, size_t first,
                                       bool is_open, const char *bos, const char *eos,
                                       char **json_out, tdm_error *err);

/* Writes and reads a file with the messages as a JSON list of {"role", "content"}. Loading replaces
 * *history; on failure *history is unchanged. Errors name the file. The cached rows of the
 * conversation are in a file of their own (runner_chat_held_save), so that this one stays readable.
 * [setup] */
tdm_status runner_chat_history_save(const runner_chat_history *history, const char *path,
                                    tdm_error *err);
tdm_status runner_chat_history_load(runner_chat_history *history, const char *path, tdm_error *err);

#endif
