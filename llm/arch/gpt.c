/* SPDX-License-Identifier: MIT
 *
 * gpt.c: architectures with layer norms: mean and variance, with biases.
 */
#include "llm/arch/families.h"

#define GPT .norm = LLM_NORM_LAYER, .ffn = LLM_FFN_PLAIN, .act = TDM_ACT_GELU

const llm_arch llm_arch_gpt2 = {
    .name = "gpt2",
    .families = "GPT-2",
    LLM_PRE_NORMS,
    GPT,
    .has_position_embd = true,
    .has_no_rope = true,
};

const llm_arch llm_arch_starcoder = {
    .name = "starcoder",
    .families = "StarCoder",
    LLM_PRE_NORMS,
    GPT,
    .has_position_embd = true,
    .has_no_rope = true,
};

const llm_arch llm_arch_starcoder2 = {
    .name = "starcoder2",
    .families = "StarCoder 2",
    LLM_PRE_NORMS,
    GPT,
    .rope = TDM_ROPE_HALVES,
};

const llm_arch llm_arch_codeshell = {
    .name = "codeshell",
    .families = "CodeShell",
    LLM_PRE_NORMS,
    GPT,
    .rope = TDM_ROPE_HALVES,
};

const llm_arch llm_arch_gptneox = {
    .name = "gptneox",
    .families = "GPT-NeoX, Pythia",
    .keys = LLM_KEY_PARALLEL,
    LLM_PRE_NORMS,
    GPT,
    .form = LLM_FORM_PARALLEL,
    .rope = TDM_ROPE_HALVES,
};

/* In larger models attention has a norm of its own. */
static void falcon_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                         llm_layer_spec *spec) {
    (void)h;
    if (!llm_layer_has(gguf, LLM_ROLE_ATTN_NORM_2, layer)) return;
    spec->norm_mixer = LLM_ROLE_ATTN_NORM_2;
    spec->norm_channel = LLM_ROLE_ATTN_NORM;
}

const llm_arch llm_arch_falcon = {
    .name = "falcon",
    .families = "Falcon",
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    GPT,
    .form = LLM_FORM_PARALLEL,
    .rope = TDM_ROPE_HALVES,
    .layer = falcon_layer,
};

const llm_arch llm_arch_phi2 = {
    .name = "phi2",
    .families = "Phi 2",
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    GPT,
    .form = LLM_FORM_PARALLEL,
    .rope = TDM_ROPE_HALVES,
};

const llm_arch llm_arch_nemotron = {
    .name = "nemotron",
    .families = "Nemotron, Minitron",
    .norm = LLM_NORM_LAYER,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .ffn = LLM_FFN_SQUARED,
    .act = TDM_ACT_RELU,
};

const llm_arch llm_arch_jais2 = {
    .name = "jais2",
    .families = "Jais 2",
    .norm = LLM_NORM_LAYER,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .ffn = LLM_FFN_SQUARED,
    .act = TDM_ACT_RELU,
};

const llm_arch llm_arch_orion = {
    .name = "orion",
    .families = "Orion",
    .norm = LLM_NORM_LAYER,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

/* In larger models the channel block has no norm of its own: it reads what the mixer reads. Norms
 * of heads are optional. */
static void stablelm_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                           llm_layer_spec *spec) {
    (void)h;
    if (!llm_layer_has(gguf, LLM_ROLE_FFN_NORM, layer)) {
        spec->norm_channel = LLM_ROLE_NONE;
        spec->is_parallel = true;
    }
    if (!llm_layer_has(gguf, LLM_ROLE_ATTN_Q_NORM_EACH, layer))
        spec->norm_q = spec->norm_k = LLM_ROLE_NONE;
}

const llm_arch llm_arch_stablelm = {
    .name = "stablelm",
    .families = "StableLM",
    .norm = LLM_NORM_LAYER,
    LLM_PRE_NORMS,
    .norm_q = LLM_ROLE_ATTN_Q_NORM_EACH,
    .norm_k = LLM_ROLE_ATTN_K_NORM_EACH,
    .norm_qk = LLM_NORM_LAYER,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .layer = stablelm_layer,
};

const llm_arch llm_arch_pockettts = {
    .name = "pockettts",
    .families = "Pocket TTS",
    LLM_PRE_NORMS,
    GPT,
};

const llm_arch llm_arch_dbrx = {
    .name = "dbrx",
    .families = "DBRX",
    .keys = LLM_KEY_CLAMP_QKV,
    .norm = LLM_NORM_LAYER,
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    .norm_channel = LLM_ROLE_ATTN_OUT_NORM,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
};
