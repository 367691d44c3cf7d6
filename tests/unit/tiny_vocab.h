/* SPDX-License-Identifier: MIT
 *
 * tiny_vocab.h: two vocabularies small enough to follow by hand, for the tests of the tokenizer.
 */
#ifndef TESTS_TINY_VOCAB_H
#define TESTS_TINY_VOCAB_H

#include <string.h>

#include "llm/tokenizer/vocab.h"
#include "llm/tokenizer/vocab_table.h"

#define TINY_COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct tiny_token {
    const char *text;
    float score;
    int32_t type;
} tiny_token;

/* SentencePiece. Of all bytes it has only those of U+00E9 and newline. */
enum {
    SPM_UNK,
    SPM_BOS,
    SPM_EOS,
    SPM_SPACE,
    SPM_A,
    SPM_B,
    SPM_C,
    SPM_AB,
    SPM_BC,
    SPM_SPACE_A,
    SPM_ABC,
    SPM_AA,
    SPM_AAAA,
    SPM_X,
    SPM_XY,
    SPM_C3,
    SPM_A9,
    SPM_LF,
    SPM_EMPTY,
    SPM_TWIN,
    SPM_UNUSED,
    SPM_COUNT
};

static const tiny_token tiny_spm_tokens[SPM_COUNT] = {
    [SPM_UNK] = {"<unk>", 0, LLM_TOKEN_UNKNOWN},
    [SPM_BOS] = {"<s>", 0, LLM_TOKEN_CONTROL},
    [SPM_EOS] = {"</s>", 0, LLM_TOKEN_CONTROL},
    [SPM_SPACE] = {"\xE2\x96\x81", -10, LLM_TOKEN_NORMAL},
    [SPM_A] = {"a", -11, LLM_TOKEN_NORMAL},
    [SPM_B] = {"b", -12, LLM_TOKEN_NORMAL},
    [SPM_C] = {"c", -13, LLM_TOKEN_NORMAL},
    [SPM_AB] = {"ab", -2, LLM_TOKEN_NORMAL},
    [SPM_BC] = {"bc", -1, LLM_TOKEN_NORMAL},
    [SPM_SPACE_A] = {"\xE2\x96\x81"
                     "a",
                     -3, LLM_TOKEN_NORMAL},
    [SPM_ABC] = {"abc", -4, LLM_TOKEN_NORMAL},
    [SPM_AA] = {"aa", -5, LLM_TOKEN_NORMAL},
    [SPM_AAAA] = {"aaaa", -6, LLM_TOKEN_NORMAL},
    [SPM_X] = {"<|x|>", 0, LLM_TOKEN_USER_DEFINED},
    [SPM_XY] = {"<|x|>y", 0, LLM_TOKEN_CONTROL},
    [SPM_C3] = {"<0xC3>", 0, LLM_TOKEN_BYTE},
    [SPM_A9] = {"<0xA9>", 0, LLM_TOKEN_BYTE},
    [SPM_LF] = {"<0x0A>", 0, LLM_TOKEN_BYTE},
    [SPM_EMPTY] = {"", 0, LLM_TOKEN_NORMAL},
    [SPM_TWIN] = {"ab", 0, LLM_TOKEN_NORMAL}, /* a second "ab": never produced, can be shown */
    [SPM_UNUSED] = {"unused", 0, LLM_TOKEN_UNUSED},
};

/* Byte-level BPE: the 256 bytes in order, then these. */
enum {
    BPE_HE = 256,
    BPE_LL,
    BPE_HELL,
    BPE_HELLO,
    BPE_SPACE_W,
    BPE_XYZ,
    BPE_EOT,
    BPE_TOOL,
    BPE_HEY,
    BPE_COUNT
};

static const tiny_token tiny_bpe_tokens[BPE_COUNT - 256] = {
    [BPE_HE - 256] = {"he", 0, LLM_TOKEN_NORMAL},
    [BPE_LL - 256] = {"ll", 0, LLM_TOKEN_NORMAL},
    [BPE_HELL - 256] = {"hell", 0, LLM_TOKEN_NORMAL},
    [BPE_HELLO - 256] = {"hello", 0, LLM_TOKEN_NORMAL},
    [BPE_SPACE_W - 256] = {"\xC4\xA0w", 0, LLM_TOKEN_NORMAL},
    [BPE_XYZ - 256] = {"xyz", 0, LLM_TOKEN_NORMAL},
    [BPE_EOT - 256] = {"<|endoftext|>", 0, LLM_TOKEN_CONTROL},
    [BPE_TOOL - 256] = {"<|tool|>", 0, LLM_TOKEN_USER_DEFINED},
    [BPE_HEY - 256] = {"hey", 0, LLM_TOKEN_NORMAL}, /* no merge leads to it */
};

/* "xy" and "qr" are no tokens. */
static const char *const tiny_bpe_merges[] = {"h e",        "l l", "he ll", "hell o",
                                              "\xC4\xA0 w", "x y", "xy z",  "q r"};

/* Where parameters point to. Lives as long as they do. */
typedef struct tiny_vocab {
    llm_vocab_params params;
    llm_vocab_str tokens[512];
    float scores[512];
    int32_t types[512];
    llm_vocab_str merges[16];
    char letters[256][2];
} tiny_vocab;

static inline void tiny_vocab_add(tiny_vocab *v, const tiny_token *token) {
    const size_t i = v->params.n_token++;
    v->tokens[i] = (llm_vocab_str){token->text, strlen(token->text)};
    v->scores[i] = token->score;
    v->types[i] = token->type;
}

static inline void tiny_vocab_begin(tiny_vocab *v, const char *model) {
    v->params = llm_vocab_params_default();
    v->params.model = model;
    v->params.tokens = v->tokens;
    v->params.types = v->types;
}

static inline void tiny_spm(tiny_vocab *v) {
    tiny_vocab_begin(v, "llama");
    v->params.scores = v->scores;
    for (size_t i = 0; i < SPM_COUNT; ++i) tiny_vocab_add(v, &tiny_spm_tokens[i]);
}

static inline void tiny_bpe(tiny_vocab *v, const char *pre) {
    tiny_vocab_begin(v, "gpt2");
    v->params.pre = pre;
    for (size_t b = 0; b < 256; ++b) {
        const size_t n = llm_byte_letter_write((unsigned char)b, v->letters[b]);
        v->tokens[b] = (llm_vocab_str){v->letters[b], n};
        v->types[b] = LLM_TOKEN_NORMAL;
    }
    v->params.n_token = 256;
    for (size_t i = 0; i < TINY_COUNT(tiny_bpe_tokens); ++i) tiny_vocab_add(v, &tiny_bpe_tokens[i]);
    for (size_t i = 0; i < TINY_COUNT(tiny_bpe_merges); ++i)
        v->merges[i] = (llm_vocab_str){tiny_bpe_merges[i], strlen(tiny_bpe_merges[i])};
    v->params.merges = v->merges;
    v->params.n_merge = TINY_COUNT(tiny_bpe_merges);
    v->params.bos_id = v->params.eos_id = BPE_EOT;
}

#endif
