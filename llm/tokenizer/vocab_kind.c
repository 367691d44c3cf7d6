/* SPDX-License-Identifier: MIT
 *
 * vocab_kind.c: the kinds of vocabularies by their name in files, and their defaults, which are
 * llama.cpp's. What pre-tokenizers add: pretokenizer_table.c.
 */
#include <string.h>

#include "llm/tokenizer/vocab_table.h"

#define NONE LLM_TOKEN_NONE

static const llm_vocab_rule rules[] = {
    {.model = "llama",
     .people = "SentencePiece",
     .kind = LLM_VOCAB_SPM,
     .has_scores = true,
     .adds_bos = true,
     .adds_space = true,
     .bos_id = 1,
     .eos_id = 2,
     .unk_id = 0,
     .sep_id = NONE,
     .pad_id = NONE},
    {.model = "gpt2",
     .people = "byte-level BPE",
     .kind = LLM_VOCAB_BPE,
     .bos_id = NONE,
     .eos_id = NONE,
     .unk_id = NONE,
     .sep_id = NONE,
     .pad_id = NONE},
    {.model = "gemma4",
     .people = "BPE of code points",
     .kind = LLM_VOCAB_BPE,
     .pre = "gemma4",
     .bos_id = NONE,
     .eos_id = NONE,
     .unk_id = NONE,
     .sep_id = NONE,
     .pad_id = NONE},
    {.model = "whitespace",
     .people = "BPE of words between white space",
     .kind = LLM_VOCAB_BPE,
     .drops_space = true,
     .bos_id = NONE,
     .eos_id = NONE,
     .unk_id = NONE,
     .sep_id = NONE,
     .pad_id = NONE},
    {.model = "bert",
     .people = "WordPiece",
     .kind = LLM_VOCAB_WPM,
     .adds_bos = true,
     .adds_eos = true,
     .lowers_case = true,
     .bos_id = 101,
     .eos_id = NONE,
     .unk_id = 100,
     .sep_id = 102,
     .pad_id = 0},
    {.model = "t5",
     .people = "Unigram",
     .kind = LLM_VOCAB_UGM,
     .has_scores = true,
     .adds_eos = true,
     .bos_id = NONE,
     .eos_id = 1,
     .unk_id = 2,
     .sep_id = NONE,
     .pad_id = 0},
    {.model = "rwkv",
     .people = "RWKV's longest match",
     .kind = LLM_VOCAB_RWKV,
     .bos_id = NONE,
     .eos_id = NONE,
     .unk_id = NONE,
     .sep_id = NONE,
     .pad_id = NONE},
    {.model = "plamo2",
     .people = "PLaMo-2",
     .kind = LLM_VOCAB_PLAMO2,
     .has_scores = true,
     .bos_id = 1,
     .eos_id = 2,
     .unk_id = 0,
     .sep_id = NONE,
     .pad_id = 3},
};

const llm_vocab_rule *llm_vocab_rule_find(const char *model) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; ++i) {
        if (strcmp(model, rules[i].model) == 0) return &rules[i];
    }
    return NULL;
}

const llm_vocab_rule *llm_vocab_rule_at(size_t i) {
    return i < sizeof rules / sizeof *rules ? &rules[i] : NULL;
}
