/* SPDX-License-Identifier: MIT
 *
 * arch_llama.c: Llama 1-3, Mistral and Mixtral: RMS norm, rotary attention with shared KV heads,
 * SwiGLU, dense or as a mixture of experts. All of them are "llama" in GGUF. Biases of q, k, v, o
 * and, where the block is dense, of gate, up and down are optional.
 *
 *   h = x + Wo attention(rope(Wq n1(x)), rope(Wk n1(x)), Wv n1(x))
 *   y = h + Wdown (silu(Wgate n2(h)) * Wup n2(h))        or the experts' weighted sum of it
 *
 * Touvron et al. (arXiv:2302.13971), Jiang et al. (arXiv:2310.06825, arXiv:2401.04088).
 */
#include "llm/arch/arch_block.h"

/* Partition ids: two per layer, and one for the vocabulary. */
enum { PARTITION_VOCAB = 1, PARTITION_ATTENTION = 2, PARTITION_FFN = 3, PARTITION_STRIDE = 2 };

/* A unit is a KV head with the query heads that read it. Members may share a unit by query heads;
 * each of them then holds its K and V whole. */
static tdm_partition attention_partition(const llm_declarer *d, const llm_hparams *h,
                                         int32_t unit_len, bool is_whole) {
    tdm_partition p = llm_partition_make(PARTITION_ATTENTION + PARTITION_STRIDE * d->layer,
                                         d->layer, h->n_head_kv, unit_len);
    p.n_sub = h->n_head / h->n_head_kv;
    p.whole_segments = is_whole;
    return p;
}

static void declare_attention(llm_declarer *d, const llm_hparams *h) {
    int32_t heads_per_kv = h->n_head / h->n_head_kv;
    tdm_partition q = attention_partition(d, h, heads_per_kv * h->head_dim_k, false);
    tdm_partition k = attention_partition(d, h, h->head_dim_k, true);
    tdm_partition v = attention_partition(d, h, h->head_dim_v, true);
    tdm_partition o = attention_partition(d, h, heads_per_kv * h->head_dim_v, false);
    int64_t n_q = (int64_t)h->n_head * h->head_dim_k, n_k = (int64_t)h->n_head_kv * h->head_dim_k;
    int64_t n_v = (int64_t)h->n_head_kv * h->head_dim_v, n_o = (int64_t)h->n_head * h->head_dim_v;
    llm_declare(d, LLM_ROLE_ATTN_NORM, true, h->n_embd, 1, 1, NULL, 0);
    llm_declare(d, LLM_ROLE_ATTN_Q, true, h->n_embd, n_q, 1, &q, 1);
    llm_declare(d, LLM_ROLE_ATTN_K, true, h->n_embd, n_k, 1, &k, 1);
    llm_declare(d, LLM_ROLE_ATTN_V, true, h->n_embd, n_v, 1, &v, 1);
    llm_declare(d, LLM_ROLE_ATTN_Q_BIAS, false, n_q, 1, 1, &q, 0);
    llm_declare(d, LLM_ROLE_ATTN_K_BIAS, false, n_k, 1, 1, &k, 0);
    llm_declare(d, LLM_ROLE_ATTN_V_BIAS, false, n_v, 1, 1, &v, 0);
    llm_declare(d, LLM_ROLE_ATTN_OUT, true, n_o, h->n_embd, 1, &o, 0);
    llm_declare(d, LLM_ROLE_ATTN_OUT_BIAS, false, h->n_embd, 1, 1, NULL, 0);
}

