/* SPDX-License-Identifier: MIT
 *
 * vocab.h: a model's vocabulary: what each token says, what kind of token it is, and the tables
 * that turning text into tokens looks things up in.
 *
 * The model in the head: a vocabulary is made once, from plain arrays (or from a GGUF file, which
 * says the same in its `tokenizer.ggml.*` keys), copies what it needs, and never changes again.
 * Making it is apart from loading the weights: a model whose tokenizer this build does not know
 * gives TDM_UNSUPPORTED here and is still good for every command that takes token ids.
 *
 * Text to tokens and back is tokenizer.h. Chat templates are template.h's.
 */
#ifndef LLM_VOCAB_H
#define LLM_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm/gguf/gguf.h"
#include "tandem/status.h"

typedef struct llm_vocab llm_vocab;

/* No token: what lookups and the special ids below give where there is none. */
#define LLM_TOKEN_NONE (-1)

/* In llm_vocab_params only: whatever models of this kind assume where the key is missing. */
#define LLM_TOKEN_DEFAULT (-2)
#define LLM_FLAG_DEFAULT  (-1)

/* Numbered as in GGUF's tokenizer.ggml.token_type. */
typedef enum llm_token_type {
    LLM_TOKEN_UNDEFINED = 0,
    LLM_TOKEN_NORMAL = 1,
    LLM_TOKEN_UNKNOWN = 2,
    LLM_TOKEN_CONTROL = 3,
    LLM_TOKEN_USER_DEFINED = 4,
    LLM_TOKEN_UNUSED = 5,
    LLM_TOKEN_BYTE = 6,
} llm_token_type;

/* Bytes that are somebody else's; may hold any byte, not NUL-terminated. */
typedef struct llm_vocab_str {
    const char *ptr; /* NULL only where len is 0 */
    size_t len;
} llm_vocab_str;

/* What a vocabulary is made of, in GGUF's terms. Everything is copied. Begin with
 * llm_vocab_params_default(). */
typedef struct llm_vocab_params {
    const char
        *model;      /* tokenizer.ggml.model: "llama" (SentencePiece) or "gpt2" (byte-level BPE) */
    const char *pre; /* tokenizer.ggml.pre: the pre-tokenizer of a BPE; NULL or "": "default" */

    const llm_vocab_str *tokens; /* [n_token]; an empty one is never produced and prints nothing; of
                                  * equal ones the lowest id is produced, all of them print */
    size_t n_token;              /* at least 1 */
    const float *scores;         /* [n_token] of a SentencePiece model; NULL: all 0 */
    const int32_t *types;        /* [n_token], llm_token_type; NULL: all normal; a number that is no
                                  * type counts as undefined */
    const llm_vocab_str *merges; /* [n_merge] "left right", best first; BPE only */
    size_t n_merge;

    /* Token ids, LLM_TOKEN_NONE or LLM_TOKEN_DEFAULT (SentencePiece: bos 1, eos 2, unk 0 where the
     * vocabulary has them; otherwise none). The end-of-turn token is also found by its text. */
    int32_t bos_id, eos_id, unk_id, eot_id, eom_id;
    int32_t pad_id; /* one beyond the vocabulary counts as none: such files are about */

    /* 0, 1 or LLM_FLAG_DEFAULT (SentencePiece: bos and space prefix; BPE: what the pre-tokenizer's
     * models do, which is bos for Llama 3 and nothing for most). */
    int32_t add_bos, add_eos;
    int32_t add_space_prefix; /* SentencePiece only: text is read as if a space came before it */

    /* Special tokens other than <s>, <unk> and <|endoftext|> swallow the white space behind them, as
     * Phi-3's do. No key says so; the model's name does. */
    bool special_eats_space;
} llm_vocab_params;

/* No arrays, everything else at its default. [any-thread] */
llm_vocab_params llm_vocab_params_default(void);

/* Makes a vocabulary. On failure *out is NULL. TDM_UNSUPPORTED (a model or pre-tokenizer that this
 * build does not know; the message names it and those it knows), TDM_DATA_LOSS (no tokens, a score
 * that is not a number, a merge that is no pair, a special id outside the vocabulary, add_bos
 * without a bos), TDM_RESOURCE_EXHAUSTED. A merge may name pieces that are no tokens. The caller
 * owns *out. [any-thread] */
tdm_status llm_vocab_create(const llm_vocab_params *params, llm_vocab **out, tdm_error *err);

/* The same from a file's `tokenizer.ggml.*` keys. Besides the above: TDM_NOT_FOUND where
 * `tokenizer.ggml.model` or `.tokens` is missing, TDM_DATA_LOSS where a key has the wrong type or an
 * array the wrong length. The messages name the file. `gguf` may be closed afterwards. [setup] */
tdm_status llm_vocab_from_gguf(const llm_gguf *gguf, llm_vocab **out, tdm_error *err);

/* NULL is a no-op. Nobody may be using the vocabulary. [setup] */
void llm_vocab_destroy(llm_vocab *vocab);

/* Tokens have ids 0 to n - 1. [any-thread] */
int32_t llm_vocab_n_token(const llm_vocab *vocab);

/* "llama" or "gpt2"; the pre-tokenizer's name as given, "" for SentencePiece. Owned by the
 * vocabulary. [any-thread] */
const char *llm_vocab_model_name(const llm_vocab *vocab);
const char *llm_vocab_pre_name(const llm_vocab *vocab);

/* Special ids, LLM_TOKEN_NONE where the model has none. [any-thread] */
int32_t llm_vocab_bos(const llm_vocab *vocab);
int32_t llm_vocab_eos(const llm_vocab *vocab);
int32_t llm_vocab_eot(const llm_vocab *vocab);
int32_t llm_vocab_unk(const llm_vocab *vocab);
int32_t llm_vocab_pad(const llm_vocab *vocab);

/* Whether LLM_TOKENIZE_ADD_SPECIAL puts a bos before and an eos behind. [any-thread] */
bool llm_vocab_adds_bos(const llm_vocab *vocab);
bool llm_vocab_adds_eos(const llm_vocab *vocab);

/* Whether text is read as if a space came before it (SentencePiece). [any-thread] */
bool llm_vocab_adds_space(const llm_vocab *vocab);

/* True where generation ends with this token: eos, end of turn, end of message, and tokens that are
 * known by their text to mean one of them. False for an id outside the vocabulary. [any-thread] */
bool llm_vocab_ends_generation(const llm_vocab *vocab, int32_t id);

/* LLM_TOKEN_UNDEFINED for an id outside the vocabulary. A token that ends generation by its text is
 * LLM_TOKEN_CONTROL whatever the file says. [any-thread] */
llm_token_type llm_vocab_token_type(const llm_vocab *vocab, int32_t id);

/* The token as the file writes it (SentencePiece's U+2581 for a space, BPE's byte alphabet); empty
 * for an id outside the vocabulary. Lives as long as the vocabulary. [any-thread] */
llm_vocab_str llm_vocab_token_text(const llm_vocab *vocab, int32_t id);

/* The bytes that the token stands for in text, possibly part of a code point; empty for tokens that
 * stand for none (unused, undefined). Of control and unknown tokens it is their own text: whether
 * to show them is the caller's choice. Lives as long as the vocabulary. [any-thread] */
llm_vocab_str llm_vocab_token_bytes(const llm_vocab *vocab, int32_t id);

/* The token written exactly so in the file, or LLM_TOKEN_NONE. [any-thread] */
int32_t llm_vocab_find(const llm_vocab *vocab, const char *text, size_t len);

#endif
