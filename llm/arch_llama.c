/* SPDX-License-Identifier: MIT
 *
 * arch_llama.c: Llama 1-3, Mistral and Mixtral: RMS norm, rotary attention with shared KV heads,
 * SwiGLU, dense or as a mixture of experts. All of them are "llama" in GGUF.
 *
 *   h = x + Wo attention(rope(Wq n1(x)), rope(Wk n1(x)), Wv n1(x))
 *   y = h + Wdown (silu(Wgate n2(h)) * Wup n2(h))        or the experts' weighted sum of it
 *
 * Touvron et al. (arXiv:2302.13971), Jiang et al. (arXiv:2310.06825, arXiv:2401.04088).
 */
#include <string.h>

#include "llm/arch.h"

/* Stable partition ids: two a layer, and one for the vocabulary. */
enum { PARTITION_VOCAB = 1, PARTITION_ATTENTION = 2, PARTITION_FFN = 3, PARTITION_STRIDE = 2 };

static tdm_partition partition_make(int32_t id, int32_t layer, int32_t n_unit, int32_t unit_len) {
    tdm_partition p = {0};
    p.id = id;
    p.layer = layer;
    p.n_unit = n_unit;
    p.n_segment = 1;
    p.unit_len[0] = unit_len;
    return p;
}

/* Collects the first failure of a run of declarations. */
typedef struct declarer {
    llm_model *model;
    tdm_error *err;
    tdm_status status;
    int32_t layer;
} declarer;

static void need(declarer *d, llm_role role, bool is_required, int64_t ne0, int64_t ne1,
                 int64_t ne2, const tdm_partition *partition, int32_t axis) {
    const int64_t ne[TDM_MAX_DIMS] = {ne0, ne1, ne2, 1};
    if (d->status == TDM_OK)
        d->status =
            llm_model_need(d->model, role, d->layer, is_required, ne, partition, axis, d->err);
}

static void declare_attention(declarer *d, const llm_hparams *h) {
    int32_t id = PARTITION_ATTENTION + PARTITION_STRIDE * d->layer;
    int32_t heads_per_kv = h->n_head / h->n_head_kv;
    tdm_partition q = partition_make(id, d->layer, h->n_head_kv, heads_per_kv * h->head_dim_k);
    tdm_partition k = partition_make(id, d->layer, h->n_head_kv, h->head_dim_k);
    tdm_partition v = partition_make(id, d->layer, h->n_head_kv, h->head_dim_v);
    tdm_partition o = partition_make(id, d->layer, h->n_head_kv, heads_per_kv * h->head_dim_v);
    int64_t n_q = (int64_t)h->n_head * h->head_dim_k, n_k = (int64_t)h->n_head_kv * h->head_dim_k;
    int64_t n_v = (int64_t)h->n_head_kv * h->head_dim_v, n_o = (int64_t)h->n_head * h->head_dim_v;
    need(d, LLM_ROLE_ATTN_NORM, true, h->n_embd, 1, 1, NULL, 0);
    need(d, LLM_ROLE_ATTN_Q, true, h->n_embd, n_q, 1, &q, 1);
    need(d, LLM_ROLE_ATTN_K, true, h->n_embd, n_k, 1, &k, 1);
    need(d, LLM_ROLE_ATTN_V, true, h->n_embd, n_v, 1, &v, 1);
    need(d, LLM_ROLE_ATTN_Q_BIAS, false, n_q, 1, 1, &q, 0);
    need(d, LLM_ROLE_ATTN_K_BIAS, false, n_k, 1, 1, &k, 0);
    need(d, LLM_ROLE_ATTN_V_BIAS, false, n_v, 1, 1, &v, 0);
    need(d, LLM_ROLE_ATTN_OUT, true, n_o, h->n_embd, 1, &o, 0);
    need(d, LLM_ROLE_ATTN_OUT_BIAS, false, h->n_embd, 1, 1, NULL, 0);
}

