/* SPDX-License-Identifier: MIT
 *
 * per_layer.c: what each layer reads of a token beside the stream (block.h). Google (Gemma 3n):
 *
 *   r = (norm(P x0 / sqrt(n_embd)) + sqrt(n) E[token]) / sqrt(2)      n elements for each layer
 *   x += norm(Wproj (gelu(Wgate x) * r_layer))                        behind the channel block
 *
 * x0 are the embeddings that the first layer reads. E has a row of all layers for each token;
 * it may be half of the file, and stays there (context_rows.c).
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_per_layer(llm_declarer *d) {
    if (d->model->hparams.n_per_layer == 0) return;
    llm_declare(d, LLM_ROLE_PER_LAYER_GATE, true);
    llm_declare(d, LLM_ROLE_PER_LAYER_PROJ, true);
    llm_declare_norm(d, LLM_ROLE_PER_LAYER_POST_NORM);
}

int32_t llm_build_per_layer_rows(llm_graph_builder *g, int32_t embd, int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    const int64_t n = h->n_per_layer, n_all = n * h->n_layer;
    int32_t p =
        llm_build_project(g, -1, LLM_ROLE_PER_LAYER_MODEL_PROJ, LLM_ROLE_NONE, embd, "per_layer");
    p = tdm_build_scale(g->b, p, 1.0f / sqrtf((float)h->n_embd), 0);
    p = tdm_build_reshape(g->b, p, n, h->n_layer, n_tok, 1);
    p = llm_build_norm(g, -1, LLM_ROLE_PER_LAYER_PROJ_NORM, h->norm, p);
    p = tdm_build_reshape(g->b, p, n_all, n_tok, 1, 1);
    p = tdm_build_add(g->b, p, tdm_build_scale(g->b, g->token_rows, sqrtf((float)n), 0));
    return tdm_build_scale(g->b, p, sqrtf(0.5f), 0);
}

int32_t llm_build_per_layer(llm_graph_builder *g, int32_t layer, int32_t rows, int32_t x) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t n = h->n_per_layer;
    int32_t gate =
        llm_build_project(g, layer, LLM_ROLE_PER_LAYER_GATE, LLM_ROLE_NONE, x, "per_layer_gate");
    int32_t r = llm_build_columns(g, rows, (int64_t)layer * n, n);
    r = tdm_build_glu(g->b, gate, r, g->model->arch->act);
    r = llm_build_project(g, layer, LLM_ROLE_PER_LAYER_PROJ, LLM_ROLE_NONE, r, "per_layer_out");
    return llm_build_norm(g, layer, LLM_ROLE_PER_LAYER_POST_NORM, h->norm, r);
}
