/* SPDX-License-Identifier: MIT
 *
 * config_value.h: one value of one key, read from text. Messages state what is wrong with the value
 * and which form is right; the caller adds where the text came from.
 */
#ifndef TANDEM_RUNNER_CONFIG_VALUE_H
#define TANDEM_RUNNER_CONFIG_VALUE_H

#include <stdint.h>

#include "runner/config/options.h"
#include "tandem/status.h"

/* One number or word. Only the field of the key's type has a meaning. */
typedef struct runner_item {
    int64_t i; /* INT, INTS, CORES; BOOL: 0 or 1; ENUM: index of the word; SIZE: bytes */
    double f;  /* FLOAT, SHARES */
    char *s;   /* STRING, PATH, PATHS, NAMES, FILES, ENUM; owned; NULL only for the word "auto" */
} runner_item;

typedef struct runner_value {
    runner_item *items; /* owned */
    size_t n;           /* 0 for an empty list; otherwise 1 where the key holds one value */
    bool is_auto;       /* the word "auto"; then n is 1 and items[0].i is the key's auto_value */
} runner_value;

/* Reads `text` as a value of `key`. `is_list` allows a comma-separated list (whole numbers also as
 * ranges: 7-9, 8-32+8, 8-64*2) where the key alone holds one value. *value_out is to be released
 * with runner_value_clear; on failure it is left empty. Fails with TDM_INVALID_ARGUMENT and
 * "bad value '...' for 'key': what it should be[; did you mean '...'?]"; also with TDM_NOT_FOUND or
 * TDM_IO for the file of an "@FILE". [any-thread] */
tdm_status runner_value_parse(const runner_key *key, const char *text, bool is_list,
                              runner_value *value_out, tdm_error *err);

/* Moves the items of *more behind those of *value, a list of `key`; *more is left empty. The joined
 * list must keep the rules of runner_value_parse: TDM_INVALID_ARGUMENT where it does not, with a
 * message as there, which shows `text`, the joined list as given. "auto" is not joined with other
 * values. On failure, also TDM_RESOURCE_EXHAUSTED, both are as before. [any-thread] */
tdm_status runner_value_append(const runner_key *key, const char *text, runner_value *value,
                               runner_value *more, tdm_error *err);

/* Puts `folder`/ before every path in a value of type PATH, PATHS or FILES that is neither absolute
 * nor empty; a path that begins with ~/ gets $HOME instead. [any-thread] */
tdm_status runner_value_rebase(const runner_key *key, runner_value *value, const char *folder,
                               tdm_error *err);

/* Releases what the value owns and empties it. [any-thread] */
void runner_value_clear(runner_value *value);

/* Replaces backslash escapes in place: \n \t \r \" \' \\ become the characters that they stand
 * for, everything else stays (a backslash before another letter too). `--escape` applies it to a
 * prompt. [any-thread] */
void runner_text_unescape(char *text);

#endif
