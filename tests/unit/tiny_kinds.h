/* SPDX-License-Identifier: MIT
 *
 * tiny_kinds.h: vocabularies of the kinds besides SentencePiece and byte-level BPE (tiny_vocab.h),
 * small enough to follow by hand.
 */
#ifndef TESTS_TINY_KINDS_H
#define TESTS_TINY_KINDS_H

#include <stdio.h>

#include "tests/unit/tiny_vocab.h"

#define TINY_MARK "\xE2\x96\x81"

enum {
    WPM_PAD,
    WPM_UNK,
    WPM_CLS,
    WPM_SEP,
    WPM_HELLO,
    WPM_HE,
    WPM_LO,
    WPM_COMMA,
    WPM_HAN,
    WPM_E,
    WPM_COUNT
};
static const tiny_token tiny_wpm_tokens[WPM_COUNT] = {
    [WPM_PAD] = {"[PAD]", 0, LLM_TOKEN_CONTROL},
    [WPM_UNK] = {"[UNK]", 0, LLM_TOKEN_UNKNOWN},
    [WPM_CLS] = {"[CLS]", 0, LLM_TOKEN_CONTROL},
    [WPM_SEP] = {"[SEP]", 0, LLM_TOKEN_CONTROL},
    [WPM_HELLO] = {TINY_MARK "hello", 0, LLM_TOKEN_NORMAL},
    [WPM_HE] = {TINY_MARK "he", 0, LLM_TOKEN_NORMAL},
    [WPM_LO] = {"lo", 0, LLM_TOKEN_NORMAL},
    [WPM_COMMA] = {TINY_MARK ",", 0, LLM_TOKEN_NORMAL},
    [WPM_HAN] = {TINY_MARK "\xE4\xB8\xAD", 0, LLM_TOKEN_NORMAL},
    [WPM_E] = {TINY_MARK "e", 0, LLM_TOKEN_NORMAL},
};

enum {
    UGM_PAD,
    UGM_EOS,
    UGM_UNK,
    UGM_SPACE,
    UGM_A,
    UGM_B,
    UGM_AB,
    UGM_SPACE_A,
    UGM_SPACE_AB,
    UGM_USER,
    UGM_COUNT
};
static const tiny_token tiny_ugm_tokens[UGM_COUNT] = {
    [UGM_PAD] = {"<pad>", 0, LLM_TOKEN_CONTROL},
    [UGM_EOS] = {"</s>", 0, LLM_TOKEN_CONTROL},
    [UGM_UNK] = {"<unk>", 0, LLM_TOKEN_UNKNOWN},
    [UGM_SPACE] = {TINY_MARK, -5, LLM_TOKEN_NORMAL},
    [UGM_A] = {"a", -2, LLM_TOKEN_NORMAL},
    [UGM_B] = {"b", -2.5f, LLM_TOKEN_NORMAL},
    [UGM_AB] = {"ab", -3, LLM_TOKEN_NORMAL},
    [UGM_SPACE_A] = {TINY_MARK "a", -2.25f, LLM_TOKEN_NORMAL},
    [UGM_SPACE_AB] = {TINY_MARK "ab", -6, LLM_TOKEN_NORMAL},
    [UGM_USER] = {"<u>", 0, LLM_TOKEN_USER_DEFINED},
};

/* A control token, the 256 bytes in order, then these. */
enum { RWKV_S, RWKV_BYTE, RWKV_HE = RWKV_BYTE + 256, RWKV_HELLO, RWKV_LINES, RWKV_COUNT };
static const tiny_token tiny_rwkv_tokens[RWKV_COUNT - RWKV_HE] = {
    {"he", 0, LLM_TOKEN_NORMAL},
    {"hello", 0, LLM_TOKEN_NORMAL},
    {"\\n\\n", 0, LLM_TOKEN_NORMAL},
};

/* Four control tokens, the 256 bytes in order, then these. */
enum {
    PLAMO_UNK,
    PLAMO_BYTE = 4,
    PLAMO_A = PLAMO_BYTE + 256,
    PLAMO_B,
    PLAMO_C,
    PLAMO_AB,
    PLAMO_ABC,
    PLAMO_AA,
    PLAMO_E_ACUTE,
    PLAMO_COUNT
};
static const tiny_token tiny_plamo_tokens[PLAMO_COUNT - PLAMO_A] = {
    {"a", -1, LLM_TOKEN_NORMAL},        {"b", -1, LLM_TOKEN_NORMAL},   {"c", -1, LLM_TOKEN_NORMAL},
    {"ab", -1.5f, LLM_TOKEN_NORMAL},    {"abc", -9, LLM_TOKEN_NORMAL}, {"aa", -2, LLM_TOKEN_NORMAL},
    {"\xC3\xA9", -3, LLM_TOKEN_NORMAL},
};

