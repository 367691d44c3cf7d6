/* SPDX-License-Identifier: MIT
 *
 * latent_wide.c: attention whose keys and values are computed from a latent row and kept for every
 * head (block.h): the form of MLA with one matrix for K and V. Attention over the latent rows
 * themselves: latent.c.
 *
 *   [c, p] = Wkv_a x,  [k, v]_h = Wkv_b norm(c)
 *   [u, t]_h = Wq_b norm(Wq_a x), or Wq x
 *   y = Wo [attention([u, rope(t)]_h, [k_h, rope(p)], v_h)]_h       p is the same for all heads
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_latent_wide(llm_declarer *d) {
    if (d->model->hparams.n_lora_q > 0) {
        llm_declare(d, LLM_ROLE_ATTN_Q_A, true);
        llm_declare_norm(d, LLM_ROLE_ATTN_Q_A_NORM);
        llm_declare(d, LLM_ROLE_ATTN_Q_B, true);
    } else {
        llm_declare(d, LLM_ROLE_ATTN_Q, true);
    }
    llm_declare(d, LLM_ROLE_ATTN_KV_A_WHOLE, true);
    llm_declare_norm(d, LLM_ROLE_ATTN_KV_A_NORM_WHOLE);
    llm_declare(d, LLM_ROLE_ATTN_KV_B, true);
    llm_declare(d, LLM_ROLE_ATTN_OUT, true);
}

/* plain [*, n_head, n_tok], of `nope` elements, before rotated; nope 0: rotated alone. */
static int32_t join(llm_graph_builder *g, int64_t nope, int32_t plain, int32_t rotated) {
    return nope > 0 ? tdm_build_concat(g->b, plain, rotated, 0) : rotated;
}

static void build_cached(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                         int32_t state) {
    const llm_layer_spec *s = &g->model->specs[layer];
    const int32_t n_rot = s->rope.n_rot, nope = s->k_len - n_rot;
    const int32_t n_lora = g->model->hparams.n_lora_kv;
    int32_t row =
        llm_build_project(g, layer, LLM_ROLE_ATTN_KV_A_WHOLE, LLM_ROLE_NONE, in->x, "kv_a");
    row = tdm_build_reshape(g->b, row, n_lora + n_rot, 1, in->n_tok, 1);
    int32_t latent = llm_build_columns(g, row, 0, n_lora);
    int32_t p =
        llm_build_rotated_alone(g, layer, llm_build_columns(g, row, n_lora, n_rot), in->pos);
    const int64_t all_heads[TDM_MAX_DIMS] = {n_rot, s->n_head_kv, in->n_tok, 1};
    p = tdm_build_repeat(g->b, p, all_heads);
    latent = llm_build_norm(g, layer, LLM_ROLE_ATTN_KV_A_NORM_WHOLE, LLM_NORM_RMS, latent);
    int32_t kv = llm_build_project(g, layer, LLM_ROLE_ATTN_KV_B, LLM_ROLE_NONE, latent, "kv");
    kv = tdm_build_reshape(g->b, kv, nope + s->v_len, s->n_head_kv, in->n_tok, 1);
    int32_t plain = nope > 0 ? llm_build_columns(g, kv, 0, nope) : -1;
    int32_t v = llm_build_columns(g, kv, nope, s->v_len);
    tdm_build_kv_write(g->b, join(g, nope, plain, p), v, g->step, state, g->state_kv[layer]);
}

static int32_t build_query(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_layer_spec *s = &g->model->specs[layer];
    const int32_t n_rot = s->rope.n_rot, nope = s->k_len - n_rot;
    const bool has_row = g->model->hparams.n_lora_q > 0;
    int32_t q = in->x;
    if (has_row) {
        q = llm_build_project(g, layer, LLM_ROLE_ATTN_Q_A, LLM_ROLE_NONE, q, "q_a");
        q = llm_build_norm(g, layer, LLM_ROLE_ATTN_Q_A_NORM, LLM_NORM_RMS, q);
    }
    q = llm_build_project(g, layer, has_row ? LLM_ROLE_ATTN_Q_B : LLM_ROLE_ATTN_Q, LLM_ROLE_NONE, q,
                          "q");
    q = tdm_build_reshape(g->b, q, s->k_len, s->n_head, in->n_tok, 1);
    int32_t plain = nope > 0 ? llm_build_columns(g, q, 0, nope) : -1;
    return join(g, nope, plain,
                llm_build_rotated_alone(g, layer, llm_build_columns(g, q, nope, n_rot), in->pos));
}

int32_t llm_build_latent_wide(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_layer_spec *s = &g->model->specs[layer];
    int32_t state = llm_graph_state(g, layer);
    build_cached(g, layer, in, state);
    if (!in->is_needed) return -1;
    const tdm_attention_params params = llm_attention_params(g, layer);
    int32_t q = build_query(g, layer, in);
    int32_t o = tdm_build_attention(g->b, q, g->step, state, -1, &params, NULL);
    o = tdm_build_reshape(g->b, o, (int64_t)s->n_head * s->o_len, in->n_tok, 1, 1);
    return llm_build_project(g, layer, LLM_ROLE_ATTN_OUT, LLM_ROLE_NONE, o, "attn_out");
}