static void declare_ffn(declarer *d, const llm_hparams *h) {
    tdm_partition p =
        partition_make(PARTITION_FFN + PARTITION_STRIDE * d->layer, d->layer, h->n_ff, 1);
    need(d, LLM_ROLE_FFN_NORM, true, h->n_embd, 1, 1, NULL, 0);
    if (h->n_expert == 0) {
        need(d, LLM_ROLE_FFN_GATE, true, h->n_embd, h->n_ff, 1, &p, 1);
        need(d, LLM_ROLE_FFN_UP, true, h->n_embd, h->n_ff, 1, &p, 1);
        need(d, LLM_ROLE_FFN_DOWN, true, h->n_ff, h->n_embd, 1, &p, 0);
        return;
    }
    need(d, LLM_ROLE_FFN_ROUTER, true, h->n_embd, h->n_expert, 1, NULL, 0);
    need(d, LLM_ROLE_FFN_GATE_EXPS, true, h->n_embd, h->n_ff, h->n_expert, &p, 1);
    need(d, LLM_ROLE_FFN_UP_EXPS, true, h->n_embd, h->n_ff, h->n_expert, &p, 1);
    need(d, LLM_ROLE_FFN_DOWN_EXPS, true, h->n_ff, h->n_embd, h->n_expert, &p, 0);
}

static tdm_status llama_declare(llm_model *model, tdm_error *err) {
    const llm_hparams *h = &model->hparams;
    declarer d = {model, err, TDM_OK, -1};
    tdm_partition vocab = partition_make(PARTITION_VOCAB, -1, h->n_vocab, 1);
    need(&d, LLM_ROLE_TOKEN_EMBD, true, h->n_embd, h->n_vocab, 1, &vocab, 1);
    need(&d, LLM_ROLE_OUTPUT_NORM, true, h->n_embd, 1, 1, NULL, 0);
    need(&d, LLM_ROLE_OUTPUT, false, h->n_embd, h->n_vocab, 1, &vocab, 1);
    need(&d, LLM_ROLE_ROPE_FREQS, false, h->rope.n_rot / 2, 1, 1, NULL, 0);
    for (d.layer = 0; d.layer < h->n_layer && d.status == TDM_OK; d.layer++) {
        declare_attention(&d, h);
        declare_ffn(&d, h);
    }
    /* A tied head multiplies by the table that tokens are looked up in. */
    if (d.status == TDM_OK && model->global[LLM_ROLE_OUTPUT] < 0)
        model->weights[model->global[LLM_ROLE_TOKEN_EMBD]].usage |= TDM_USAGE_MATMUL;
    return d.status;
}

/* W x, plus the bias where the model has one. */
static int32_t project(llm_graph_builder *g, const int32_t *weights, llm_role role, int bias_role,
                       int32_t x, const char *name, int32_t layer) {
    int32_t y = tdm_build_matmul(g->b, llm_graph_weight(g, weights[role]), x);
    if (bias_role >= 0 && weights[bias_role] >= 0)
        y = tdm_build_add(g->b, y, llm_graph_weight(g, weights[bias_role]));
    tdm_build_name(g->b, y, name, layer);
    return y;
}

/* Attention over the cache; returns -1 where only the cache is to be filled. */
static int32_t build_attention(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos,
                               int64_t n_tok, bool is_needed) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t *w = g->model->layer[layer];
    tdm_builder *b = g->b;
    int32_t factor = llm_graph_weight(g, g->model->global[LLM_ROLE_ROPE_FREQS]);
    int32_t state = llm_graph_state(g, layer);
    int32_t k = project(g, w, LLM_ROLE_ATTN_K, LLM_ROLE_ATTN_K_BIAS, x, "k", layer);
    int32_t v = project(g, w, LLM_ROLE_ATTN_V, LLM_ROLE_ATTN_V_BIAS, x, "v", layer);
    k = tdm_build_reshape(b, k, h->head_dim_k, h->n_head_kv, n_tok, 1);
    v = tdm_build_reshape(b, v, h->head_dim_v, h->n_head_kv, n_tok, 1);
    k = tdm_build_rope(b, k, pos, factor, &h->rope);
    tdm_build_kv_write(b, k, v, g->step, state, g->state_kv[layer]);
    if (!is_needed) return -1;
    int32_t q = project(g, w, LLM_ROLE_ATTN_Q, LLM_ROLE_ATTN_Q_BIAS, x, "q", layer);
    q = tdm_build_reshape(b, q, h->head_dim_k, h->n_head, n_tok, 1);
    q = tdm_build_rope(b, q, pos, factor, &h->rope);
    tdm_attention_params params = {0};
    params.kv = g->state_kv[layer];
    params.heads_per_kv = h->n_head / h->n_head_kv;
    params.n_head_all = h->n_head;
    params.is_causal = 1;
    params.scale = h->attention_scale;
    int32_t o = tdm_build_attention(b, q, g->step, state, -1, &params, NULL);
    o = tdm_build_reshape(b, o, (int64_t)h->n_head * h->head_dim_v, n_tok, 1, 1);
    return project(g, w, LLM_ROLE_ATTN_OUT, LLM_ROLE_ATTN_OUT_BIAS, o, "attn_out", layer);
}

