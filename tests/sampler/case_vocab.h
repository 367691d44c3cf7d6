/* SPDX-License-Identifier: MIT
 *
 * case_vocab.h: the vocabulary of the cases of cases.h, and vocabularies from plain texts.
 */
#ifndef TESTS_SAMPLER_CASE_VOCAB_H
#define TESTS_SAMPLER_CASE_VOCAB_H

#include <string.h>

#include "llm/tokenizer/vocab.h"
#include "llm/tokenizer/vocab_table.h"
#include "tests/sampler/cases.h"

enum { TEXT_VOCAB_MAX = 256, TEXT_TOKEN_MAX = 32 };

/* A byte-level vocabulary of n tokens with these texts, or NULL. Token i has texts[i], the byte
 * `bytes[i]` where that is NULL. */
static inline llm_vocab *text_vocab_make(const char *const *texts, const unsigned char *bytes,
                                         int n) {
    char letters[TEXT_VOCAB_MAX][2 * TEXT_TOKEN_MAX];
    llm_vocab_str tokens[TEXT_VOCAB_MAX];
    for (int i = 0; i < n; i++) {
        size_t len = 0;
        const char *text = texts[i];
        if (text == NULL) len = llm_byte_letter_write(bytes[i], letters[i]);
        for (size_t k = 0; text != NULL && k < strlen(text) && k < TEXT_TOKEN_MAX; k++)
            len += llm_byte_letter_write((unsigned char)text[k], letters[i] + len);
        tokens[i] = (llm_vocab_str){letters[i], len};
    }
    llm_vocab_params params = llm_vocab_params_default();
    params.model = "gpt2";
    params.tokens = tokens;
    params.n_token = (size_t)n;
    params.bos_id = params.eos_id = LLM_TOKEN_NONE;
    llm_vocab *vocab = NULL;
    return llm_vocab_create(&params, &vocab, NULL) == TDM_OK ? vocab : NULL;
}

/* GPT-2's tokens of single bytes have the order of their letters: first those that are letters by
 * themselves. */
static inline llm_vocab *case_vocab_make(void) {
    const char *texts[CASE_VOCAB] = {NULL};
    unsigned char bytes[CASE_VOCAB];
    for (int i = 0; i < CASE_VOCAB; i++)
        bytes[i] = (unsigned char)(i < 94    ? '!' + i
                                   : i < 106 ? 0xA1 + i - 94
                                   : i < 188 ? 0xAE + i - 106
                                             : i - 188);
    for (int i = 0; i < CASE_WORDS; i++) texts[CASE_WORD + i] = case_words[i];
    return text_vocab_make(texts, bytes, CASE_VOCAB);
}

#endif
