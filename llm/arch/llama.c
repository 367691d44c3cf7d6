/* SPDX-License-Identifier: MIT
 *
 * llama.c: Llama and the architectures that differ from it in a line: RMS norms before each block,
 * rotary attention with shared KV heads, SwiGLU, dense or as a mixture of experts. Touvron et al.
 * (arXiv:2302.13971), Jiang et al. (arXiv:2310.06825, arXiv:2401.04088).
 */
#include <math.h>

#include "llm/arch/families.h"

const llm_arch llm_arch_llama = {
    .name = "llama",
    .families = "Llama, Mistral, Mixtral",
    .keys = LLM_KEY_ATTN_SCALE,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
};

/* With YaRN rotated elements are scaled by (1 + 0.1 ln(factor)) / (1 + 0.1 m ln(factor)), where the
 * key holds m: 1 in most files, so that they are not scaled, and 0 in others. The op applies the
 * first term. */
static void mistral3_read(llm_key_reader *r, llm_hparams *h) {
    float m = 0;
    llm_key_float(r, "rope.scaling.yarn_log_multiplier", LLM_GGUF_OPTIONAL, 0, 1e3f, &m);
    if (h->rope_scaling == LLM_ROPE_SCALING_YARN && h->rope.ext_factor != 0 &&
        h->rope.freq_scale < 1)
        h->rope.attn_factor /= 1.0f + 0.1f * m * logf(1.0f / h->rope.freq_scale);
}

const llm_arch llm_arch_mistral3 = {
    .name = "mistral3",
    .families = "Mistral 3",
    .keys = LLM_KEY_ATTN_SCALE | LLM_KEY_TEMPERATURE,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .read = mistral3_read,
};

const llm_arch llm_arch_deci = {
    .name = "deci",
    .families = "DeciLM, Llama Nemotron",
    .keys = LLM_KEY_ATTN_SCALE | LLM_KEY_PER_LAYER,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
};

/* All layers are computed several times, one round behind the other, each with caches of its own.
 * Between rounds the stream is normed, unless the file says otherwise. */
static void nanbeige_read(llm_key_reader *r, llm_hparams *h) {
    /* Layers that draft would have other numbers than in the file. */
    const int32_t most = h->n_layer_draft > 0 ? 1 : LLM_MAX_LAYERS / h->n_layer;
    int32_t n_round = 1;
    bool has_no_norm = false;
    llm_key_int(r, "num_loops", LLM_GGUF_OPTIONAL, 1, most, &n_round);
    llm_key_bool(r, "skip_loop_final_norm", LLM_GGUF_OPTIONAL, &has_no_norm);
    h->n_layer_stored = h->n_layer;
    h->has_round_norm = !has_no_norm;
    if (r->status == TDM_OK) h->n_layer *= n_round;
}

static void nanbeige_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                           llm_layer_spec *spec) {
    (void)gguf;
    spec->weight_layer = layer % h->n_layer_stored;
}

const llm_arch llm_arch_nanbeige = {
    .name = "nanbeige",
    .families = "Nanbeige",
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .read = nanbeige_read,
    .layer = nanbeige_layer,
};

const llm_arch llm_arch_internlm2 = {
    .name = "internlm2",
    .families = "InternLM 2",
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_xverse = {
    .name = "xverse",
    .families = "XVERSE",
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
};

/* Only the model of 7 billion parameters rotates its heads. That of 13 billion has ALiBi. */
static void baichuan_read(llm_key_reader *r, llm_hparams *h) {
    (void)r;
    if (h->n_layer == 40) h->alibi_max_bias = 8;
    if (h->n_layer != 32) h->rope.n_rot = 0;
}

const llm_arch llm_arch_baichuan = {
    .name = "baichuan",
    .families = "Baichuan 7B, 13B",
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .read = baichuan_read,
};

const llm_arch llm_arch_arcee = {
    .name = "arcee",
    .families = "Arcee AFM",
    .keys = LLM_KEY_ATTN_SCALE,
    LLM_PRE_NORMS,
    .ffn = LLM_FFN_SQUARED,
    .act = TDM_ACT_RELU,
};

/* Every fourth layer does not rotate its heads. */
static void smollm3_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                          llm_layer_spec *spec) {
    (void)gguf, (void)h;
    if ((layer + 1) % 4 == 0) spec->rope.n_rot = 0;
}

const llm_arch llm_arch_smollm3 = {
    .name = "smollm3",
    .families = "SmolLM 3",
    .keys = LLM_KEY_ATTN_SCALE,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .layer = smollm3_layer,
};

const llm_arch llm_arch_maincoder = {
    .name = "maincoder",
    .families = "Maincoder",
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .is_norm_qk_late = true,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_pangu_embedded = {
    .name = "pangu-embedded",
    .families = "openPangu",
    LLM_PRE_NORMS,
    .harmless = " rope_freqs.weight ",
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_cogvlm = {
    .name = "cogvlm",
    .families = "CogVLM",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .harmless = " rope_freqs.weight vis_attn_qkv.weight vis_attn_output.weight vis_gate.weight "
                "vis_down.weight "
                "vis_up.weight ",
};

const llm_arch llm_arch_openelm = {
    .name = "openelm",
    .families = "OpenELM",
    .keys = LLM_KEY_PER_LAYER,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_seed_oss = {
    .name = "seed_oss",
    .families = "Seed-OSS",
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    .norm_channel = LLM_ROLE_ATTN_POST_NORM,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_plamo = {
    .name = "plamo",
    .families = "PLaMo",
    .form = LLM_FORM_PARALLEL,
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

static void plamo3_read(llm_key_reader *r, llm_hparams *h) {
    (void)r;
    if (h->window_freq_base == 0) h->window_freq_base = 10000.0f;
}

const llm_arch llm_arch_plamo3 = {
    .name = "plamo3",
    .families = "PLaMo 3",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE,
    LLM_SANDWICH_NORMS,
    LLM_HEAD_NORMS,
    .window_period = 8,
    .is_window_unscaled = true,
    .rope = TDM_ROPE_HALVES,
    .ffn = LLM_FFN_FUSED,
    .act = TDM_ACT_SILU,
    .read = plamo3_read,
};

const llm_arch llm_arch_talkie = {
    .name = "talkie",
    .families = "Talkie",
    .keys = LLM_KEY_LOGIT_SCALE,
    LLM_PRE_NORMS,
    .has_bare_norms = true,
    .has_bare_embd_norm = true,
    .has_embd_skip = true,
    .rope = TDM_ROPE_HALVES,
    .norm_q = LLM_ROLE_ATTN_Q_GAIN,
    .has_bare_norm_k = true,
    .is_norm_qk_late = true,
    .act = TDM_ACT_SILU,
};