static tdm_status llama_declare(llm_model *model, tdm_error *err) {
    const llm_hparams *h = &model->hparams;
    llm_declarer d = {model, err, TDM_OK, -1};
    llm_declare_ends(&d, PARTITION_VOCAB);
    llm_declare(&d, LLM_ROLE_ROPE_FREQS, false, h->rope.n_rot / 2, 1, 1, NULL, 0);
    for (d.layer = 0; d.layer < h->n_layer && d.status == TDM_OK; d.layer++) {
        int32_t ffn_id = PARTITION_FFN + PARTITION_STRIDE * d.layer;
        declare_attention(&d, h);
        if (h->n_expert > 0) {
            llm_declare_expert_ffn(&d, ffn_id, h->n_ff);
        } else {
            llm_declare_dense_ffn(&d, ffn_id, h->n_ff);
            llm_declare_ffn_biases(&d, ffn_id, h->n_ff);
        }
    }
    return d.status;
}

/* Attention over the cache; -1 if is_needed is false: then it only fills the cache. */
static int32_t build_attention(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos,
                               int64_t n_tok, bool is_needed) {
    const llm_hparams *h = &g->model->hparams;
    tdm_builder *b = g->b;
    int32_t factor = llm_graph_weight(g, g->model->global[LLM_ROLE_ROPE_FREQS]);
    int32_t state = llm_graph_state(g, layer);
    /* The products come first and the cache last. Their results are all live at once, so that they
     * share no memory and threads compute them without waiting for each other. */
    int32_t k = llm_build_project(g, layer, LLM_ROLE_ATTN_K, LLM_ROLE_ATTN_K_BIAS, x, "k");
    int32_t v = llm_build_project(g, layer, LLM_ROLE_ATTN_V, LLM_ROLE_ATTN_V_BIAS, x, "v");
    int32_t q = -1;
    if (is_needed) q = llm_build_project(g, layer, LLM_ROLE_ATTN_Q, LLM_ROLE_ATTN_Q_BIAS, x, "q");
    k = tdm_build_reshape(b, k, h->head_dim_k, h->n_head_kv, n_tok, 1);
    v = tdm_build_reshape(b, v, h->head_dim_v, h->n_head_kv, n_tok, 1);
    k = tdm_build_rope(b, k, pos, factor, &h->rope);
    if (is_needed) {
        q = tdm_build_reshape(b, q, h->head_dim_k, h->n_head, n_tok, 1);
        q = tdm_build_rope(b, q, pos, factor, &h->rope);
    }
    tdm_build_kv_write(b, k, v, g->step, state, g->state_kv[layer]);
    if (!is_needed) return -1;
    tdm_attention_params params = {0};
    params.kv = g->state_kv[layer];
    params.heads_per_kv = h->n_head / h->n_head_kv;
    params.n_head_all = h->n_head;
    params.is_causal = 1;
    params.scale = h->attention_scale;
    int32_t o = tdm_build_attention(b, q, g->step, state, -1, &params, NULL);
    o = tdm_build_reshape(b, o, (int64_t)h->n_head * h->head_dim_v, n_tok, 1, 1);
    return llm_build_project(g, layer, LLM_ROLE_ATTN_OUT, LLM_ROLE_ATTN_OUT_BIAS, o, "attn_out");
}

static int32_t build_ffn(llm_graph_builder *g, int32_t layer, int32_t x) {
    static const llm_ffn_roles dense = {LLM_ROLE_FFN_GATE,    LLM_ROLE_FFN_UP,
                                        LLM_ROLE_FFN_DOWN,    LLM_ROLE_FFN_GATE_BIAS,
                                        LLM_ROLE_FFN_UP_BIAS, LLM_ROLE_FFN_DOWN_BIAS};
    if (g->model->hparams.n_expert == 0) return llm_build_swiglu(g, layer, &dense, x, "ffn_out");
    return llm_build_experts(g, layer, -1, x, "ffn_out");
}

static int32_t llama_build(llm_graph_builder *g, const llm_step_shape *shape) {
    static const llm_layer_blocks blocks = {build_attention, build_ffn};
    return llm_build_layers(g, shape, &blocks);
}

const llm_arch llm_arch_llama = {
    .name = "llama",
    .families = "Llama, Mistral, Mixtral",
    .declare = llama_declare,
    .build = llama_build,
};
