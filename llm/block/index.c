/* SPDX-License-Identifier: MIT
 *
 * index.c: the index of sparse attention (block.h), DeepSeek-V3.2's "lightning indexer": which
 * cached tokens a token attends to. A layer may attend to those that the index of an earlier one
 * has selected. Attention itself: latent.c.
 *
 *   k = rope(norm(Wk x))                       cached: one row for all heads
 *   q_h = rope(Wq_h r),  w = Ww x / sqrt(index_len * n_index_head)     r: the latent row of queries
 *   score = sum_h w_h * max(0, q_h . k)        the n_select highest are attended to
 *
 * The model's own code also multiplies q and k by a Hadamard matrix, which does not change their
 * products. Here only a quantised cache may do that (TDM_KV_ROTATE_K, kv.h).
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_index(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_INDEX_Q, true);
    llm_declare(d, LLM_ROLE_INDEX_K, true);
    llm_declare(d, LLM_ROLE_INDEX_K_NORM, true);
    llm_declare(d, LLM_ROLE_INDEX_K_NORM_BIAS, true);
    llm_declare(d, LLM_ROLE_INDEX_WEIGHT, true);
}

/* Rotates heads [index_len, *, n_tok]. */
static int32_t rotate(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos) {
    const tdm_rope_params rope = llm_index_rope(g->model, layer);
    return llm_build_rotated(g, layer, &rope, x, pos);
}

void llm_build_index_write(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const int32_t *w = g->model->layer[layer];
    int32_t kv, state = llm_graph_index_state(g, layer, &kv);
    int32_t k = llm_build_project(g, layer, LLM_ROLE_INDEX_K, LLM_ROLE_NONE, in->x, "index_k");
    k = tdm_build_layer_norm(g->b, k, llm_graph_weight(g, w[LLM_ROLE_INDEX_K_NORM]),
                             llm_graph_weight(g, w[LLM_ROLE_INDEX_K_NORM_BIAS]),
                             g->model->hparams.index_norm_eps);
    k = tdm_build_reshape(g->b, k, g->model->hparams.index_len, 1, in->n_tok, 1);
    tdm_build_kv_write(g->b, rotate(g, layer, k, in->pos), -1, g->step, state, kv);
}

int32_t llm_build_index_select(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                               int32_t row) {
    const llm_hparams *h = &g->model->hparams;
    int32_t kv, state = llm_graph_index_state(g, layer, &kv);
    int32_t q = llm_build_project(g, layer, LLM_ROLE_INDEX_Q, LLM_ROLE_NONE, row, "index_q");
    q = tdm_build_reshape(g->b, q, h->index_len, h->n_index_head, in->n_tok, 1);
    int32_t w = llm_build_project(g, layer, LLM_ROLE_INDEX_WEIGHT, LLM_ROLE_NONE, in->x, "index_w");
    w = tdm_build_scale(g->b, w, 1 / sqrtf((float)h->index_len * (float)h->n_index_head), 0);
    const tdm_select_params params = {.kv = kv, .n_top = h->n_select};
    int32_t select =
        tdm_build_kv_select(g->b, rotate(g, layer, q, in->pos), w, g->step, state, &params);
    tdm_build_name(g->b, select, "select", layer);
    return select;
}
