/* SPDX-License-Identifier: MIT
 *
 * bert.c: encoders: their tokens see each other, and their hidden states are the result. Most have
 * the norms of BERT (Devlin et al., arXiv:1810.04805), of sums, others those of Llama.
 */
#include "llm/arch/families.h"

/* Heads that score a text beside another (pooling "rank"); not supported, and harmless for
 * embeddings. */
#define RANK_HEAD " cls.weight cls.bias cls.norm.weight cls.output.weight cls.output.bias "

#define BERT                                                                                       \
    .norm = LLM_NORM_LAYER, .norm_mixer_sum = LLM_ROLE_ATTN_OUT_NORM,                              \
    .norm_channel_sum = LLM_ROLE_LAYER_OUT_NORM, .has_no_norm_out = true, .has_embd_norm = true,   \
    .has_token_types = true, .is_bidirectional = true, .is_encoder = true, .harmless = RANK_HEAD

const llm_arch llm_arch_bert = {
    .name = "bert",
    .families = "BERT, E5, BGE, MiniLM",
    BERT,
    .has_position_embd = true,
    .has_no_rope = true,
    .ffn = LLM_FFN_PLAIN,
    .act = TDM_ACT_GELU,
};

const llm_arch llm_arch_nomic_bert = {
    .name = "nomic-bert",
    .families = "Nomic Embed",
    BERT,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_jina_bert_v3 = {
    .name = "jina-bert-v3",
    .families = "Jina Embeddings 3",
    BERT,
    .rope = TDM_ROPE_HALVES,
    .ffn = LLM_FFN_PLAIN,
    .act = TDM_ACT_GELU,
};

/* Files differ in the form of the channel block, and in norms of queries and keys. */
static void jina_bert_v2_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                               llm_layer_spec *spec) {
    const llm_gguf_tensor *up = llm_role_tensor(gguf, LLM_ROLE_FFN_UP, layer);
    if (llm_layer_has(gguf, LLM_ROLE_FFN_GATE, layer))
        spec->ffn = LLM_FFN_GATED;
    else if (up != NULL && up->ne[1] == 2 * (int64_t)h->n_ff)
        spec->ffn = LLM_FFN_FUSED;
    if (llm_layer_has(gguf, LLM_ROLE_ATTN_Q_NORM_ROW, layer))
        spec->norm_q = LLM_ROLE_ATTN_Q_NORM_ROW;
    if (llm_layer_has(gguf, LLM_ROLE_ATTN_K_NORM_ROW, layer))
        spec->norm_k = LLM_ROLE_ATTN_K_NORM_ROW;
}

const llm_arch llm_arch_jina_bert_v2 = {
    .name = "jina-bert-v2",
    .families = "Jina Embeddings 2",
    BERT,
    .norm_mixer_sum_2 = LLM_ROLE_ATTN_NORM_2,
    .has_no_rope = true,
    .alibi = 8,
    .norm_qk = LLM_NORM_LAYER,
    .ffn = LLM_FFN_PLAIN,
    .act = TDM_ACT_GELU,
    .layer = jina_bert_v2_layer,
};

const llm_arch llm_arch_eurobert = {
    .name = "eurobert",
    .families = "EuroBERT",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .is_bidirectional = true,
    .is_encoder = true,
    .act = TDM_ACT_SILU,
};

const llm_arch llm_arch_neo_bert = {
    .name = "neo-bert",
    .families = "NeoBERT",
    LLM_PRE_NORMS,
    .norm_out = LLM_ROLE_ENC_OUTPUT_NORM,
    .is_bidirectional = true,
    .is_encoder = true,
    .ffn = LLM_FFN_FUSED,
    .act = TDM_ACT_SILU,
    .harmless = RANK_HEAD,
};
