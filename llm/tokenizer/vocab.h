/* SPDX-License-Identifier: MIT
 *
 * vocab.h: a model's vocabulary: the text and kind of each token, and the tables for encoding.
 *
 * A vocabulary is created from plain arrays, or from the `tokenizer.ggml.*` keys of a GGUF file. It
 * copies its input and does not change afterwards. It does not depend on the weights: a model with
 * an unknown tokenizer gives TDM_UNSUPPORTED here and still works in commands that take token ids.
 *
 * Text to tokens and back: tokenizer.h. Chat templates: template.h.
 */
#ifndef LLM_VOCAB_H
#define LLM_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm/gguf/gguf.h"
#include "tandem/status.h"

typedef struct llm_vocab llm_vocab;

/* No token: the result of lookups and of the special ids below if there is none. */
#define LLM_TOKEN_NONE (-1)

/* In llm_vocab_params only: the default of this kind of model. */
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

/* Bytes owned by another object; any values, not NUL-terminated. */
typedef struct llm_vocab_str {
    const char *ptr; /* NULL only if len is 0 */
    size_t len;
} llm_vocab_str;

/* The parts of a vocabulary, in GGUF's terms. All is copied. Start from
 * llm_vocab_params_default(). */
typedef struct llm_vocab_params {
    const char *model; /* tokenizer.ggml.model: "llama" (SentencePiece), "gpt2" (byte-level BPE),
                        * "gemma4", "whitespace", "bert", "t5", "rwkv", "plamo2" (vocab_kind.c) */
    const char *pre;   /* tokenizer.ggml.pre: the pre-tokenizer of a BPE; NULL or "": "default" */

    /* [n_token]; encoding never gives an empty one, and the lowest id of equal ones; decoding
     * accepts all */
    const llm_vocab_str *tokens;
    size_t n_token;              /* at least 1 */
    const float *scores;         /* [n_token] of SentencePiece, Unigram and PLaMo-2; NULL = all 0 */
    const int32_t *types;        /* [n_token], llm_token_type; NULL = all normal; an unknown number
                                  * counts as undefined */
    const llm_vocab_str *merges; /* [n_merge] "left right", best first; BPE only */
    size_t n_merge;

    /* Token ids, LLM_TOKEN_NONE or LLM_TOKEN_DEFAULT (by the model, if the vocabulary has them:
     * SentencePiece bos 1, eos 2, unk 0; others in vocab_kind.c). The end-of-turn token is also
     * found by its text. */
    int32_t bos_id, eos_id, unk_id, eot_id, eom_id;
    int32_t sep_id; /* WordPiece adds it at the end of a text */
    int32_t pad_id; /* an id outside the vocabulary counts as none: such files exist */

    /* 0, 1 or LLM_FLAG_DEFAULT (SentencePiece: bos and space prefix; Unigram: eos; BPE: by the
     * pre-tokenizer, bos for Llama 3, none for most). WordPiece always adds bos and sep, and Gemma
     * 4 bos. */
    int32_t add_bos, add_eos;
    int32_t add_sep; /* 0 or 1: between two texts, behind the eos of the first; WordPiece: 0 */
    int32_t add_space_prefix; /* SentencePiece and Unigram: text is encoded as if it began with a
                               * space */

    /* Normalization. */
    bool merges_spaces;  /* Unigram: several spaces count as one, none at the ends */
    int32_t lowers_case; /* WordPiece and "whitespace": 0, 1 or LLM_FLAG_DEFAULT (WordPiece: 1) */
    int32_t strips_accents; /* WordPiece: 0, 1 or LLM_FLAG_DEFAULT (as lowers_case) */
    llm_vocab_str charsmap; /* Unigram: rules (charsmap.h); empty = none */

    /* [n_suppressed] tokens that must not be sampled, because nothing was learned for them; ids
     * outside the vocabulary are left out */
    const int32_t *suppressed;
    size_t n_suppressed;

    /* White space after special tokens other than <s>, <unk> and <|endoftext|> is dropped, as in
     * Phi-3. There is no key for it; it is set by the model's name. */
    bool special_drops_space;
} llm_vocab_params;

/* No arrays; all other fields at their defaults. [any-thread] */
llm_vocab_params llm_vocab_params_default(void);

