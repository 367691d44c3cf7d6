/* SPDX-License-Identifier: MIT
 *
 * diffusion.c: architectures whose tokens see later ones, too: models that fill in masked tokens.
 */
#include "llm/arch/families.h"

const llm_arch llm_arch_dream = {
    .name = "dream",
    .families = "Dream",
    LLM_PRE_NORMS,
    .harmless = " output.bias ",
    .rope = TDM_ROPE_HALVES,
    .is_bidirectional = true,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_llada = {
    .name = "llada",
    .families = "LLaDA",
    LLM_PRE_NORMS,
    .harmless = " rope_freqs.weight attn_output.bias ffn_gate.bias ffn_up.bias ffn_down.bias ",
    .is_bidirectional = true,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_llada_moe = {
    .name = "llada-moe",
    .families = "LLaDA MoE",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .is_bidirectional = true,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_rnd1 = {
    .name = "rnd1",
    .families = "RND1",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .is_bidirectional = true,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
};
