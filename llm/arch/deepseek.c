/* SPDX-License-Identifier: MIT
 *
 * deepseek.c: DeepSeek-V2, V3 and derived models: attention over one latent row per token (MLA),
 * and a mixture of experts of which some serve every token. DeepSeek-AI (arXiv:2405.04434,
 * arXiv:2412.19437).
 */
#include <math.h>

#include "llm/arch/families.h"

static tdm_status damaged(const llm_key_reader *r, const char *what) {
    return tdm_fail(r->err, TDM_DATA_LOSS, "%s: %s", llm_gguf_name(r->gguf), what);
}

/* The first layer with attention. */
static int32_t latent_first(const llm_key_reader *r, const llm_hparams *h) {
    int32_t layer = 0;
    while (layer < h->n_layer - 1 && !llm_layer_has(r->gguf, LLM_ROLE_ATTN_KV_A, layer)) layer++;
    return layer;
}

/* Files made before llama.cpp split the matrix (April 2025) hold both halves in one tensor. */
static tdm_status unsplit_refuse(llm_key_reader *r, const llm_hparams *h) {
    char split[64], whole[64];
    const int32_t layer = latent_first(r, h);
    snprintf(split, sizeof split, "blk.%d.attn_k_b.weight", layer);
    snprintf(whole, sizeof whole, "blk.%d.attn_kv_b.weight", layer);
    if (llm_gguf_tensor_find(r->gguf, split) != NULL ||
        llm_gguf_tensor_find(r->gguf, whole) == NULL)
        return TDM_OK;
    return tdm_fail(r->err, TDM_UNSUPPORTED,
                    "%s: tensor '%s' has the old form, one matrix for K and V; "
                    "convert the model again with a converter that writes attn_k_b and attn_v_b",
                    llm_gguf_name(r->gguf), whole);
}

static void read_latent(llm_key_reader *r, llm_hparams *h) {
    const int32_t key_length = h->head_dim_k;
    llm_key_int(r, "attention.q_lora_rank", LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH, &h->n_lora_q);
    llm_key_int(r, "attention.kv_lora_rank", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &h->n_lora_kv);
    llm_key_int(r, "attention.key_length_mla", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM,
                &h->head_dim_q);
    llm_key_int(r, "attention.value_length_mla", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM,
                &h->head_dim_o);
    if (r->status != TDM_OK) return;
    /* Smaller variants project queries directly from the residual stream. Their key may still give
     * a rank. */
    if (llm_layer_has(r->gguf, LLM_ROLE_ATTN_Q, latent_first(r, h))) h->n_lora_q = 0;
    h->head_dim_k = h->n_lora_kv + h->rope.n_rot;
    h->head_dim_v = h->n_lora_kv;
    h->rope.rope_offset = h->n_lora_kv;
    int32_t widest = h->head_dim_q > h->head_dim_o ? h->head_dim_q : h->head_dim_o;
    if (widest < h->head_dim_k) widest = h->head_dim_k;
    if (h->n_head_kv != 1)
        r->status = damaged(r, "key 'attention.head_count_kv' must be 1: all heads share "
                               "one latent row");
    else if (key_length != h->head_dim_k) /* files of Kimi Linear have another value_length */
        r->status = damaged(r, "key 'attention.key_length' must be that of the latent row: "
                               "kv_lora_rank + rope.dimension_count");
    else if (h->rope.n_rot < 2 || h->rope.n_rot >= h->head_dim_q)
        r->status = damaged(r, "key 'rope.dimension_count' must lie between 2 and "
                               "attention.key_length_mla - 1");
    else if ((int64_t)h->n_head * widest > INT32_MAX)
        r->status = damaged(r, "keys 'attention.head_count' and 'key_length_mla' make "
                               "rows wider than 2^31");
}

/* With YaRN the scale of attention is mscale^2 / sqrt(width), where mscale =
 * 0.1 * mscale_all_dim * ln(factor) + 1 and the key holds 0.1 * mscale_all_dim. In these models
 * `mscale` equals mscale_all_dim, so rotated elements are not scaled; the op's own factor is
 * therefore divided out. Without the key mscale is 1.
 * (deepseek-ai/DeepSeek-V3, inference/model.py and config.json.) */
static void read_temperature(llm_key_reader *r, llm_hparams *h) {
    float log_mul = 0, mscale = 1;
    llm_key_float(r, "rope.scaling.yarn_log_multiplier", LLM_GGUF_OPTIONAL, 0, 1e3f, &log_mul);
    if (r->status != TDM_OK) return;
    bool is_yarn = h->rope_scaling == LLM_ROPE_SCALING_YARN && h->rope.ext_factor != 0 &&
                   h->rope.freq_scale < 1;
    if (is_yarn && log_mul != 0) {
        float log_factor = logf(1.0f / h->rope.freq_scale);
        mscale = 1.0f + log_mul * log_factor;
        h->rope.attn_factor /= 1.0f + 0.1f * log_factor;
    }
    h->attention_scale = mscale * mscale / sqrtf((float)h->head_dim_q);
}

/* A file without the key for gating uses a sigmoid if it has a bias for the choice of experts, else
 * a softmax. */
static void read_routing(llm_key_reader *r, llm_hparams *h) {
    int32_t gating = 0;
    if (h->n_expert == 0 && h->n_layer_dense < h->n_layer) {
        r->status = tdm_fail(r->err, TDM_NOT_FOUND, "%s: key '%s.expert_count' is missing",
                             llm_gguf_name(r->gguf), r->arch);
        return;
    }
    if (h->n_layer_dense == h->n_layer) return;
    if (!llm_key_is_each(r, "expert_feed_forward_length"))
        llm_key_int(r, "expert_feed_forward_length", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH,
                    &h->n_ff_expert);
    llm_key_int(r, "expert_gating_func", LLM_GGUF_OPTIONAL, 0, 1 << 30, &gating);
    if (gating != 0) return;
    bool has_bias = llm_layer_has(r->gguf, LLM_ROLE_FFN_ROUTER_BIAS, h->n_layer_dense);
    h->route.score = has_bias ? TDM_ROUTE_SIGMOID : TDM_ROUTE_SOFTMAX;
}

