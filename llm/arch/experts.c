/* SPDX-License-Identifier: MIT
 *
 * experts.c: architectures whose layers are mostly mixtures of experts, and their dense relatives.
 */
#include "llm/arch/families.h"

const llm_arch llm_arch_deepseek = {
    .name = "deepseek",
    .families = "DeepSeek-MoE",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_DENSE_FIRST,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_bailingmoe = {
    .name = "bailingmoe",
    .families = "Ling, Ring",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_EXPERT_NORM,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_bailingmoe2 = {
    .name = "bailingmoe2",
    .families = "Ling 2",
    .keys = LLM_KEYS_EXPERTS,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
};

const llm_arch llm_arch_dots1 = {
    .name = "dots1",
    .families = "dots.llm1",
    .keys = LLM_KEYS_EXPERTS,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
};

const llm_arch llm_arch_ernie4_5 = {
    .name = "ernie4_5",
    .families = "ERNIE 4.5",
    LLM_PRE_NORMS,
    .harmless = " attn_output.bias ",
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_ernie4_5_moe = {
    .name = "ernie4_5-moe",
    .families = "ERNIE 4.5 MoE",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_DENSE_FIRST,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .harmless = " attn_output.bias ",
};

const llm_arch llm_arch_paddleocr = {
    .name = "paddleocr",
    .families = "PaddleOCR VL",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

#define HUNYUAN                                                                                    \
    LLM_PRE_NORMS, LLM_HEAD_NORMS, .is_norm_qk_late = true, .rope = TDM_ROPE_HALVES,               \
                                   .act = TDM_ACT_SILU

const llm_arch llm_arch_hunyuan_dense = {.name = "hunyuan-dense", .families = "Hunyuan", HUNYUAN};
const llm_arch llm_arch_hunyuan_vl = {.name = "hunyuan_vl", .families = "Hunyuan VL", HUNYUAN};
const llm_arch llm_arch_hunyuan_moe = {
    .name = "hunyuan-moe",
    .families = "Hunyuan MoE",
    .keys = LLM_KEY_EXPERT_FF,
    HUNYUAN,
    .is_route_normalized = true,
};

/* Layers that see all tokens do not rotate their heads. */
static void muse_glimmer_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                               llm_layer_spec *spec) {
    (void)gguf, (void)h, (void)layer;
    if (spec->window == 0) spec->rope.n_rot = 0;
}

/* Every fourth layer does not rotate its heads. */
static void afmoe_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                        llm_layer_spec *spec) {
    (void)gguf, (void)h;
    if ((layer + 1) % 4 == 0) spec->rope.n_rot = 0;
}

const llm_arch llm_arch_afmoe = {
    .name = "afmoe",
    .families = "Trinity",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_WINDOW,
    LLM_SANDWICH_NORMS,
    LLM_HEAD_NORMS,
    .has_embd_sqrt = true,
    .rope = TDM_ROPE_HALVES,
    .gate = LLM_GATE_ELEMENT,
    .window_period = 4,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .layer = afmoe_layer,
};

const llm_arch llm_arch_muse_glimmer = {
    .name = "muse-glimmer",
    .families = "Muse Glimmer",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_LOGIT_SCALE | LLM_KEY_FINAL_SOFTCAP,
    LLM_SANDWICH_NORMS,
    LLM_HEAD_NORMS,
    .has_bare_embd_norm = true,
    .post_norm_eps = 1e-8f,
    .window_period = 4,
    .layer = muse_glimmer_layer,
    .rope = TDM_ROPE_ADJACENT,
    .gate = LLM_GATE_ELEMENT,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_mellum = {
    .name = "mellum",
    .families = "Mellum",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
};

const llm_arch llm_arch_mimo2 = {
    .name = "mimo2",
    .families = "MiMo V2",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_DENSE_FIRST,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .is_route_normalized = true,
    .harmless = " ffn_gate.weight ffn_up.weight ffn_down.weight attn_q.bias attn_k.bias "
                "attn_v.bias ",
};

const llm_arch llm_arch_spark2_5 = {
    .name = "spark2_5",
    .families = "Spark 2.5",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_ADJACENT,
    .gate = LLM_GATE_HEAD,
    .gate_act = TDM_ACT_SIGMOID,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_laguna = {
    .name = "laguna",
    .families = "Laguna",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .gate = LLM_GATE_HEAD,
    .gate_act = TDM_ACT_SOFTPLUS,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
};