enum {
    RAW_BOS,
    RAW_EOS,
    RAW_SPACE,
    RAW_A,
    RAW_SPACE_A,
    RAW_LF,
    RAW_LFLF,
    RAW_E4,
    RAW_B8,
    RAW_AD,
    RAW_COUNT
};
static const tiny_token tiny_raw_tokens[RAW_COUNT] = {
    [RAW_BOS] = {"<bos>", 0, LLM_TOKEN_CONTROL},
    [RAW_EOS] = {"<eos>", 0, LLM_TOKEN_CONTROL},
    [RAW_SPACE] = {TINY_MARK, 0, LLM_TOKEN_NORMAL},
    [RAW_A] = {"a", 0, LLM_TOKEN_NORMAL},
    [RAW_SPACE_A] = {TINY_MARK "a", 0, LLM_TOKEN_NORMAL},
    [RAW_LF] = {"\n", 0, LLM_TOKEN_NORMAL},
    [RAW_LFLF] = {"\n\n", 0, LLM_TOKEN_NORMAL},
    [RAW_E4] = {"<0xE4>", 0, LLM_TOKEN_BYTE},
    [RAW_B8] = {"<0xB8>", 0, LLM_TOKEN_BYTE},
    [RAW_AD] = {"<0xAD>", 0, LLM_TOKEN_BYTE},
};

/* Names of bytes, as `format` writes them. */
static inline void tiny_bytes_add(tiny_vocab *v, const char *format, int32_t type) {
    static char names[2][256][8];
    char(*own)[8] = names[type == LLM_TOKEN_BYTE];
    for (unsigned b = 0; b < 256; ++b) {
        snprintf(own[b], sizeof own[b], format, b);
        tiny_vocab_add(v, &(tiny_token){own[b], 0, type});
    }
}

static inline void tiny_wpm(tiny_vocab *v) {
    tiny_vocab_begin(v, "bert");
    for (size_t i = 0; i < WPM_COUNT; ++i) tiny_vocab_add(v, &tiny_wpm_tokens[i]);
    v->params.bos_id = WPM_CLS;
    v->params.sep_id = WPM_SEP;
    v->params.unk_id = WPM_UNK;
}

static inline void tiny_ugm(tiny_vocab *v) {
    tiny_vocab_begin(v, "t5");
    v->params.scores = v->scores;
    for (size_t i = 0; i < UGM_COUNT; ++i) tiny_vocab_add(v, &tiny_ugm_tokens[i]);
    v->params.add_space_prefix = 1;
    v->params.merges_spaces = true;
}

static inline void tiny_rwkv(tiny_vocab *v) {
    tiny_vocab_begin(v, "rwkv");
    tiny_vocab_add(v, &(tiny_token){"<s>", 0, LLM_TOKEN_CONTROL});
    tiny_bytes_add(v, "\\x%02x", LLM_TOKEN_NORMAL);
    for (size_t i = 0; i < TINY_COUNT(tiny_rwkv_tokens); ++i)
        tiny_vocab_add(v, &tiny_rwkv_tokens[i]);
}

static inline void tiny_plamo(tiny_vocab *v) {
    static const char *const names[] = {"<unk>", "<bos>", "<eos>", "<pad>"};
    tiny_vocab_begin(v, "plamo2");
    v->params.scores = v->scores;
    for (size_t i = 0; i < 4; ++i) tiny_vocab_add(v, &(tiny_token){names[i], 0, LLM_TOKEN_CONTROL});
    tiny_bytes_add(v, "<0x%02X>", LLM_TOKEN_BYTE);
    for (size_t i = 0; i < TINY_COUNT(tiny_plamo_tokens); ++i)
        tiny_vocab_add(v, &tiny_plamo_tokens[i]);
}

static inline void tiny_raw(tiny_vocab *v) {
    tiny_vocab_begin(v, "gemma4");
    for (size_t i = 0; i < RAW_COUNT; ++i) tiny_vocab_add(v, &tiny_raw_tokens[i]);
    v->merges[0] = (llm_vocab_str){TINY_MARK " a", 5};
    v->params.merges = v->merges;
    v->params.n_merge = 1;
    v->params.bos_id = RAW_BOS;
    v->params.eos_id = RAW_EOS;
}

#endif
