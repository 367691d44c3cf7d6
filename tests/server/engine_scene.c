/* SPDX-License-Identifier: MIT
 *
 * engine_scene.c: see engine_scene.h.
 */
#include "tests/server/engine_scene.h"

#include "tests/model/preset.h"
#include "tests/support/random.h"

llm_model *scene_model(void) {
    random_model_spec spec = preset_find("tiny-llama");
    spec.type = TDM_TYPE_Q8_0;
    spec.n_ctx = 2048;
    return rig_model(preset_file("engine.gguf", &spec), rig_device(NULL, "fast", 2));
}

llm_context_params scene_context(int32_t n_ctx) {
    static const tdm_type f16 = TDM_TYPE_F16;
    return (llm_context_params){.struct_size = sizeof(llm_context_params),
                                .n_ctx = n_ctx,
                                .n_ubatch = 64,
                                .page_len = 16,
                                .type_k = &f16,
                                .type_v = &f16};
}

server_engine *scene_engine(llm_model *model, int32_t n_ctx, const server_limits *limits) {
    server_engine_params params = {.struct_size = sizeof params,
                                   .context = scene_context(n_ctx),
                                   .gives_embeddings = true,
                                   .embedding = scene_context(256)};
    server_engine *engine = NULL;
    tdm_error err = {0};
    if (limits != NULL) params.limits = *limits;
    RIG_OK(server_engine_create(model, &params, &engine, &err));
    return engine;
}

void scene_prompt(uint64_t *random, int32_t *prompt, int32_t n) {
    for (int32_t i = 0; i < n; i++) prompt[i] = 3 + (int32_t)random_u32_below(random, 256);
}

server_stats scene_stats(server_engine *engine) {
    server_stats stats;
    (void)server_engine_snapshot(engine, &stats, NULL, 0);
    return stats;
}

void scene_answer_is(const char *what, const rig_answer *a, const int32_t *tokens, int32_t n) {
    if (a->status != TDM_OK) fail_msg("%s: %s", what, a->message);
    for (int32_t i = 0; i < a->n && i < n; i++)
        if (a->tokens[i] != tokens[i])
            fail_msg("%s: token %d of the answer is %d, alone it is %d", what, i, a->tokens[i],
                     tokens[i]);
    if (a->n != n) fail_msg("%s: %d tokens, alone %d", what, a->n, n);
}

int32_t scene_plain(llm_context *ctx, const int32_t *prompt, int32_t n_prompt, int32_t max_tokens,
                    bool ignores_end, int32_t *tokens_out) {
    const int32_t n_vocab = llm_context_model(ctx)->hparams.n_vocab;
    const llm_vocab *vocab = NULL;
    tdm_error err = {0};
    int32_t n = 0;
    (void)llm_model_vocab(llm_context_model(ctx), &vocab, NULL);
    const int32_t n_token = vocab != NULL ? llm_vocab_n_token(vocab) : 0;
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    const llm_batch batch = {.tokens = prompt, .n_tok = n_prompt, .role = TDM_ROLE_PROMPT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    for (;;) {
        const float *logits = llm_context_logits(ctx, 0);
        int32_t best = -1;
        for (int32_t t = 0; t < n_vocab; t++) {
            if (ignores_end && t < n_token && llm_vocab_ends_generation(vocab, t)) continue;
            if (best < 0 || logits[t] > logits[best]) best = t;
        }
        tokens_out[n++] = best;
        if (n == max_tokens || (best < n_token && llm_vocab_ends_generation(vocab, best))) return n;
        const llm_batch next = {.tokens = &best, .n_tok = 1, .role = TDM_ROLE_GENERATED};
        RIG_OK(llm_context_decode(ctx, &next, &err));
    }
}
