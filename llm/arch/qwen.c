/* SPDX-License-Identifier: MIT
 *
 * qwen.c: Qwen and what derives from it. Bai et al. (arXiv:2309.16609), Yang et al.
 * (arXiv:2407.10671, arXiv:2505.09388).
 */
#include "llm/arch/families.h"

/* The key counts the columns of gate and up together. */
static void qwen_read(llm_key_reader *r, llm_hparams *h) {
    if (r->status == TDM_OK && h->n_ff % 2 != 0)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s.feed_forward_length' is %d; it must be even",
                             llm_gguf_name(r->gguf), r->arch, h->n_ff);
    h->n_ff /= 2;
}

const llm_arch llm_arch_qwen = {
    .name = "qwen",
    .families = "Qwen",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .read = qwen_read,
};

const llm_arch llm_arch_qwen2 = {
    .name = "qwen2",
    .families = "Qwen 2, 2.5",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

/* A text has the same position in all parts of its M-RoPE. */
const llm_arch llm_arch_qwen2vl = {
    .name = "qwen2vl",
    .families = "Qwen 2 VL",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .harmless = " output.bias ",
};

const llm_arch llm_arch_qwen2moe = {
    .name = "qwen2moe",
    .families = "Qwen 1.5 MoE, 2 MoE",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .has_shared_gate = true,
};

#define QWEN3                                                                                      \
    LLM_PRE_NORMS, LLM_HEAD_NORMS, .rope = TDM_ROPE_HALVES, .act = TDM_ACT_SILU,                   \
                                   .harmless = " cls.output.weight "

const llm_arch llm_arch_qwen3 = {.name = "qwen3", .families = "Qwen 3", QWEN3};
const llm_arch llm_arch_qwen3vl = {.name = "qwen3vl", .families = "Qwen 3 VL", QWEN3};
const llm_arch llm_arch_qwen3tts = {.name = "qwen3tts", .families = "Qwen 3 TTS", QWEN3};

#define QWEN3MOE                                                                                   \
    LLM_PRE_NORMS, LLM_HEAD_NORMS, .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE,               \
                                   .rope = TDM_ROPE_HALVES, .act = TDM_ACT_SILU,                   \
                                   .is_route_normalized = true

const llm_arch llm_arch_qwen3moe = {.name = "qwen3moe", .families = "Qwen 3 MoE", QWEN3MOE};
const llm_arch llm_arch_qwen3vlmoe = {.name = "qwen3vlmoe", .families = "Qwen 3 VL MoE", QWEN3MOE};

/* ---- Gated delta net beside gated attention ---- */

/* Query heads have their gate behind them. */
static void gated_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                        llm_layer_spec *spec) {
    (void)gguf, (void)layer;
    if (spec->mixer == LLM_MIXER_ATTENTION) spec->q_len = 2 * h->head_dim_k;
}

/* Heads of v go round those of q and k. */
static void tiled_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                        llm_layer_spec *spec) {
    gated_layer(gguf, h, layer, spec);
    spec->recurrent.is_tiled = true;
}

/* post_attention_norm is the norm before the channel block. ssm_in is an older form of attn_qkv and
 * attn_gate. */
#define GATED_DELTA                                                                                \
    .norm_mixer = LLM_ROLE_ATTN_NORM, .norm_channel = LLM_ROLE_ATTN_POST_NORM, LLM_HEAD_NORMS,     \
    .rope = TDM_ROPE_HALVES, .gate = LLM_GATE_QUERY, .recurrent_mixer = LLM_MIXER_DELTA,           \
    .act = TDM_ACT_SILU, .is_route_normalized = true, .has_shared_gate = true

const llm_arch llm_arch_qwen3next = {
    .name = "qwen3next",
    .families = "Qwen 3 Next",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_ATTN_SCALE,
    GATED_DELTA,
    .layer = gated_layer,
    .harmless = " ssm_in.weight ",
};

const llm_arch llm_arch_qwen35 = {
    .name = "qwen35",
    .families = "Qwen 3.5, 3.6",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_ATTN_SCALE,
    GATED_DELTA,
    .layer = tiled_layer,
};

const llm_arch llm_arch_qwen35moe = {
    .name = "qwen35moe",
    .families = "Qwen 3.5 MoE, 3.6 MoE",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_ATTN_SCALE,
    GATED_DELTA,
    .layer = tiled_layer,
};
