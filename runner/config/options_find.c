/* SPDX-License-Identifier: MIT
 *
 * options_find.c: finds commands and keys in their tables and, for an unknown word, the known word
 * that may have been meant.
 */
#include <stdint.h>
#include <string.h>

#include "runner/config/options.h"

const runner_command *runner_command_find(const char *name) {
    for (size_t i = 0; i < n_runner_commands; i++)
        if (strcmp(runner_commands[i]->name, name) == 0) return runner_commands[i];
    return NULL;
}

static bool has_word(const char *words, const char *word) {
    size_t len = strlen(word);
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (n == len && strncmp(at, word, n) == 0) return true;
        at += n;
    }
    return false;
}

/* The command that has the key among its own_keys, or NULL. */
static const runner_command *owner_of(const runner_key *key) {
    for (size_t i = 0; i < n_runner_commands; i++) {
        const runner_command *command = runner_commands[i];
        for (size_t k = 0; k < command->n_own_key; k++)
            if (key == &command->own_keys[k]) return command;
    }
    return NULL;
}

bool runner_command_takes(const runner_command *command, const runner_key *key) {
    const runner_command *owner = key->plugin == NULL ? owner_of(key) : NULL;
    if (owner != NULL) return owner == command;
    if (key->plugin != NULL && command->opens_devices) return true;
    if (key->plugin == NULL && (key->sections & RUNNER_IN_DEFAULTS) != 0 &&
        has_word(command->keys, "*"))
        return true;
    return has_word(command->keys, key->name);
}

static bool key_is_called(const runner_key *key, const char *name) {
    return strcmp(key->name, name) == 0 || (key->alias != NULL && strcmp(key->alias, name) == 0);
}

const runner_key *runner_key_find(const runner_key_list *keys, const char *name,
                                  const runner_command *command) {
    const runner_key *other = NULL;
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *key = keys->items[i];
        if (!key_is_called(key, name)) continue;
        if (command == NULL || runner_command_takes(command, key)) return key;
        if (other == NULL) other = key;
    }
    return other;
}

const runner_key *runner_key_find_in(const runner_key_list *keys, const char *name,
                                     unsigned sections) {
    for (size_t i = 0; i < keys->n; i++)
        if (key_is_called(keys->items[i], name) && (keys->items[i]->sections & sections) != 0)
            return keys->items[i];
    return NULL;
}

const runner_key *runner_key_find_of(const runner_key_list *keys, const char *name,
                                     const char *plugin) {
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *key = keys->items[i];
        if (key->plugin != NULL && strcmp(key->plugin, plugin) == 0 && key_is_called(key, name))
            return key;
    }
    return NULL;
}

const runner_key *runner_key_find_flag(const runner_key_list *keys, const char *flag,
                                       const runner_command *command) {
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *key = keys->items[i];
        if (key->flag != NULL && strcmp(key->flag, flag) == 0 && runner_command_takes(command, key))
            return key;
    }
    return NULL;
}

#define WORD_MAX 63

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t runner_word_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX) return SIZE_MAX;
    /* rows i-2, i-1 and i of the usual table; i-2 is for swapped neighbours */
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    memset(before, 0, sizeof rows[0]);
    for (size_t j = 0; j <= m; j++) above[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
            size_t best = least(least(above[j], row[j - 1]) + 1, above[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = least(best, before[j - 2] + 1);
            row[j] = best;
        }
        size_t *oldest = before;
        before = above, above = row, row = oldest;
    }
    return above[m];
}

/* The distance of two words by which suggestions are ordered; SIZE_MAX = too far for a
 * suggestion. */
static size_t word_score(const char *word, const char *candidate) {
    size_t n = strlen(word), m = strlen(candidate);
    if (n == 0 || m == 0) return SIZE_MAX;
    size_t distance = runner_word_distance(word, candidate);
    size_t longer = n > m ? n : m, shorter = n > m ? m : n;
    size_t limit = longer / 3 > 0 ? longer / 3 : 1;
    if (distance <= limit && distance < longer) return distance;
    /* "ctx" suggests "ctx-size", but only if no word is near. */
    if (shorter >= 2 && strncmp(word, candidate, shorter) == 0) return WORD_MAX + longer - shorter;
    return SIZE_MAX;
}

const char *runner_word_nearest(const char *word, const char *const *words, size_t n) {
    const char *nearest = NULL;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (words[i] == NULL) continue;
        size_t score = word_score(word, words[i]);
        if (score < best) best = score, nearest = words[i];
    }
    return nearest;
}

const char *runner_key_nearest(const runner_key_list *keys, const char *word, unsigned sections,
                               const runner_command *command) {
    const char *nearest = NULL;
    size_t best = SIZE_MAX;
    while (*word == '-') word++;
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *key = keys->items[i];
        bool fits = sections != 0 ? (key->sections & sections) != 0
                                  : command == NULL || runner_command_takes(command, key);
        if (!fits) continue;
        size_t score = word_score(word, key->name);
        if (key->alias != NULL) score = least(score, word_score(word, key->alias));
        if (strcmp(key->name, word) == 0 || (key->flag != NULL && strcmp(key->flag, word) == 0))
            score = 0;
        if (score < best) best = score, nearest = key->name;
    }
    return nearest;
}
