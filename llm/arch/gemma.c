/* SPDX-License-Identifier: MIT
 *
 * gemma.c: Gemma 1 to 3. Embeddings are multiplied by the root of their width; the files hold norm
 * weights with one added. Gemma Team (arXiv:2403.08295, arXiv:2408.00118, arXiv:2503.19786).
 */
#include <math.h>

#include "llm/arch/families.h"

const llm_arch llm_arch_gemma = {
    .name = "gemma",
    .families = "Gemma",
    LLM_PRE_NORMS,
    .has_embd_sqrt = true,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_GELU,
};

/* The largest models (46 and 62 layers) scale by n_embd / n_head instead of the length of a
 * head. */
static void gemma2_read(llm_key_reader *r, llm_hparams *h) {
    (void)r;
    /* What files from before these keys were written mean. */
    if (h->attention_softcap == 0) h->attention_softcap = 50.0f;
    if (h->logit_softcap == 0) h->logit_softcap = 30.0f;
    if (h->window == 0) h->window = 4096;
    if (h->n_layer == 46) h->attention_scale = 1.0f / sqrtf((float)h->n_embd / (float)h->n_head);
}

static void gemma3_read(llm_key_reader *r, llm_hparams *h) {
    (void)r;
    if (h->n_layer == 62) h->attention_scale = 1.0f / sqrtf((float)h->n_embd / (float)h->n_head);
    if (h->window_freq_base == 0) h->window_freq_base = 10000.0f;
}

static void gemma_embedding_read(llm_key_reader *r, llm_hparams *h) {
    (void)r;
    if (h->window_freq_base == 0) h->window_freq_base = 10000.0f;
}

const llm_arch llm_arch_gemma2 = {
    .name = "gemma2",
    .families = "Gemma 2",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_ATTN_SOFTCAP | LLM_KEY_FINAL_SOFTCAP,
    LLM_SANDWICH_NORMS,
    .has_embd_sqrt = true,
    .rope = TDM_ROPE_HALVES,
    .window_period = 2,
    .act = TDM_ACT_GELU,
    .read = gemma2_read,
};

/* Scaled RoPE is that of the layers without a window. */
static void gemma3_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                         llm_layer_spec *spec) {
    (void)gguf, (void)h, (void)layer;
    if (spec->window > 0) spec->rope.freq_scale = 1.0f;
}

/* Its tokens see later ones, and its hidden states are the result. The pooled vector goes through
 * dense_2 and dense_3 (llm/projection.h). EmbeddingGemma: arXiv:2509.20354. */
const llm_arch llm_arch_gemma_embedding = {
    .name = "gemma-embedding",
    .families = "EmbeddingGemma",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE,
    LLM_SANDWICH_NORMS,
    LLM_HEAD_NORMS,
    .has_embd_sqrt = true,
    .rope = TDM_ROPE_HALVES,
    .is_bidirectional = true,
    .is_encoder = true,
    .window_period = 6,
    .window_kind = TDM_WINDOW_SYMMETRIC,
    .act = TDM_ACT_GELU,
    .harmless = " dense_2.weight dense_3.weight ",
    .read = gemma_embedding_read,
    .layer = gemma3_layer,
};

const llm_arch llm_arch_gemma3 = {
    .name = "gemma3",
    .families = "Gemma 3",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_FINAL_SOFTCAP,
    LLM_SANDWICH_NORMS,
    LLM_HEAD_NORMS,
    .has_embd_sqrt = true,
    .rope = TDM_ROPE_HALVES,
    .window_period = 6,
    .act = TDM_ACT_GELU,
    .read = gemma3_read,
    .layer = gemma3_layer,
};
