/* SPDX-License-Identifier: MIT
 *
 * flag_word.h: checks the value of a benchmark's flag that takes one word of a list.
 */
#ifndef BENCH_FLAG_WORD_H
#define BENCH_FLAG_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* False where `word` is none of the n words; then a line on standard error names the flag and lists
 * the words. NULL, for a flag that was not given, is true. */
static inline bool flag_word_check(const char *program, const char *flag, const char *word,
                                   const char *const *words, size_t n) {
    if (word == NULL) return true;
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0) return true;
    fprintf(stderr, "%s: bad value '%s' for '%s': expected one of", program, word, flag);
    for (size_t i = 0; i < n; i++) fprintf(stderr, "%s %s", i == 0 ? "" : ",", words[i]);
    fputc('\n', stderr);
    return false;
}

#endif
