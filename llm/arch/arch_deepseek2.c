/* SPDX-License-Identifier: MIT
 *
 * arch_deepseek2.c: DeepSeek-V2, V3 and derived models, all "deepseek2" in GGUF: attention over one
 * latent row per token (MLA), and a mixture of experts of which some serve every token.
 *
 *   [c, p] = Wkv_a n1(x)          cached: [norm(c), rope(p)], one row for all heads
 *   [u, t]_h = Wq_b norm(Wq_a n1(x)), or Wq n1(x)
 *   score_h = [Wk_b,h u_h, rope(t_h)] . [norm(c), rope(p)]
 *   h = x + Wo [Wv_b,h (sum softmax(score_h) norm(c))]_h
 *   y = h + experts(n2(h)) + shared(n2(h)), or a dense feed-forward in the first layers
 *
 * The matrix for a head's keys is applied to its query, and the matrix for its values to the result
 * of attention. So attention reads the latent row itself, once for all heads. DeepSeek-AI
 * (arXiv:2405.04434 section 2.1, arXiv:2412.19437).
 */
#include <math.h>

#include "llm/arch/arch_block.h"
#include "llm/arch/key_reader.h"

/* Partition ids: three per layer, and one for the vocabulary. */
enum {
    PARTITION_VOCAB = 1,
    PARTITION_ATTENTION = 2,
    PARTITION_FFN = 3,
    PARTITION_SHARED = 4,
    PARTITION_STRIDE = 3
};

/* ---- Numbers ---- */

static tdm_status damaged(const llm_key_reader *r, const char *what) {
    return tdm_fail(r->err, TDM_DATA_LOSS, "%s: %s", llm_gguf_name(r->gguf), what);
}

/* Files made before llama.cpp split the matrix (April 2025) hold both halves in one tensor. */
static tdm_status unsplit_refuse(llm_key_reader *r) {
    if (llm_gguf_tensor_find(r->gguf, "blk.0.attn_k_b.weight") != NULL ||
        llm_gguf_tensor_find(r->gguf, "blk.0.attn_kv_b.weight") == NULL)
        return TDM_OK;
    return tdm_fail(r->err, TDM_UNSUPPORTED,
                    "%s: tensor 'blk.0.attn_kv_b.weight' has the old form, one matrix for K and V; "
                    "convert the model again with a converter that writes attn_k_b and attn_v_b",
                    llm_gguf_name(r->gguf));
}

static void read_latent(llm_key_reader *r, llm_hparams *h) {
    int32_t key_length = h->head_dim_k, value_length = h->head_dim_v;
    llm_key_int(r, "attention.q_lora_rank", LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH, &h->n_lora_q);
    llm_key_int(r, "attention.kv_lora_rank", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &h->n_lora_kv);
    llm_key_int(r, "attention.key_length_mla", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM,
                &h->head_dim_q);
    llm_key_int(r, "attention.value_length_mla", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM,
                &h->head_dim_o);
    if (r->status != TDM_OK) return;
    /* Smaller variants project queries directly from the residual stream. Their key may still give
     * a rank. */
    if (llm_gguf_tensor_find(r->gguf, "blk.0.attn_q.weight") != NULL) h->n_lora_q = 0;
    h->head_dim_k = h->n_lora_kv + h->rope.n_rot;
    h->head_dim_v = h->n_lora_kv;
    h->rope.rope_offset = h->n_lora_kv;
    int32_t widest = h->head_dim_q > h->head_dim_o ? h->head_dim_q : h->head_dim_o;
    if (widest < h->head_dim_k) widest = h->head_dim_k;
    if (h->n_head_kv != 1)
        r->status = damaged(r, "key 'deepseek2.attention.head_count_kv' must be 1: all heads share "
                               "one latent row");
    else if (key_length != h->head_dim_k || value_length != h->head_dim_v)
        r->status = damaged(r, "keys 'deepseek2.attention.key_length' and 'value_length' must be "
                               "those of the latent row: kv_lora_rank + rope.dimension_count and "
                               "kv_lora_rank");
    else if (h->rope.n_rot < 2 || h->rope.n_rot >= h->head_dim_q)
        r->status = damaged(r, "key 'deepseek2.rope.dimension_count' must lie between 2 and "
                               "attention.key_length_mla - 1");
    else if ((int64_t)h->n_head * widest > INT32_MAX)
        r->status = damaged(r, "keys 'deepseek2.attention.head_count' and 'key_length_mla' make "
                               "rows wider than 2^31");
}

