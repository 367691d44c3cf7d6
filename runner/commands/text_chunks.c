/* SPDX-License-Identifier: MIT
 *
 * text_chunks.c: see text_chunks.h.
 */
#include "runner/commands/text_chunks.h"

#include <stdlib.h>

#include "llm/tokenizer/tokenizer.h"
#include "runner/prompt.h"

tdm_status text_chunks_check(runner_app *app, tdm_error *err) {
    const bool has_text = runner_config_get_string(app->config, "file")[0] != '\0';
    const bool is_nothing = runner_config_get_int(app->config, "chunks") == 0;
    const tdm_status status = runner_config_check(app->config, err);
    if (status != TDM_OK) return status;
    if (!has_text) return runner_usage(app, err, "no text given: use -f FILE");
    if (is_nothing) return runner_usage(app, err, "--chunks 0: nothing to measure");
    return TDM_OK;
}

tdm_status text_chunks_read(const runner_session *session, int32_t n_ctx, int64_t n_max,
                            int32_t **tokens_out, int32_t *n_chunk_out, tdm_error *err) {
    const llm_vocab *vocab = NULL;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t len = 0, n = 0;
    *tokens_out = NULL;
    tdm_status status = llm_model_vocab(session->model, &vocab, err);
    if (status == TDM_OK) status = runner_prompt_read(session->app, &text, &len, err);
    if (status == TDM_OK)
        status = llm_tokenize(vocab, text, len, LLM_TOKENIZE_ADD_SPECIAL, &ids, &n, err);
    free(text);
    if (status != TDM_OK) return status;
    *tokens_out = ids;
    /* llama.cpp refuses such texts, too. */
    if (n < 2 * (size_t)n_ctx)
        return tdm_fail(
            err, TDM_OUT_OF_RANGE,
            "%s: has %zu token%s, at least %zu are needed for a context of %d; give more "
            "text or a smaller ctx-size",
            runner_config_get_string(session->app->config, "file"), n, n == 1 ? "" : "s",
            2 * (size_t)n_ctx, n_ctx);
    size_t n_chunk = n / (size_t)n_ctx;
    if (n_max > 0 && (size_t)n_max < n_chunk) n_chunk = (size_t)n_max;
    *n_chunk_out = (int32_t)n_chunk;
    for (int32_t i = 0; i < *n_chunk_out && llm_vocab_adds_bos(vocab); i++)
        ids[(size_t)i * (size_t)n_ctx] = llm_vocab_bos(vocab);
    return TDM_OK;
}
