/* SPDX-License-Identifier: MIT
 *
 * phi.c: Phi 3 and Phi 3.5 MoE. Abdin et al. (arXiv:2404.14219).
 */
#include "llm/arch/families.h"

const llm_arch llm_arch_phi3 = {
    .name = "phi3",
    .families = "Phi 3, Phi 4",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .ffn = LLM_FFN_FUSED,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_phimoe = {
    .name = "phimoe",
    .families = "Phi 3.5 MoE",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
};
