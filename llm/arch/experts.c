/* SPDX-License-Identifier: MIT
 *
 * experts.c: architectures whose layers are mostly mixtures of experts, and their dense relatives.
 */
#include <math.h>

#include "llm/arch/families.h"

const llm_arch llm_arch_deepseek = {
    .name = "deepseek",
    .families = "DeepSeek-MoE",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_DENSE_FIRST,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
};

/* The text part of DeepSeek-OCR: heads are rotated whole. No file of it has a scaled RoPE. */
static void deepseek2_ocr_read(llm_key_reader *r, llm_hparams *h) {
    h->rope.n_rot = h->head_dim_k;
    if (r->status == TDM_OK && h->rope_scaling != LLM_ROPE_SCALING_NONE)
        r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                             "%s: key '%s.rope.scaling.type' scales RoPE, which this architecture "
                             "does not do; the file is of another architecture",
                             llm_gguf_name(r->gguf), r->arch);
}

const llm_arch llm_arch_deepseek2_ocr = {
    .name = "deepseek2-ocr",
    .families = "DeepSeek-OCR",
    .keys = LLM_KEYS_EXPERTS,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .read = deepseek2_ocr_read,
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

/* NTK scaling: the base times alpha^(n / (n - 2)) for heads of n elements. */
static void hunyuan_vl_read(llm_key_reader *r, llm_hparams *h) {
    const float n = (float)h->head_dim_k;
    float alpha = 0; /* absent */
    llm_key_float(r, "rope.scaling.alpha", LLM_GGUF_OPTIONAL, 0, 1e6f, &alpha);
    if (alpha > 0 && n > 2) h->rope.freq_base *= powf(alpha, n / (n - 2));
}

const llm_arch llm_arch_hunyuan_vl = {
    .name = "hunyuan_vl", .families = "Hunyuan VL", HUNYUAN, .read = hunyuan_vl_read};
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
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE,
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
    .is_window_unscaled = true,
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
    .window_period = 4,
    .is_window_unscaled = true,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
};

static void mimo2_read(llm_key_reader *r, llm_hparams *h) {
    if (h->window_freq_base == 0) h->window_freq_base = 10000.0f;
    llm_key_float(r, "attention.value_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->value_scale);
}

const llm_arch llm_arch_mimo2 = {
    .name = "mimo2",
    .is_hidden_raw = true,
    .families = "MiMo V2",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_DENSE_FIRST |
            LLM_KEY_PER_LAYER,
    LLM_PRE_NORMS,
    .is_window_unscaled = true,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .is_route_normalized = true,
    .read = mimo2_read,
    .harmless = " ffn_gate.weight ffn_up.weight ffn_down.weight attn_q.bias attn_k.bias "
                "attn_v.bias ",
};

const llm_arch llm_arch_spark2_5 = {
    .name = "spark2_5",
    .families = "Spark 2.5",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_WINDOW_HEADS,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .gate = LLM_GATE_HEAD,
    .gate_act = TDM_ACT_SIGMOID,
    .act = TDM_ACT_GELU,
};

const llm_arch llm_arch_laguna = {
    .name = "laguna",
    .families = "Laguna",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_WINDOW_HEADS |
            LLM_KEY_PER_LAYER,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .gate = LLM_GATE_WIDTH,
    .gate_act = TDM_ACT_SOFTPLUS,
    .act = TDM_ACT_SILU,
    .window_period = 4,
    .is_window_last = true,
    .is_window_unscaled = true,
    .route_score = TDM_ROUTE_SIGMOID,
};

/* Layers that see all tokens do not rotate their heads: every fourth, the first of them. */
static void smallthinker_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                               llm_layer_spec *spec) {
    (void)gguf;
    if (h->window > 0 && layer % 4 == 0) spec->rope.n_rot = 0;
}

