/* SPDX-License-Identifier: MIT
 *
 * vocab_table.h: the tables inside a vocabulary, for the files of the vocabulary and the encoders
 * only. vocab.c fills them when the vocabulary is created; afterwards they do not change.
 */
#ifndef LLM_VOCAB_TABLE_H
#define LLM_VOCAB_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm/tokenizer/charsmap.h"
#include "llm/tokenizer/piece_index.h"
#include "llm/tokenizer/pretokenizer.h"
#include "llm/tokenizer/vocab.h"

/* A piece is a string that may occur while encoding. Tokens come first, so that a token's piece is
 * its id. In a BPE, strings that occur only in merges follow. */
#define LLM_PIECE_NONE UINT32_MAX

typedef enum llm_vocab_kind {
    LLM_VOCAB_SPM,    /* SentencePiece's BPE, as in Llama 2 and Mistral: merges by score */
    LLM_VOCAB_BPE,    /* merges by rank within words */
    LLM_VOCAB_WPM,    /* WordPiece, as in BERT: the longest token each time, within words */
    LLM_VOCAB_UGM,    /* Unigram, as in T5: the best sum of scores */
    LLM_VOCAB_RWKV,   /* the longest token each time */
    LLM_VOCAB_PLAMO2, /* the best sum of scores, from the right */
} llm_vocab_kind;

/* A value of tokenizer.ggml.model, and its defaults. */
typedef struct llm_vocab_rule {
    const char *model;
    const char *people; /* the name of the kind in messages */
    llm_vocab_kind kind;
    bool has_scores;
    bool adds_bos, adds_eos, adds_space; /* BPE: bos by the pre-tokenizer */
    bool lowers_case;
    bool drops_space; /* BPE: white space is not encoded */
    const char *pre;  /* BPE: the pre-tokenizer, whatever the file says, or NULL */
    int32_t bos_id, eos_id, unk_id, sep_id, pad_id;
} llm_vocab_rule;

/* The rule of a model, or NULL; the rules in order, NULL behind the last one. [any-thread] */
const llm_vocab_rule *llm_vocab_rule_find(const char *model);
const llm_vocab_rule *llm_vocab_rule_at(size_t i);

typedef struct llm_byte_range {
    size_t off;
    uint32_t size;
} llm_byte_range;

typedef struct llm_string_slot {
    uint32_t hash;
    uint32_t piece; /* LLM_PIECE_NONE = empty */
} llm_string_slot;

typedef struct llm_merge_slot {
    uint64_t pair; /* left piece << 32 | right piece; UINT64_MAX = empty */
    uint32_t rank; /* lower merges first */
    uint32_t piece;
} llm_merge_slot;

/* Special tokens of one length. */
typedef struct llm_special_size {
    uint32_t size;           /* bytes */
    uint64_t first_user[4];  /* first bytes of user-defined ones, a bit each */
    uint64_t first_other[4]; /* of control and unknown ones */
} llm_special_size;

struct llm_vocab {
    const llm_vocab_rule *rule;
    char *pre_name;
    llm_pretokenizer *pre; /* BPE only */

    int32_t n_token;
    uint32_t n_piece;
    uint32_t max_piece_size; /* bytes of the longest piece */

    char *text; /* of `pieces` */
    size_t text_size, text_capacity;
    llm_byte_range *pieces; /* [n_piece] texts in the file */
    size_t piece_capacity;

    char *bytes; /* of `shown` */
    size_t bytes_size, bytes_capacity;
    llm_byte_range *shown; /* [n_token] decoded bytes */

    uint8_t *types;  /* [n_token] llm_token_type */
    float *scores;   /* [n_token] where the rule says so */
    float min_score; /* of normal tokens */

    llm_string_slot *strings; /* [string_mask + 1], a power of two; at most 5/8 full, so that every
                                 search meets an empty slot */
    uint32_t string_mask;
    llm_merge_slot *merges; /* [merge_mask + 1], likewise */
    uint32_t merge_mask;
    uint32_t byte_piece[256]; /* the token of a byte; byte-level BPE: the piece of its letter */

    /* `index`: tokens for text, of all kinds but SentencePiece and BPE. `user_index`: user-defined
     * tokens, of Unigram. */
    llm_piece_index index, user_index;
    llm_charsmap charsmap; /* Unigram */

    llm_special_size *special_sizes; /* longest first */
    size_t n_special_size;

    int32_t bos_id, eos_id, unk_id, eot_id, eom_id, sep_id, pad_id;
    int32_t last_id; /* what add_eos adds: eos, in WordPiece sep */
    bool add_bos, add_eos, add_sep, add_space_prefix, special_drops_space;
    bool merges_spaces, lowers_case, strips_accents; /* of text, before it is encoded */
    int32_t keep_space_ids[3]; /* special tokens after which white space stays, or NONE */

    int32_t *end_ids; /* ascending */
    size_t n_end_id;
    int32_t *suppressed; /* [n_suppressed] ids that must not be sampled; NULL = none */
    int32_t n_suppressed;
};

/* The hash functions of the two tables. */
uint32_t llm_vocab_hash(const char *text, size_t size);
uint32_t llm_vocab_pair_hash(uint64_t pair);

/* The piece with this text, or LLM_PIECE_NONE. */
uint32_t llm_vocab_piece_find(const llm_vocab *vocab, const char *text, size_t size);

/* The merge of two pieces, or NULL. */
const llm_merge_slot *llm_vocab_merge_find(const llm_vocab *vocab, uint32_t left, uint32_t right);

/* Appends n bytes to a buffer, which grows; false if there is no memory, then it is unchanged.
 * *bytes is not NULL afterwards, also for n 0. */
bool llm_vocab_bytes_add(char **bytes, size_t *size, size_t *capacity, const char *add, size_t n);

/* Makes vocab->shown, the decoded bytes of tokens. TDM_RESOURCE_EXHAUSTED. (vocab_shown.c) */
tdm_status llm_vocab_shown_make(llm_vocab *vocab, tdm_error *err);

/* The byte of a text such as "<0x41>", -1 for any other text. (vocab_shown.c) */
int llm_byte_of_name(const char *text, size_t size);

/* The byte alphabet (GPT-2's bytes_to_unicode): printable Latin-1 bytes map to themselves, the
 * other 68 to U+0100 and following. llm_byte_of_letter returns -1 for a code point outside the
 * alphabet. */
uint32_t llm_byte_letter(unsigned char byte);
int llm_byte_of_letter(uint32_t letter);

/* Writes the letter in UTF-8, 1 or 2 bytes; returns how many. */
size_t llm_byte_letter_write(unsigned char byte, char out[2]);

#endif
