/* SPDX-License-Identifier: MIT
 *
 * pretokenizer.h: cuts text into the words within which a byte-level BPE may merge.
 *
 * Each pre-tokenizer is a few regular expressions, applied one after the other: the first cuts the
 * text into matches and what lies between them, the next cuts each of those, and so on. Compiled
 * once, used by any number of threads. Merging is tokenizer_bpe.c.
 */
#ifndef LLM_PRETOKENIZER_H
#define LLM_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct llm_pretokenizer llm_pretokenizer;

/* Compiles the pre-tokenizer of that name (GGUF's tokenizer.ggml.pre). TDM_UNSUPPORTED: the message
 * names it and lists those known. TDM_RESOURCE_EXHAUSTED. On failure *out is NULL. [any-thread] */
tdm_status llm_pretokenizer_create(const char *name, llm_pretokenizer **out, tdm_error *err);

/* NULL is a no-op. [setup] */
void llm_pretokenizer_destroy(llm_pretokenizer *pre);

/* A word that is a token as it stands is taken whole, without merging. [any-thread] */
bool llm_pretokenizer_ignores_merges(const llm_pretokenizer *pre);

/* What its models assume where tokenizer.ggml.add_bos_token is missing. [any-thread] */
bool llm_pretokenizer_adds_bos(const llm_pretokenizer *pre);

/* Cuts text[0..len), which must be well-formed UTF-8 of less than 2 GiB. (*ends)[i] is where word i
 * ends and word i + 1 begins; no word is empty; the last ends at `len`. The caller frees *ends with
 * free(); it is NULL where there is no word, and on failure. TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_pretokenizer_split(const llm_pretokenizer *pre, const char *text, size_t len,
                                  uint32_t **ends, size_t *n_ends, tdm_error *err);

#endif
