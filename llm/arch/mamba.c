/* SPDX-License-Identifier: MIT
 *
 * mamba.c: architectures of state spaces, alone or beside attention: Mamba (arXiv:2312.00752),
 * Mamba 2 (arXiv:2405.21060), Jamba (arXiv:2403.19887), Falcon H1 (arXiv:2507.22448), Nemotron H
 * (arXiv:2504.03624). Granite 4: granite.c.
 */
#include "llm/arch/families.h"

#define ALONE .keys = LLM_KEY_RECURRENT, .norm_mixer = LLM_ROLE_ATTN_NORM, .has_no_rope = true

const llm_arch llm_arch_mamba = {
    .name = "mamba", .families = "Mamba, Falcon Mamba", ALONE, .recurrent_mixer = LLM_MIXER_MAMBA};

const llm_arch llm_arch_mamba2 = {
    .name = "mamba2", .families = "Mamba 2", ALONE, .recurrent_mixer = LLM_MIXER_MAMBA2};

const llm_arch llm_arch_jamba = {
    .name = "jamba",
    .families = "Jamba",
    .keys = LLM_KEY_RECURRENT,
    LLM_PRE_NORMS,
    .has_no_rope = true,
    .recurrent_mixer = LLM_MIXER_MAMBA,
    .act = TDM_ACT_SILU,
};

/* Factors of frequencies in a file do not apply. */
static void falcon_h1_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                            llm_layer_spec *spec) {
    (void)gguf, (void)h, (void)layer;
    spec->has_rope_factors = false;
}

const llm_arch llm_arch_falcon_h1 = {
    .name = "falcon-h1",
    .families = "Falcon H1",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_ATTN_SCALE,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .recurrent_mixer = LLM_MIXER_MAMBA2,
    .is_recurrent_beside = true,
    .act = TDM_ACT_SILU,
    .layer = falcon_h1_layer,
    .harmless = " attn_output.bias ",
};

/* A layer is a mixer or a channel block, behind the same norm. */
static void nemotron_h_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                             llm_layer_spec *spec) {
    (void)gguf, (void)h, (void)layer;
    if (!llm_layer_has_channel(spec)) return;
    spec->mixer = LLM_MIXER_NONE;
    spec->norm_mixer = LLM_ROLE_NONE;
    spec->norm_channel = LLM_ROLE_ATTN_NORM;
}

#define NEMOTRON_H                                                                                 \
    .norm_mixer = LLM_ROLE_ATTN_NORM, .has_either_eps = true, .has_no_rope = true,                 \
    .recurrent_mixer = LLM_MIXER_MAMBA2, .ffn = LLM_FFN_SQUARED, .act = TDM_ACT_RELU,              \
    .layer = nemotron_h_layer

const llm_arch llm_arch_nemotron_h = {
    .name = "nemotron_h",
    .families = "Nemotron H, Nemotron Nano 2",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_ATTN_SCALE,
    NEMOTRON_H,
};

/* Larger models have experts that read a narrower row. */
static void nemotron_h_moe_read(llm_key_reader *r, llm_hparams *h) {
    llm_key_int(r, "moe_latent_size", LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH, &h->n_expert_row);
}

const llm_arch llm_arch_nemotron_h_moe = {
    .name = "nemotron_h_moe",
    .families = "Nemotron 3 Nano, Super",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_ATTN_SCALE | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE |
            LLM_KEY_EXPERT_NORM | LLM_KEY_EACH_WIDTH,
    NEMOTRON_H,
    .route_score = TDM_ROUTE_SIGMOID,
    .read = nemotron_h_moe_read,
};

/* Rows of time steps have a width of their own. */
static void plamo2_read(llm_key_reader *r, llm_hparams *h) {
    (void)r;
    h->ssm_step_row = h->n_embd / 16 > 64 ? h->n_embd / 16 : 64;
}

const llm_arch llm_arch_plamo2 = {
    .name = "plamo2",
    .families = "PLaMo 2",
    .keys = LLM_KEY_RECURRENT,
    LLM_SANDWICH_NORMS,
    .norm_q = LLM_ROLE_ATTN_Q_NORM_EACH,
    .norm_k = LLM_ROLE_ATTN_K_NORM_EACH,
    .rope = TDM_ROPE_HALVES,
    .recurrent_mixer = LLM_MIXER_MAMBA_HEADS,
    .ffn = LLM_FFN_FUSED,
    .act = TDM_ACT_SILU,
    .read = plamo2_read,
};
