/* SPDX-License-Identifier: MIT
 *
 * llama.c: Llama 1-3, Mistral and Mixtral: RMS norm, rotary attention with shared KV heads, SwiGLU,
 * dense or as a mixture of experts. All of them are "llama" in GGUF. Touvron et al.
 * (arXiv:2302.13971), Jiang et al. (arXiv:2310.06825, arXiv:2401.04088).
 */
#include "llm/arch/families.h"

const llm_arch llm_arch_llama = {
    .name = "llama",
    .families = "Llama, Mistral, Mixtral",
    .keys = LLM_KEY_ATTN_SCALE,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
};
