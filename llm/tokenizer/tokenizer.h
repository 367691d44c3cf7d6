/* SPDX-License-Identifier: MIT
 *
 * tokenizer.h: text to token ids and back.
 *
 * The model in the head: llm_tokenize cuts the text at special tokens, then turns each stretch
 * between them into tokens, as the vocabulary's kind demands. llm_detok is the way back, one token
 * at a time, for text that is shown while it is generated: whatever it hands out is well-formed
 * UTF-8, so it keeps the first bytes of a code point until the rest has come.
 *
 * Ids are those that llama.cpp gives. Text that is not well-formed UTF-8 is no error: to a
 * byte-level BPE each ill-formed byte is a U+FFFD; to SentencePiece it is that byte's own token
 * where there is one. A character that the vocabulary cannot write becomes the unknown token, or
 * nothing where the vocabulary has none.
 */
#ifndef LLM_TOKENIZER_H
#define LLM_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "llm/tokenizer/vocab.h"
#include "tandem/status.h"

/* Flags of llm_tokenize. */
enum {
    LLM_TOKENIZE_ADD_SPECIAL = 1 << 0,   /* bos before, eos behind, where the model wants them */
    LLM_TOKENIZE_PARSE_SPECIAL = 1 << 1, /* control tokens written out in the text are tokens;
                                          * leave it off for text that is not to be trusted */
};

/* Turns text[0..len) into ids. Special tokens are found before all else, longest first;
 * user-defined ones always, control and unknown ones by flag. Takes O(len log len). The caller
 * frees *ids_out with free(); it is never NULL on success. On failure *ids_out is NULL.
 * TDM_OUT_OF_RANGE (more than 256 MiB of text), TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_tokenize(const llm_vocab *vocab, const char *text, size_t len, unsigned flags,
                        int32_t **ids_out, size_t *n_out, tdm_error *err);

/* Flags of the way back. */
enum {
    LLM_DETOKENIZE_SPECIAL =
        1 << 0, /* write control and unknown tokens out, else they say nothing */
    LLM_DETOKENIZE_CONTINUE = 1 << 1, /* the ids go on from a text that was there before; without it
                                       * the space that a SentencePiece model puts before a text is
                                       * taken off again */
};

/* The text of ids[0..n), as one llm_detok would give it with a flush at its end: well-formed UTF-8,
 * NUL-terminated beyond *len_out. The caller frees *text_out with free(). On failure *text_out is
 * NULL. TDM_OUT_OF_RANGE (an id outside the vocabulary), TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_detokenize(const llm_vocab *vocab, const int32_t *ids, size_t n, unsigned flags,
                          char **text_out, size_t *len_out, tdm_error *err);

/* A text in the making. One user at a time; several may share the vocabulary. */
typedef struct llm_detok llm_detok;

/* Begins a text; `vocab` must outlive it. On failure *out is NULL. TDM_RESOURCE_EXHAUSTED.
 * [any-thread] */
tdm_status llm_detok_create(const llm_vocab *vocab, unsigned flags, llm_detok **out,
                            tdm_error *err);

/* NULL is a no-op. */
void llm_detok_destroy(llm_detok *detok);

/* Begins another text with the same flags. Bytes kept back are dropped. */
void llm_detok_reset(llm_detok *detok);

/* Adds a token. *text is what can be shown now: whole code points, often none (len 0). It belongs to
 * the stream and lives until its next call. Bytes that can never become a code point are shown as
 * U+FFFD, one for each longest part of one. TDM_OUT_OF_RANGE (an id outside the vocabulary; the
 * stream is as before), TDM_RESOURCE_EXHAUSTED. */
tdm_status llm_detok_push(llm_detok *detok, int32_t id, llm_vocab_str *text, tdm_error *err);

/* Ends the text: a code point still unfinished is shown as one U+FFFD. Lives as above. The stream
 * may go on afterwards. */
llm_vocab_str llm_detok_flush(llm_detok *detok);

#endif
