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

/* Replaces each ill-formed byte of *text by U+FFFD, in a copy that *mended owns and the caller
 * frees. Well-formed text stays where it is, and *mended is NULL. TDM_RESOURCE_EXHAUSTED.
 * (tokenizer.c) */
tdm_status llm_text_mend(const char **text, size_t *len, char **mended, tdm_error *err);

/* SentencePiece. `with_prefix`: as if the text began with a space. (tokenizer_spm.c) */
tdm_status llm_spm_encode(const llm_vocab *vocab, const char *text, size_t len, bool with_prefix,
                          llm_id_list *ids, tdm_error *err);

/* BPE of bytes or code points. (tokenizer_bpe.c) */
tdm_status llm_bpe_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                          tdm_error *err);

/* WordPiece. (tokenizer_wpm.c) */
tdm_status llm_wpm_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                          tdm_error *err);

/* Unigram. (tokenizer_ugm.c) */
tdm_status llm_ugm_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                          tdm_error *err);

/* RWKV. (tokenizer_rwkv.c) */
tdm_status llm_rwkv_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                           tdm_error *err);

/* The bytes of a token that is written with escapes (\t, \n, \r, \x41; any other character behind
 * a backslash is itself); returns their number, at most `size`. (tokenizer_rwkv.c) */
size_t llm_rwkv_unescape(const char *text, size_t size, char *out);

/* PLaMo-2. (tokenizer_plamo2.c) */
tdm_status llm_plamo2_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                             tdm_error *err);

#endif