void llm_latent_read(llm_key_reader *r, llm_hparams *h) {
    if (r->status == TDM_OK) r->status = unsplit_refuse(r, h);
    read_latent(r, h);
    read_temperature(r, h);
    if (r->status == TDM_OK) read_routing(r, h);
}

const llm_arch llm_arch_deepseek2 = {
    .name = "deepseek2",
    .families = "DeepSeek-V2, V3, R1",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_EXPERT_NORM | LLM_KEY_EXPERT_GATING |
            LLM_KEY_DENSE_FIRST | LLM_KEY_TEMPERATURE,
    LLM_PRE_NORMS,
    .mixer = LLM_MIXER_LATENT,
    .act = TDM_ACT_SILU,
    .read = llm_latent_read,
};

const llm_arch llm_arch_mistral4 = {
    .name = "mistral4",
    .families = "Mistral 4",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_TEMPERATURE,
    LLM_PRE_NORMS,
    .mixer = LLM_MIXER_LATENT,
    .act = TDM_ACT_SILU,
    .read = llm_latent_read,
};

void llm_index_read(llm_key_reader *r, llm_hparams *h) {
    llm_key_int(r, "attention.indexer.head_count", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH,
                &h->n_index_head);
    llm_key_int(r, "attention.indexer.key_length", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM,
                &h->index_len);
    if (r->status != TDM_OK) return;
    if (h->index_len < h->rope.n_rot)
        r->status = damaged(r, "key 'attention.indexer.key_length' must be rope.dimension_count or "
                               "more");
    else if (h->n_lora_q == 0)
        r->status = damaged(r, "key 'attention.q_lora_rank' must be 1 or more: the index reads the "
                               "latent row of queries");
    h->index_norm_eps = 1e-6f;
}

/* The index has keys of its own, of which the first elements are rotated. */
static void deepseek32_read(llm_key_reader *r, llm_hparams *h) {
    llm_latent_read(r, h);
    llm_index_read(r, h);
    h->index_rope = TDM_ROPE_HALVES;
}

const llm_arch llm_arch_deepseek32 = {
    .name = "deepseek32",
    .families = "DeepSeek-V3.2",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_SELECT,
    LLM_PRE_NORMS,
    .mixer = LLM_MIXER_LATENT,
    .act = TDM_ACT_SILU,
    .read = deepseek32_read,
};

static void glm_dsa_read(llm_key_reader *r, llm_hparams *h) {
    llm_latent_read(r, h);
    llm_index_read(r, h);
}

/* Files of GLM-5.2 may lack the key for the layers with an index; then its context length
 * identifies the model. It has an index in its first three layers and in every fourth one of the
 * others (zai-org/GLM-5.2, config.json). */
static void glm_dsa_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                          llm_layer_spec *spec) {
    const int32_t n_ctx_shared = 1 << 20;
    if (h->n_ctx_train < n_ctx_shared || spec->index != LLM_INDEX_OWN ||
        llm_gguf_key_find(gguf, "glm-dsa.attention.indexer.types") != NULL)
        return;
    if (layer >= 3 && layer % 4 != 2) spec->index = LLM_INDEX_SHARED;
}

const llm_arch llm_arch_glm_dsa = {
    .name = "glm-dsa",
    .families = "GLM-5",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_SELECT | LLM_KEY_INDEX_TYPES,
    LLM_PRE_NORMS,
    LLM_SPARSE_LATENT,
    .act = TDM_ACT_SILU,
    .read = glm_dsa_read,
    .layer = glm_dsa_layer,
};

/* Layers with a window have sizes of latent rows of their own. */
static void dots3note_read(llm_key_reader *r, llm_hparams *h) {
    int32_t n_lora = 0, key = 0, value = 0;
    llm_latent_read(r, h);
    llm_index_read(r, h);
    h->index_rope = TDM_ROPE_HALVES;
    llm_key_int(r, "attention.kv_lora_rank_swa", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &n_lora);
    llm_key_int(r, "attention.key_length_mla_swa", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &key);
    llm_key_int(r, "attention.value_length_mla_swa", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM,
                &value);
    if (r->status == TDM_OK &&
        (n_lora != h->n_lora_kv || key != h->head_dim_q || value != h->head_dim_o))
        r->status = tdm_fail(
            r->err, TDM_UNSUPPORTED,
            "%s: keys '%s.attention.kv_lora_rank_swa', 'key_length_mla_swa' and "
            "'value_length_mla_swa' are %d, %d and %d, in layers without a window %d, %d and %d; "
            "such models are not supported",
            llm_gguf_name(r->gguf), r->arch, n_lora, key, value, h->n_lora_kv, h->head_dim_q,
            h->head_dim_o);
}

const llm_arch llm_arch_dots3note = {
    .name = "dots3note",
    .families = "dots.note",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_SELECT | LLM_KEY_INDEX_TYPES | LLM_KEY_WINDOW |
            LLM_KEY_WINDOW_ROPE,
    LLM_PRE_NORMS,
    LLM_SPARSE_LATENT,
    .has_rope_norm_k = true,
    .gate = LLM_GATE_HEAD,
    .gate_act = TDM_ACT_SIGMOID,
    .act = TDM_ACT_SILU,
    .read = dots3note_read,
};
