/* SPDX-License-Identifier: MIT
 *
 * random_text.h: random Unicode strings for tokenizers. They are the same on every machine, since
 * stored results of llama.cpp depend on each byte (peer_ids.txt).
 */
#ifndef TESTS_RANDOM_TEXT_H
#define TESTS_RANDOM_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { RANDOM_TEXT_MAX = 1024 };

/* A code point of the pool in UTF-8, 1 to 4 bytes; returns how many. The pool holds letters, marks,
 * digits, signs, symbols, white space and format characters of many scripts, all of them assigned
 * in Unicode 14 and with the same class since. */
size_t random_point(uint64_t *state, char *out);

/* String number `i`: up to RANDOM_TEXT_MAX bytes, mostly well-formed UTF-8; returns its length.
 * Every 16th string has stray bytes. String 0 is empty. */
size_t random_text(uint32_t i, char *out);

#endif
