/* SPDX-License-Identifier: MIT
 *
 * cohere.c: Command-R and Command-A: layer norms without biases, one of them for both blocks of a
 * layer.
 */
#include "llm/arch/families.h"

static void command_r_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                            llm_layer_spec *spec) {
    (void)h;
    if (!llm_layer_has(gguf, LLM_ROLE_ATTN_Q_NORM_EACH, layer))
        spec->norm_q = spec->norm_k = LLM_ROLE_NONE;
}

const llm_arch llm_arch_command_r = {
    .name = "command-r",
    .families = "Command-R",
    .keys = LLM_KEY_LOGIT_SCALE,
    .norm = LLM_NORM_LAYER,
    .form = LLM_FORM_PARALLEL,
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    .norm_q = LLM_ROLE_ATTN_Q_NORM_EACH,
    .norm_k = LLM_ROLE_ATTN_K_NORM_EACH,
    .norm_qk = LLM_NORM_LAYER,
    .act = TDM_ACT_SILU,
    .layer = command_r_layer,
};

/* Layers that see all tokens do not rotate their heads. */
static void cohere2_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                          llm_layer_spec *spec) {
    (void)gguf, (void)h, (void)layer;
    if (spec->window == 0) spec->rope.n_rot = 0;
}

const llm_arch llm_arch_cohere2 = {
    .name = "cohere2",
    .families = "Command-R7B, Command-A",
    .keys = LLM_KEY_LOGIT_SCALE | LLM_KEY_WINDOW,
    .norm = LLM_NORM_LAYER,
    .form = LLM_FORM_PARALLEL,
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    .window_period = 4,
    .act = TDM_ACT_SILU,
    .layer = cohere2_layer,
};

/* Layers that see all tokens do not rotate their heads, but dense layers do. */
static void cohere2moe_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                             llm_layer_spec *spec) {
    (void)gguf;
    if (spec->window == 0 && layer >= h->n_layer_dense) spec->rope.n_rot = 0;
}

const llm_arch llm_arch_cohere2moe = {
    .name = "cohere2moe",
    .families = "Command-A MoE",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_LOGIT_SCALE | LLM_KEY_WINDOW,
    .norm = LLM_NORM_LAYER,
    .is_norm_by_key = true,
    .form = LLM_FORM_PARALLEL,
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    .window_period = 4,
    .is_window_last = true,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .shared_scale = 0.5f,
    .layer = cohere2moe_layer,
};