/* Makes a vocabulary. On failure *out is NULL. TDM_UNSUPPORTED (an unknown model or
 * pre-tokenizer; the message lists the known ones), TDM_DATA_LOSS (no tokens, a score that is not a
 * number, a merge that is not a pair, a special id outside the vocabulary, add_bos without a bos,
 * damaged rules, a PLaMo-2 model without a token for each byte),
 * TDM_RESOURCE_EXHAUSTED. A merge may name pieces that are not tokens. The caller owns *out.
 * [any-thread] */
tdm_status llm_vocab_create(const llm_vocab_params *params, llm_vocab **out, tdm_error *err);

/* The same from a file's `tokenizer.ggml.*` keys. It also fails with TDM_NOT_FOUND if
 * `tokenizer.ggml.model` or `.tokens` is missing, and TDM_DATA_LOSS if a key has the wrong type or
 * an array the wrong length. The messages name the file. `gguf` may be closed afterwards.
 * [setup] */
tdm_status llm_vocab_from_gguf(const llm_gguf *gguf, llm_vocab **out, tdm_error *err);

/* NULL is a no-op. The vocabulary is no longer in use. [setup] */
void llm_vocab_destroy(llm_vocab *vocab);

/* Tokens have ids 0 to n - 1. [any-thread] */
int32_t llm_vocab_n_token(const llm_vocab *vocab);

/* tokenizer.ggml.model; the pre-tokenizer's name, "" if it is no BPE. Owned by the vocabulary.
 * [any-thread] */
const char *llm_vocab_model_name(const llm_vocab *vocab);
const char *llm_vocab_pre_name(const llm_vocab *vocab);

/* Special ids, LLM_TOKEN_NONE if the model has none. [any-thread] */
int32_t llm_vocab_bos(const llm_vocab *vocab);
int32_t llm_vocab_eos(const llm_vocab *vocab);
int32_t llm_vocab_eot(const llm_vocab *vocab);
int32_t llm_vocab_unk(const llm_vocab *vocab);
int32_t llm_vocab_pad(const llm_vocab *vocab);
int32_t llm_vocab_sep(const llm_vocab *vocab);
/* What LLM_TOKENIZE_ADD_SPECIAL adds at the end: eos, in WordPiece sep. */
int32_t llm_vocab_last(const llm_vocab *vocab);

/* Whether LLM_TOKENIZE_ADD_SPECIAL adds a bos at the beginning, or an eos (WordPiece: a sep) at the
 * end. [any-thread] */
bool llm_vocab_adds_bos(const llm_vocab *vocab);
bool llm_vocab_adds_eos(const llm_vocab *vocab);
/* Whether a separator stands between two texts that are read together, besides these.
 * [any-thread] */
bool llm_vocab_adds_sep(const llm_vocab *vocab);

/* Whether text is encoded as if it began with a space (SentencePiece, Unigram). [any-thread] */
bool llm_vocab_adds_space(const llm_vocab *vocab);

/* Whether generation ends with this token: eos, end of turn, end of message, and tokens whose text
 * is known to have one of these meanings. False for an id outside the vocabulary. [any-thread] */
bool llm_vocab_ends_generation(const llm_vocab *vocab, int32_t id);

/* Tokens that must not be sampled: *n_out ids below llm_vocab_n_token, from
 * tokenizer.ggml.suppress_tokens. Owned by the vocabulary; NULL if there are none. [any-thread] */
const int32_t *llm_vocab_suppressed(const llm_vocab *vocab, int32_t *n_out);

/* LLM_TOKEN_UNDEFINED for an id outside the vocabulary. A token that ends generation by its text is
 * always LLM_TOKEN_CONTROL. [any-thread] */
llm_token_type llm_vocab_token_type(const llm_vocab *vocab, int32_t id);

/* The token's text in the file (with SentencePiece's U+2581 for a space, or BPE's byte alphabet);
 * empty for an id outside the vocabulary. Owned by the vocabulary. [any-thread] */
llm_vocab_str llm_vocab_token_text(const llm_vocab *vocab, int32_t id);

/* The bytes of the token in decoded text, possibly a part of a code point; empty for unused and
 * undefined tokens. For control and unknown tokens it is their text in the file; the caller decides
 * whether to show it. Owned by the vocabulary. [any-thread] */
llm_vocab_str llm_vocab_token_bytes(const llm_vocab *vocab, int32_t id);

/* The token with exactly this text in the file, or LLM_TOKEN_NONE. [any-thread] */
int32_t llm_vocab_find(const llm_vocab *vocab, const char *text, size_t len);

#endif
