/* SPDX-License-Identifier: MIT
 *
 * tokenizer_kind.h: the encoders, one per kind of vocabulary. Each encodes text without special
 * tokens.
 */
#ifndef LLM_TOKENIZER_KIND_H
#define LLM_TOKENIZER_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm/tokenizer/vocab_table.h"
#include "tandem/status.h"

/* A growing list of ids. Zeroed = empty. */
typedef struct llm_id_list {
    int32_t *ids;
    size_t n, capacity;
} llm_id_list;

/* Appends. TDM_RESOURCE_EXHAUSTED leaves the list unchanged. (tokenizer.c) */
tdm_status llm_id_list_add(llm_id_list *list, int32_t id, tdm_error *err);

/* SentencePiece. `with_prefix`: as if the text began with a space. (tokenizer_spm.c) */
tdm_status llm_spm_encode(const llm_vocab *vocab, const char *text, size_t len, bool with_prefix,
                          llm_id_list *ids, tdm_error *err);

/* Byte-level BPE. (tokenizer_bpe.c) */
tdm_status llm_bpe_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                          tdm_error *err);

#endif
