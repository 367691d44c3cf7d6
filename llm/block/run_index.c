/* SPDX-License-Identifier: MIT
 *
 * run_index.c: the index of sparse attention that selects runs of tokens (block.h), Qwen's sparse
 * attention (QSA): which runs of cached tokens a token attends to. Attention itself: attention.c.
 *
 *   c_b = rope(norm(mean of Wk x over the tokens of run b))    cached; the position is that of the
 *                                              run's first token
 *   q_h = rope(norm(Wq_h x))
 *   score_b = sum_h max(0, q_h . c_b)          of runs that are complete
 *
 * The tokens of the n_select / index_run highest runs are attended to, and those behind the last
 * complete run. (llama.cpp attends to index_run - 1 tokens more than n_select in every case: where
 * the present run has fewer, the others are the first tokens of the next best run.)
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_run_index(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_INDEX_Q_HEADS, true);
    llm_declare(d, LLM_ROLE_INDEX_Q_NORM, true);
    llm_declare(d, LLM_ROLE_INDEX_K_ROW, true);
    llm_declare(d, LLM_ROLE_INDEX_K_NORM, true);
    /* All tokens of a run count alike, and all heads. */
    float *one = llm_declare_made(d, LLM_ROLE_INDEX_ONE), *each;
    if (one != NULL) one[0] = 1;
    each = llm_declare_made(d, LLM_ROLE_INDEX_EACH);
    for (int32_t i = 0; each != NULL && i < d->model->specs[d->layer].index_run; i++) each[i] = 1;
}

static int32_t rotate(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos,
                      int32_t pos_add) {
    tdm_rope_params rope = llm_index_rope(g->model, layer);
    rope.pos_add = pos_add;
    return llm_build_rotated(g, layer, &rope, x, pos);
}

void llm_build_run_index_write(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const int32_t *w = g->model->layer[layer];
    tdm_pool_params params = {.n_part = 1};
    int32_t kv, state = llm_graph_index_state(g, layer, &kv);
    int32_t slots = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_INDEX_POOL, &params.kv);
    int32_t k = llm_build_project(g, layer, LLM_ROLE_INDEX_K_ROW, LLM_ROLE_NONE, in->x, "index_k");
    k = tdm_build_block_pool(g->b, k, llm_graph_weight(g, w[LLM_ROLE_INDEX_ONE]),
                             llm_graph_weight(g, w[LLM_ROLE_INDEX_EACH]), g->step, slots, &params);
    k = llm_build_norm(g, layer, LLM_ROLE_INDEX_K_NORM, LLM_NORM_RMS, k);
    k = tdm_build_reshape(g->b, k, g->model->hparams.index_len, 1, in->n_tok, 1);
    k = rotate(g, layer, k, in->pos, 1 - g->model->specs[layer].index_run);
    tdm_build_kv_write(g->b, k, -1, g->step, state, kv);
}

int32_t llm_build_run_index_select(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t run = g->model->specs[layer].index_run;
    int32_t kv, state = llm_graph_index_state(g, layer, &kv);
    int32_t q =
        llm_build_project(g, layer, LLM_ROLE_INDEX_Q_HEADS, LLM_ROLE_NONE, in->x, "index_q");
    q = tdm_build_reshape(g->b, q, h->index_len, h->n_index_head, in->n_tok, 1);
    q = llm_build_norm(g, layer, LLM_ROLE_INDEX_Q_NORM, LLM_NORM_RMS, q);
    q = rotate(g, layer, q, in->pos, 0);
    int32_t one = llm_graph_weight(g, g->model->layer[layer][LLM_ROLE_INDEX_ONE]);
    const tdm_select_params params = {
        .kv = kv, .n_top = h->n_select / run * run + run - 1, .is_of_tokens = 1};
    int32_t select = tdm_build_kv_select(g->b, q, one, g->step, state, &params);
    tdm_build_name(g->b, select, "select", layer);
    return select;
}
