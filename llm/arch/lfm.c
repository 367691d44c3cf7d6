/* SPDX-License-Identifier: MIT
 *
 * lfm.c: LFM2 (arXiv:2511.23404): gated short convolutions, and attention in some layers. Files
 * name the norm before the output head token_embd_norm.
 */
#include "llm/arch/families.h"

#define LFM2                                                                                       \
    LLM_PRE_NORMS, LLM_HEAD_NORMS, .norm_out = LLM_ROLE_TOKEN_EMBD_NORM, .rope = TDM_ROPE_HALVES,  \
                                   .recurrent_mixer = LLM_MIXER_SHORT_CONV, .act = TDM_ACT_SILU

const llm_arch llm_arch_lfm2 = {
    .name = "lfm2", .families = "LFM2", .keys = LLM_KEY_RECURRENT | LLM_KEY_WINDOW, LFM2};

const llm_arch llm_arch_lfm2moe = {
    .name = "lfm2moe",
    .families = "LFM2 MoE",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_EXPERT_GATING |
            LLM_KEY_DENSE_FIRST,
    LFM2,
    .is_route_normalized = true,
};
