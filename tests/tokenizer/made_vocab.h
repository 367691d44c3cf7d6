/* SPDX-License-Identifier: MIT
 *
 * made_vocab.h: vocabularies of every kind, computed from numbers, so that they are the same on
 * every machine. Almost any two neighbouring symbols merge, so that ids show where a text was
 * split.
 */
#ifndef TESTS_MADE_VOCAB_H
#define TESTS_MADE_VOCAB_H

#include <stddef.h>

#include "tandem/status.h"

/* Writes a GGUF file with the vocabulary of that name: "gpt2:PRE" for a pre-tokenizer, or one of
 * made_vocab_names. [setup] */
tdm_status made_vocab_write(const char *name, const char *path, tdm_error *err);

/* The names other than "gpt2:PRE"; NULL ends the list. */
extern const char *const made_vocab_names[];

#endif
