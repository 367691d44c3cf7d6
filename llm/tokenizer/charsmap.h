/* SPDX-License-Identifier: MIT
 *
 * charsmap.h: SentencePiece's compiled normalization rules, the value of the key
 * tokenizer.ggml.precompiled_charsmap: which strings are replaced by which.
 *
 * The bytes are, little-endian: the size in bytes of a double array (u32), the double array (u32
 * each), then the replacements, each with a NUL behind it. An entry of the double array has in bits
 * 0 to 7 the byte by which it is reached, in bit 8 whether a string ends here, in bits 10 to 31 the
 * offset of the next entries, and in bit 9 whether that offset counts in units of 256. With bit 31
 * it is a value instead: the offset of a replacement (Kanda, "Space- and time-efficient string
 * dictionaries", 2018, and SentencePiece's darts_clone).
 */
#ifndef LLM_CHARSMAP_H
#define LLM_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* Zeroed = no rules. Read by any number of threads. */
typedef struct llm_charsmap {
    uint32_t *nodes; /* [n_node] */
    size_t n_node;
    char *replacements; /* [replacement_size], the last byte is NUL */
    size_t replacement_size;
} llm_charsmap;

/* Copies the rules from `bytes`; none if `size` is 0. TDM_DATA_LOSS (the sizes do not fit, the last
 * replacement has no end), TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_charsmap_make(llm_charsmap *map, const char *bytes, size_t size, tdm_error *err);

/* Frees the memory and leaves no rules. */
void llm_charsmap_free(llm_charsmap *map);

/* Finds the longest string of a rule with which text[0..len) begins. Returns its replacement, owned
 * by the map and NUL-terminated; *size is the size of the string in bytes. NULL if there is none,
 * also where the rules are damaged. [any-thread] */
const char *llm_charsmap_find(const llm_charsmap *map, const char *text, size_t len, size_t *size);

#endif
