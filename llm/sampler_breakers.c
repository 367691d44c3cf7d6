/* SPDX-License-Identifier: MIT
 *
 * sampler_breakers.c: see sampler_breakers.h.
 */
#include "llm/sampler_breakers.h"

#include <stdlib.h>
#include <string.h>

static bool has_text(llm_vocab_str token, const char *const *texts, size_t n_text) {
    for (size_t i = 0; i < n_text; i++)
        if (texts[i][0] != '\0' && token.len > 0 &&
            memmem(token.ptr, token.len, texts[i], strlen(texts[i])) != NULL)
            return true;
    return false;
}

tdm_status llm_sampler_breakers(const llm_vocab *vocab, const char *const *texts, size_t n_text,
                                int32_t **tokens_out, int32_t *n_out, tdm_error *err) {
    const int32_t n_token = llm_vocab_n_token(vocab);
    int32_t *tokens = NULL, n = 0, size = 0;
    *tokens_out = NULL;
    *n_out = 0;
    for (int32_t t = 0; t < n_token; t++) {
        if (!has_text(llm_vocab_token_bytes(vocab, t), texts, n_text)) continue;
        if (n == size) {
            size = size > 0 ? size * 2 : 256;
            int32_t *grown = realloc(tokens, (size_t)size * sizeof *grown);
            if (grown == NULL) {
                free(tokens);
                return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the breakers of DRY");
            }
            tokens = grown;
        }
        tokens[n++] = t;
    }
    *tokens_out = tokens;
    *n_out = n;
    return TDM_OK;
}
