/* SPDX-License-Identifier: MIT
 *
 * pretokenizer.h: cuts text into the words within which a byte-level BPE may merge.
 *
 * Each pre-tokenizer is a list of regular expressions. The first cuts the text into matches and the
 * text between them; each further expression cuts the results of the one before. A pre-tokenizer is
 * compiled once and used by any number of threads. The expressions: pretokenizer_table.c. Merging:
 * tokenizer_bpe.c.
 */
#ifndef LLM_PRETOKENIZER_H
#define LLM_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct llm_pretokenizer llm_pretokenizer;

/* Compiles the pre-tokenizer of that name (GGUF's tokenizer.ggml.pre). TDM_UNSUPPORTED for an
 * unknown name, with a list of the known ones; TDM_RESOURCE_EXHAUSTED. On failure *out is NULL.
 * [any-thread] */
tdm_status llm_pretokenizer_create(const char *name, llm_pretokenizer **out, tdm_error *err);

/* NULL is a no-op. [setup] */
void llm_pretokenizer_destroy(llm_pretokenizer *pre);

/* Whether a word that is a token becomes that token, without merging. [any-thread] */
bool llm_pretokenizer_ignores_merges(const llm_pretokenizer *pre);

/* The default of tokenizer.ggml.add_bos_token for its models. [any-thread] */
bool llm_pretokenizer_adds_bos(const llm_pretokenizer *pre);

/* Of llm_pre_kind: whether symbols are code points instead of bytes in GPT-2's alphabet; whether
 * tokens have U+2581 for a space; whether a word of newlines that is a token is used without
 * merging. [any-thread] */
bool llm_pretokenizer_is_raw(const llm_pretokenizer *pre);
bool llm_pretokenizer_marks_space(const llm_pretokenizer *pre);
bool llm_pretokenizer_keeps_lines(const llm_pretokenizer *pre);

/* Cuts text[0..len), well-formed UTF-8 of less than 2 GiB. Word i ends, and word i + 1 begins, at
 * (*ends)[i]; no word is empty; the last word ends at `len`. The caller frees *ends with free(). It
 * is NULL if there is no word, and on failure. TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_pretokenizer_split(const llm_pretokenizer *pre, const char *text, size_t len,
                                  uint32_t **ends, size_t *n_ends, tdm_error *err);

#endif
