/* SPDX-License-Identifier: MIT
 *
 * vocab_table.h: the insides of a vocabulary, for the encoders and the vocabulary alone. Everything
 * is written by vocab.c while the vocabulary is made and only read afterwards.
 */
#ifndef LLM_VOCAB_TABLE_H
#define LLM_VOCAB_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm/tokenizer/pretokenizer.h"
#include "llm/tokenizer/vocab.h"

/* A piece is a string that an encoder may have in hand: tokens come first, so that a token's piece
 * is its id; behind them, in a BPE, what merges name and no token is. */
#define LLM_PIECE_NONE UINT32_MAX

typedef enum llm_vocab_kind {
    LLM_VOCAB_SPM, /* SentencePiece, as Llama 2 and Mistral have it: merges by score */
    LLM_VOCAB_BPE, /* byte-level BPE: merges by rank within words */
} llm_vocab_kind;

typedef struct llm_byte_range {
    size_t off;
    uint32_t size;
} llm_byte_range;

typedef struct llm_string_slot {
    uint32_t hash;
    uint32_t piece; /* LLM_PIECE_NONE: empty */
} llm_string_slot;

typedef struct llm_merge_slot {
    uint64_t pair; /* left piece << 32 | right piece; UINT64_MAX: empty */
    uint32_t rank; /* lower merges first */
    uint32_t piece;
} llm_merge_slot;

/* Special tokens of one length. */
typedef struct llm_special_size {
    uint32_t size;           /* bytes */
    uint64_t first_user[4];  /* the bytes that user-defined ones begin with, a bit each */
    uint64_t first_other[4]; /* and control and unknown ones */
} llm_special_size;

struct llm_vocab {
    llm_vocab_kind kind;
    char *pre_name;
    llm_pretokenizer *pre; /* BPE only */

    int32_t n_token;
    uint32_t n_piece;
    uint32_t max_piece_size; /* bytes of the longest piece */

    char *text; /* what `pieces` point into */
    size_t text_size, text_capacity;
    llm_byte_range *pieces; /* [n_piece] as the file writes them */
    size_t piece_capacity;

    char *bytes; /* what `shown` points into */
    size_t bytes_size, bytes_capacity;
    llm_byte_range *shown; /* [n_token] what tokens stand for */

    uint8_t *types; /* [n_token] llm_token_type */
    float *scores;  /* [n_token], SentencePiece only */

    llm_string_slot *strings; /* power of two, at most 5/8 full */
    uint32_t string_mask;
    llm_merge_slot *merges; /* likewise */
    uint32_t merge_mask;
    uint32_t byte_piece[256]; /* SentencePiece: the token of a byte; BPE: the piece of its letter */

    llm_special_size *special_sizes; /* longest first */
    size_t n_special_size;

    int32_t bos_id, eos_id, unk_id, eot_id, eom_id, pad_id;
    bool add_bos, add_eos, add_space_prefix, special_eats_space;
    int32_t no_eat_ids[3]; /* special tokens that don't, or LLM_TOKEN_NONE */

    int32_t *end_ids; /* ascending */
    size_t n_end_id;
};

/* What the two tables are hashed with. */
uint32_t llm_vocab_hash(const char *text, size_t size);
uint32_t llm_vocab_pair_hash(uint64_t pair);

/* The piece written so, or LLM_PIECE_NONE. */
uint32_t llm_vocab_piece_find(const llm_vocab *vocab, const char *text, size_t size);

/* The merge of two pieces, or NULL. */
const llm_merge_slot *llm_vocab_merge_find(const llm_vocab *vocab, uint32_t left, uint32_t right);

/* The letter of the byte alphabet (GPT-2's bytes_to_unicode): printable Latin-1 stands for itself,
 * the other 68 bytes for U+0100 and following. Both directions; the second gives -1 for a code
 * point that is no letter. */
uint32_t llm_byte_letter(unsigned char byte);
int llm_byte_of_letter(uint32_t letter);

/* Writes the letter in UTF-8, 1 or 2 bytes; returns how many. */
size_t llm_byte_letter_write(unsigned char byte, char out[2]);

#endif
