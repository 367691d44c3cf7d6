/* SPDX-License-Identifier: MIT
 *
 * bert.c: encoders: their tokens see each other, and their hidden states are the result. Most have
 * the norms of BERT (Devlin et al., arXiv:1810.04805), of sums, others those of Llama.
 */
#include "llm/arch/families.h"

/* Tensors of the head that scores pairs of texts (llm/score.h). The forward pass does not read
 * them. */
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

/* Every second layer has experts (Nussbaum and Duderstadt, arXiv:2502.07972). */
const llm_arch llm_arch_nomic_bert_moe = {
    .name = "nomic-bert-moe",
    .families = "Nomic Embed 2",
    BERT,
    .rope = TDM_ROPE_HALVES,
    .ffn = LLM_FFN_PLAIN,
    .act = TDM_ACT_GELU,
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

/* Not all of its files have attention.causal: without it tokens see later ones, too. */
const llm_arch llm_arch_llama_embed = {
    .name = "llama-embed",
    .families = "Llama Embed Nemotron",
    LLM_PRE_NORMS,
    .is_bidirectional = true,
    .is_encoder = true,
    .act = TDM_ACT_SILU,
    .harmless = " output.weight ",
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

/* The activation that the file names; "" where it names none. */
static tdm_status hidden_activation(const llm_gguf *gguf, llm_gguf_str *act_out, tdm_error *err) {
    *act_out = (llm_gguf_str){"", 0};
    return llm_gguf_get_str(gguf, "modern-bert.hidden_activation", LLM_GGUF_OPTIONAL, act_out, err);
}

static void modern_bert_read(llm_key_reader *r, llm_hparams *h) {
    llm_gguf_str act = {"", 0};
    if (h->window_freq_base == 0) h->window_freq_base = 10000.0f;
    if (r->status == TDM_OK) r->status = hidden_activation(r->gguf, &act, r->err);
    if (r->status == TDM_OK &&
        (llm_gguf_str_equals(act, "relu") || llm_gguf_str_equals(act, "reglu")))
        r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                             "%s: key 'modern-bert.hidden_activation' is '%.*s', which is not "
                             "supported; gelu and silu are",
                             llm_gguf_name(r->gguf), (int)act.len, act.ptr);
}

/* The words are those of llama.cpp; any other word means GELU. */
static bool is_silu(const llm_gguf *gguf) {
    llm_gguf_str act;
    (void)hidden_activation(gguf, &act, NULL);
    return llm_gguf_str_equals(act, "silu") || llm_gguf_str_equals(act, "swish") ||
           llm_gguf_str_equals(act, "swiglu");
}

/* The first layer reads the embeddings, which are normed already. */
static void modern_bert_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                              llm_layer_spec *spec) {
    (void)h;
    if (layer == 0 && !llm_layer_has(gguf, LLM_ROLE_ATTN_NORM, 0)) spec->norm_mixer = LLM_ROLE_NONE;
    if (is_silu(gguf)) spec->act = TDM_ACT_SILU;
    if (spec->window > 0) spec->rope.freq_scale = 1.0f;
}

/* Warner et al., arXiv:2412.13663. */
const llm_arch llm_arch_modern_bert = {
    .name = "modern-bert",
    .families = "ModernBERT, Granite Embedding R2",
    .keys = LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE,
    .norm = LLM_NORM_LAYER,
    LLM_PRE_NORMS,
    .has_embd_norm = true,
    .rope = TDM_ROPE_HALVES,
    .is_bidirectional = true,
    .is_encoder = true,
    .window_period = 3,
    .is_window_last = true,
    .window_kind = TDM_WINDOW_SYMMETRIC,
    .ffn = LLM_FFN_FUSED,
    .act = TDM_ACT_GELU,
    .score_act = TDM_ACT_GELU,
    .is_score_mean = true,
    .harmless = RANK_HEAD,
    .read = modern_bert_read,
    .layer = modern_bert_layer,
};
