/* SPDX-License-Identifier: MIT
 *
 * glm.c: GLM. GLM Team (arXiv:2406.12793, arXiv:2508.06471).
 */
#include "llm/arch/families.h"

const llm_arch llm_arch_chatglm = {
    .name = "chatglm",
    .families = "ChatGLM 3, GLM-4-9B",
    LLM_PRE_NORMS,
    .ffn = LLM_FFN_FUSED,
    .act = TDM_ACT_SILU,
};

/* Files of multimodal models have the key for the sections of M-RoPE. Their heads are rotated in
 * halves. */
static void glm4_read(llm_key_reader *r, llm_hparams *h) {
    char name[96];
    uint32_t sections[4] = {0};
    if (r->status != TDM_OK) return;
    llm_key_name(r, "rope.dimension_sections", name);
    r->status = llm_gguf_get_u32_each(r->gguf, name, LLM_GGUF_OPTIONAL, 4, sections, r->err);
    if (sections[0] + sections[1] + sections[2] > 0) h->rope.mode = TDM_ROPE_HALVES;
}

const llm_arch llm_arch_glm4 = {
    .name = "glm4",
    .families = "GLM-4-0414",
    LLM_SANDWICH_NORMS,
    .ffn = LLM_FFN_FUSED,
    .act = TDM_ACT_SILU,
    .read = glm4_read,
};

/* post_attention_norm stands before the channel block. Older models have no norms of heads. */
static void glm4moe_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                          llm_layer_spec *spec) {
    (void)h;
    if (!llm_layer_has(gguf, LLM_ROLE_ATTN_Q_NORM, layer))
        spec->norm_q = spec->norm_k = LLM_ROLE_NONE;
}

const llm_arch llm_arch_glm4moe = {
    .name = "glm4moe",
    .families = "GLM-4.5, 4.6, 4.7",
    .keys = LLM_KEYS_EXPERTS,
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    .norm_channel = LLM_ROLE_ATTN_POST_NORM,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .layer = glm4moe_layer,
};
