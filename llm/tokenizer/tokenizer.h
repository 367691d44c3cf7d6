/* SPDX-License-Identifier: MIT
 *
 * tokenizer.h: text to token ids and back.
 *
 * llm_tokenize cuts the text at special tokens and encodes the text between them by the kind of the
 * vocabulary. llm_detok decodes one token at a time, for text that is shown while it is generated.
 * All text that it returns is well-formed UTF-8: it keeps the first bytes of a code point until the
 * rest arrives.
 *
 * Ids equal those of llama.cpp. Text that is not well-formed UTF-8 is not an error. A byte-level
 * BPE reads each ill-formed byte as U+FFFD; SentencePiece uses the token of that byte if there is
 * one. A character that no token can express becomes the unknown token, or nothing if there is
 * none.
 */
#ifndef LLM_TOKENIZER_H
#define LLM_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "llm/tokenizer/vocab.h"
#include "tandem/status.h"

/* Flags of llm_tokenize. */
enum {
    LLM_TOKENIZE_ADD_SPECIAL = 1 << 0,   /* add bos and eos if the model uses them */
    LLM_TOKENIZE_PARSE_SPECIAL = 1 << 1, /* the texts of control tokens become those tokens; not
                                          * for text from an untrusted source */
};

/* Converts text[0..len) to ids. Special tokens are found first, the longest ones first:
 * user-defined ones always, control and unknown ones by flag. Takes O(len log len). The caller
 * frees *ids_out with free(); it is not NULL on success, and NULL on failure. TDM_OUT_OF_RANGE
 * (more than 256 MiB of text), TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_tokenize(const llm_vocab *vocab, const char *text, size_t len, unsigned flags,
                        int32_t **ids_out, size_t *n_out, tdm_error *err);

/* Flags of llm_detokenize and llm_detok. */
enum {
    LLM_DETOKENIZE_SPECIAL =
        1 << 0, /* give the texts of control and unknown tokens; else they give none */
    LLM_DETOKENIZE_CONTINUE = 1 << 1, /* the ids continue an earlier text; without it the space that
                                       * SentencePiece adds before a text is removed */
};

/* The text of ids[0..n), as from llm_detok with a flush at the end: well-formed UTF-8, with a NUL
 * behind its *len_out bytes. The caller frees *text_out with free(). On failure *text_out is NULL.
 * TDM_OUT_OF_RANGE (an id outside the vocabulary), TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_detokenize(const llm_vocab *vocab, const int32_t *ids, size_t n, unsigned flags,
                          char **text_out, size_t *len_out, tdm_error *err);

/* A stream that decodes one text. One thread at a time; several streams may share a vocabulary. */
typedef struct llm_detok llm_detok;

/* Begins a text; `vocab` outlives the stream. On failure *out is NULL. TDM_RESOURCE_EXHAUSTED.
 * [any-thread] */
tdm_status llm_detok_create(const llm_vocab *vocab, unsigned flags, llm_detok **out,
                            tdm_error *err);

/* NULL is a no-op. */
void llm_detok_destroy(llm_detok *detok);

/* Begins another text with the same flags and drops bytes kept so far. */
void llm_detok_reset(llm_detok *detok);

/* Adds a token. *text receives the whole code points that are complete now, often none (len 0). The
 * stream owns it until the next call. Bytes that cannot become a code point give U+FFFD, one for
 * each longest prefix of a code point. TDM_OUT_OF_RANGE (an id outside the vocabulary; the stream
 * is unchanged), TDM_RESOURCE_EXHAUSTED. */
tdm_status llm_detok_push(llm_detok *detok, int32_t id, llm_vocab_str *text, tdm_error *err);

/* Ends the text: an unfinished code point gives one U+FFFD. The stream owns the result until the
 * next call, and may be used further. */
llm_vocab_str llm_detok_flush(llm_detok *detok);

#endif
