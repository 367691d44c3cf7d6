/* SPDX-License-Identifier: MIT
 *
 * draft.c: what a layer that drafts tokens has besides those of the model (DeepSeek-AI,
 * arXiv:2412.19437, section 2.2). The model gives the hidden state h of a token, and the next token
 * has the embedding e. The layer begins with
 *
 *   x = P [n1(e), n2(h)]
 *
 * and what follows it predicts the token behind that one: the layer itself, a norm, and an output
 * head. Its own hidden state then stands for that of the model, so that it drafts further tokens.
 * Norm, embedding and head are those of the model where the layer has none of its own.
 *
 * With several residual streams (hyper.c) h has them all, n2 is a norm of each, and every stream
 * begins with its own h and the same e.
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_draft(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_NEXTN_PROJ, true);
    llm_declare_norm(d, LLM_ROLE_NEXTN_EMBD_NORM);
    if (d->model->arch->stream == LLM_STREAM_HYPER)
        llm_declare_shaped(d, LLM_ROLE_NEXTN_STREAMS_NORM);
    else
        llm_declare_norm(d, LLM_ROLE_NEXTN_HIDDEN_NORM);
    llm_declare(d, LLM_ROLE_NEXTN_EMBD, false);
    llm_declare(d, LLM_ROLE_NEXTN_HEAD, false);
    llm_declare(d, LLM_ROLE_NEXTN_HEAD_NORM, false);
    llm_declare(d, LLM_ROLE_NEXTN_HEAD_NORM_BIAS, false);
    /* Ling has the norm of the head under another name. */
    if (d->model->specs[d->layer].norm_channel_post != LLM_ROLE_LAYER_OUT_NORM)
        llm_declare(d, LLM_ROLE_LAYER_OUT_NORM, false);
}

/* The streams at the beginning, [n_embd, n_stream, n_tok], from g->hidden_in and the normed
 * embeddings e [n_embd, n_tok]. */
static int32_t build_streams(llm_graph_builder *g, int32_t layer, int32_t e, int64_t n_tok) {
    const llm_model *m = g->model;
    const int64_t n_embd = m->hparams.n_embd, n = m->hparams.n_stream;
    const int64_t ne[TDM_MAX_DIMS] = {n_embd, n, n_tok, 1};
    int32_t h = tdm_build_reshape(g->b, g->hidden_in, n_embd, n, n_tok, 1);
    h = tdm_build_rms_norm(g->b, h, -1, m->hparams.norm_eps);
    h = tdm_build_mul(g->b, h, llm_graph_weight(g, m->layer[layer][LLM_ROLE_NEXTN_STREAMS_NORM]));
    e = tdm_build_repeat(g->b, tdm_build_reshape(g->b, e, n_embd, 1, n_tok, 1), ne);
    /* The product has a column for each stream, not for each token, so it has no roles of
     * tokens. */
    h = tdm_build_reshape(g->b, tdm_build_concat(g->b, e, h, 0), 2 * n_embd, n * n_tok, 1, 1);
    h = llm_build_project(g, layer, LLM_ROLE_NEXTN_PROJ, LLM_ROLE_NONE, h, "draft_in");
    return tdm_build_reshape(g->b, h, n_embd, n, n_tok, 1);
}

int32_t llm_build_draft_input(llm_graph_builder *g, const llm_step_shape *shape) {
    const llm_model *m = g->model;
    const int32_t layer = m->hparams.layer_first;
    const int64_t ne[TDM_MAX_DIMS] = {llm_model_hidden_len(m), shape->n_tok, 1, 1};
    int32_t table = m->layer[layer][LLM_ROLE_NEXTN_EMBD];
    if (table < 0) table = m->global[LLM_ROLE_TOKEN_EMBD];
    g->hidden_in = tdm_build_input(g->b, "hidden", TDM_TYPE_F32, ne);
    int32_t e = tdm_build_get_rows(g->b, llm_graph_weight(g, table),
                                   tdm_build_step_field(g->b, TDM_STEP_TOKEN), 0);
    e = llm_build_norm(g, layer, LLM_ROLE_NEXTN_EMBD_NORM, m->hparams.norm, e);
    if (m->arch->stream == LLM_STREAM_HYPER) return build_streams(g, layer, e, shape->n_tok);
    int32_t h = llm_build_norm(g, layer, LLM_ROLE_NEXTN_HIDDEN_NORM, m->hparams.norm, g->hidden_in);
    tdm_build_set_role(g->b, tdm_build_step_field(g->b, TDM_STEP_ROLE));
    return llm_build_project(g, layer, LLM_ROLE_NEXTN_PROJ, LLM_ROLE_NONE,
                             tdm_build_concat(g->b, e, h, 0), "draft_in");
}

llm_role llm_draft_norm(const llm_model *m) {
    const int32_t layer = m->hparams.layer_first;
    if (m->layer[layer][LLM_ROLE_NEXTN_HEAD_NORM] >= 0) return LLM_ROLE_NEXTN_HEAD_NORM;
    return m->layer[layer][LLM_ROLE_LAYER_OUT_NORM] >= 0 &&
                   m->specs[layer].norm_channel_post != LLM_ROLE_LAYER_OUT_NORM
               ? LLM_ROLE_LAYER_OUT_NORM
               : LLM_ROLE_NONE;
}