const llm_arch llm_arch_smallthinker = {
    .name = "smallthinker",
    .families = "SmallThinker",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_GATING | LLM_KEY_EXPERT_SCALE | LLM_KEY_WINDOW |
            LLM_KEY_WINDOW_ROPE,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .window_period = 4,
    .is_window_last = true,
    .act = TDM_ACT_RELU,
    .route_score = TDM_ROUTE_SIGMOID,
    .is_route_normalized = true,
    .is_router_first = true,
    .layer = smallthinker_layer,
};

/* What files without the keys mean. */
static void grok_read(llm_key_reader *r, llm_hparams *h) {
    h->attention_scale = 0.08838834764831845f;
    llm_key_float(r, "attention.output_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->attention_scale);
    if (h->attention_softcap == 0) h->attention_softcap = 30.0f;
    if (h->embd_scale == 0) h->embd_scale = 78.38367176906169f;
    if (h->logit_scale == 0) h->logit_scale = 0.5773502691896257f;
    h->rope.beta_fast = 8.0f;
    llm_key_float(r, "rope.scaling.yarn_beta_fast", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->rope.beta_fast);
}

static void grok_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                       llm_layer_spec *spec) {
    (void)h;
    if (!llm_layer_has(gguf, LLM_ROLE_LAYER_OUT_NORM, layer))
        spec->norm_channel_post = LLM_ROLE_FFN_POST_NORM;
}

const llm_arch llm_arch_grok = {
    .name = "grok",
    .families = "Grok 1, 2",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_EMBD_SCALE | LLM_KEY_LOGIT_SCALE |
            LLM_KEY_ATTN_SOFTCAP | LLM_KEY_FINAL_SOFTCAP,
    LLM_PRE_NORMS,
    .norm_mixer_post = LLM_ROLE_ATTN_OUT_NORM,
    .norm_channel_post = LLM_ROLE_LAYER_OUT_NORM,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_GELU,
    .is_route_normalized = true,
    .both_scale = 0.70710678f,
    .read = grok_read,
    .layer = grok_layer,
};

/* The dense block is as wide as the stream; the key counts the columns of an expert. */
static void arctic_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                         llm_layer_spec *spec) {
    (void)gguf, (void)layer;
    spec->n_ff = h->n_embd;
}

const llm_arch llm_arch_arctic = {
    .name = "arctic",
    .families = "Snowflake Arctic",
    LLM_PRE_NORMS,
    .norm_experts = LLM_ROLE_FFN_EXPERT_NORM,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .both_scale = 1.0f,
    .layer = arctic_layer,
};

/* Without a key for their columns, shared experts are as wide as a head. */
static void grovemoe_read(llm_key_reader *r, llm_hparams *h) {
    h->chunk_scale = 0.05f;
    llm_key_int(r, "experts_per_group", LLM_GGUF_REQUIRED, 1, 65536, &h->n_expert_chunk);
    llm_key_float(r, "expert_group_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->chunk_scale);
    llm_key_int(r, "expert_chunk_feed_forward_length", LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH,
                &h->n_ff_chunk);
    if (h->n_ff_chunk == 0) h->n_ff_chunk = h->head_dim_k;
    if (r->status == TDM_OK && (h->n_expert == 0 || h->n_expert % h->n_expert_chunk != 0))
        r->status =
            tdm_fail(r->err, TDM_DATA_LOSS,
                     "%s: key '%s.experts_per_group' is %d, which does not divide %d experts",
                     llm_gguf_name(r->gguf), r->arch, h->n_expert_chunk, h->n_expert);
}

static void grovemoe_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                           llm_layer_spec *spec) {
    (void)gguf, (void)layer;
    spec->n_ff_chunk = h->n_ff_chunk;
}

const llm_arch llm_arch_grovemoe = {
    .name = "grovemoe",
    .families = "GroveMoE",
    .keys = LLM_KEY_EXPERT_FF,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .has_chunk_experts = true,
    .read = grovemoe_read,
    .layer = grovemoe_layer,
};

const llm_arch llm_arch_hy_v3 = {
    .name = "hy_v3",
    .families = "Hunyuan 3",
    .keys = LLM_KEYS_EXPERTS,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .harmless = " ffn_gate.weight ffn_up.weight ffn_down.weight ",
};