static int32_t build_ffn(llm_graph_builder *g, int32_t layer, int32_t x) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t *w = g->model->layer[layer];
    tdm_builder *b = g->b;
    if (h->n_expert == 0) {
        int32_t gate = project(g, w, LLM_ROLE_FFN_GATE, -1, x, "ffn_gate", layer);
        int32_t up = project(g, w, LLM_ROLE_FFN_UP, -1, x, "ffn_up", layer);
        int32_t both = tdm_build_glu(b, gate, up, TDM_ACT_SILU);
        return project(g, w, LLM_ROLE_FFN_DOWN, -1, both, "ffn_out", layer);
    }
    int32_t logit = project(g, w, LLM_ROLE_FFN_ROUTER, -1, x, "router", layer);
    tdm_route_params route = {0};
    route.n_used = h->n_expert_used;
    route.score = TDM_ROUTE_SOFTMAX;
    route.normalize = 1;
    int32_t weight = -1;
    int32_t id = tdm_build_moe_route(b, logit, -1, &route, &weight);
    int32_t y = tdm_build_moe_ffn(b, x, id, weight, llm_graph_weight(g, w[LLM_ROLE_FFN_GATE_EXPS]),
                                  llm_graph_weight(g, w[LLM_ROLE_FFN_UP_EXPS]),
                                  llm_graph_weight(g, w[LLM_ROLE_FFN_DOWN_EXPS]), TDM_ACT_SILU, 0,
                                  h->n_expert);
    tdm_build_name(b, y, "ffn_out", layer);
    return y;
}

static int32_t llama_build(llm_graph_builder *g, const llm_step_shape *shape) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t *global = g->model->global;
    tdm_builder *b = g->b;
    int32_t pos = tdm_build_step_field(b, TDM_STEP_POS);
    int32_t embd = llm_graph_weight(g, global[LLM_ROLE_TOKEN_EMBD]);
    int32_t x = tdm_build_get_rows(b, embd, tdm_build_step_field(b, TDM_STEP_TOKEN), 0);
    tdm_build_name(b, x, "embd", -1);
    for (int32_t layer = 0; layer < h->n_layer; layer++) {
        const int32_t *w = g->model->layer[layer];
        bool is_last = layer == h->n_layer - 1;
        int32_t n =
            tdm_build_rms_norm(b, x, llm_graph_weight(g, w[LLM_ROLE_ATTN_NORM]), h->norm_eps);
        int32_t o = build_attention(g, layer, n, pos, shape->n_tok, !is_last || shape->n_out > 0);
        if (o < 0) return -1;
        x = tdm_build_add(b, x, o);
        /* Behind the last attention only the rows that give logits matter. */
        if (is_last && shape->n_out < shape->n_tok)
            x = tdm_build_get_rows(b, x, tdm_build_step_field(b, TDM_STEP_OUT_ROW), 0);
        n = tdm_build_rms_norm(b, x, llm_graph_weight(g, w[LLM_ROLE_FFN_NORM]), h->norm_eps);
        x = tdm_build_add(b, x, build_ffn(g, layer, n));
        tdm_build_name(b, x, "out", layer);
    }
    x = tdm_build_rms_norm(b, x, llm_graph_weight(g, global[LLM_ROLE_OUTPUT_NORM]), h->norm_eps);
    int32_t head =
        global[LLM_ROLE_OUTPUT] >= 0 ? global[LLM_ROLE_OUTPUT] : global[LLM_ROLE_TOKEN_EMBD];
    int32_t logits = tdm_build_matmul(b, llm_graph_weight(g, head), x);
    tdm_build_output(b, logits, "logits");
    return logits;
}

const llm_arch llm_arch_llama = {
    .name = "llama",
    .declare = llama_declare,
    .build = llama_build,
};
