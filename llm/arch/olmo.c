/* SPDX-License-Identifier: MIT
 *
 * olmo.c: OLMo 1 to 3 and OLMoE. Groeneveld et al. (arXiv:2402.00838), OLMo Team
 * (arXiv:2501.00656), Muennighoff et al. (arXiv:2409.02060).
 */
#include "llm/arch/families.h"

#define ROW_NORMS .norm_q = LLM_ROLE_ATTN_Q_NORM_ROW, .norm_k = LLM_ROLE_ATTN_K_NORM_ROW

const llm_arch llm_arch_olmo = {
    .name = "olmo",
    .families = "OLMo",
    .keys = LLM_KEY_CLAMP_QKV,
    .norm = LLM_NORM_LAYER,
    .has_bare_norms = true,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_olmo2 = {
    .name = "olmo2",
    .families = "OLMo 2, 3",
    .keys = LLM_KEY_WINDOW,
    .norm_mixer_post = LLM_ROLE_ATTN_POST_NORM,
    .norm_channel_post = LLM_ROLE_FFN_POST_NORM,
    ROW_NORMS,
    .rope = TDM_ROPE_HALVES,
    .window_period = 4,
    .is_window_unscaled = true,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_olmoe = {
    .name = "olmoe",
    .families = "OLMoE",
    LLM_PRE_NORMS,
    ROW_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_minimax_m2 = {
    .name = "minimax-m2",
    .families = "MiniMax M2",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_GATING | LLM_KEY_EXPERT_SCALE,
    LLM_PRE_NORMS,
    ROW_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .is_route_normalized = true,
};
