/* SPDX-License-Identifier: MIT
 *
 * latent.c: attention over one latent row per token, MLA (block.h).
 *
 *   [c, p] = Wkv_a x                      cached: [norm(c), rope(p)], one row for all heads
 *   [u, t]_h = Wq_b norm(Wq_a x), or Wq x
 *   score_h = [Wk_b,h u_h, rope(t_h)] . [norm(c), rope(p)]
 *   y = Wo [Wv_b,h (sum softmax(score_h) norm(c))]_h
 *
 * The matrix for a head's keys is applied to its query, and the matrix for its values to the result
 * of attention. So attention reads the latent row itself, once for all heads. DeepSeek-AI
 * (arXiv:2405.04434 section 2.1).
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_latent(llm_declarer *d) {
    if (d->model->hparams.n_lora_q > 0) {
        llm_declare(d, LLM_ROLE_ATTN_Q_A, true);
        llm_declare(d, LLM_ROLE_ATTN_Q_A_NORM, true);
        llm_declare(d, LLM_ROLE_ATTN_Q_B, true);
    } else {
        llm_declare(d, LLM_ROLE_ATTN_Q, true);
    }
    llm_declare(d, LLM_ROLE_ATTN_KV_A, true);
    llm_declare(d, LLM_ROLE_ATTN_KV_A_NORM, true);
    llm_declare(d, LLM_ROLE_ATTN_K_B, true);
    llm_declare(d, LLM_ROLE_ATTN_V_B, true);
    if (d->model->arch->has_rope_norm_k) llm_declare_norm(d, LLM_ROLE_ATTN_K_ROPE_NORM);
    if (d->model->arch->gate == LLM_GATE_HEAD) llm_declare(d, LLM_ROLE_ATTN_GATE_HEAD, true);
    if (d->model->arch->gate == LLM_GATE_ELEMENT) llm_declare(d, LLM_ROLE_ATTN_GATE, true);
    llm_declare(d, LLM_ROLE_ATTN_SINKS, false);
    llm_declare(d, LLM_ROLE_ATTN_OUT, true);
    if (d->model->specs[d->layer].index == LLM_INDEX_OWN) llm_declare_index(d);
}

int32_t llm_build_rotated_alone(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos) {
    tdm_rope_params rope = g->model->specs[layer].rope;
    rope.rope_offset = 0;
    return llm_build_rotated(g, layer, &rope, x, pos);
}

/* [n_lora_kv + n_rot, 1, n_tok]: the row of the cache. */
static int32_t build_row(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_hparams *h = &g->model->hparams;
    int32_t row = llm_build_project(g, layer, LLM_ROLE_ATTN_KV_A, LLM_ROLE_NONE, in->x, "kv_a");
    row = tdm_build_reshape(g->b, row, h->head_dim_k, 1, in->n_tok, 1);
    int32_t latent = llm_build_columns(g, row, 0, h->n_lora_kv);
    int32_t rotated = llm_build_columns(g, row, h->n_lora_kv, h->rope.n_rot);
    latent = llm_build_norm(g, layer, LLM_ROLE_ATTN_KV_A_NORM, LLM_NORM_RMS, latent);
    if (g->model->arch->has_rope_norm_k)
        rotated = llm_build_norm(g, layer, LLM_ROLE_ATTN_K_ROPE_NORM, LLM_NORM_RMS, rotated);
    return tdm_build_concat(g->b, latent, llm_build_rotated_alone(g, layer, rotated, in->pos), 0);
}

/* The latent row of queries [n_lora_q, n_tok]; -1 where the model has none. */
static int32_t build_query_row(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    if (g->model->hparams.n_lora_q == 0) return -1;
    int32_t q = llm_build_project(g, layer, LLM_ROLE_ATTN_Q_A, LLM_ROLE_NONE, in->x, "q_a");
    return llm_build_norm(g, layer, LLM_ROLE_ATTN_Q_A_NORM, LLM_NORM_RMS, q);
}

/* [n_lora_kv + n_rot, n_head, n_tok]: queries for the rows of the cache. */
static int32_t build_query(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                           int32_t row) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t *w = g->model->layer[layer];
    int64_t nope = h->head_dim_q - h->rope.n_rot;
    int32_t q = row >= 0 ? llm_build_project(g, layer, LLM_ROLE_ATTN_Q_B, LLM_ROLE_NONE, row, "q")
                         : llm_build_project(g, layer, LLM_ROLE_ATTN_Q, LLM_ROLE_NONE, in->x, "q");
    q = tdm_build_reshape(g->b, q, h->head_dim_q, h->n_head, in->n_tok, 1);
    int32_t plain = llm_build_columns(g, q, 0, nope);
    int32_t rotated = llm_build_columns(g, q, nope, h->rope.n_rot);
    int32_t absorbed = llm_build_product(g, w[LLM_ROLE_ATTN_K_B], plain);
    tdm_build_name(g->b, absorbed, "q_absorbed", layer);
    return tdm_build_concat(g->b, absorbed, llm_build_rotated_alone(g, layer, rotated, in->pos), 0);
}

int32_t llm_build_latent(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const int32_t *w = g->model->layer[layer];
    int32_t state = llm_graph_state(g, layer);
    tdm_build_kv_write(g->b, build_row(g, layer, in), -1, g->step, state, g->state_kv[layer]);
    const llm_index_kind index =
        (g->cache->desc.flags & TDM_KV_SPARSE) != 0 ? g->model->specs[layer].index : LLM_INDEX_NONE;
    if (index == LLM_INDEX_OWN) llm_build_index_write(g, layer, in);
    if (!in->is_needed) return -1;
    const tdm_attention_params params = llm_attention_params(g, layer);
    int32_t sink = llm_graph_weight(g, w[LLM_ROLE_ATTN_SINKS]);
    int32_t row = build_query_row(g, layer, in);
    if (index == LLM_INDEX_OWN) g->select = llm_build_index_select(g, layer, in, row);
    const int32_t select = index != LLM_INDEX_NONE ? g->select : -1;
    int32_t q = build_query(g, layer, in, row);
    int32_t o = tdm_build_attention_sparse(g->b, q, g->step, state, sink, select, &params, NULL);
    o = llm_build_product(g, w[LLM_ROLE_ATTN_V_B], o);
    tdm_build_name(g->b, o, "v", layer);
    o = llm_build_gate(g, layer, in, -1, o);
    return llm_build_project(g, layer, LLM_ROLE_ATTN_OUT, LLM_ROLE_NONE, o, "attn_out");
}
