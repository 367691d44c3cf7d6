/* SPDX-License-Identifier: MIT
 *
 * gemma4.c: Gemma 3n and 4: windows, last layers that read the caches of earlier ones, a row for
 * each layer and token, experts beside a dense block, several streams. Gemma Team (Gemma 3n and 4).
 */
#include <math.h>

#include "llm/arch/families.h"

enum { N_SPARSE = 10, N_OWN_CACHE = 20 };

/* Tensors that files have for layers which read another one's cache, too. */
#define UNUSED_KEYS " attn_k.weight attn_v.weight attn_k_norm.weight "

static void gemma4_read(llm_key_reader *r, llm_hparams *h) {
    h->attention_scale = 1.0f;
    if (h->window_freq_base == 0) h->window_freq_base = 10000.0f;
    llm_key_int(r, "embedding_length_per_layer_input", LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH,
                &h->n_per_layer);
}

/* Scaled RoPE and factors of frequencies are those of layers without a window. These layers see no
 * later tokens in a file whose key attention.causal is false, either. */
static void gemma4_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                         llm_layer_spec *spec) {
    (void)gguf, (void)h, (void)layer;
    if (spec->window > 0) {
        spec->has_rope_factors = false;
        spec->rope.freq_scale = 1.0f;
    } else {
        spec->is_causal = true;
    }
}

const llm_arch llm_arch_gemma4 = {
    .name = "gemma4",
    .families = "Gemma 4",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_WINDOW_HEADS | LLM_KEY_SHARED_CACHE |
            LLM_KEY_PER_LAYER | LLM_KEY_FINAL_SOFTCAP | LLM_KEY_EXPERT_FF,
    LLM_SANDWICH_NORMS,
    LLM_HEAD_NORMS,
    .has_bare_norm_v = true,
    .has_optional_v = true,
    .has_embd_sqrt = true,
    .has_layer_scale = true,
    .rope = TDM_ROPE_HALVES,
    .window_period = 6,
    .act = TDM_ACT_GELU,
    .is_route_normalized = true,
    .both_scale = 1.0f,
    .has_twin_channel = true,
    .harmless = UNUSED_KEYS,
    .read = gemma4_read,
    .layer = gemma4_layer,
};

static void gemma3n_read(llm_key_reader *r, llm_hparams *h) {
    int32_t active = 0;
    h->n_stream = 4;
    if (h->n_layer_shared == 0 && h->n_layer > N_OWN_CACHE)
        h->n_layer_shared = h->n_layer - N_OWN_CACHE;
    if (h->logit_softcap == 0) h->logit_softcap = 30.0f;
    gemma4_read(r, h);
    llm_key_int(r, "altup.num_inputs", LLM_GGUF_OPTIONAL, 2, LLM_MAX_STREAMS, &h->n_stream);
    llm_key_int(r, "altup.active_idx", LLM_GGUF_OPTIONAL, 0, 0, &active);
    const llm_gguf_tensor *t = llm_role_tensor(r->gguf, LLM_ROLE_LAUREL_L, 0);
    if (t != NULL && t->ne[1] <= LLM_MAX_WIDTH) h->n_laurel = (int32_t)t->ne[1];
    if (r->status == TDM_OK && h->n_per_layer == 0)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s.embedding_length_per_layer_input' is missing or 0",
                             llm_gguf_name(r->gguf), r->arch);
}

/* Files without the key: the first ten layers keep the largest twentieth of a normal
 * distribution. Scaled RoPE is that of layers without a window. */
static void gemma3n_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                          llm_layer_spec *spec) {
    llm_gguf_array each;
    tdm_error unused;
    (void)h;
    float sparsity = layer < N_SPARSE ? 1.6448533535003662f : 0;
    if (llm_gguf_get_array(gguf, "gemma3n.activation_sparsity_scale", LLM_GGUF_F32,
                           LLM_GGUF_REQUIRED, &each, &unused) == TDM_OK &&
        (uint64_t)layer < each.n)
        sparsity = llm_gguf_array_f32(&each, (uint64_t)layer);
    spec->gate_sparsity = isfinite(sparsity) ? sparsity : 0;
    if (spec->window > 0) spec->rope.freq_scale = 1.0f;
}

const llm_arch llm_arch_gemma3n = {
    .name = "gemma3n",
    .families = "Gemma 3n",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_SHARED_CACHE | LLM_KEY_FINAL_SOFTCAP,
    LLM_SANDWICH_NORMS,
    LLM_HEAD_NORMS,
    .has_bare_norm_v = true,
    .has_embd_sqrt = true,
    .stream = LLM_STREAM_ALTUP,
    .rope = TDM_ROPE_HALVES,
    .window_period = 5,
    .act = TDM_ACT_GELU,
    .harmless = UNUSED_KEYS,
    .read = gemma3n_read,
    .layer = gemma3n_layer,
};