/* With YaRN the scale of attention is mscale^2 / sqrt(width), where mscale =
 * 0.1 * mscale_all_dim * ln(factor) + 1 and the key holds 0.1 * mscale_all_dim. In these models
 * `mscale` equals mscale_all_dim, so rotated elements are not scaled; the op's own factor is
 * therefore divided out. Without the key mscale is 1.
 * (deepseek-ai/DeepSeek-V3, inference/model.py and config.json.) */
static void read_temperature(llm_key_reader *r, llm_hparams *h) {
    float log_mul = 0, temperature_scale = 0, mscale = 1;
    llm_key_float(r, "rope.scaling.yarn_log_multiplier", LLM_GGUF_OPTIONAL, 0, 1e3f, &log_mul);
    llm_key_float(r, "attention.temperature_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &temperature_scale);
    if (r->status == TDM_OK && temperature_scale != 0)
        r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                             "%s: key 'deepseek2.attention.temperature_scale': a temperature of "
                             "attention that grows with the position is not supported",
                             llm_gguf_name(r->gguf));
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

/* The numbers are `llama_expert_gating_func_type` (ggml-org/llama.cpp, src/llama-hparams.h). A file
 * without the key uses a sigmoid if it has a bias for the choice of experts, else a softmax. */
static void read_gating(llm_key_reader *r, llm_hparams *h) {
    enum { NONE = 0, SOFTMAX = 1, SIGMOID = 2, TOP_SOFTMAX = 3 };
    char name[64];
    int32_t gating = NONE;
    llm_key_int(r, "expert_gating_func", LLM_GGUF_OPTIONAL, NONE, TOP_SOFTMAX, &gating);
    if (gating == NONE) {
        llm_role_tensor_name(LLM_ROLE_FFN_ROUTER_BIAS, h->n_layer_dense, name, sizeof name);
        gating = llm_gguf_tensor_find(r->gguf, name) != NULL ? SIGMOID : SOFTMAX;
    }
    h->route.score = gating == SOFTMAX   ? TDM_ROUTE_SOFTMAX
                     : gating == SIGMOID ? TDM_ROUTE_SIGMOID
                                         : TDM_ROUTE_TOP_SOFTMAX;
}

static void read_experts(llm_key_reader *r, llm_hparams *h) {
    bool is_normalized = false;
    int32_t n_group = 0, n_group_used = 0;
    llm_key_int(r, "leading_dense_block_count", LLM_GGUF_OPTIONAL, 0, h->n_layer,
                &h->n_layer_dense);
    if (r->status != TDM_OK || h->n_layer_dense == h->n_layer) return;
    if (h->n_expert == 0) {
        r->status = tdm_fail(r->err, TDM_NOT_FOUND, "%s: key 'deepseek2.expert_count' is missing",
                             llm_gguf_name(r->gguf));
        return;
    }
    llm_key_int(r, "expert_feed_forward_length", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH,
                &h->n_ff_expert);
    llm_key_int(r, "expert_shared_count", LLM_GGUF_OPTIONAL, 0, 1024, &h->n_expert_shared);
    llm_key_float(r, "expert_weights_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->route.scale);
    llm_key_bool(r, "expert_weights_norm", LLM_GGUF_OPTIONAL, &is_normalized);
    llm_key_int(r, "expert_group_count", LLM_GGUF_OPTIONAL, 0, h->n_expert, &n_group);
    llm_key_int(r, "expert_group_used_count", LLM_GGUF_OPTIONAL, 0, h->n_expert, &n_group_used);
    read_gating(r, h);
    h->route.normalize = is_normalized;
    if (r->status != TDM_OK || n_group <= 1) return;
    h->route.n_group = n_group;
    h->route.n_group_used = n_group_used;
    if (h->n_expert % n_group != 0 || n_group_used < 1 || n_group_used > n_group ||
        h->n_expert / n_group * n_group_used < h->n_expert_used)
        r->status =
            tdm_fail(r->err, TDM_DATA_LOSS,
                     "%s: keys 'deepseek2.expert_group_count' = %d and 'expert_group_used_count' = "
                     "%d do not allow a choice of %d out of %d experts",
                     llm_gguf_name(r->gguf), n_group, n_group_used, h->n_expert_used, h->n_expert);
}

static tdm_status deepseek2_read(const llm_gguf *gguf, llm_hparams *h, tdm_error *err) {
    llm_key_reader r = {gguf, "deepseek2", err, TDM_OK};
    r.status = unsplit_refuse(&r);
    read_latent(&r, h);
    read_temperature(&r, h);
    read_experts(&r, h);
    return r.status;
}

/* ---- Weights ---- */

/* The only unit is the latent row with all heads. Members may share it by heads; each of them then
 * holds the row whole. A head has `head_len` elements. */
static tdm_partition heads_partition(const llm_declarer *d, int32_t head_len) {
    int32_t n_head = d->model->hparams.n_head;
    tdm_partition p = llm_partition_make(PARTITION_ATTENTION + PARTITION_STRIDE * d->layer,
                                         d->layer, 1, n_head * head_len);
    p.n_sub = n_head;
    return p;
}

static tdm_partition latent_partition(const llm_declarer *d, int32_t len) {
    tdm_partition p = heads_partition(d, 1);
    p.unit_len[0] = len;
    p.whole_segments = 1;
    return p;
}

static void declare_attention(llm_declarer *d, const llm_hparams *h) {
    int32_t head_dim_nope = h->head_dim_q - h->rope.n_rot;
    int64_t n_q = (int64_t)h->n_head * h->head_dim_q, n_o = (int64_t)h->n_head * h->head_dim_o;
    tdm_partition q = heads_partition(d, h->head_dim_q), o = heads_partition(d, h->head_dim_o);
    tdm_partition matrices = heads_partition(d, 1);
    tdm_partition row = latent_partition(d, h->head_dim_k);
    tdm_partition norm = latent_partition(d, h->n_lora_kv);
    llm_declare(d, LLM_ROLE_ATTN_NORM, true, h->n_embd, 1, 1, NULL, 0);
    if (h->n_lora_q > 0) {
        llm_declare(d, LLM_ROLE_ATTN_Q_A, true, h->n_embd, h->n_lora_q, 1, NULL, 0);
        llm_declare(d, LLM_ROLE_ATTN_Q_A_NORM, true, h->n_lora_q, 1, 1, NULL, 0);
        llm_declare(d, LLM_ROLE_ATTN_Q_B, true, h->n_lora_q, n_q, 1, &q, 1);
    } else {
        llm_declare(d, LLM_ROLE_ATTN_Q, true, h->n_embd, n_q, 1, &q, 1);
    }
    llm_declare(d, LLM_ROLE_ATTN_KV_A, true, h->n_embd, h->head_dim_k, 1, &row, 1);
    llm_declare(d, LLM_ROLE_ATTN_KV_A_NORM, true, h->n_lora_kv, 1, 1, &norm, 0);
    llm_declare(d, LLM_ROLE_ATTN_K_B, true, head_dim_nope, h->n_lora_kv, h->n_head, &matrices, 2);
    llm_declare(d, LLM_ROLE_ATTN_V_B, true, h->n_lora_kv, h->head_dim_o, h->n_head, &matrices, 2);
    llm_declare(d, LLM_ROLE_ATTN_OUT, true, n_o, h->n_embd, 1, &o, 0);
}

static void declare_ffn(llm_declarer *d, const llm_hparams *h) {
    int32_t ffn_id = PARTITION_FFN + PARTITION_STRIDE * d->layer;
    int32_t n_shared = h->n_ff_expert * h->n_expert_shared;
    tdm_partition shared =
        llm_partition_make(PARTITION_SHARED + PARTITION_STRIDE * d->layer, d->layer, n_shared, 1);
    if (d->layer < h->n_layer_dense) {
        llm_declare_dense_ffn(d, ffn_id, h->n_ff);
        return;
    }
    llm_declare_expert_ffn(d, ffn_id, h->n_ff_expert);
    llm_declare(d, LLM_ROLE_FFN_ROUTER_BIAS, false, h->n_expert, 1, 1, NULL, 0);
    if (n_shared == 0) return;
    llm_declare(d, LLM_ROLE_FFN_GATE_SHARED, true, h->n_embd, n_shared, 1, &shared, 1);
    llm_declare(d, LLM_ROLE_FFN_UP_SHARED, true, h->n_embd, n_shared, 1, &shared, 1);
    llm_declare(d, LLM_ROLE_FFN_DOWN_SHARED, true, n_shared, h->n_embd, 1, &shared, 0);
}

static tdm_status deepseek2_declare(llm_model *model, tdm_error *err) {
    llm_declarer d = {model, err, TDM_OK, -1};
    llm_declare_ends(&d, PARTITION_VOCAB);
    for (d.layer = 0; d.layer < model->hparams.n_layer && d.status == TDM_OK; d.layer++) {
        declare_attention(&d, &model->hparams);
        declare_ffn(&d, &model->hparams);
    }
    return d.status;
}

/* ---- Graph ---- */

/* Elements first .. first + n - 1 of each head of x [*, n_head, n_tok]. */
static int32_t head_slice(llm_graph_builder *g, int32_t x, int64_t first, int64_t n, int64_t n_head,
                          int64_t n_tok) {
    const int64_t offset[TDM_MAX_DIMS] = {first, 0, 0, 0}, ne[TDM_MAX_DIMS] = {n, n_head, n_tok, 1};
    return tdm_build_slice(g->b, x, offset, ne);
}

/* Rotates a part of its own, at offset 0; in the cache it follows the latent part. */
static int32_t rotate(llm_graph_builder *g, int32_t x, int32_t pos) {
    tdm_rope_params rope = g->model->hparams.rope;
    rope.rope_offset = 0;
    return tdm_build_rope(g->b, x, pos, -1, &rope);
}

/* [n_lora_kv + n_rot, 1, n_tok]: the row of the cache. */
static int32_t build_row(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos,
                         int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    int32_t row = llm_build_project(g, layer, LLM_ROLE_ATTN_KV_A, -1, x, "kv_a");
    row = tdm_build_reshape(g->b, row, h->head_dim_k, 1, n_tok, 1);
    int32_t latent = head_slice(g, row, 0, h->n_lora_kv, 1, n_tok);
    int32_t rotated = head_slice(g, row, h->n_lora_kv, h->rope.n_rot, 1, n_tok);
    latent = llm_build_norm(g, layer, LLM_ROLE_ATTN_KV_A_NORM, latent);
    return tdm_build_concat(g->b, latent, rotate(g, rotated, pos), 0);
}

/* [n_lora_kv + n_rot, n_head, n_tok]: queries for the rows of the cache. */
static int32_t build_query(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos,
                           int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t *w = g->model->layer[layer];
    int64_t nope = h->head_dim_q - h->rope.n_rot;
    int32_t q;
    if (h->n_lora_q > 0) {
        q = llm_build_project(g, layer, LLM_ROLE_ATTN_Q_A, -1, x, "q_a");
        q = llm_build_norm(g, layer, LLM_ROLE_ATTN_Q_A_NORM, q);
        q = llm_build_project(g, layer, LLM_ROLE_ATTN_Q_B, -1, q, "q");
    } else {
        q = llm_build_project(g, layer, LLM_ROLE_ATTN_Q, -1, x, "q");
    }
    q = tdm_build_reshape(g->b, q, h->head_dim_q, h->n_head, n_tok, 1);
    int32_t plain = head_slice(g, q, 0, nope, h->n_head, n_tok);
    int32_t rotated = head_slice(g, q, nope, h->rope.n_rot, h->n_head, n_tok);
    int32_t absorbed = tdm_build_matmul(g->b, llm_graph_weight(g, w[LLM_ROLE_ATTN_K_B]), plain);
    tdm_build_name(g->b, absorbed, "q_absorbed", layer);
    return tdm_build_concat(g->b, absorbed, rotate(g, rotated, pos), 0);
}

static int32_t build_attention(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos,
                               int64_t n_tok, bool is_needed) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t *w = g->model->layer[layer];
    int32_t state = llm_graph_state(g, layer);
    tdm_build_kv_write(g->b, build_row(g, layer, x, pos, n_tok), -1, g->step, state,
                       g->state_kv[layer]);
    if (!is_needed) return -1;
    int32_t q = build_query(g, layer, x, pos, n_tok);
    tdm_attention_params params = {0};
    params.kv = g->state_kv[layer];
    params.heads_per_kv = h->n_head;
    params.n_head_all = h->n_head;
    params.is_causal = 1;
    params.scale = h->attention_scale;
    int32_t o = tdm_build_attention(g->b, q, g->step, state, -1, &params, NULL);
    o = tdm_build_matmul(g->b, llm_graph_weight(g, w[LLM_ROLE_ATTN_V_B]), o);
    tdm_build_name(g->b, o, "v", layer);
    o = tdm_build_reshape(g->b, o, (int64_t)h->n_head * h->head_dim_o, n_tok, 1, 1);
    return llm_build_project(g, layer, LLM_ROLE_ATTN_OUT, -1, o, "attn_out");
}

static int32_t build_ffn(llm_graph_builder *g, int32_t layer, int32_t x) {
    const llm_hparams *h = &g->model->hparams;
    static const llm_ffn_roles dense = {
        LLM_ROLE_FFN_GATE, LLM_ROLE_FFN_UP, LLM_ROLE_FFN_DOWN, -1, -1, -1};
    static const llm_ffn_roles shared_experts = {
        LLM_ROLE_FFN_GATE_SHARED, LLM_ROLE_FFN_UP_SHARED, LLM_ROLE_FFN_DOWN_SHARED, -1, -1, -1};
    if (layer < h->n_layer_dense) return llm_build_swiglu(g, layer, &dense, x, "ffn_out");
    int32_t bias = llm_graph_weight(g, g->model->layer[layer][LLM_ROLE_FFN_ROUTER_BIAS]);
    int32_t y = llm_build_experts(g, layer, bias, x, "ffn_routed");
    if (h->n_expert_shared == 0) return y;
    return tdm_build_add(g->b, y, llm_build_swiglu(g, layer, &shared_experts, x, "ffn_shared"));
}

static int32_t deepseek2_build(llm_graph_builder *g, const llm_step_shape *shape) {
    static const llm_layer_blocks blocks = {build_attention, build_ffn};
    return llm_build_layers(g, shape, &blocks);
}

const llm_arch llm_arch_deepseek2 = {
    .name = "deepseek2",
    .families = "DeepSeek-V2, V3, R1",
    .read = deepseek2_read,
    .declare = deepseek2_declare,
    .build = deepseek2_build,
};
