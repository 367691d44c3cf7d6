/* SPDX-License-Identifier: MIT
 *
 * block_index.c: the index of sparse attention that selects blocks of tokens (block.h), MiniMax
 * M3's: for each KV head the blocks of cached tokens that its queries attend to. Attention itself:
 * attention.c.
 *
 *   k = rope(norm(Wk x))                       cached: one row for all heads
 *   q_h = rope(norm(Wq_h x))                   a head of the index for each KV head
 *   score_h of a block = max q_h . k           over its tokens
 *
 * The n_select / select_block highest blocks of a KV head are attended to; the n_select_local last
 * ones are always among them.
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_block_index(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_INDEX_Q_HEADS, true);
    llm_declare(d, LLM_ROLE_INDEX_Q_NORM, true);
    llm_declare(d, LLM_ROLE_INDEX_K_ROW, true);
    llm_declare(d, LLM_ROLE_INDEX_K_NORM, true);
}

/* n heads of the index from the stream, normed and rotated: [index_len, n, n_tok]. */
static int32_t build_heads(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                           llm_role role, llm_role norm, int32_t n, const char *name) {
    const tdm_rope_params rope = llm_index_rope(g->model, layer);
    int32_t x = llm_build_project(g, layer, role, LLM_ROLE_NONE, in->x, name);
    x = tdm_build_reshape(g->b, x, g->model->hparams.index_len, n, in->n_tok, 1);
    x = llm_build_norm(g, layer, norm, LLM_NORM_RMS, x);
    return llm_build_rotated(g, layer, &rope, x, in->pos);
}

void llm_build_block_index_write(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    int32_t kv, state = llm_graph_index_state(g, layer, &kv);
    int32_t k =
        build_heads(g, layer, in, LLM_ROLE_INDEX_K_ROW, LLM_ROLE_INDEX_K_NORM, 1, "index_k");
    tdm_build_kv_write(g->b, k, -1, g->step, state, kv);
}

int32_t llm_build_block_index_select(llm_graph_builder *g, int32_t layer,
                                     const llm_mixer_input *in) {
    const llm_hparams *h = &g->model->hparams;
    int32_t kv, state = llm_graph_index_state(g, layer, &kv);
    int32_t q = build_heads(g, layer, in, LLM_ROLE_INDEX_Q_HEADS, LLM_ROLE_INDEX_Q_NORM,
                            h->n_index_head, "index_q");
    const tdm_select_params params = {
        .kv = kv, .n_top = h->n_select, .block_len = h->select_block, .n_local = h->n_select_local};
    int32_t select = tdm_build_kv_select(g->b, q, -1, g->step, state, &params);
    tdm_build_name(g->b, select, "select", layer);
    return select;
}
