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
