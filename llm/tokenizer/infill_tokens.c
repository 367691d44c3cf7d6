/* SPDX-License-Identifier: MIT
 *
 * infill_tokens.c: see infill_tokens.h.
 */
#include "llm/tokenizer/infill_tokens.h"

#include <stddef.h>
#include <string.h>

#define N_KEY  2
#define N_TEXT 8
#define KEY    "tokenizer.ggml."

/* One of the tokens: its keys and its texts, in order of preference. The texts are those of models
 * that were trained for it (ggml-org/llama.cpp, src/llama-vocab.cpp, lists them, too). */
typedef struct infill_kind {
    size_t off; /* of its id in llm_infill_tokens, bytes */
    const char *keys[N_KEY];
    const char *texts[N_TEXT];
} infill_kind;

#define BAR   "\xEF\xBD\x9C" /* U+FF5C, as DeepSeek writes it */
#define SPACE "\xE2\x96\x81" /* U+2581 */

static const infill_kind kinds[] = {
    {offsetof(llm_infill_tokens, prefix),
     {KEY "fim_pre_token_id", KEY "prefix_token_id"},
     {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<" BAR "fim" SPACE "begin" BAR ">",
      "<PRE>", SPACE "<PRE>", "<|code_prefix|>", "<|prefix|>"}},
    {offsetof(llm_infill_tokens, suffix),
     {KEY "fim_suf_token_id", KEY "suffix_token_id"},
     {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<" BAR "fim" SPACE "hole" BAR ">", "<SUF>",
      SPACE "<SUF>", "<|code_suffix|>", "<|suffix|>"}},
    {offsetof(llm_infill_tokens, middle),
     {KEY "fim_mid_token_id", KEY "middle_token_id"},
     {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<" BAR "fim" SPACE "end" BAR ">", "<MID>",
      SPACE "<MID>", "<|code_middle|>", "<|middle|>"}},
    {offsetof(llm_infill_tokens, repo),
     {KEY "fim_rep_token_id"},
     {"<|repo_name|>", "<|fim_repo|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {offsetof(llm_infill_tokens, file), {KEY "fim_sep_token_id"}, {"<|file_sep|>"}},
};

static tdm_status key_read(const llm_gguf *gguf, const llm_vocab *vocab, const infill_kind *kind,
                           int32_t *id_out, tdm_error *err) {
    for (int i = 0; i < N_KEY && kind->keys[i] != NULL && gguf != NULL; i++) {
        int64_t id = LLM_TOKEN_NONE;
        const tdm_status status =
            llm_gguf_get_i64(gguf, kind->keys[i], LLM_GGUF_OPTIONAL, &id, err);
        if (status != TDM_OK) return status;
        if (id < 0 || id >= llm_vocab_n_token(vocab)) continue;
        *id_out = (int32_t)id;
        return TDM_OK;
    }
    return TDM_OK;
}

tdm_status llm_infill_tokens_read(const llm_gguf *gguf, const llm_vocab *vocab,
                                  llm_infill_tokens *out, tdm_error *err) {
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        int32_t *id = (int32_t *)((char *)out + kinds[k].off);
        *id = LLM_TOKEN_NONE;
        const tdm_status status = key_read(gguf, vocab, &kinds[k], id, err);
        if (status != TDM_OK) return status;
        for (int i = 0; i < N_TEXT && kinds[k].texts[i] != NULL && *id == LLM_TOKEN_NONE; i++)
            *id = llm_vocab_find(vocab, kinds[k].texts[i], strlen(kinds[k].texts[i]));
    }
    return TDM_OK;
}
