/* SPDX-License-Identifier: MIT
 *
 * alibi.c: architectures without rotation, whose attention has a bias that grows with the distance
 * (ALiBi): Press et al. (arXiv:2108.12409).
 */
#include "llm/arch/families.h"

const llm_arch llm_arch_bloom = {
    .name = "bloom",
    .families = "BLOOM",
    LLM_PRE_NORMS,
    .norm = LLM_NORM_LAYER,
    .has_embd_norm = true,
    .has_no_rope = true,
    .alibi = 8,
    .ffn = LLM_FFN_PLAIN,
    .act = TDM_ACT_GELU,
};

/* Norms of queries and keys, and embeddings of positions, are optional. Keys are normed only with
 * queries. */
static void mpt_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                      llm_layer_spec *spec) {
    (void)h;
    if (!llm_layer_has(gguf, LLM_ROLE_ATTN_Q_NORM_ROW, layer))
        spec->norm_q = spec->norm_k = LLM_ROLE_NONE;
}

const llm_arch llm_arch_mpt = {
    .name = "mpt",
    .families = "MPT",
    .keys = LLM_KEY_ALIBI | LLM_KEY_CLAMP_QKV,
    LLM_PRE_NORMS,
    .norm = LLM_NORM_LAYER,
    .has_optional_position_embd = true,
    .has_no_rope = true,
    .norm_q = LLM_ROLE_ATTN_Q_NORM_ROW,
    .norm_k = LLM_ROLE_ATTN_K_NORM_ROW,
    .norm_qk = LLM_NORM_LAYER,
    .ffn = LLM_FFN_PLAIN,
    .act = TDM_ACT_GELU,
    .harmless = " attn_k_norm.weight attn_k_norm.bias ",
    .layer = mpt_layer,
};

static void jais_read(llm_key_reader *r, llm_hparams *h) {
    (void)r;
    h->attention_scale = 1.0f / (float)h->head_dim_k;
}

const llm_arch llm_arch_jais = {
    .name = "jais",
    .families = "Jais",
    .keys = LLM_KEY_ALIBI,
    LLM_PRE_NORMS,
    .norm = LLM_NORM_LAYER,
    .has_no_rope = true,
    .act = TDM_ACT_SILU,
    .read = jais_read,
};

static void refact_read(llm_key_reader *r, llm_hparams *h) {
    if (r->status == TDM_OK && h->n_expert > 0)
        r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                             "%s: key '%s.expert_count' is %d; Refact has no experts",
                             llm_gguf_name(r->gguf), r->arch, h->n_expert);
}

const llm_arch llm_arch_refact = {
    .name = "refact",
    .families = "Refact",
    LLM_PRE_NORMS,
    .has_no_rope = true,
    .alibi = 8,
    .act = TDM_ACT_SILU,
    .harmless = " rope_freqs.weight attn_output.bias ffn_gate.bias ffn_up.bias ffn_down.bias ",
    .read = refact_read,
};
