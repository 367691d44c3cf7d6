/* SPDX-License-Identifier: MIT
 *
 * cross.c: attention of a decoder over what its encoder gives (block.h; Vaswani et al.,
 * arXiv:1706.03762, section 3.2.3).
 *
 *   k, v = Wk e, Wv e                  of the encoder's result e, once for each encoded token
 *   y = Wo attention(Wq n(x), k, v)    over all encoded tokens, without positions
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_cross(llm_declarer *d) {
    static const llm_role matrices[] = {LLM_ROLE_CROSS_Q, LLM_ROLE_CROSS_K, LLM_ROLE_CROSS_V,
                                        LLM_ROLE_CROSS_OUT};
    llm_declare_norm(d, LLM_ROLE_CROSS_NORM);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        llm_declare(d, matrices[i], true);
}

void llm_build_cross_write(llm_graph_builder *g, int32_t layer, int32_t x, int64_t n_tok) {
    const llm_layer_spec *s = &g->model->specs[layer];
    int32_t kv, state = llm_graph_cross_state(g, layer, &kv);
    int32_t k = llm_build_project(g, layer, LLM_ROLE_CROSS_K, LLM_ROLE_NONE, x, "cross_k");
    int32_t v = llm_build_project(g, layer, LLM_ROLE_CROSS_V, LLM_ROLE_NONE, x, "cross_v");
    k = tdm_build_reshape(g->b, k, s->k_len, s->n_head_kv, n_tok, 1);
    v = tdm_build_reshape(g->b, v, s->v_len, s->n_head_kv, n_tok, 1);
    tdm_build_kv_write(g->b, k, v, g->step, state, kv);
}

int32_t llm_build_cross(llm_graph_builder *g, int32_t layer, int32_t x, int64_t n_tok) {
    const llm_layer_spec *s = &g->model->specs[layer];
    int32_t kv, state = llm_graph_cross_state(g, layer, &kv);
    tdm_attention_params params = llm_attention_params(g, layer);
    params.kv = kv;
    params.is_causal = 0;
    x = llm_build_norm(g, layer, LLM_ROLE_CROSS_NORM, g->model->hparams.norm, x);
    int32_t q = llm_build_project(g, layer, LLM_ROLE_CROSS_Q, LLM_ROLE_NONE, x, "cross_q");
    q = tdm_build_reshape(g->b, q, s->q_len, s->n_head, n_tok, 1);
    const tdm_attention_sources sources = {.sink = -1, .select = -1, .bias = -1};
    int32_t o = tdm_build_attention_of(g->b, q, g->step, state, &sources, &params, NULL);
    o = tdm_build_reshape(g->b, o, (int64_t)s->n_head * s->o_len, n_tok, 1, 1);
    return llm_build_project(g, layer, LLM_ROLE_CROSS_OUT, LLM_ROLE_NONE, o, "cross_out");
}
